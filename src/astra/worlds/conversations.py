"""The flow of stage ``conversations``: goals are played with their users; what succeeds is kept.

Goals of the training split become samples to train on, those of the development split, whose
domains no training goal has, samples to evaluate on; held-out goals are never played. Kept is a
conversation that the user closed, that kept within the limits, and whose verdict names no fault.
Rejections name the goal's arena: ``no_script``, the reason of a stop that is not the user's content
(``user_left``, ``max_turns``, ..., ``infra_<error>``), else the first code of the verdict
(``state_missing``, ``unsaid``, ``rule``, ...), all of whose reasons are the detail.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from astra.agent.loop import Transcript, run_episode
from astra.agent.protocols import Policy
from astra.arena.env import ArenaEnv
from astra.arena.prompt import initial_messages
from astra.arena.talk import ArenaUser
from astra.arena.user_expert import ScriptedAgent
from astra.arena.verdict import judge
from astra.arena.world_scripts import SpokenTurn
from astra.arena.worlds import base_of, goal_of, resolve
from astra.llm.policy import EndpointPolicy
from astra.llm.pool import sharded_flow
from astra.llm.protocol import ModelConfig
from astra.llm.served import ServedLimit
from astra.records.environment import Arena
from astra.records.message import Message, MessageRole, ToolCall, without_thoughts
from astra.records.qa import Split
from astra.records.score import Rejection, Scored
from astra.records.tool import Tool
from astra.records.trajectory import SFTSample, StopReason
from astra.records.world import EventKind, World
from astra.sandbox.protocol import Sandbox
from astra.store.metrics import StageMetrics
from astra.worlds.agent_words import reworded
from astra.worlds.conversation_config import PlayedGoalsConfig
from astra.worlds.view import WorldView

PLAYED: Mapping[Split, str] = {Split.TRAIN: "train", Split.DEV: "eval"}
"""The splits whose goals are played, and what their conversations are for."""
VERDICT = "verdict"
"""The one score of a conversation: that it reached its goal."""
PlayerFor = Callable[[ArenaEnv, int], Policy]
"""The agent of one conversation, by its environment and sample."""


class GoalExpert:
    """The offline agent: it plays the goal's trace, in words drawn by ``key``, as its user goes
    along with it (``arena/user_expert.py``)."""

    name = "offline:expert"

    def __init__(self, env: ArenaEnv, key: Sequence[str | int]) -> None:
        self._env = env
        self._expert = ScriptedAgent(reworded(_view(env.arena.state), goal_of(env.arena), key))
        self._next = deque(self._expert.opened())
        self._calls = 0

    async def act(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
        """The next turn: after the last of a part the user has spoken, and another part begins."""
        if not self._next:
            heard = (one for one in reversed(self._env.trace or ()) if one.kind == EventKind.USER)
            self._next.extend(self._expert.heard(next(heard)))
        turn = self._next.popleft()
        return Message(
            role=MessageRole.ASSISTANT, content=turn.text, tool_calls=tuple(self._made(turn))
        )

    def _made(self, turn: SpokenTurn) -> Iterator[ToolCall]:
        for name, arguments in turn.calls:
            text = json.dumps(arguments, ensure_ascii=False)
            yield ToolCall(id=f"call_{self._calls}", name=name, arguments=text)
            self._calls += 1


@lru_cache(maxsize=64)
def _view(world: str) -> WorldView:
    return WorldView(World.model_validate_json(world))


def player(config: PlayedGoalsConfig, policy: Callable[[ModelConfig], EndpointPolicy]) -> PlayerFor:
    """The agent of the configuration: an endpoint made by ``policy``, or the scripted one."""
    if config.teacher.backend == "offline":
        return lambda env, sample: GoalExpert(env, [config.seed, env.arena.id, sample])
    endpoint = policy(config.teacher)
    return lambda env, sample: endpoint.for_sample(sample)


def played_goals(arenas: Iterable[Arena]) -> list[Arena]:
    """The goals that are played, by id."""
    return sorted((one for one in arenas if one.split in PLAYED), key=lambda one: one.id)


async def conversations(
    goals: Sequence[Arena], stage: GoalPlayer, open_items: int, metrics: StageMetrics
) -> AsyncGenerator[SFTSample | Rejection, None]:
    """What comes of each goal's conversations, in the goals' order. Counts ``in``."""

    async def work(item: tuple[Arena, int]) -> list[SFTSample | Rejection]:
        outcome = await stage.outcome(*item)
        metrics.count("in")
        return [outcome]

    items = ((arena, sample) for arena in goals for sample in range(stage.config.samples))
    async for outcome in sharded_flow(items, work, open_items):
        yield outcome


@dataclass(frozen=True)
class GoalPlayer:
    """Plays the goals of the stage, and holds what they share."""

    config: PlayedGoalsConfig
    worlds: Mapping[str, str]
    """Worlds as ``arena.worlds.resolve`` takes them."""
    agent: PlayerFor
    sandbox: Sandbox

    async def outcome(self, arena: Arena, sample: int) -> SFTSample | Rejection:
        """One conversation, or the rejection that says why there is none.

        Raises UnknownWorld for a goal of a world that is not given.
        """

        def rejected(reason: str, detail: str) -> Rejection:
            return Rejection(
                item=arena.id, part=f"sample {sample}", reason=reason, detail=detail[:500]
            )

        opened, goal = resolve(arena, self.worlds), goal_of(arena)
        if goal.script is None:
            return rejected("no_script", f"nobody plays the user of a goal of kind {goal.kind}")
        env = ArenaEnv(opened, self.sandbox)
        try:
            tools = env.tools
            told = await self._played(env, self.agent(env, sample))
            trace, rows = env.trace or (), env.tables or {}
        finally:
            await env.close()
        if told.stop_reason != StopReason.ANSWERED:
            return rejected(_stop(told), told.detail)
        verdict = judge(base_of(opened).world, goal, trace, rows)
        if not verdict.success:
            return rejected(verdict.reasons[0].partition(":")[0], "; ".join(verdict.reasons))
        kept = told.messages if self.config.reasoning == "keep" else without_thoughts(told.messages)
        return _sample(arena, sample, tools, kept)

    async def _played(self, env: ArenaEnv, agent: Policy) -> Transcript:
        limit = ServedLimit(self.config.episode_timeout_s)
        return await run_episode(
            agent, env, initial_messages(env.arena), self.config.limits, limit, ArenaUser(env)
        )


def _stop(told: Transcript) -> str:
    """The reason of a rejection: the stop and, in snake case, what of our own machinery failed."""
    cause = re.sub(r"(?<!^)(?=[A-Z])", "_", told.cause).lower()
    return f"{told.stop_reason}_{cause}" if told.stop_reason == StopReason.INFRA else str(
        told.stop_reason
    )  # fmt: skip


def _sample(
    arena: Arena, sample: int, tools: Sequence[Tool], messages: Sequence[Message]
) -> SFTSample:
    return SFTSample(
        trajectory_id=f"{arena.id}.{sample}",
        split=PLAYED[arena.split],
        language=arena.language,
        domain=arena.domain,
        tools=tuple(tools),
        messages=tuple(messages),
        scores={VERDICT: Scored(value=1.0)},
        mean_score=1.0,
    )


class ConversationReport:
    """Counts the conversations that leave the stage, by what their goals are."""

    def __init__(self, goals: Iterable[Arena]) -> None:
        self._goals = {arena.id: arena for arena in goals}

    def measure(self, metrics: StageMetrics, sample: SFTSample) -> None:
        """Add one conversation."""
        goal = goal_of(self._goals[sample.trajectory_id.partition(".")[0]])
        roles = [message.role for message in sample.messages]
        metrics.count("out")
        metrics.count(f"out_{sample.split}")
        metrics.distribution("kind", [goal.kind])
        metrics.distribution("trait", goal.traits)
        metrics.distribution("domain", [sample.domain])
        metrics.distribution("user_turns", [roles.count(MessageRole.USER)])
        metrics.distribution("calls", [sum(len(message.tool_calls) for message in sample.messages)])
