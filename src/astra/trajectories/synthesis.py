"""Tasks to trajectories (ASTRA section 3.3): one episode per task and sample."""

from __future__ import annotations

import itertools
import os
import random
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from astra.agent.loop import Transcript
from astra.agent.mcp import ServerEnvironments
from astra.agent.prompt import AGENT_SYSTEM_PROMPT
from astra.agent.protocols import Env, Policy
from astra.llm.build import build_teacher
from astra.llm.notes import PromptNotes
from astra.llm.policy import EndpointPolicy
from astra.llm.pool import map_bounded
from astra.llm.protocol import Teacher
from astra.records.base import content_id
from astra.records.message import Message, MessageRole
from astra.records.score import Rejection
from astra.records.task import Task
from astra.records.tool import Execution, Tool, ToolServer
from astra.records.trajectory import StopReason, Trajectory
from astra.settings import RuntimeConfig
from astra.store.journal import Journal
from astra.trajectories.config import TrajectoriesConfig
from astra.trajectories.conversation import (
    Conversation,
    Script,
    Scripts,
    UserStop,
    converse,
)
from astra.trajectories.emulated import EmulatedEnv
from astra.trajectories.expert import ScriptedExpert
from astra.trajectories.failures import FailureInjector
from astra.trajectories.journaled import JournaledEnv
from astra.trajectories.live import McpEnv, ServerPool
from astra.trajectories.offline import HANDLERS
from astra.trajectories.user import SimulatedUser

PolicyFor = Callable[[Script, int], Policy]
"""The policy of one episode, by script and sample."""
REJECTED_STOPS = frozenset({StopReason.INFRA, StopReason.TIMEOUT})


@dataclass
class Synthesis:
    """What every episode of the stage shares."""

    config: TrajectoriesConfig
    servers: Mapping[str, ToolServer]
    emulator: Teacher
    user: Teacher
    policy_for: PolicyFor
    processes: ServerPool
    journal: Journal
    scripts: Scripts = field(init=False)
    endpoint: EndpointPolicy | None = None
    """Behind ``policy_for``, where the agent is a model; closed at the end of ``run``."""

    async def run(
        self, tasks: Callable[[], Iterable[Task]], concurrency: int
    ) -> AsyncIterator[Trajectory | Rejection]:
        """Every task's episodes, accepted or rejected. ``tasks`` is read more than once: live
        ones come first, server by server, so that processes are used again."""
        self.scripts = Scripts(tasks, self.config.conversations)
        episodes = itertools.chain(
            self._episodes(sorted(self._only(tasks(), live=True), key=_by_server)),
            self._episodes(self._only(tasks(), live=False)),
        )
        try:
            async for outcome in map_bounded(episodes, self._outcome, concurrency):
                yield outcome
        finally:
            await self.processes.close()
            await self.emulator.close()
            await self.user.close()
            if self.endpoint is not None:
                await self.endpoint.close()

    def _only(self, tasks: Iterable[Task], live: bool) -> Iterator[Task]:
        for task in tasks:
            server = self.servers.get(task.server_id)
            if (server is not None and server.execution == Execution.LIVE) == live:
                yield task

    def _episodes(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, int]]:
        return ((task, sample) for task in tasks for sample in range(self.config.samples))

    async def _outcome(self, episode: tuple[Task, int]) -> Trajectory | Rejection:
        task, sample = episode
        server = self.servers.get(task.server_id)
        if server is None:
            return Rejection(item=task.id, reason="unknown_server", detail=task.server_id)
        if self.config.deterministic_only and not server.deterministic:
            return Rejection(item=task.id, reason="not_deterministic", detail=server.name)
        if server.execution == Execution.LIVE and server.launch is None:
            return Rejection(item=task.id, reason="no_launch", detail=server.name)
        key = content_id(["episode", self.config.seed, task.id, sample])
        script = self.scripts.of(task, key)
        tools = shown_tools(server, script.tasks, self.config.max_tools, key)
        if tools is None:
            return Rejection(item=task.id, reason="plan_tool_unknown", detail=server.name)
        policy = self.policy_for(script, sample)
        notes = PromptNotes()
        env = self._env(server, tools, key, sample, notes)
        try:
            user = self._user(script, server, sample, notes)
            done = await self._converse(script.tasks[0], policy, env, key, user)
        finally:
            await env.close()
        if done.transcript.stop_reason in REJECTED_STOPS:
            return _rejection(task, done.transcript)
        if done.user_stop not in (None, UserStop.SATISFIED):
            return Rejection(
                item=task.id, reason=f"user_{done.user_stop}", detail=done.detail[:500]
            )
        made = _trajectory(script, sample, server, tools, policy, done.transcript)
        return made.model_copy(update={"prompt_hash": notes.prompt_hash})

    def _user(
        self, script: Script, server: ToolServer, sample: int, notes: PromptNotes
    ) -> SimulatedUser | None:
        if not script.goals:
            return None
        most, language = self.config.conversations.max_user_turns, script.tasks[0].language
        return SimulatedUser(script.goals, server, language, most, notes.of(self.user), sample)

    async def _converse(
        self, task: Task, policy: Policy, env: Env, key: str, user: SimulatedUser | None
    ) -> Conversation:
        opening = (
            Message(role=MessageRole.SYSTEM, content=self._system_prompt(key)),
            Message(role=MessageRole.USER, content=task.question),
        )
        limits, timeout_s = self.config.limits, self.config.episode_timeout_s
        most = self.config.conversations.max_user_turns
        return await converse(policy, env, opening, limits, timeout_s, user, most)

    def _env(
        self,
        server: ToolServer,
        tools: tuple[Tool, ...],
        key: str,
        sample: int,
        notes: PromptNotes,
    ) -> Env:
        if server.execution == Execution.EMULATED:
            failures = FailureInjector(self.config.failure_rate, key)
            return EmulatedEnv(server, tools, notes.of(self.emulator), failures, sample)
        launch = server.launch.model_dump(mode="json") if server.launch else None
        episode = content_id([key, server.id, launch, [tool.name for tool in tools]])
        return JournaledEnv(McpEnv(server, tools, self.processes), self.journal, episode)

    def _system_prompt(self, key: str) -> str:
        texts = (AGENT_SYSTEM_PROMPT, *self.config.system_prompts)
        return texts[int(content_id(["prompt", key]), 16) % len(texts)]


def _by_server(task: Task) -> tuple[str, str]:
    return task.server_id, task.id


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
    others = [tool.name for tool in offered if tool.name not in planned]
    needed = len(offered) - len(others)
    rng = random.Random(int(content_id(["tools", key]), 16))
    drawn = set(rng.sample(others, min(len(others), max(0, cap - needed))))
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


def _rejection(task: Task, transcript: Transcript) -> Rejection:
    """Reason: the stop and, in snake case, the error's class (``infra_server_error``)."""
    cause = re.sub(r"(?<!^)(?=[A-Z])", "_", transcript.cause).lower()
    reason = str(transcript.stop_reason)
    if transcript.stop_reason == StopReason.INFRA and cause:
        reason = f"{reason}_{cause}"
    return Rejection(item=task.id, reason=reason, detail=transcript.detail[:500])


def build(
    config: TrajectoriesConfig,
    runtime: RuntimeConfig,
    servers: Mapping[str, ToolServer],
    environments: ServerEnvironments,
) -> Synthesis:
    """The stage's parts as its parameters name them."""
    endpoint: EndpointPolicy | None = None
    if config.agent.backend == "openai":
        endpoint = EndpointPolicy(config.agent, runtime, "trajectories")

    def policy_for(script: Script, sample: int) -> Policy:
        return endpoint.for_sample(sample) if endpoint else ScriptedExpert(script.tasks)

    # More processes than that wait for a core and only take memory.
    limit = max(1, min(runtime.concurrency, 2 * (os.cpu_count() or 1)))
    return Synthesis(
        config=config,
        servers=servers,
        emulator=build_teacher(config.emulator, runtime, HANDLERS, "trajectories"),
        user=build_teacher(config.user, runtime, HANDLERS, "trajectories"),
        policy_for=policy_for,
        processes=ServerPool(
            environments, runtime.mcp_timeout_s, limit, frozenset(config.reset_in_place)
        ),
        journal=Journal("trajectories"),
        endpoint=endpoint,
    )
