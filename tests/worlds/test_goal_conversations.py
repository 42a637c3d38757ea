"""Goals are played with their users, and only conversations that succeed are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from astra.arena.env import ArenaEnv
from astra.arena.worlds import goal_of, world_texts
from astra.errors import AstraError
from astra.llm.protocol import ModelConfig
from astra.records.base import compact_json
from astra.records.environment import Arena
from astra.records.message import Message, MessageRole, ToolCall
from astra.records.qa import Split
from astra.records.score import Rejection, Scored
from astra.records.tool import Tool
from astra.records.trajectory import SFTSample
from astra.records.world import (
    EventKind,
    GoalTrait,
    ReadProof,
    UserAct,
    WorldGoal,
    WorldShape,
)
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.store.metrics import StageMetrics
from astra.worlds.agent_words import reworded
from astra.worlds.conversation_config import PlayedGoalsConfig
from astra.worlds.conversations import (
    ConversationReport,
    GoalExpert,
    GoalPlayer,
    conversations,
    played_goals,
    player,
)
from astra.worlds.view import WorldView
from configs import block
from world_goals import worlds_and_goals

CONFIG = PlayedGoalsConfig.model_validate(block("conversations"))
WORLD, MADE = worlds_and_goals()
Outcome = SFTSample | Rejection


def changed(arena: Arena, split: Split = Split.TRAIN, **fields: Any) -> Arena:
    """The arena in a split, its goal with other fields."""
    goal = goal_of(arena).model_copy(update=fields)
    return with_goal(arena, goal, split)


def with_goal(arena: Arena, goal: WorldGoal, split: Split) -> Arena:
    text = compact_json(goal.model_dump(mode="json"))
    given: dict[str, Any] = {**dict(arena), "id": "", "split": split, "goal": text}
    return Arena(**given)


GOALS = [changed(arena) for arena in MADE]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    with LocalSandbox(SandboxLimits(cpu_s=60)) as opened:
        yield opened


def expert(env: ArenaEnv, sample: int) -> GoalExpert:
    return GoalExpert(env, [env.arena.id, sample])


@pytest.fixture
def played(sandbox: LocalSandbox) -> Callable[..., list[Outcome]]:
    def play(goals: Sequence[Arena], agent: Any = expert, **fields: Any) -> list[Outcome]:
        config = CONFIG.model_copy(update=fields)
        plays = GoalPlayer(config, world_texts([WORLD]), agent, sandbox)

        async def all_of() -> list[Outcome]:
            flow = conversations(goals, plays, 4, StageMetrics("conversations"))
            return [outcome async for outcome in flow]

        return asyncio.run(all_of())

    return play


def test_the_scripted_agent_succeeds_and_is_kept(played: Callable[..., list[Outcome]]) -> None:
    outcomes = played(GOALS, samples=2)
    kept = [one for one in outcomes if isinstance(one, SFTSample)]
    assert len(kept) == 2 * len(GOALS) == len({one.id for one in kept})
    for sample, arena in zip(kept[::2], GOALS, strict=True):
        assert sample.trajectory_id == f"{arena.id}.0"
        assert (sample.split, sample.domain) == ("train", WORLD.domain)
        assert sample.scores == {"verdict": Scored(value=1.0)}
        assert sample.messages[0].content == WORLD.policy
        assert sample.messages[1].content == arena.main_question
        assert sample.messages[-1].role == MessageRole.ASSISTANT
    assert any(one.messages != two.messages for one, two in zip(kept[::2], kept[1::2], strict=True))
    assert played(GOALS, samples=2) == outcomes, "the same words twice"


def test_a_late_tool_stands_in_the_users_words_and_not_among_the_first(
    played: Callable[..., list[Outcome]],
) -> None:
    _, late = worlds_and_goals(goals=3, late_tools=True)
    goals = [changed(one) for one in late if GoalTrait.LATE_TOOL in goal_of(one).traits]
    assert goals
    for arena, sample in zip(goals, played(goals), strict=True):
        assert isinstance(sample, SFTSample)
        (name,) = goal_of(arena).withheld
        assert name not in {tool.name for tool in sample.tools}
        assert any(name in m.content for m in sample.messages if m.role == MessageRole.USER)
        assert any(call.name == name for m in sample.messages for call in m.tool_calls)


class Mute:
    """An agent that calls nothing and says nothing of use."""

    name = "mute"

    async def act(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
        return Message(role=MessageRole.ASSISTANT, content="Hello.")


class Failing(Mute):
    async def act(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
        raise AstraError("no answer")


class Busy(Mute):
    """An agent that never stops to call."""

    async def act(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
        call = ToolCall(id=f"call_{len(messages)}", name="nothing", arguments="{}")
        return Message(role=MessageRole.ASSISTANT, tool_calls=(call,))


@pytest.mark.parametrize(
    ("agent", "reason"),
    [(Failing(), "infra_astra_error"), (Busy(), "max_turns")],
)
def test_what_does_not_end_well_is_dropped_with_its_stop(
    played: Callable[..., list[Outcome]], agent: Mute, reason: str
) -> None:
    (outcome,) = played(GOALS[:1], lambda env, sample: agent)
    assert isinstance(outcome, Rejection)
    assert (outcome.item, outcome.part, outcome.reason) == (GOALS[0].id, "sample 0", reason)


def test_what_the_verdict_objects_to_is_dropped_with_its_reasons(
    played: Callable[..., list[Outcome]],
) -> None:
    table = next(one for one in WORLD.tables if one.name in WORLD.rows)
    unseen = ReadProof(table=table.name, key="nobody's", column=table.key)
    (outcome,) = played([changed(GOALS[0], must_read=(unseen,))])
    assert isinstance(outcome, Rejection)
    assert (outcome.reason, outcome.detail) == ("unread", f"unread:{table.name}.{table.key}")


def test_a_user_who_leaves_takes_the_conversation_along(
    played: Callable[..., list[Outcome]],
) -> None:
    arena = next(one for one in GOALS if goal_of(one).effect)
    (outcome,) = played([arena], lambda env, sample: Mute())
    assert isinstance(outcome, Rejection)
    assert outcome.reason == "user_left"


def test_a_goal_without_a_user_is_not_played(played: Callable[..., list[Outcome]]) -> None:
    goal = goal_of(MADE[0]).model_copy(update={"script": None})
    (outcome,) = played([with_goal(MADE[0], goal, Split.TRAIN)])
    assert isinstance(outcome, Rejection)
    assert outcome.reason == "no_script"


def test_held_out_goals_are_never_played(played: Callable[..., list[Outcome]]) -> None:
    arenas = [changed(GOALS[0], split) for split in Split]
    chosen = played_goals(arenas)
    assert {arena.split for arena in chosen} == {Split.TRAIN, Split.DEV}
    samples = [one for one in played(chosen) if isinstance(one, SFTSample)]
    splits = {sample.trajectory_id.partition(".")[0]: sample.split for sample in samples}
    assert splits == {arenas[0].id: "train", arenas[1].id: "eval"}


def test_what_is_kept_is_counted_by_what_its_goal_is(
    played: Callable[..., list[Outcome]],
) -> None:
    metrics = StageMetrics("conversations")
    report = ConversationReport(GOALS)
    for sample in played(GOALS):
        assert isinstance(sample, SFTSample)
        report.measure(metrics, sample)
    assert metrics.counts["out"] == metrics.counts["out_train"] == len(GOALS)


class Endpoint(Mute):
    """An endpoint that notes for which repetitions it is asked."""

    def __init__(self) -> None:
        self.samples: list[int] = []

    def for_sample(self, sample: int) -> Endpoint:
        self.samples.append(sample)
        return self


def test_an_endpoint_plays_each_repetition_by_itself(played: Callable[..., list[Outcome]]) -> None:
    endpoint: Any = Endpoint()
    teacher = ModelConfig(backend="openai", model="some")
    agent = player(CONFIG.model_copy(update={"teacher": teacher}), lambda model: endpoint)
    played(GOALS[:1], agent, samples=3)
    assert endpoint.samples == [0, 1, 2]


def words(goal: WorldGoal, key: int, view: WorldView) -> list[str]:
    """The agent's messages of a trace."""
    events = reworded(view, goal, [key])
    assert [e for e in events if e.kind != EventKind.ASSISTANT] == [
        e for e in goal.trace if e.kind != EventKind.ASSISTANT
    ]
    return [event.text for event in events if event.kind == EventKind.ASSISTANT]


def test_words_vary_and_nothing_else_does() -> None:
    view = WorldView(WORLD)
    for arena in GOALS:
        drawn = [words(goal_of(arena), key, view) for key in range(12)]
        assert all(text for one in drawn for text in one)
        assert all(len({one[at] for one in drawn}) >= 2 for at in range(len(drawn[0])))


def test_small_worlds_get_the_two_plainest_sentences_of_each_sort() -> None:
    world, arenas = worlds_and_goals(shape=WorldShape.SMALL, goals=16)
    view = WorldView(world)
    for arena in arenas:
        drawn = [words(goal_of(arena), key, view) for key in range(16)]
        assert all(len({one[at] for one in drawn}) <= 2 for at in range(len(drawn[0])))


def test_an_offer_names_every_row_that_the_words_fit() -> None:
    view = WorldView(WORLD)
    offered = 0
    for arena in GOALS:
        goal = goal_of(arena)
        for at, event in enumerate(reworded(view, goal, [arena.id])):
            if at + 1 < len(goal.trace) and goal.trace[at + 1].act == UserAct.CHOOSE:
                table = next(one for one in WORLD.tables if one.key in goal.candidates[0])
                assert all(row[table.key] in event.text for row in goal.candidates)
                offered += 1
    assert offered == sum(GoalTrait.CHOICE in goal_of(arena).traits for arena in GOALS)
