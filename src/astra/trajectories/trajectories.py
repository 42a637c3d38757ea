"""Stage ``trajectories``: tasks executed on real servers and emulators (ASTRA section 3.3)."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from astra.agent.loop import Transcript
from astra.agent.protocols import Env, Policy
from astra.agent.server_environments import ServerError
from astra.llm.notes import PromptNotes
from astra.llm.policy import EndpointPolicy
from astra.llm.pool import flow, sharded_flow
from astra.llm.protocol import ModelConfig, ParseError, ProviderError, Teacher
from astra.records.base import content_id
from astra.records.message import without_thoughts
from astra.records.score import Rejection
from astra.records.task import Task
from astra.records.tool import Execution, Tool, ToolServer
from astra.records.trajectory import StopReason, Trajectory
from astra.settings import ParamsError
from astra.store.journal import Journal
from astra.store.metrics import StageMetrics
from astra.trajectories.agenda import Agenda
from astra.trajectories.config import TrajectoriesConfig
from astra.trajectories.conversation import (
    Conversation,
    Script,
    Scripts,
    Servers,
    UserStop,
    converse,
)
from astra.trajectories.emulated import EmulatedEnv, Setting
from astra.trajectories.failures import FailureInjector
from astra.trajectories.follow_up import ASKED_BY_OTHERS, follow_up_ask
from astra.trajectories.journaled import JournaledEnv
from astra.trajectories.live import McpEnv, ServerPool
from astra.trajectories.opening import opening_messages, spoken
from astra.trajectories.stated import Thing, stated_things
from astra.trajectories.user import Goal, SimulatedUser

log = logging.getLogger("astra")
PolicyFor = Callable[[Script, int], Policy]
"""The policy of one episode, by script and sample."""
Outcome = Trajectory | Rejection
REJECTED_STOPS = frozenset({StopReason.INFRA, StopReason.TIMEOUT})
VARYING = frozenset({ServerError.__name__, TimeoutError.__name__})
"""Errors whose text may differ between machines and runs; rejections hold their class only."""


@dataclass(frozen=True)
class Cast:
    """Who takes part in the episodes, besides real servers."""

    agent: PolicyFor
    emulator: Teacher
    user: Teacher


def agent(
    config: ModelConfig,
    policy: Callable[[ModelConfig], EndpointPolicy],
    offline: Callable[[Sequence[Task]], Policy],
) -> PolicyFor:
    """The agent of the configuration: an endpoint made by ``policy``, or by rules for ``offline``.

    ``offline`` makes the policy of one episode from the tasks of its script.
    """
    if config.backend != "openai":
        return lambda script, sample: offline(script.tasks)
    endpoint = policy(config)
    return lambda script, sample: endpoint.for_sample(sample)


def refuse_rule_emulator(config: TrajectoriesConfig, agenda: Agenda) -> None:
    """Raise ParamsError if a model is to act on services that rules make up."""
    mixed = config.agent.backend == "openai" and config.emulator.backend == "offline"
    if mixed and not config.allow_rule_emulator and next(agenda.others(), None) is not None:
        raise ParamsError(
            "trajectories.agent is a model, trajectories.emulator are rules, whose results for "
            "document-only servers mean nothing: take a model for both (-S emulator=openai "
            "-S emulator.model=NAME), or ask for it with -S trajectories.allow_rule_emulator=true"
        )


async def trajectories(
    agenda: Agenda, player: EpisodePlayer, open_items: int, metrics: StageMetrics
) -> AsyncGenerator[Outcome, None]:
    """What came of every task's episodes, as it comes. Counts ``episodes``.

    A task that is asked for within another one's conversation has none of its own.
    Live episodes run beside the others, as many at once as there may be server processes: one
    more would wait for a process while its time goes by. The processes end with the flow.
    """

    async def work(episode: tuple[Task, int]) -> list[Outcome]:
        outcome = await player.outcome(*episode)
        metrics.count("episodes")
        return [outcome]

    def episodes(tasks: Iterable[Task]) -> Iterator[tuple[Task, int]]:
        own = (task for task in tasks if not player.scripts.asked_later(task))
        return ((task, sample) for task in own for sample in range(player.config.samples))

    live = flow(episodes(agenda.live()), work, player.processes.limit)
    others = sharded_flow(episodes(agenda.others()), work, open_items)
    async with player.processes, aclosing(_merged(live, others)) as outcomes:
        async for outcome in outcomes:
            yield outcome


async def _merged(*streams: AsyncGenerator[Outcome, None]) -> AsyncGenerator[Outcome, None]:
    """The outcomes of all streams, whichever is ready first. An exception ends all of them."""
    upcoming = {asyncio.ensure_future(anext(stream)): stream for stream in streams}
    try:
        while upcoming:
            done, _ = await asyncio.wait(upcoming, return_when=asyncio.FIRST_COMPLETED)
            for ready in done:
                stream = upcoming.pop(ready)
                try:
                    outcome = ready.result()
                except StopAsyncIteration:
                    continue
                upcoming[asyncio.ensure_future(anext(stream))] = stream
                yield outcome
    finally:
        for ready in upcoming:
            ready.cancel()
        await asyncio.gather(*upcoming, return_exceptions=True)
        for stream in streams:
            await stream.aclose()


@dataclass(frozen=True)
class Scene:
    """One episode before it is played."""

    script: Script
    sample: int
    key: str
    """What its draws depend on."""
    server: ToolServer
    tools: tuple[Tool, ...]
    """The tools that the agent sees."""
    wished: tuple[str, ...] = ()
    """The names and ids in what the user's model wished for."""
    notes: PromptNotes = field(default_factory=PromptNotes)


@dataclass(frozen=True)
class EpisodePlayer:
    """Plays the episodes of the stage, and holds what they share."""

    config: TrajectoriesConfig
    servers: Servers
    scripts: Scripts
    cast: Cast
    processes: ServerPool
    journal: Journal
    logged: set[str] = field(default_factory=set[str])
    """The live servers of which a fault was logged already."""

    async def outcome(self, task: Task, sample: int) -> Outcome:
        """One episode: its trajectory, or the rejection that says why there is none."""

        def rejected(reason: str, detail: str) -> Rejection:
            part = f"sample {sample}"
            return Rejection(item=task.id, part=part, reason=reason, detail=detail[:500])

        server = self.servers(task.server_id)
        if server is None:
            return rejected("unknown_server", task.server_id)
        if self.config.deterministic_only and not server.deterministic:
            return rejected("not_deterministic", server.name)
        if server.execution == Execution.LIVE and server.launch is None:
            return rejected("no_launch", server.name)
        script = self.scripts.of(task)
        key = content_id(["episode", self.config.seed, task.id, sample])
        tools = shown_tools(server, script.tasks, self.config.max_tools, key)
        if tools is None:
            return rejected("plan_tool_unknown", server.name)
        scene = Scene(script, sample, key, server, tools)
        try:
            scene = await self._wished(scene)
        except ProviderError as error:
            return rejected(f"user_{UserStop.UNAVAILABLE}", str(error))
        except ParseError as error:
            return rejected(f"user_{UserStop.UNPARSABLE}", str(error))
        policy = self.cast.agent(script, sample)
        ended = await self._converse(scene, policy)
        if ended.transcript.stop_reason in REJECTED_STOPS:
            return rejected(_fault(ended.transcript), self._lasting(server, ended.transcript))
        if ended.user_stop not in (None, UserStop.SATISFIED):
            return rejected(f"user_{ended.user_stop}", ended.detail)
        transcript = ended.transcript
        if self.config.reasoning == "drop":
            kept = without_thoughts(transcript.messages)
            transcript = replace(transcript, messages=kept)
        trajectory = _trajectory(scene, policy, transcript)
        return trajectory.model_copy(update={"prompt_hash": scene.notes.prompt_hash})

    async def _wished(self, scene: Scene) -> Scene:
        """The scene with what its user's model wishes next, where one is to be written.

        A model that declines leaves the one goal. Raises ProviderError or ParseError.
        """
        if not scene.script.wishes:
            return scene
        first, server = scene.script.tasks[0], scene.server
        things = self._things(scene)
        others = self.scripts.questions_beside(first, ASKED_BY_OTHERS)
        ask = follow_up_ask(first, things, server, scene.tools, others, scene.sample)
        wish = await scene.notes.of(self.cast.user).ask(ask)
        if not wish.request.strip():
            return replace(scene, script=Script((first,)))
        goals = (*scene.script.goals, Goal(request=wish.request))
        script = replace(scene.script, goals=goals)
        return replace(scene, script=script, wished=tuple(wish.values))

    def _things(self, scene: Scene) -> tuple[Thing, ...]:
        """The people and things that the user of a scene speaks of."""
        tasks = [self.scripts.planned(task) for task in scene.script.tasks]
        found = (thing for task in tasks for thing in stated_things(task, scene.server))
        return tuple(dict.fromkeys((*found, *scene.wished)))

    def _lasting(self, server: ToolServer, transcript: Transcript) -> str:
        """What a rejection says of a fault: nothing that differs from run to run.

        The text of such a fault is logged instead, once per live server.
        """
        if transcript.cause not in VARYING:
            return transcript.detail
        if server.execution == Execution.LIVE and server.id not in self.logged:
            self.logged.add(server.id)
            log.warning("an episode on %s failed: %s", server.name, transcript.detail)
        return transcript.cause

    async def _converse(self, scene: Scene, policy: Policy) -> Conversation:
        env = self._env(scene)
        try:
            return await converse(
                policy,
                env,
                opening_messages(scene.script.tasks[0], self.config.system_prompts, scene.key),
                self.config.limits,
                self.config.episode_timeout_s,
                self._user(scene),
                self.config.conversations.max_user_turns,
            )
        finally:
            await env.close()

    def _user(self, scene: Scene) -> SimulatedUser | None:
        if not scene.script.goals:
            return None
        first, teacher = scene.script.tasks[0], scene.notes.of(self.cast.user)
        max_turns = self.config.conversations.max_user_turns
        return SimulatedUser(
            scene.script.goals, scene.server, first.language, spoken(first.now), max_turns,
            teacher, scene.sample,
        )  # fmt: skip

    def _env(self, scene: Scene) -> Env:
        """The environment of one episode: the emulator, or the live server with its journal."""
        server, tools = scene.server, scene.tools
        if server.execution == Execution.EMULATED:
            return EmulatedEnv(
                server,
                tools,
                scene.notes.of(self.cast.emulator),
                FailureInjector(self.config.failure_rate, scene.key),
                scene.sample,
                self.config.limits.max_result_chars,
                Setting(self._things(scene), spoken(scene.script.tasks[0].now)),
            )
        launch = server.launch.model_dump(mode="json") if server.launch else None
        episode = content_id([scene.key, server.id, launch, [tool.name for tool in tools]])
        return JournaledEnv(McpEnv(server, tools, self.processes), self.journal, episode)


def shown_tools(
    server: ToolServer, tasks: Sequence[Task], cap: int | None, key: str
) -> tuple[Tool, ...] | None:
    """What the agent sees, in the server's order: no withheld tool, at most ``cap`` tools.

    The tools of the plans are always shown, above the cap if need be; the others are drawn by
    ``key``. None if a plan names a tool that the server does not have.
    """
    names = {tool.name for tool in server.tools}
    planned = {step.tool for task in tasks for step in task.plan}
    withheld = {name for task in tasks for name in task.withheld_tools}
    if not planned <= names:
        return None
    offered = [
        tool.model_copy(update={"hints": {}})  # for writers of tasks, not for agents
        for tool in server.tools
        if tool.name not in withheld
    ]
    if cap is None or len(offered) <= cap:
        return tuple(offered)
    unplanned = [tool.name for tool in offered if tool.name not in planned]
    needed = len(offered) - len(unplanned)
    rng = random.Random(int(content_id(["tools", key]), 16))
    drawn = set(rng.sample(unplanned, min(len(unplanned), max(0, cap - needed))))
    return tuple(tool for tool in offered if tool.name in planned or tool.name in drawn)


def _trajectory(scene: Scene, policy: Policy, transcript: Transcript) -> Trajectory:
    task = scene.script.tasks[0]
    return Trajectory(
        task_id=task.id,
        server_id=scene.server.id,
        sample=scene.sample,
        policy=policy.name,
        execution=scene.server.execution,
        language=task.language,
        domain=scene.server.domain,
        tools=scene.tools,
        messages=transcript.messages,
        calls=transcript.calls,
        stop_reason=transcript.stop_reason,
        follow_ups=scene.script.follow_ups,
    )


def _fault(transcript: Transcript) -> str:
    """The reason of a rejection: the stop and, in snake case, the error's class
    (``infra_server_error``).
    """
    cause = re.sub(r"(?<!^)(?=[A-Z])", "_", transcript.cause).lower()
    reason = str(transcript.stop_reason)
    return f"{reason}_{cause}" if transcript.stop_reason == StopReason.INFRA and cause else reason
