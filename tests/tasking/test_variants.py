"""Variants and refusals: worded anew with the same calls, as many as wanted, and stable."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from test_tasking import MODEL, build, config, outcomes, said, server, tool
from test_tasking_flow import NONE, several

from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import OfflineHandlers, ProviderError
from astra.prompting import render
from astra.records.graph import ChainStep
from astra.records.score import Rejection
from astra.records.task import Task, TaskKind
from astra.records.tool import Tool, ToolServer
from astra.store.metrics import StageMetrics
from astra.tasking.asks import CHAIN_TASK, PlannedArgument, PlannedStep, WrittenTask
from astra.tasking.augmenting import Augmenter
from astra.tasking.clock import draw_now
from astra.tasking.config import TasksConfig, UnsolvableConfig
from astra.tasking.drafts import Draft, Origin
from astra.tasking.families import TaskFamily, mean_shared_wording, shared_wording, word_pairs
from astra.tasking.offline.handlers import HANDLERS
from astra.tasking.personas import load_people, offered
from astra.tasking.scoring import SOLVABLE
from astra.tasking.spread import spread
from astra.tasking.unsolvable import droppable, leave_out_parameter
from astra.tasking.variant_asks import (
    COMPLICATE,
    DIVERSE,
    DROP_PARAMETER,
    PERSONA,
    REPLAN,
    SOLVABLE_ASK,
    PersonalRequest,
    Replanned,
    Rewritten,
    Solvability,
    replan_ask,
    solvable_ask,
)
from configs import block

FIXTURE = Path(__file__).parents[1] / "fixtures" / "exchanges" / "sft_track.jsonl.gz"


def task_of(question: str, plan: Sequence[ChainStep] = (), **fields: Any) -> Task:
    return Task(
        server_id="s", chain_id=None, kind=TaskKind.SERVER, language="en", question=question,
        plan=tuple(plan), **fields,
    )  # fmt: skip


# -- wording --------------------------------------------------------------------------------


def exchanged(reply: str) -> list[tuple[str, dict[str, Any]]]:
    """Prompt and reply of the recorded asks of one kind."""
    found: list[tuple[str, dict[str, Any]]] = []
    with gzip.open(FIXTURE, "rt", encoding="utf-8") as lines:
        for line in lines:
            one = json.loads(line)
            schema = (one["ask"].get("response_format") or {}).get("json_schema", {})
            if schema.get("name") == reply:
                prompt = one["ask"]["messages"][0]["content"]
                found.append((prompt, json.loads(one["answer"]["content"])))
    return found


def test_a_strong_models_glued_on_openings_are_copies() -> None:
    limit = TasksConfig.model_validate(block("tasks")).augment.max_shared
    assert limit is not None
    rewritten = exchanged("Rewritten")
    assert len(rewritten) >= 12
    for prompt, reply in rewritten:
        asked = re.search(r"^Request \(.*?\): (.*)$", prompt, re.MULTILINE)
        assert asked
        values = re.search(r"exactly as written: (\[.*\])$", prompt, re.MULTILINE)
        assert values
        plan = [
            ChainStep(tool="t", arguments={str(n): said(value)})
            for n, value in enumerate(json.loads(values[1]))
        ]
        original = task_of(asked[1], plan)
        assert not TaskFamily(original, limit).add(task_of(reply["question"], plan)), reply


def test_requests_for_the_same_calls_that_do_not_know_of_each_other_are_none() -> None:
    written = {
        tuple(step["tool"] for step in reply["steps"]): reply["question"]
        for _, reply in exchanged("WrittenTask")
    }
    compared = 0
    for prompt, reply in exchanged("BackQuery"):
        calls = tuple(re.findall(r"^\d+\. (\w+)", prompt, re.MULTILINE))
        if calls in written:
            compared += 1
            shared = shared_wording(
                word_pairs(task_of(next(iter(reply.values())))), word_pairs(task_of(written[calls]))
            )
            assert shared < 0.2
    assert compared >= 5


def test_values_are_no_wording_and_a_shorter_question_is_held_to_its_own() -> None:
    plan = [ChainStep(tool="t", arguments={"plot": said("Amber Cove by the Sea")})]
    first = task_of("Who tends Amber Cove by the Sea?", plan)
    assert (
        shared_wording(word_pairs(first), word_pairs(task_of("Amber Cove by the Sea", plan))) == 0
    )
    longer = task_of("I have a meeting soon. Who tends Amber Cove by the Sea? Thanks!", plan)
    assert shared_wording(word_pairs(first), word_pairs(longer)) == 1.0
    assert mean_shared_wording([first, longer, task_of("Amber Cove by the Sea?", plan)]) == (
        pytest.approx(1 / 3)
    )


def test_chinese_wording_is_compared_by_characters() -> None:
    first = task_of("请问明天早上几点开门")
    assert not TaskFamily(first, 0.5).add(task_of("我要带孩子来，请问明天早上几点开门"))
    assert TaskFamily(first, 0.5).add(task_of("孩子周日八点能进去玩吗"))


# -- augmentation ---------------------------------------------------------------------------

PLACE = {"type": "string", "description": "lat,lng"}
FORECAST = tool("get_forecast", {"type": "string"}, location=PLACE)
WEATHER = server("weather", "weather", (FORECAST, tool("get_alerts", {}, location=PLACE)))


def forecast(value: str, words: str) -> tuple[ChainStep, ...]:
    given = said(value).model_copy(update={"said": words})
    return (ChainStep(tool="get_forecast", arguments={"location": given}),)


def steps(value: str, words: str = "") -> tuple[PlannedStep, ...]:
    given = PlannedArgument(name="location", value=value, said=words)
    return (PlannedStep(tool="get_forecast", arguments=(given,)),)


ORIGINAL = Draft(
    Origin("c", "p"),
    task_of(
        "What will the weather be in Missoula tomorrow?",
        forecast("46.87,-113.99", "Missoula"),
        now="2026-03-10 14:05",
    ),
)


def variant(mode: Any, written: BaseModel, found: BaseModel | Exception) -> Draft | Rejection:
    def judge(variables: Any, rng: random.Random) -> BaseModel:
        assert variables["now"] == "2026-03-10 14:05"
        if isinstance(found, Exception):
            raise found
        return found

    template = {"diverse": DIVERSE, "complicate": COMPLICATE, "persona": PERSONA}[mode]
    teacher = OfflineTeacher(MODEL, {template: lambda *_: written, REPLAN: judge})
    own = config(augment={"max_shared": 0.5})
    return asyncio.run(Augmenter(WEATHER, (), teacher, teacher, own).variant(ORIGINAL, mode, 0))


def test_a_diverse_variant_may_have_values_of_its_own() -> None:
    question = "We moor in Bodega Bay over the weekend: do we have to expect fog?"
    written = WrittenTask(question=question, steps=steps("38.33,-123.05", "Bodega Bay"))
    found = Replanned(reason="", steps=steps("38.3332,-123.0481", "Bodega Bay"))
    made = variant("diverse", written, found)
    assert isinstance(made, Draft)
    assert made.task.plan == forecast("38.33,-123.05", "Bodega Bay")
    assert made.task.parent_id == ORIGINAL.task.id
    assert made.task.now == ORIGINAL.task.now
    assert made.task.id == Task.model_validate(made.task.model_dump() | {"id": ""}).id


@pytest.mark.parametrize("mode", ["complicate", "persona"])
def test_other_words_for_a_value_are_taken_from_the_judge(mode: str) -> None:
    question = "Do I run up where the Clark Fork meets the Bitterroot today, or wait a day?"
    words = "where the Clark Fork meets the Bitterroot"
    written = Rewritten(question=question)
    if mode == "persona":
        written = PersonalRequest(reason="a runner", person=1, question=question)
    made = variant(mode, written, Replanned(reason="", steps=steps("46.8700,-113.9900", words)))
    # Neither the value nor its words are the original's, so nothing says that it is the same.
    assert isinstance(made, Rejection)
    assert made.reason == "replan_other_values"
    made = variant(mode, written, Replanned(reason="", steps=steps("46.87,-113.99", words)))
    assert isinstance(made, Draft)
    assert made.task.plan == forecast("46.87,-113.99", words)
    assert made.task.augmentation == mode


NEW = "Will it stay dry in Missoula until the evening after this one? Be brief."


@pytest.mark.parametrize(
    ("mode", "written", "found", "reason", "told"),
    [
        ("complicate", NEW, steps("47.5,-111.3", "Great Falls"), "replan_other_values", "judge"),
        ("complicate", NEW, (), "replan_other_tools", "judge"),
        ("complicate", NEW, ProviderError("down"), "ask_failed", ""),
        ("complicate", ORIGINAL.task.question.upper(), (), "augmentation_unchanged", ""),
        ("complicate", f"I fly soon. {ORIGINAL.task.question}", (), "family_copy", ""),
        ("complicate", "Run get_forecast on Missoula for me, please", (), "tool_named", ""),
        ("complicate", "Wird es in der Stadt morgen und für den Tag regnen?", (),
         "language_changed", ""),
        ("complicate", "Dry there?", (), "question_too_short", ""),
        ("persona", "", (), "persona_declined", "nobody asks that"),
        ("diverse", "Fog over Bodega Bay this weekend, when we moor there?", (),
         "plan_differs_from_chain", ""),
    ],
)  # fmt: skip
def test_a_variant_without_the_same_calls_is_dropped_with_its_reason(
    mode: str, written: str, found: Any, reason: str, told: str
) -> None:
    reply: BaseModel = Rewritten(question=written)
    if mode == "persona":
        reply = PersonalRequest(reason=told, person=0, question=written)
    if mode == "diverse":
        reply = WrittenTask(question=written, steps=())
    answer = found if isinstance(found, Exception) else Replanned(reason="judge", steps=found)
    made = variant(mode, reply, answer)
    assert isinstance(made, Rejection)
    assert (made.reason, made.said) == (reason, told)
    assert made.final
    assert made.part == f"p, {mode} 0"
    assert (written or ORIGINAL.task.question) in made.detail


def test_a_person_who_was_not_offered_is_asked_for_again() -> None:
    reply = PersonalRequest(reason="", person=9, question=NEW)
    made = variant("persona", reply, Replanned(reason="", steps=()))
    assert isinstance(made, Rejection)
    assert made.reason == "reply_unparsable"
    assert "no number 9" in made.detail


def test_each_variant_is_offered_five_other_people(root: Path) -> None:
    people = load_people(root / "conf" / "personas.yaml")
    first, second = (offered(people, ORIGINAL.task, number) for number in (0, 1))
    assert len(set(first)) == len(set(second)) == 5
    assert not set(first) & set(second)
    assert len(offered((), ORIGINAL.task, 0)) == 5


def test_neither_plan_nor_original_reach_the_judge_who_plans_anew() -> None:
    changed = task_of(NEW, forecast("1.25,2.5", "Missoula"))
    ask = replan_ask(WEATHER, ORIGINAL.task, changed)
    prompt = render(ask.template, ask.shown)
    assert NEW in prompt
    assert "1.25" not in prompt
    assert ORIGINAL.task.question not in prompt


def test_withheld_tools_are_not_shown_to_the_judge_who_looks_for_another_way() -> None:
    task = task_of(NEW, withheld_tools=("get_forecast",), now="2026-03-10 14:05")
    ask = solvable_ask(WEATHER, task)
    prompt = render(ask.template, ask.shown)
    assert "get_alerts" in prompt
    assert "get_forecast" not in prompt
    assert "2026-03-10 14:05" in prompt


# -- refusals -------------------------------------------------------------------------------


def made(
    handlers: OfflineHandlers = HANDLERS,
    pairs: int = 3,
    change: Callable[[list[ToolServer]], None] = lambda _: None,
    **changes: Any,
) -> tuple[list[Task], list[Rejection], StageMetrics]:
    servers, chains = several(pairs)
    change(servers)
    known = {one.id for one in servers}
    metrics = StageMetrics("t")
    teacher = OfflineTeacher(MODEL, handlers)
    of = [one for one in chains if one.server_id in known]
    found = asyncio.run(outcomes(servers, of, teacher, metrics, 64, **changes))
    selected = [one for one in found if isinstance(one, Task)]
    return selected, [one for one in found if isinstance(one, Rejection)], metrics


def test_shares_without_a_solution_are_those_of_the_final_set() -> None:
    wanted = {"missing_function": 0.08, "missing_parameter": 0.08, "irrelevant": 0.06}
    tasks, _, metrics = made(pairs=12, unsolvable=wanted)
    shares = {kind: count / len(tasks) for kind, count in Counter(t.kind for t in tasks).items()}
    assert shares[TaskKind.MISSING_FUNCTION] == pytest.approx(0.08, abs=0.025)
    assert shares[TaskKind.MISSING_PARAMETER] == pytest.approx(0.08, abs=0.025)
    assert shares[TaskKind.IRRELEVANT] == pytest.approx(0.06, abs=0.025)
    assert metrics.values["unsolvable_shares"]["irrelevant"] == pytest.approx(
        shares[TaskKind.IRRELEVANT], abs=1e-4
    )
    augmented = {t.augmentation for t in tasks if t.kind is TaskKind.MISSING_FUNCTION}
    assert augmented > {"none"}


def test_few_tasks_a_server_do_not_round_to_none() -> None:
    few: dict[str, Any] = {"samples": 1, "server_tasks": {"per_server": 1, "max_tools": 1}}
    augment = {"diverse": 0, "complicate": 0, "persona": 0}
    wanted = NONE | {"missing_function": 0.15}
    tasks, _, _ = made(pairs=40, unsolvable=wanted, augment=augment, **few)
    kinds = Counter(task.kind for task in tasks)
    assert sum(kinds.values()) < 4 * 80
    assert 0.08 < kinds[TaskKind.MISSING_FUNCTION] / len(tasks) < 0.22


@pytest.mark.parametrize(
    "shares", [{"missing_function": 0.5, "missing_parameter": 0.5}, {"irrelevant": 1.0}]
)
def test_shares_that_leave_nothing_to_solve_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="nothing is left"):
        UnsolvableConfig.model_validate(NONE | {"donors": "stable"} | shares)


def test_what_can_still_be_done_makes_way_for_another() -> None:
    def judge(variables: Any, rng: random.Random) -> Solvability:
        verdict = "yes" if len(variables["question"]) % 2 else "no"
        return Solvability(reason="there is another way", solvable=verdict)

    wanted = NONE | {"missing_function": 0.12}
    usual, _, _ = made(unsolvable=wanted)
    tasks, rejections, metrics = made({**HANDLERS, SOLVABLE_ASK: judge}, unsolvable=wanted)
    assert metrics.dropped["still_solvable"] > 0
    still = [one for one in rejections if one.reason == "still_solvable"]
    assert all(one.said == "there is another way" and one.detail for one in still)
    kinds = [Counter(task.kind for task in some) for some in (usual, tasks)]
    assert kinds[1][TaskKind.MISSING_FUNCTION] == kinds[0][TaskKind.MISSING_FUNCTION]


def test_a_judge_who_always_finds_a_way_is_not_asked_for_ever() -> None:
    asked = 0

    def judge(variables: Any, rng: random.Random) -> Solvability:
        nonlocal asked
        asked += 1
        return Solvability(reason="", solvable="yes")

    wanted = NONE | {"missing_function": 0.1}
    usual, _, _ = made(unsolvable=wanted)
    tasks, _, _ = made({**HANDLERS, SOLVABLE_ASK: judge}, unsolvable=wanted)
    assert not [task for task in tasks if task.kind is TaskKind.MISSING_FUNCTION]
    drawn = sum(task.kind is TaskKind.MISSING_FUNCTION for task in usual)
    assert drawn < asked <= 3 * drawn


def test_of_a_foreign_question_no_part_may_be_done() -> None:
    def partly(variables: Any, rng: random.Random) -> Solvability:
        return Solvability(reason="some of it", solvable="partly")

    tasks, _, metrics = made({**HANDLERS, SOLVABLE_ASK: partly})
    kinds = {task.kind for task in tasks}
    assert TaskKind.MISSING_FUNCTION in kinds
    assert TaskKind.IRRELEVANT not in kinds
    assert metrics.dropped["still_solvable"] > 0


def test_without_a_judge_nothing_counts_as_unsolvable() -> None:
    def down(variables: Any, rng: random.Random) -> Solvability:
        raise ProviderError("down")

    tasks, rejections, _ = made({**HANDLERS, SOLVABLE_ASK: down})
    assert {task.kind for task in tasks} == {*SOLVABLE, TaskKind.MISSING_PARAMETER}
    assert any(one.reason == "ask_failed" and "down" in one.detail for one in rejections)


def test_only_required_values_can_be_left_out() -> None:
    optional = Tool(
        name="list_beds",
        description="",
        parameters={
            "type": "object",
            "properties": {
                "plot": {"type": "string"},
                "limit": {"type": "integer"},
                "unit": {"type": "string", "default": "m"},
            },
            "required": ["plot", "unit"],
        },
    )
    arguments = {"plot": said("Amber Cove"), "limit": said(5), "unit": said("ft")}
    plan = [ChainStep(tool="list_beds", arguments=arguments)]
    asked = "List 5 beds of Amber Cove in ft."
    assert droppable(asked, plan, {"list_beds": optional}) == [(0, "plot")]
    assert droppable(asked, [*plan, *plan], {"list_beds": optional}) == []


YES = {"type": "boolean"}
SELL = tool("sell_bed", {"type": "string"}, plot={"type": "string"}, price={"type": "number"},
            tags={"type": "array", "items": {"type": "string"}}, rush=YES)  # fmt: skip
SOLD = {"plot": said("Amber Cove"), "price": said(12500.0), "tags": said(["sunny", "wet"]),
        "rush": said(True)}  # fmt: skip


def test_what_no_rule_finds_in_a_question_cannot_be_left_out() -> None:
    plan = [ChainStep(tool="sell_bed", arguments=SOLD)]
    asked = "Sell the sunny, wet bed Amber Cove for 12,500 dollars, and be quick."
    found = droppable(asked, plan, {"sell_bed": SELL})
    assert found == [(0, "plot"), (0, "price"), (0, "tags")]


@pytest.mark.parametrize(
    ("parameter", "left"),
    [
        ("price", "Sell the sunny, wet bed Amber Cove for 12,500 dollars."),
        ("plot", "Sell the sunny, wet bed amber cove for a good price."),
        ("plot", "Sell the sunny, wet bed “AMBER  Cove” for a good price."),
        ("tags", "Sell the Sunny bed Amber Cove for 12500 dollars."),
        ("price", ""),
    ],
)
def test_a_value_that_stands_there_in_another_form_is_not_left_out(
    parameter: str, left: str
) -> None:
    async def asked() -> Draft | Rejection:
        plan = [ChainStep(tool="sell_bed", arguments=SOLD)]
        task = task_of("Sell the sunny, wet bed Amber Cove for 12500 dollars now.", plan)
        teacher = OfflineTeacher(MODEL, {DROP_PARAMETER: lambda v, rng: Rewritten(question=reply)})
        draft = Draft(Origin("s", "kind"), task)
        of = server("beds", "gardening", (SELL,))
        return await leave_out_parameter(of, draft, (0, parameter), teacher, config())

    reply = left or "Sell the sunny, wet bed Amber Cove for a good price."
    made = asyncio.run(asked())
    if left:
        assert isinstance(made, Rejection)
        assert made.reason == "value_still_stated"
    else:
        assert isinstance(made, Draft)
        assert made.task.kind is TaskKind.MISSING_PARAMETER


# -- what was asked for before stays ------------------------------------------------------------


def test_more_samples_and_variants_add_to_what_was_asked_for() -> None:
    asked: list[set[str]] = []

    def counting(template: str) -> Callable[[Any, random.Random], BaseModel]:
        def handler(variables: Any, rng: random.Random) -> BaseModel:
            asked[-1].add(json.dumps([template, variables], sort_keys=True))
            return HANDLERS[template](variables, rng)

        return handler

    handlers = {template: counting(template) for template in HANDLERS}
    few: dict[str, Any] = {"samples": 2, "augment": {"share": 0.5}, "near_duplicate": 1.0}
    more: dict[str, Any] = {
        "samples": 4,
        "augment": {"share": 0.8, "persona": 2},
        "near_duplicate": 1.0,
    }
    wanted = {"missing_function": 0.05, "missing_parameter": 0.0, "irrelevant": 0.0}
    for settings in (few, more):
        asked.append(set())
        made(handlers, unsolvable=wanted, **settings)
    assert asked[0] < asked[1]


def test_a_changed_document_leaves_the_tasks_of_others_alone() -> None:
    def change(servers: list[ToolServer]) -> None:
        last = servers[-2]
        tools = tuple(
            one.model_copy(update={"description": f"{one.description}, new"}) for one in last.tools
        )
        fields = last.model_dump() | {"id": "", "tools": [one.model_dump() for one in tools]}
        servers[-2] = ToolServer.model_validate(fields)

    wanted = {"missing_function": 0.05, "missing_parameter": 0.05, "irrelevant": 0.05}
    before, _, _ = made(pairs=4, unsolvable=wanted | {"donors": "stable"})
    after, _, _ = made(pairs=4, change=change, unsolvable=wanted | {"donors": "stable"})
    kept = {task.server_id for task in before} & {task.server_id for task in after}
    assert len(kept) == 7
    ids = [{t.id for t in some if t.server_id in kept and t.kind is not TaskKind.IRRELEVANT}
           for some in (before, after)]  # fmt: skip
    assert ids[0] == ids[1]


# -- the cap --------------------------------------------------------------------------------------

Row = tuple[str, str, tuple[str, int, str]]


def rows(count: int, servers: int, seed: int = 0) -> list[Row]:
    rng = random.Random(seed)
    return [
        (
            f"{n:05}",
            f"s{rng.randrange(servers)}",
            (rng.choice(["chain", "chain", "chain", "server", "irrelevant"]), rng.randrange(1, 4),
             rng.choice(["none", "diverse"])),
        )
        for n in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("limit", [0, 1, 37, 300, 999, 1000, 5000])
def test_a_cap_keeps_every_stratums_share(limit: int) -> None:
    all_rows = rows(1000, 9)
    kept = spread(all_rows, limit)
    assert len(kept) == min(limit, 1000)
    shuffled = all_rows[:]
    random.Random(1).shuffle(shuffled)
    assert spread(shuffled, limit) == kept
    whole = Counter(of for _, _, of in all_rows)
    part = Counter(of for task_id, _, of in all_rows if task_id in kept)
    for of, count in whole.items():
        assert abs(part[of] - count * min(limit, 1000) / 1000) <= 1.0 + 1e-9, of
    per_server = Counter(one for task_id, one, _ in all_rows if task_id in kept)
    if limit >= 300:
        for one, count in Counter(one for _, one, _ in all_rows).items():
            assert per_server[one] == pytest.approx(count * min(limit, 1000) / 1000, abs=12)


def test_a_server_more_moves_few_of_the_others_tasks() -> None:
    before, added = rows(1000, 9), [(f"x{t}", "new", of) for t, _, of in rows(40, 1, 5)]
    kept = spread(before, 300)
    moved = kept - spread([*before, *added], 300)
    assert len(moved) < 40
    assert spread(before, 200) < spread(before, 400)


def test_no_more_tasks_than_the_cap_go_on_and_the_others_can_be_read() -> None:
    everything, _, _ = made()
    tasks, rejections, metrics = made(max_tasks=20, write_margin=1000)  # all are written
    assert len(tasks) == metrics.counts["tasks"] == 20
    assert {task.id for task in tasks} < {task.id for task in everything}
    over = [one for one in rejections if one.reason == "over_max_tasks"]
    assert len(over) == len(everything) - 20
    assert all(one.detail and one.part for one in over)
    assert len({task.augmentation for task in tasks}) == 4


# -- measures and dates ---------------------------------------------------------------------------


def test_fewer_are_written_where_most_could_not_stay() -> None:
    asked: list[set[str]] = []

    def writing(variables: Any, rng: random.Random) -> BaseModel:
        asked[-1].add(json.dumps(variables, sort_keys=True))
        return HANDLERS[CHAIN_TASK](variables, rng)

    for most in (None, 60, 20):
        asked.append(set())
        tasks, _, metrics = made({**HANDLERS, CHAIN_TASK: writing}, pairs=12, max_tasks=most)
        assert len(tasks) == most or most is None
        assert ("share_written" in metrics.values) is (most is not None)
    every, some, few = asked
    assert every > some > few, "a smaller share is a part of a larger one"
    assert len(few) < 0.4 * len(every)


def test_what_families_share_and_which_name_comes_up_most_is_measured() -> None:
    _, metrics, _ = build()
    # The rule teacher puts a sentence before or after the question.
    assert metrics.values["family_shared_wording"] > 0.5
    top = metrics.values["top_name"]
    assert top["tasks"] >= 1
    assert 0 < top["share"] <= 1
    json.dumps(metrics.document())


def test_a_date_is_drawn_by_hash_from_the_span_and_by_day() -> None:
    span = config(now=["2026-01-01", "2026-01-31"]).now
    drawn = {draw_now(span, "server", number) for number in range(200)}
    assert len(drawn) > 190
    assert {moment[:8] for moment in drawn} == {"2026-01-"}
    assert len({moment[:10] for moment in drawn}) == 31
    assert all("07:00" <= moment[11:] < "22:00" for moment in drawn)
    assert draw_now(span, "server", 1) == draw_now(span, "server", 1)
    assert draw_now(None, "server", 1) == ""
    with pytest.raises(ValidationError, match="is after"):
        config(now=["2026-02-01", "2026-01-31"])


def test_variants_and_refusals_ask_on_the_day_of_their_original() -> None:
    tasks, _, _ = made(now=["2026-01-01", "2027-12-31"])
    by_id = {task.id: task for task in tasks}
    assert all(task.now for task in tasks)
    derived = [task for task in tasks if task.parent_id in by_id]
    assert {task.kind for task in derived} == set(TaskKind)
    assert all(task.now == by_id[task.parent_id or ""].now for task in derived)
    assert len({task.now for task in tasks}) > 20
