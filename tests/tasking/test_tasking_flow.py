"""Many servers at once: nothing waits that need not, and nothing depends on who answers first."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import pytest
from pydantic import BaseModel
from test_tasking import MODEL, config, outcomes, server, two_servers

from astra.errors import StageStop
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask, OfflineHandlers, ProviderError, Reply
from astra.records.graph import Chain
from astra.records.score import Rejection
from astra.records.task import Task, TaskKind
from astra.records.tool import Execution, ToolServer
from astra.store.metrics import StageMetrics
from astra.tasking.asks import CHAIN_TASK, SCORE, TaskScores
from astra.tasking.demand import Demand
from astra.tasking.offline.handlers import HANDLERS
from astra.tasking.pipeline import Models
from astra.tasking.scoring import SOLVABLE
from astra.tasking.tasks import tasks
from astra.tasking.variant_asks import DROP_PARAMETER, SOLVABLE_ASK, Rewritten

NONE = {"missing_function": 0, "missing_parameter": 0, "irrelevant": 0}
SETTLED = 200
"""Turns of the event loop after which whatever can go on has gone on."""


def several(pairs: int) -> tuple[list[ToolServer], list[Chain]]:
    """Servers of two domains in turn; each pair's first has a chain."""
    (club, clinic), chain = two_servers()
    servers = [
        server(f"{one.name} {number}", one.domain, one.tools)
        for number in range(pairs)
        for one in (club, clinic)
    ]
    chains = [
        Chain.model_validate(chain.model_dump() | {"id": "", "server_id": one.id})
        for one in servers[::2]
    ]
    return servers, chains


class Teacher:
    """The offline teacher behind whatever ``before`` does first."""

    def __init__(self, before: Callable[[Ask[Any]], Any], handlers: OfflineHandlers = HANDLERS):
        self._before = before
        self._offline = OfflineTeacher(MODEL, handlers)
        self.name = self._offline.name
        self.asked = self.open = self.answered = 0

    async def ask(self, ask: Ask[Reply]) -> Reply:
        self.asked += 1
        self.open += 1
        try:
            await self._before(ask)
            reply = await self._offline.ask(ask)
        finally:
            self.open -= 1
        self.answered += 1
        return reply


class Rounds:
    """Lets asks through all at once, each time when no further one comes."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._waiting = 0
        self._go = asyncio.Event()

    async def wait(self, ask: Ask[Any]) -> None:
        self._waiting += 1
        await self._go.wait()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        clock = asyncio.create_task(self._run())
        yield
        clock.cancel()

    async def _run(self) -> None:
        while True:
            await settled()
            if self._waiting:
                self.sizes.append(self._waiting)
                self._waiting, go, self._go = 0, self._go, asyncio.Event()
                go.set()


async def settled() -> None:
    for _ in range(SETTLED):
        await asyncio.sleep(0)


def about(ask: Ask[Any], one: ToolServer) -> bool:
    return ask.variables["server"]["title"] == one.title


def test_all_servers_take_as_many_rounds_as_the_longest_chain_of_asks() -> None:
    servers, chains = several(4)

    async def run() -> tuple[list[int], int]:
        rounds = Rounds()
        teacher = Teacher(rounds.wait)
        async with rounds.running():
            await outcomes(servers, chains, teacher, StageMetrics("t"), 128, unsolvable=NONE)
        return rounds.sizes, teacher.asked

    sizes, asked = asyncio.run(run())
    # Written, scored; variants written, planned anew, scored.
    assert len(sizes) == 5
    assert sizes[0] == 4 * (4 + 12) + 4 * 12
    assert sum(sizes) == asked


def test_no_more_servers_are_begun_than_asks_are_wanted() -> None:
    servers, chains = several(8)

    async def run() -> list[int]:
        rounds = Rounds()
        async with rounds.running():
            teacher = Teacher(rounds.wait)
            await outcomes(servers, chains, teacher, StageMetrics("t"), open_items=16)
        return rounds.sizes

    # The last server before enough are open brings all of its asks.
    assert 32 <= asyncio.run(run())[0] < 32 + 16


@pytest.mark.parametrize(
    ("mode", "scope", "most"),
    [("recent", "server", None), ("stable", "set", None), ("stable", "set", 90)],
)
def test_whoever_answers_first_the_outcomes_are_the_same(
    mode: str, scope: str, most: int | None
) -> None:
    servers, chains = several(3)
    servers[3] = servers[3].model_copy(update={"execution": Execution.LIVE})
    shares = {"missing_function": 0.1, "missing_parameter": 0.1, "irrelevant": 0.3, "donors": mode}
    found: list[tuple[list[str], dict[str, Any]]] = []
    for open_items, seed in ((1, 1), (2, 2), (64, 3), (64, 4)):
        rng = random.Random(seed)

        async def late(ask: Ask[Any], rng: random.Random = rng) -> None:
            for _ in range(rng.randrange(60)):
                await asyncio.sleep(0)

        metrics = StageMetrics("t")
        made = asyncio.run(
            outcomes(servers, chains, Teacher(late), metrics, open_items, unsolvable=shares,
                     near_duplicate_scope=scope, near_duplicate=0.7, max_live_tasks=5,
                     max_tasks=most)
        )  # fmt: skip
        found.append(([one.model_dump_json() for one in made], metrics.document()))
    assert all(one == found[0] for one in found)
    document = found[0][1]
    assert document["tasks_live"] == 5 or most
    assert document["dropped"]["live_limit"] > 0
    assert document["servers"] == 6
    assert any(f'"kind":"{TaskKind.IRRELEVANT}"' in one for one in found[0][0])


def test_a_server_without_answers_holds_no_other_servers_asks() -> None:
    servers, chains = several(3)
    clubs = {one.title for one in servers[::2]}
    foreign = 0

    async def count(ask: Ask[Any]) -> None:
        nonlocal foreign
        every = len(servers[0 if ask.variables["server"]["title"] in clubs else 1].tools)
        unwithheld = ask.template == SOLVABLE_ASK and len(ask.variables["tools"]) == every
        foreign += unwithheld or ask.variables.get("kind") == TaskKind.IRRELEVANT
        about_first.append(about(ask, servers[0]))

    about_first: list[bool] = []
    usual = asyncio.run(outcomes(servers, chains, Teacher(count), StageMetrics("t"), 64))
    of_others = about_first.count(False)

    async def run() -> tuple[int, int, list[Task | Rejection]]:
        answers = asyncio.Event()

        async def hang(ask: Ask[Any]) -> None:
            if about(ask, servers[0]):
                await answers.wait()

        teacher = Teacher(hang)
        going = asyncio.create_task(outcomes(servers, chains, teacher, StageMetrics("t"), 64))
        await settled()
        asked, hanging = teacher.asked, teacher.open
        answers.set()
        return asked, hanging, await going

    asked, hanging, found = asyncio.run(run())
    assert found == usual
    assert hanging == 4 + 12
    # All is asked about the others, save the scores of what servers before handed on.
    assert foreign > 0
    assert asked == hanging + of_others - foreign


def test_a_server_that_fails_gives_rejections_and_the_others_their_tasks() -> None:
    servers, chains = several(3)

    async def fail(ask: Ask[Any]) -> None:
        if about(ask, servers[2]):
            raise ProviderError("down")

    metrics = StageMetrics("t")
    found = asyncio.run(outcomes(servers, chains, Teacher(fail), metrics, 64))
    kept = {one.server_id for one in found if isinstance(one, Task)}
    assert kept == {one.id for one in servers} - {servers[2].id}
    failed = [one for one in found if isinstance(one, Rejection) and one.reason == "ask_failed"]
    assert len({one.id for one in failed}) == len(failed) == 4 + 12
    assert {one.item for one in failed} == {servers[2].id, chains[1].id}
    assert {one.part for one in failed if one.item == chains[1].id} == {
        f"tasking/chain_task sample {sample}" for sample in range(4)
    }
    assert metrics.dropped["ask_failed"] == 16


def test_what_must_end_the_stage_is_raised_as_it_is_and_ends_all_asks() -> None:
    servers, chains = several(3)

    async def run() -> int:
        async def stop(ask: Ask[Any]) -> None:
            if about(ask, servers[1]):
                raise StageStop("budget")
            await asyncio.Event().wait()

        teacher = Teacher(stop)
        with pytest.raises(StageStop, match="budget"):
            await outcomes(servers, chains, teacher, StageMetrics("t"), 64)
        return teacher.open

    assert asyncio.run(run()) == 0


def test_a_cancelled_stage_leaves_no_ask_open() -> None:
    servers, chains = several(3)

    async def run() -> int:
        async def hang(ask: Ask[Any]) -> None:
            if not about(ask, servers[0]):
                await asyncio.Event().wait()

        teacher = Teacher(hang)

        async def consume() -> None:
            models = Models(teacher, teacher)
            made = tasks(servers, lambda _: chains[:1], models, config(), 0, 64, StageMetrics("t"))
            async with aclosing(made):
                async for _ in made:
                    pass

        going = asyncio.create_task(consume())
        await settled()
        assert teacher.open > 0
        going.cancel()
        with suppress(asyncio.CancelledError):
            await going
        assert going.cancelled()
        return teacher.open

    assert asyncio.run(run()) == 0


def rejected(handlers: OfflineHandlers, **changes: Any) -> dict[str, list[Rejection]]:
    servers, chains = several(1)
    teacher = OfflineTeacher(MODEL, handlers)
    found = asyncio.run(outcomes(servers, chains, teacher, StageMetrics("t"), **changes))
    by_reason: dict[str, list[Rejection]] = {}
    for one in found:
        if isinstance(one, Rejection):
            by_reason.setdefault(one.reason, []).append(one)
    return by_reason


def test_a_task_refused_at_scoring_tells_its_question_and_the_judges_words() -> None:
    def judge(variables: Any, rng: random.Random) -> BaseModel:
        question = variables["question"]
        said = f"nobody asks {question[:9]}"
        made_unsolvable = variables["kind"] not in SOLVABLE
        if len(question) % 2 and not made_unsolvable:
            return HANDLERS[SCORE](variables, rng)
        return TaskScores(
            reason=said, wrong_values=(), quality=5, realism=2, necessity=5, difficulty=5,
            uniqueness=5,
        )  # fmt: skip

    servers, chains = several(1)
    refused = rejected({**HANDLERS, SCORE: judge})["low_realism"]
    assert {one.item for one in refused} == {servers[0].id, servers[1].id, chains[0].id}
    for one in refused:
        question = one.detail.removeprefix("2 < 4: ")
        assert one.said == f"nobody asks {question[:9]}"
    parts = {one.part for one in refused}
    assert any(part.startswith("tasking/chain_task") and "," not in part for part in parts)
    assert any(part.startswith("irrelevant") for part in parts)
    for end in (", diverse 0", ", complicate 0", ", persona 0", ", missing_function",
                ", missing_parameter"):  # fmt: skip
        assert any(part.endswith(end) for part in parts), end


def test_a_judge_without_an_answer_leaves_the_question_readable() -> None:
    def judge(variables: Any, rng: random.Random) -> TaskScores:
        raise ProviderError(f"down for {len(variables['question'])} characters")

    for one in rejected({**HANDLERS, SCORE: judge})["ask_failed"]:
        said, _, question = one.detail.partition(": ")
        assert said == f"down for {len(question)} characters"


def test_a_refused_question_can_be_read() -> None:
    def rewritten(variables: Any, rng: random.Random) -> Rewritten:
        return Rewritten(question="Gate " * 60)

    refused = rejected({**HANDLERS, DROP_PARAMETER: rewritten})["question_too_long"]
    assert refused
    assert {one.detail for one in refused} == {f"60 words: {'Gate ' * 60}"}
    assert all(one.part.endswith(", missing_parameter") for one in refused)


def test_near_duplicates_and_tasks_over_the_limit_carry_their_question() -> None:
    def same(variables: Any, rng: random.Random) -> Any:
        return HANDLERS[CHAIN_TASK](variables, random.Random(0))

    servers, chains = several(1)
    repeated = rejected({**HANDLERS, CHAIN_TASK: same})["near_duplicate"]
    of_chain = [one for one in repeated if one.item == chains[0].id and "," not in one.part]
    assert [one.part for one in of_chain] == [f"tasking/chain_task sample {n}" for n in (1, 2, 3)]
    assert len({one.detail for one in of_chain}) == 1
    assert all(len(one.detail) > 10 for one in repeated)

    servers[0] = servers[0].model_copy(update={"execution": Execution.LIVE})
    teacher, metrics = OfflineTeacher(MODEL, HANDLERS), StageMetrics("t")
    found = asyncio.run(outcomes(servers, chains, teacher, metrics, max_live_tasks=3))
    over = [one for one in found if isinstance(one, Rejection) and one.reason == "live_limit"]
    assert len(over) == metrics.dropped["live_limit"] > 0
    assert metrics.counts["tasks_live"] == 3
    assert all(one.item in (servers[0].id, chains[0].id) and one.detail for one in over)


def test_an_item_is_due_when_few_enough_asks_are_open() -> None:
    async def run() -> list[int]:
        demand, drawn, done = Demand(2), list[int](), asyncio.Event()

        async def begin(item: int) -> None:
            await demand.few()
            drawn.append(item)
            demand.opened(asyncio.create_task(done.wait()))

        items = [asyncio.create_task(begin(item)) for item in range(4)]
        await settled()
        assert drawn == [0, 1]
        done.set()
        await asyncio.gather(*items)
        return drawn

    assert asyncio.run(run()) == [0, 1, 2, 3]
