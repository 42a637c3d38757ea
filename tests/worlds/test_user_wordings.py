"""A teacher's words for a user: what passes is taken, all else keeps the words of the rules."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest
from goal_samples import CONFIG, Shelf

from astra.estimate.asks import ExpectedAsks
from astra.llm.protocol import Ask, ParseError, ProviderError, Reply
from astra.records.environment import Arena
from astra.records.qa import Split
from astra.records.score import Rejection
from astra.records.world import UserAct, WorldGoal
from astra.sandbox.local import LocalSandbox
from astra.store.metrics import StageMetrics
from astra.worlds.asks import WORDINGS, WordedTurn, WordingsReply
from astra.worlds.goal_config import WordingsBy
from astra.worlds.goal_estimate import wording_asks
from astra.worlds.goal_plans import world_plans
from astra.worlds.goal_stage import goal_arenas
from astra.worlds.offline.handlers import HANDLERS
from astra.worlds.script_proofs import script_faults
from astra.worlds.wordings import Reworded, with_taught_words

Words = Callable[[dict[str, Any]], list[str]]


class Wordsmith:
    """A teacher who words each turn by a rule, or fails."""

    name = "test:wordsmith"

    def __init__(self, words: Words, error: Exception | None = None) -> None:
        self._words, self._error = words, error
        self.asked: list[Ask[Any]] = []

    async def ask(self, ask: Ask[Reply]) -> Reply:
        self.asked.append(ask)
        if self._error is not None:
            raise self._error
        turns = [WordedTurn(turn=one["turn"], wordings=self._words(one))
                 for one in ask.variables["turns"]]  # fmt: skip
        return cast(Reply, WordingsReply(turns=turns))


def good(turn: dict[str, Any]) -> list[str]:
    return [f"No matter {number} ... {told(turn)}" for number in ("what", "how", "when", "where")]


def told_by(shelf: Shelf, goal: WorldGoal, teacher: Wordsmith) -> Reworded:
    return asyncio.run(with_taught_words(shelf.view, goal, teacher))


def test_words_that_pass_are_taken(shelf: Shelf) -> None:
    goal, teacher = shelf.goals["missing"], Wordsmith(good)
    told = told_by(shelf, goal, teacher)
    assert goal.script is not None
    assert told.goal.script is not None
    # What begins with a no takes back; only who rejects or leaves may.
    assert told.kept == len(goal.script.turns) - told.taught
    assert [fault.reason for fault in script_faults(shelf.view, told.goal)] == []
    acts = {turn.act for turn in told.goal.script.turns if turn.wordings[0].startswith("No matter")}
    assert {UserAct.REJECT, UserAct.LEAVE} <= acts
    assert UserAct.ANSWER not in acts
    assert told.prompt_hash
    (ask,) = teacher.asked
    assert ask.template == WORDINGS
    assert goal.trace[0].text == ask.variables["opening"]


def test_a_prompt_tells_of_each_turn_what_it_gives_and_nothing_else(shelf: Shelf) -> None:
    goal, teacher = shelf.goals["changes"], Wordsmith(good)
    told_by(shelf, goal, teacher)
    assert goal.script is not None
    shown = teacher.asked[0].variables["turns"]
    assert len(shown) == len(goal.script.turns)
    for one, turn in zip(shown, goal.script.turns, strict=True):
        assert {*one["tells"]} == {*turn.slots}
        assert one["says"] == turn.wordings[0]
    changed = [one["tells"] for one, turn in zip(shown, goal.script.turns, strict=True)
               if turn.changed or turn.act is UserAct.CHANGE]  # fmt: skip
    assert len(changed) == 2
    assert changed[0] == changed[1]


STARTS = ("Well, ", "So, ", "Oh, ", "Hm, ")
GERMAN = ("Das ist mir leider gar nicht bekannt", "Ach, das weiß ich doch wirklich nicht",
          "Ich habe davon keine Ahnung", "Tut mir leid, da bin ich überfragt")  # fmt: skip
BAD: dict[str, tuple[str, Words]] = {
    "says nothing": ("", lambda one: []),
    "says one thing four times": ("", lambda one: [one["says"]] * 4),
    "names a tool": ("names", lambda one: [f"{at}prolong_loan {one['says']}" for at in STARTS]),
    "speaks German": ("language", lambda one: [f"{at}: {told(one)}" for at in GERMAN]),
    "speaks German in two words": ("language", lambda one: [
        f"{at} {told(one)}" for at in ("nein nein", "doch schon", "ach was", "also gut")]),
    "is misread": ("broken", lambda one: [f"{at}Ã©h bien {told(one)}" for at in STARTS]),
    "is left to be filled in": ("broken", lambda one: [f"{at}[value] {told(one)}"
                                                       for at in STARTS]),
}  # fmt: skip
"""What a teacher may get wrong -> the reason of most of what is refused, and the words."""


def told(turn: dict[str, Any]) -> str:
    return ", ".join(turn["tells"].values())


@pytest.mark.parametrize("sort", BAD)
def test_words_that_do_not_pass_leave_those_of_rules(shelf: Shelf, sort: str) -> None:
    goal = shelf.goals["missing"]
    reason, words = BAD[sort]
    told = told_by(shelf, goal, Wordsmith(words))
    assert (told.goal, told.taught) == (goal, 0)
    reasons = Counter(one.reason for one in told.refused)
    assert [name for name, _ in reasons.most_common(1)] == ([f"wording_{reason}"] if reason else [])


def test_only_the_turns_that_leak_keep_their_words(shelf: Shelf) -> None:
    goal = shelf.goals["missing"]
    assert goal.script is not None
    secret = goal.script.facts[-1]
    told = told_by(shelf, goal, Wordsmith(
        lambda one: [f"{at}{secret.value}. {one['says']}" for at in STARTS]))  # fmt: skip
    assert told.goal.script is not None
    pairs = zip(told.goal.script.turns, goal.script.turns, strict=True)
    assert [new.slots for new, old in pairs if new != old] == [(secret.slot,)]
    assert {one.reason for one in told.refused if one.turn == "close"} == {"wording_leaks"}
    assert any(one.text.endswith("Goodbye.") for one in told.refused if one.turn == "close")


def test_what_is_refused_stands_among_the_rejections_of_the_stage(
    shelf: Shelf, sandbox: LocalSandbox
) -> None:
    metrics = StageMetrics("goals")
    config = CONFIG.model_copy(update={
        "wordings": WordingsBy.TEACHER, "instances": {Split.TRAIN: 3}})  # fmt: skip
    plans = list(world_plans([shelf.world], config))

    async def all_of() -> list[Arena | Rejection]:
        teacher = Wordsmith(BAD["speaks German"][1])
        made = goal_arenas(plans, teacher, sandbox, config, 1, metrics)
        return [outcome async for outcome in made]

    outcomes = asyncio.run(all_of())
    ids = {one.id for one in outcomes if isinstance(one, Arena)}
    refused = [one for one in outcomes
               if isinstance(one, Rejection) and one.reason == "wording_language"]  # fmt: skip
    assert ids
    assert {one.item for one in refused} == ids
    assert not any(one.final for one in refused)
    assert ("close", f"{GERMAN[0]}:") in {(one.part, one.detail) for one in refused}
    assert metrics.counts["in"] == 3


@pytest.mark.parametrize("error", [ProviderError("down"), ParseError("no JSON")])
def test_a_teacher_who_does_not_answer_changes_nothing(shelf: Shelf, error: Exception) -> None:
    goal = shelf.goals["write"]
    assert goal.script is not None
    told = told_by(shelf, goal, Wordsmith(good, error))
    assert told == Reworded(goal, 0, len(goal.script.turns), "")


def test_offline_rules_leave_their_own_words(shelf: Shelf) -> None:
    goal, teacher = shelf.goals["late"], Wordsmith(good)
    told_by(shelf, goal, teacher)
    reply = HANDLERS[WORDINGS](teacher.asked[0].variables, None)  # type: ignore[arg-type]
    assert isinstance(reply, WordingsReply)
    assert all(len(one.wordings) == 1 for one in reply.turns)


def test_asks_are_counted_before_they_are_made() -> None:
    assert wording_asks(CONFIG) == []
    asked: list[ExpectedAsks] = wording_asks(
        CONFIG.model_copy(update={"wordings": WordingsBy.TEACHER})
    )
    (one,) = asked
    assert (one.kind, one.asks.about, one.asks.most) == (WORDINGS, 40, 40)
