"""Stage ``trajectories``: tasks executed on real servers and emulators (ASTRA section 3.3)."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from astra.agent.loop import Transcript
from astra.agent.mcp import ServerError
from astra.agent.prompt import AGENT_SYSTEM_PROMPT
from astra.agent.protocols import Env, Policy
from astra.llm.notes import PromptNotes
from astra.llm.policy import EndpointPolicy
from astra.llm.pool import flow
from astra.llm.protocol import ModelConfig, Teacher
from astra.records.base import content_id
from astra.records.message import Message, MessageRole
from astra.records.score import Rejection
from astra.records.task import Task
from astra.records.tool import Execution, Tool, ToolServer
from astra.records.trajectory import StopReason, Trajectory
from astra.store.journal import Journal
from astra.store.metrics import StageMetrics
from astra.trajectories.agenda import Agenda
from astra.trajectories.config import TrajectoriesConfig
from astra.trajectories.conversation import (
    Conversation,
    Script,
    Scripts,
    UserStop,
    converse,
)
from astra.trajectories.emulated import EmulatedEnv
from astra.trajectories.failures import FailureInjector
from astra.trajectories.journaled import JournaledEnv
from astra.trajectories.live import McpEnv, ServerPool
from astra.trajectories.user import SimulatedUser

log = logging.getLogger("astra")
PolicyFor = Callable[[Script, int], Policy]
"""The policy of one episode, by script and sample."""
Servers = Callable[[str], ToolServer | None]
"""The server of an id, if there is one."""
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


async def trajectories(
    agenda: Agenda, player: EpisodePlayer, open_items: int, metrics: StageMetrics
) -> AsyncGenerator[Outcome, None]:
    """What came of every task's episodes, as it comes. Counts ``episodes``.

    Live episodes run beside the others, as many at once as there may be server processes: one
    more would wait for a process while its time goes by. The processes end with the flow.
    """

    async def work(episode: tuple[Task, int]) -> list[Outcome]:
        outcome = await player.outcome(*episode)
        metrics.count("episodes")
        return [outcome]

    def episodes(tasks: Iterable[Task]) -> Iterator[tuple[Task, int]]:
        return ((task, sample) for task in tasks for sample in range(player.config.samples))

    live = flow(episodes(agenda.live()), work, player.processes.limit)
    others = flow(episodes(agenda.others()), work, open_items)
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
        key = content_id(["episode", self.config.seed, task.id, sample])
        script = self.scripts.of(task, key)
        tools = shown_tools(server, script.tasks, self.config.max_tools, key)
        if tools is None:
            return rejected("plan_tool_unknown", server.name)
        policy = self.cast.agent(script, sample)
        notes = PromptNotes()
        env = self._env(server, tools, key, sample, notes)
        try:
            user = self._user(script, server, sample, notes)
            ended = await self._converse(script.tasks[0], policy, env, key, user)
        finally:
            await env.close()
        if ended.transcript.stop_reason in REJECTED_STOPS:
            return rejected(_fault(ended.transcript), self._lasting(server, ended.transcript))
        if ended.user_stop not in (None, UserStop.SATISFIED):
            return rejected(f"user_{ended.user_stop}", ended.detail)
        trajectory = _trajectory(script, sample, server, tools, policy, ended.transcript)
        return trajectory.model_copy(update={"prompt_hash": notes.prompt_hash})

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

    def _user(
        self, script: Script, server: ToolServer, sample: int, notes: PromptNotes
    ) -> SimulatedUser | None:
        if not script.goals:
            return None
        language, teacher = script.tasks[0].language, notes.of(self.cast.user)
        max_turns = self.config.conversations.max_user_turns
        return SimulatedUser(script.goals, server, language, max_turns, teacher, sample)

    async def _converse(
        self, task: Task, policy: Policy, env: Env, key: str, user: SimulatedUser | None
    ) -> Conversation:
        opening = (
            Message(role=MessageRole.SYSTEM, content=self._system_prompt(key)),
            Message(role=MessageRole.USER, content=task.question),
        )
        limits, timeout_s = self.config.limits, self.config.episode_timeout_s
        max_turns = self.config.conversations.max_user_turns
        return await converse(policy, env, opening, limits, timeout_s, user, max_turns)

    def _env(
        self,
        server: ToolServer,
        tools: tuple[Tool, ...],
        key: str,
        sample: int,
        notes: PromptNotes,
    ) -> Env:
        """The environment of one episode: the emulator, or the live server with its journal."""
        if server.execution == Execution.EMULATED:
            failures = FailureInjector(self.config.failure_rate, key)
            return EmulatedEnv(server, tools, notes.of(self.cast.emulator), failures, sample)
        launch = server.launch.model_dump(mode="json") if server.launch else None
        episode = content_id([key, server.id, launch, [tool.name for tool in tools]])
        return JournaledEnv(McpEnv(server, tools, self.processes), self.journal, episode)

    def _system_prompt(self, key: str) -> str:
        """The episode's system prompt, drawn by its key from the standard one and the others."""
        texts = (AGENT_SYSTEM_PROMPT, *self.config.system_prompts)
        return texts[int(content_id(["prompt", key]), 16) % len(texts)]


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


def _trajectory(
    script: Script,
    sample: int,
    server: ToolServer,
    tools: tuple[Tool, ...],
    policy: Policy,
    transcript: Transcript,
) -> Trajectory:
    task = script.tasks[0]
    return Trajectory(
        task_id=task.id,
        server_id=server.id,
        sample=sample,
        policy=policy.name,
        execution=server.execution,
        language=task.language,
        domain=server.domain,
        tools=tools,
        messages=transcript.messages,
        calls=transcript.calls,
        stop_reason=transcript.stop_reason,
        follow_ups=script.follow_ups,
    )


def _fault(transcript: Transcript) -> str:
    """The reason of a rejection: the stop and, in snake case, the error's class
    (``infra_server_error``).
    """
    cause = re.sub(r"(?<!^)(?=[A-Z])", "_", transcript.cause).lower()
    reason = str(transcript.stop_reason)
    return f"{reason}_{cause}" if transcript.stop_reason == StopReason.INFRA and cause else reason
