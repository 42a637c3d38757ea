"""How base tasks are asked for, merged into their chain, checked, and asked for again."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from test_stated_values import Scripted, chain_of
from test_tasking import config, piped, said, server, tool

from astra.llm.protocol import ParseError, ProviderError
from astra.prompting import render
from astra.records.graph import ArgumentOrigin, ArgumentSource, ChainStep
from astra.records.score import Rejection
from astra.records.tool import Execution, Tool, ToolServer
from astra.store.metrics import StageMetrics
from astra.tasking.asks import (
    PlannedArgument,
    PlannedStep,
    WrittenCall,
    WrittenTask,
    server_task_ask,
)
from astra.tasking.checks import TaskProblem, check_plan
from astra.tasking.drafts import Draft
from astra.tasking.writing import WritingJob, base_jobs, merge_plan, write_task
from astra.text.paths import NoSuchPath, at_path

TEXT = {"type": "string"}
BOOKS = {"type": "array", "items": {"$ref": "#/$defs/Book"}}
BOOK = {"type": "object", "properties": {"id": TEXT, "extra": {}}}
LISTING = {"type": "object", "properties": {"books": BOOKS}, "$defs": {"Book": BOOK}}


def leads_somewhere(schema: Any, path: Any) -> bool:
    try:
        at_path(schema, path)
    except NoSuchPath:
        return False
    return True


@pytest.mark.parametrize(
    ("schema", "path", "there"),
    [
        (LISTING, ("books", 0, "id"), True),
        (LISTING, ("books", 0, "extra", "anything"), True),
        (LISTING, ("books", 0, "isbn"), False),
        (LISTING, ("books", "id"), False),
        (LISTING, (0,), False),
        (LISTING, (), True),
        ({}, ("a", 1), True),
        ({"type": "string"}, ("a",), False),
        ({"type": ["null", "object"]}, ("a",), True),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, ("a",), True),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, ("a", "b"), False),
        ({"type": "object", "additionalProperties": False}, ("a",), False),
        (
            {"anyOf": [{"type": "string"}, {"type": "array"}]},
            (2,),
            True,
        ),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, (2,), False),
        ({"$ref": "#"}, ("a",), False),
        ({"$ref": "https://example.org/remote"}, ("a",), True),
    ],
)
def test_a_path_leads_where_the_schema_lets_it(schema: Any, path: Any, there: bool) -> None:
    assert leads_somewhere(schema, path) is there


def shape(value: Any) -> dict[str, Any]:
    """A schema that lists exactly what ``value`` holds."""
    if isinstance(value, dict):
        return {"type": "object", "properties": {key: shape(part) for key, part in value.items()}}
    if isinstance(value, list):
        return {"type": "array", "items": {"anyOf": [shape(part) for part in value]}}
    return {"type": "string"}


def paths(value: Any) -> list[tuple[Any, ...]]:
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    if not isinstance(value, dict | list):
        return [()]
    return [(), *((key, *beyond) for key, part in parts for beyond in paths(part))]


@given(
    st.recursive(
        st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
        max_leaves=6,
    )
)
def test_every_path_into_a_result_leads_somewhere_in_its_schema(value: Any) -> None:
    for path in paths(value):
        assert leads_somewhere(shape(value), path)


SHELF = (
    Tool(name="find_books", description="", output_schema=LISTING,
         parameters={"type": "object", "properties": {"topic": TEXT, "limit": {"type": "integer"}},
                     "required": ["topic"]}),
    tool("reserve_book", TEXT, book=TEXT),
)  # fmt: skip
LIBRARY = server("library", "books", SHELF)
UNBOUND = (
    ChainStep(tool="find_books", arguments={"topic": said(None)}),
    ChainStep(tool="reserve_book", arguments={"book": said(None)}),
)


def test_a_writer_may_add_what_the_request_says_and_take_a_value_from_a_result() -> None:
    taken = ArgumentSource(origin=ArgumentOrigin.OUTPUT, step=0, path=("books", 0, "id"))
    written = (
        ChainStep(tool="find_books", arguments={"limit": said(3), "topic": said("bees")}),
        ChainStep(tool="reserve_book", arguments={"book": taken}),
    )
    plan = merge_plan(UNBOUND, written)
    assert plan[0].arguments == {"topic": said("bees"), "limit": said(3)}
    assert plan[1].arguments == {"book": taken}
    check_plan(plan, {one.name: one for one in SHELF})


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (piped(1), "plan_bad_reference"),
        (piped(-1), "plan_bad_reference"),
        (
            ArgumentSource(origin=ArgumentOrigin.OUTPUT, step=0, path=("isbn",)),
            "plan_bad_reference",
        ),
        (said(7), "value_violates_schema"),
    ],
)
def test_what_a_writer_takes_from_a_result_has_to_be_there(
    source: ArgumentSource, reason: str
) -> None:
    written = (
        ChainStep(tool="find_books", arguments={"topic": said("bees")}),
        ChainStep(tool="reserve_book", arguments={"book": source}),
    )
    with pytest.raises(TaskProblem) as problem:
        check_plan(merge_plan(UNBOUND, written), {one.name: one for one in SHELF})
    assert problem.value.reason == reason


def test_a_chains_own_sources_stay_but_for_a_default_said_otherwise() -> None:
    default = ArgumentSource(origin=ArgumentOrigin.DEFAULT, value=10)
    chain = (
        ChainStep(tool="find_books", arguments={"topic": said(None), "limit": default}),
        ChainStep(tool="reserve_book", arguments={"book": piped(0)}),
    )
    topic = {"topic": said("bees")}
    book = ChainStep(tool="reserve_book", arguments={"book": said("Bees")})
    kept = merge_plan(
        chain, (ChainStep(tool="find_books", arguments={**topic, "limit": said(10)}), book)
    )
    assert kept[0].arguments["limit"] == default
    assert kept[1].arguments["book"] == piped(0)
    other = merge_plan(
        chain, (ChainStep(tool="find_books", arguments={**topic, "limit": said(3)}), book)
    )
    assert other[0].arguments["limit"] == said(3)


def test_the_request_may_be_about_another_element_of_what_was_found() -> None:
    def taken(step: int, *path: str | int) -> ArgumentSource:
        return ArgumentSource(origin=ArgumentOrigin.OUTPUT, step=step, path=path)

    def book(source: ArgumentSource) -> tuple[ChainStep, ChainStep]:
        find = ChainStep(tool="find_books", arguments={"topic": said("bees")})
        return find, ChainStep(tool="reserve_book", arguments={"book": source})

    first = taken(0, "books", 0, "id")
    second = taken(0, "books", 1, "id")
    assert merge_plan(book(first), book(second)) == book(second)
    for other in (taken(0, "books", 1, "extra"), taken(0, "books"), taken(1, "books", 1, "id")):
        assert merge_plan(book(first), book(other)) == book(first)


def argument(name: str, value: Any = None, words: str = "", **source: Any) -> PlannedArgument:
    return PlannedArgument(name=name, said=words, value=value, **source)


def written(question: str, *steps: tuple[str, list[PlannedArgument]]) -> WrittenTask:
    calls = tuple(PlannedStep(tool=name, arguments=tuple(given)) for name, given in steps)
    return WrittenTask(question=question, steps=calls)


GOOD = written(
    "Which three books on bees do you have? Keep the first one for me.",
    ("find_books", [argument("topic", "bees"), argument("limit", 3, "three")]),
    ("reserve_book", [argument("book", step=0, path=("books", 0, "id"))]),
)
BAD = written(
    "Which books on bees do you have? Keep one for me.",
    ("find_books", [argument("topic", "bees")]),
    ("reserve_book", [argument("book", "B-1042")]),
)


def job(now: str = "") -> WritingJob:
    (made,) = base_jobs(
        LIBRARY, [chain_of(*UNBOUND)],
        config(samples=1, server_tasks={"per_server": 0, "max_tools": 1}),
    )  # fmt: skip
    return WritingJob(made.ask, made.chain, "en", now, made.origin)


def write(one: WritingJob, *replies: Any) -> tuple[Draft | Rejection, Scripted, StageMetrics]:
    teacher, metrics = Scripted(*replies), StageMetrics("t")
    return asyncio.run(write_task(LIBRARY, one, teacher, config(), metrics)), teacher, metrics


def test_a_good_reply_is_asked_for_once() -> None:
    one = job("2026-03-10 14:05")
    outcome, teacher, metrics = write(one, GOOD)
    assert isinstance(outcome, Draft)
    assert outcome.task.now == "2026-03-10 14:05"
    assert one.failed == []
    assert len(teacher.asked) == 1
    assert metrics.counts == {"arguments_added": 1, "arguments_from_results": 1}


def test_a_broken_rule_goes_back_to_the_writer_once_with_reason_and_reply() -> None:
    one = job()
    outcome, teacher, _ = write(one, BAD, GOOD)
    assert isinstance(outcome, Draft)
    (failed,) = one.failed
    assert (failed.reason, failed.attempt, failed.final) == ("value_not_stated", 0, False)
    assert "B-1042" in failed.detail
    prompt = render(teacher.asked[1].template, teacher.asked[1].shown)
    assert "because value_not_stated: 1.book: 'B-1042' does not stand in the request" in prompt
    assert '"Which books on bees do you have? Keep one for me."' in prompt
    assert "cannot be used" not in render(teacher.asked[0].template, teacher.asked[0].shown)


def test_after_the_second_broken_rule_the_task_is_rejected() -> None:
    short = BAD.model_copy(update={"question": "Bees"})
    one = job()
    outcome, teacher, _ = write(one, BAD, short)
    assert isinstance(outcome, Rejection)
    assert (outcome.reason, outcome.attempt, outcome.final) == ("question_too_short", 1, True)
    assert [failed.reason for failed in one.failed] == ["value_not_stated"]
    assert len(teacher.asked) == 2


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ProviderError("down"), "ask_failed"), (ParseError("prose"), "reply_unparsable")],
)
def test_an_outage_is_no_broken_rule(error: Exception, reason: str) -> None:
    for replies, attempt in (([error], 0), ([BAD, error], 1)):
        one = job()
        outcome, _, _ = write(one, *replies)
        assert isinstance(outcome, Rejection)
        assert (outcome.reason, outcome.attempt, outcome.final) == (reason, attempt, True)
        assert len(one.failed) == attempt


def test_one_call_is_asked_for_without_what_only_several_need() -> None:
    single = server_task_ask(LIBRARY, 1, 0, "en", 40)
    several = server_task_ask(LIBRARY, 2, 0, "en", 40)
    assert (single.response, several.response) == (WrittenCall, WrittenTask)
    first, second = (render(ask.template, ask.shown) for ask in (single, several))
    assert not re.search(r"`step`|`path`|  result:|earlier", first)
    assert re.search(r"`step`", second)
    assert "  result:" in second
    assert "step" not in json.dumps(WrittenCall.model_json_schema()["$defs"]["StatedArgument"])


def test_prompts_tell_of_marks_names_and_times_only_where_there_are_some() -> None:
    ask = server_task_ask(LIBRARY, 1, 0, "en", 40)
    prompt = render(ask.template, {**ask.shown, "names": ()})
    for absent in ("x-entity", "make up a name", "The user writes", "build yours on"):
        assert absent not in prompt
    marked = server(
        "club", "garden", (tool("find_grower", TEXT, plot={"type": "string", "x-entity": "thing"}),)
    )
    ask = server_task_ask(marked, 1, 0, "en", 40, "2026-03-10 14:05", ["find_grower"])
    prompt = render(ask.template, {**ask.shown, "names": ("Opal Bay", "Una Reed")})
    for present in ("`x-entity` in", "example's:\n  Opal Bay, Una Reed", "2026-03-10 14:05",
                    "build yours on find_grower."):  # fmt: skip
        assert present in prompt


def focus(of: ToolServer, per_server: int) -> dict[str, list[str]]:
    jobs = base_jobs(of, [], config(server_tasks={"per_server": per_server, "max_tools": 3}))
    return {one.origin.part: one.ask.variables["focus"] for one in jobs}


def test_tasks_of_one_server_build_on_different_tools() -> None:
    wide = server("wide", "many", tuple(tool(f"get_part_{n}", TEXT, a=TEXT) for n in range(13)))
    found = focus(wide, 2)
    assert len(found) == 6
    flat = [name for names in found.values() for name in names]
    assert len(set(flat)) == len(flat) == 12
    assert focus(wide, 3).items() >= found.items()
    narrow = list(focus(LIBRARY, 4).values())
    assert {len(names) for names in narrow} == {1}
    assert sorted(name for (name,) in narrow) == 4 * ["find_books"] + 4 * ["reserve_book"]
    assert set(map(tuple, focus(server("one", "one", SHELF[:1]), 2).values())) == {()}


def test_live_servers_are_asked_for_further_samples() -> None:
    chains = [chain_of(*UNBOUND)]
    live = LIBRARY.model_copy(update={"execution": Execution.LIVE})
    plain = {one.origin for one in base_jobs(live, chains, config(), live=2)}
    wanted = config(min_live_tasks=3 * len(plain), max_live_tasks=1000)
    more = base_jobs(live, chains, wanted, live=2)
    assert len(more) == 2 * len(plain), "half of them are the other live server's"
    assert {one.origin for one in more} >= plain, "none is asked for anew"
    alone = base_jobs(live, chains, wanted, live=1)
    assert len(alone) == 3 * len(plain)
    assert len({one.origin for one in alone}) == len(alone)
    assert len(base_jobs(LIBRARY, chains, wanted, live=2)) == len(plain), "others stay as they are"
    with pytest.raises(ValidationError, match="min_live_tasks 3 exceeds max_live_tasks 2"):
        config(min_live_tasks=3, max_live_tasks=2)


def test_every_base_task_has_a_time_of_its_own() -> None:
    span = {"now": ["2026-03-01", "2026-03-31"]}
    jobs = base_jobs(LIBRARY, [chain_of(*UNBOUND)], config(**span))
    times = [one.now for one in jobs]
    assert len(set(times)) == len(times)
    assert all(re.fullmatch(r"2026-03-\d\d \d\d:\d\d", time) for time in times)
    assert all(f"The user writes at {one.now}." in render(one.ask.template, one.ask.shown)
               for one in jobs)  # fmt: skip
    assert {one.now for one in base_jobs(LIBRARY, [], config())} == {""}
