"""Sub-questions and groups go their own way: no barrier, bounded asks, every failed try kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from env_runs import everything, final, merged
from env_samples import ENVS, EVERY_OP, answer, instance, price
from merge_samples import environment, free, free_pair, price_code

from astra.envsynth import asks
from astra.envsynth.offline.handlers import HANDLERS
from astra.llm.notes import AskBudget, AskBudgetSpent
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask, ProviderError
from astra.records.environment import Environment
from astra.records.qa import QAInstance
from astra.records.score import Rejection
from astra.sandbox.protocol import Sandbox, SandboxUnavailable
from astra.store.metrics import StageMetrics

LATE_S = 60.0
PAIR = (price(1, "Amber Cove", 812), price(2, "Jade Mill", 455))
BOTH = answer("list", [812, 455])
CONSTANT = "def get_asking_price(listing):\n    return 812\n"


@pytest.fixture(scope="module")
def sandbox(patient_sandbox: Sandbox) -> Sandbox:
    return patient_sandbox


class Slow:
    """The offline teacher with a delay, and with replies that ``spoil`` may change."""

    name = "slow"

    def __init__(self, spoil: Callable[[Ask[Any], Any], Any], delay_s: float = 0.0) -> None:
        self._inner = OfflineTeacher(ENVS.teacher, HANDLERS)
        self._spoil, self._delay_s = spoil, delay_s
        self.asked: list[Ask[Any]] = []
        self.in_flight = self.most_in_flight = 0

    async def ask(self, ask: Ask[Any]) -> Any:
        self.asked.append(ask)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self._delay_s)
            made = self._spoil(ask, await self._inner.ask(ask))
            return await made if asyncio.iscoroutine(made) else made
        finally:
            self.in_flight -= 1

    def about(self, name: str) -> list[str]:
        """The templates asked about a listing."""
        return [ask.template.split("/")[1] for ask in self.asked if name in repr(ask.variables)]


def constant(ask: Ask[Any], reply: Any) -> Any:
    """Code for Amber Cove that no try gets right."""
    hopeless = isinstance(reply, asks.CodeReply) and "Amber Cove" in ask.variables["question"]
    return asks.CodeReply(code=CONSTANT) if hopeless else reply


def houses(*names: str) -> list[QAInstance]:
    """One instance per listing: its price."""
    prices = {"Amber Cove": 812, "Jade Mill": 455, "Pine Gate": 633, "Ruby Lake": 290,
              "Opal Dale": 501, "Onyx Pass": 378}  # fmt: skip
    return [instance(price(1, name, prices[name])) for name in names]


def test_a_hopeless_sub_question_holds_nobody_up(sandbox: Sandbox) -> None:
    others = ("Jade Mill", "Pine Gate", "Ruby Lake", "Opal Dale", "Onyx Pass")
    done = asyncio.Event()

    async def held() -> asks.CodeReply:
        # Until all others are finished the hopeless one stays in its second try.
        await asyncio.wait_for(done.wait(), LATE_S)
        return asks.CodeReply(code=CONSTANT)

    def spoil(ask: Ask[Any], reply: Any) -> Any:
        if isinstance(reply, asks.CodeReply) and "Amber Cove" in ask.variables["question"]:
            return held() if ask.sample else asks.CodeReply(code=CONSTANT)
        return reply

    class Watched(StageMetrics):
        def count(self, name: str, by: int = 1) -> None:
            super().count(name, by)
            if self.counts["needing_tool"] == len(others):
                done.set()

    teacher, metrics = Slow(spoil), Watched("envs")
    outcomes = everything(
        houses("Amber Cove", *others), teacher, sandbox, 6, metrics, inner_attempts=3
    )
    assert [type(one) for one in final(outcomes)] == [Rejection, *[Environment] * 5]
    assert metrics.counts["instances"] == metrics.counts["needing_tool"] == 6


def test_places_at_the_teacher_stay_taken(sandbox: Sandbox) -> None:
    """While the sandbox verifies and one sub-question fails again and again."""
    teacher = Slow(constant, 0.02)
    many = houses("Amber Cove", "Jade Mill", "Pine Gate", "Ruby Lake", "Opal Dale", "Onyx Pass")
    outcomes = everything(many, teacher, sandbox, 6, inner_attempts=4, outer_attempts=2)
    assert len(final(outcomes)) == 6
    assert teacher.most_in_flight == 6
    last_of_others = max(
        at for at, ask in enumerate(teacher.asked) if "Amber" not in ask.variables["question"]
    )
    # The hopeless one was not waited for: the others ended with their three asks each.
    assert last_of_others < 6 * 3 + 4


def test_failed_tries_are_rejections_that_are_not_final(sandbox: Sandbox) -> None:
    codes = {0: "import os\n", 1: CONSTANT}

    def spoil(ask: Ask[Any], reply: Any) -> Any:
        if isinstance(reply, asks.CodeReply) and ask.sample in codes:
            return asks.CodeReply(code=codes[ask.sample])
        return reply

    (one,) = houses("Amber Cove")
    *tries, made = everything([one], Slow(spoil), sandbox, inner_attempts=3)
    assert isinstance(made, Environment)
    said = [
        (t.item, t.part, t.reason, t.detail, t.attempt, t.final)
        for t in tries
        if isinstance(t, Rejection)
    ]
    assert said == [
        (one.id, "1", "forbidden_import", "imports os", 0, False),
        (one.id, "1", "constant", said[1][3], 1, False),
    ]
    assert said[1][3].startswith("no other arguments give another answer: ")
    metrics = StageMetrics("envs")
    for rejection in tries:
        assert isinstance(rejection, Rejection)
        metrics.reject(rejection)
    assert metrics.document()["tries"] == {"constant": 1, "forbidden_import": 1}
    assert metrics.document()["dropped"] == {}


def test_the_last_try_is_the_drop_and_knows_how_many_went_before(sandbox: Sandbox) -> None:
    outcomes = everything(
        houses("Amber Cove"), Slow(constant), sandbox, inner_attempts=2, outer_attempts=2
    )
    rejections = [one for one in outcomes if isinstance(one, Rejection)]
    assert [(one.attempt, one.final) for one in rejections] == [
        (0, False), (1, False), (2, False), (3, True),
    ]  # fmt: skip
    assert {one.reason for one in rejections} == {"constant"}


@pytest.mark.parametrize(("most", "documents"), [(1, 1), (3, 1), (5, 1), (6, 2)])
def test_no_sub_question_costs_more_than_its_asks(
    sandbox: Sandbox, most: int, documents: int
) -> None:
    teacher = Slow(constant)
    two = houses("Amber Cove", "Jade Mill")
    first, second = final(
        everything(two, teacher, sandbox, inner_attempts=3, outer_attempts=9, max_asks=most)
    )
    assert isinstance(first, Rejection)
    assert (first.item, first.part, first.reason) == (two[0].id, "1", "ask_budget_spent")
    assert first.detail.startswith(f"all {most} asks are spent; the last problem was ")
    assert ("constant: no other arguments" in first.detail) == (most >= 3)
    mine = [ask.template for ask in teacher.asked if "Amber" in ask.variables["question"]]
    assert len(mine) == most
    assert mine.count("envsynth/document") == documents
    assert isinstance(second, Environment) == (most >= 3)


def test_asks_without_an_answer_count_too() -> None:
    class Down:
        name = "down"

        async def ask(self, ask: Ask[Any]) -> Any:
            raise ProviderError("down")

    async def spend() -> None:
        asker = AskBudget(2).of(Down())
        assert asker.name == "down"
        for expected in (ProviderError, ProviderError, AskBudgetSpent, AskBudgetSpent):
            with pytest.raises(expected):
                await asker.ask(Ask("x", {}, asks.CodeReply))

    asyncio.run(spend())


def test_a_programming_error_in_one_sub_question_ends_the_stage(sandbox: Sandbox) -> None:
    def spoil(ask: Ask[Any], reply: Any) -> Any:
        if isinstance(reply, asks.CallReply) and "Jade Mill" in ask.variables["question"]:
            raise LookupError("a bug")
        return reply

    with pytest.raises(LookupError, match="a bug"):
        everything(houses("Amber Cove", "Jade Mill", "Pine Gate"), Slow(spoil), sandbox)


class Broken:
    """A sandbox that cannot open sessions any more."""

    tier = "A"

    def sessions(self, sources: Any) -> Any:
        raise SandboxUnavailable("no room")


def test_a_sandbox_that_is_gone_ends_the_stage(teacher: OfflineTeacher) -> None:
    broken: Any = Broken()
    with pytest.raises(SandboxUnavailable, match="no room"):
        everything(houses("Amber Cove", "Jade Mill"), teacher, broken)


def test_what_differs_between_runs_is_not_recorded(sandbox: Sandbox) -> None:
    def spoil(_: Ask[Any], reply: Any) -> Any:
        if isinstance(reply, asks.CodeReply):
            return asks.CodeReply(
                code="def get_asking_price(listing):\n    raise KeyError(object())\n"
            )
        return reply

    (dropped,) = everything(houses("Amber Cove"), Slow(spoil), sandbox)
    assert isinstance(dropped, Rejection)
    assert (dropped.reason, dropped.detail) == ("gold_call_failed", "KeyError: <object object>")


def test_one_open_item_or_many_make_no_difference(
    teacher: OfflineTeacher, sandbox: Sandbox
) -> None:
    wrong = price(3, "Pine Gate", 1)
    many = [instance(*PAIR, wrong, *EVERY_OP[3:9], domain=f"d{k}") for k in range(3)]
    many += [instance(*PAIR, final=BOTH, domain=f"e{k}") for k in range(3)]
    found = [everything(many, teacher, sandbox, open_items, inner_attempts=2)
             for open_items in (1, 32)]  # fmt: skip
    assert found[0] == found[1]
    made = [one for one in found[0] if isinstance(one, Environment)]
    wholes = [merged(many, made, teacher, sandbox, open_items) for open_items in (1, 32)]
    assert wholes[0].arenas == wholes[1].arenas
    assert wholes[0].dropped == wholes[1].dropped
    assert wholes[0].metrics.document() == wholes[1].metrics.document()
    assert wholes[0].metrics.counts["merged_groups"] == 3


def merged_pair(sandbox: Sandbox, spoil: Callable[[Ask[Any], Any], Any], **changes: int) -> Any:
    whole, made = free_pair()
    teacher = Slow(spoil)
    return whole, teacher, merged([whole], made, teacher, sandbox, **changes)


def lossy(_: Ask[Any], reply: Any) -> Any:
    """A merge that forgets a call."""
    if isinstance(reply, asks.MergeReply):
        return asks.MergeReply(code=reply.code, calls=reply.calls[:1])
    return reply


def test_failed_merges_are_kept_and_the_arena_ships_with_separate_tools(sandbox: Sandbox) -> None:
    whole, _, found = merged_pair(sandbox, lossy, merge_attempts=3)
    assert len(found.arenas[0].tools) == 2
    assert found.dropped == []
    detail = "all members or none: the calls are for [1]"
    assert found.tries == [
        Rejection(item=whole.id, part="merge 1 2", reason="calls_missing", detail=detail,
                  attempt=attempt, final=False)
        for attempt in range(3)
    ]  # fmt: skip
    assert found.metrics.counts["merge_failed_calls_missing"] == 1


def test_a_group_that_spent_its_asks_stays_apart(sandbox: Sandbox) -> None:
    _, teacher, found = merged_pair(sandbox, lossy, merge_attempts=9, max_asks=2)
    assert len(found.arenas[0].tools) == 2
    assert [ask.template for ask in teacher.asked].count("envsynth/merge_code") == 2
    assert [one.reason for one in found.tries] == [
        "calls_missing", "calls_missing", "ask_budget_spent",
    ]  # fmt: skip
    assert "all 2 asks are spent; the last problem was calls_missing" in found.tries[-1].detail
    assert found.metrics.counts["merge_failed_ask_budget_spent"] == 1


def test_a_grouping_that_makes_no_sense_is_kept_with_what_was_said(sandbox: Sandbox) -> None:
    def spoil(_: Ask[Any], reply: Any) -> Any:
        return asks.ClusterReply(groups=[[1, 7]]) if isinstance(reply, asks.ClusterReply) else reply

    whole, _, found = merged_pair(sandbox, spoil)
    assert found.tries == [
        Rejection(item=whole.id, part="grouping", reason="bad_ids", detail="[[1,7]] of [1, 2]",
                  final=False)
    ]  # fmt: skip
    assert found.metrics.counts["clustering_failed_bad_ids"] == 1


def test_groups_of_one_instance_are_merged_side_by_side(sandbox: Sandbox) -> None:
    whole = free("Amber Cove", "Jade Mill", "Pine Gate", "Ruby Lake")
    made = [
        environment(whole, number, listing, price_code(listing, *others))
        for number, (listing, *others) in enumerate(
            (("Amber Cove", "Teal Ford", "Coral End"), ("Jade Mill", "Teal Ford", "Onyx Pass"),
             ("Pine Gate", "Opal Dale", "Coral End"), ("Ruby Lake", "Onyx Pass", "Coral End")),
            1,
        )
    ]  # fmt: skip
    together = asyncio.Event()
    merging: list[int] = []

    def spoil(_: Ask[Any], reply: Any) -> Any:
        if isinstance(reply, asks.ClusterReply):
            return asks.ClusterReply(groups=[[1, 2], [3, 4]])
        return held(reply) if isinstance(reply, asks.MergeReply) else reply

    async def held(reply: Any) -> Any:
        merging.append(1)
        if len(merging) == 2:
            together.set()
        await asyncio.wait_for(together.wait(), LATE_S)
        return reply

    found = merged([whole], made, Slow(spoil), sandbox, 1)
    assert found.metrics.counts["merged_groups"] == 2
    assert [tool.tool.name for tool in found.arenas[0].tools] == [
        "get_asking_price", "get_asking_price_by_listing",
    ]  # fmt: skip
