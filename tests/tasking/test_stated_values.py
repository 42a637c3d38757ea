"""Values as people say them: what rules find again, and what the judge decides."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_tasking import config, said, server, tool

from astra.llm.protocol import Ask, ParseError, Reply
from astra.llm.structured import parse_reply
from astra.prompting import render
from astra.records.graph import ArgumentOrigin, ArgumentSource, Chain, ChainStep
from astra.records.score import Rejection
from astra.records.task import Task, TaskKind
from astra.records.tool import Tool, ToolServer
from astra.store.metrics import StageMetrics
from astra.tasking.asks import (
    TaskScores,
    WrittenCall,
    WrittenTask,
    score_ask,
)
from astra.tasking.checks import TaskProblem, check_question, said_in
from astra.tasking.drafts import Draft, Origin
from astra.tasking.scoring import score_task
from astra.tasking.stated import Standing, given_values, settled
from astra.tasking.writing import checked_plan
from astra.text.words import numbers, says

TEXT = {"type": "string"}
NUMBER = {"type": "number"}
FORECAST = {
    "latitude": NUMBER,
    "longitude": NUMBER,
    "days": {"type": "integer", "default": 3},
    "units": {"type": "string", "enum": ["metric", "imperial"]},
    "hourly": {"type": "boolean"},
}
EVENT = {
    "title": TEXT,
    "starts": {"type": "string", "format": "date"},
    "all_day": {"type": "boolean"},
    "guests": {"type": "array", "items": TEXT},
    "repeat": {"anyOf": [{"$ref": "#/$defs/Rhythm"}, {"type": "null"}]},
}
TRANSFER = {"amount": NUMBER, "currency": TEXT, "account": TEXT, "fee": NUMBER}
SEARCH = {"query": TEXT, "limit": {"type": "integer"}, "tags": {"type": "array", "items": TEXT}}


def with_rhythm(one: Tool) -> Tool:
    rhythm = {"type": "object", "properties": {"every": {"enum": ["week", "month"]}}}
    return one.model_copy(update={"parameters": {**one.parameters, "$defs": {"Rhythm": rhythm}}})


TOOLS = (
    tool("get_forecast", TEXT, **FORECAST),
    with_rhythm(tool("create_event", TEXT, **EVENT)),
    tool("wire_money", TEXT, **TRANSFER),
    tool("search_pages", TEXT, **SEARCH),
)
NAMED = {one.name: one for one in TOOLS}


def derived(value: Any, words: str) -> ArgumentSource:
    return ArgumentSource(origin=ArgumentOrigin.TASK, value=value, said=words)


def standing(name: str, question: str, **sources: ArgumentSource) -> dict[str, str]:
    plan = [ChainStep(tool=name, arguments=sources)]
    return {one.argument: one.standing for one in given_values(question, plan, NAMED)}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1,000,000 euros", {"1000000"}),
        ("$1,500.50 or 1.50", {"1500.5", "1.5"}),
        ("46.87,-113.99", {"46.87", "-113.99"}),
        ("rows 1,2,3", {"1", "2", "3"}),
        ("第4行，共５行", {"4", "5"}),
        ("a .5 share, 50% of it", {"0.5", "50"}),
        ("on 2021-03-01 at 10:30, version 1.50.2, pages 5-10, the 3rd, 4K, A4, 1e6", set()),
        ("ends with 7.", {"7"}),
        ("minus −5", {"-5"}),
    ],
)
def test_numbers_are_whole_tokens_whatever_their_form(text: str, found: set[str]) -> None:
    assert numbers(text) == {Decimal(number) for number in found}


@given(st.integers(0, 10**9), st.sampled_from(["{}", "{:,}", "{}.00", "{:,}.0"]))
def test_a_number_is_found_in_every_form_and_never_inside_a_longer_one(
    number: int, form: str
) -> None:
    text = form.format(number)
    assert numbers(f"Take {text} of them, or (${text}).") == {Decimal(number)}
    assert number not in numbers(f"row 9{number}, {number}.5 km, {number}th, A{number}, 3-{number}")


@pytest.mark.parametrize(
    ("phrase", "text", "there"),
    [
        ("five days.", "What about the next Five  days?", True),
        ("“Blue Lamp”", 'delete "blue lamp" for me', True),
        ("Miller's", "Miller’s order", True),
        ("5 天", "未来5天的天气", True),
        ("把「蓝灯」", "请把蓝灯删除", True),
        ("ＡＢＣ", "the abc", True),
        ("lamp", "lampshade", False),
        ("42", "row 1042", False),
        ("...", "wait ...", False),
        ("", "anything", False),
        ("next week", "the week after", False),
    ],
)
def test_words_are_said_whatever_their_dress(phrase: str, text: str, there: bool) -> None:
    assert says(phrase, text) is there


def test_what_people_say_of_a_forecast_needs_no_literal() -> None:
    question = "What will it be like in Missoula over the next five days, hour by hour, in °F?"
    assert standing(
        "get_forecast",
        question,
        latitude=derived(46.87, "Missoula"),
        longitude=derived(-113.99, "in Missoula"),
        days=derived(5, "the next five days"),
        hourly=said(True),
        units=said("imperial"),
    ) == {
        "latitude": "derived",
        "longitude": "derived",
        "days": "derived",
        "hourly": "open",
        "units": "open",
    }


@pytest.mark.parametrize(
    ("name", "question", "argument", "source", "expected"),
    [
        ("wire_money", "Wire 1,000,000 to it", "amount", said(1000000), "stated"),
        ("wire_money", "Wire 1.50 to it", "amount", said(1.5), "stated"),
        ("wire_money", "Wire two hundred to it", "amount", said(200), "open"),
        ("search_pages", "the best page of 2021", "limit", said(1), "open"),
        ("search_pages", "row 39.7392 of it", "limit", said(3), "open"),
        ("wire_money", "Wire 5 dollars to it", "currency", said("USD"), "open"),
        ("wire_money", "Wire 5 to DE-44", "account", said("de-44"), "stated"),
        ("wire_money", "Wire 5 to account 1042", "account", said("42"), "absent"),
        ("wire_money", "Wire 5 to account 1,042", "account", said("1042"), "stated"),
        ("wire_money", "Wire 5 in it to us", "account", said("IT"), "absent"),
        ("search_pages", "How long may a cookie live?", "query", said("cookie lifetime"), "absent"),
        ("search_pages", "How long may a cookie live?", "query",
         derived("cookie lifetime", "how long may a cookie live"), "derived"),
        ("search_pages", "How long may a cookie live?", "query",
         derived("cookie lifetime", "cookie age"), "absent"),
        ("search_pages", "python and Async pages", "tags", said(["python", "async"]), "stated"),
        ("search_pages", "python pages", "tags", said(["python", "async"]), "absent"),
        ("search_pages", "pages", "tags", said([]), "open"),
        ("create_event", "the offsite on March 1st", "starts", said("2025-03-01"), "open"),
        ("create_event", "the offsite on 2025-03-01", "starts", said("2025-03-01"), "stated"),
        ("search_pages", "those of half an hour", "query", said("PT30M"), "open"),
        ("search_pages", "the pages of the project", "query", said("P12"), "absent"),
        ("search_pages", "tomorrow at half past two", "query", said("14:30"), "open"),
        ("create_event", "every single week", "repeat", said({"every": "week"}), "open"),
        ("create_event", "every day", "repeat", said({"every": "fortnight"}), "absent"),
        ("create_event", "Kick-off with Priya", "guests", said(["Priya"]), "stated"),
        ("create_event", "明天和王芳开会", "guests", said(["王芳"]), "stated"),
        ("create_event", "明天和王芳开会", "guests", said(["王林"]), "absent"),
    ],
)  # fmt: skip
def test_how_a_value_stands(
    name: str, question: str, argument: str, source: ArgumentSource, expected: str
) -> None:
    assert standing(name, question, **{argument: source}) == {argument: expected}


def test_a_question_without_a_name_or_its_words_is_refused_with_the_place() -> None:
    plan = [
        ChainStep(tool="search_pages", arguments={"query": said("cookie lifetime")}),
        ChainStep(tool="create_event", arguments={"starts": derived("2025-03-01", "March 1st")}),
    ]
    with pytest.raises(TaskProblem) as problem:
        check_question("How long may cookies live, until March?", plan, TOOLS, "en", 40)
    assert problem.value.reason == "value_not_stated"
    assert problem.value.detail == (
        "0.query: 'cookie lifetime' does not stand in the request and has no `said`; "
        "1.starts: `said` 'March 1st' does not stand in the request"
    )


def test_a_variant_has_to_keep_what_its_original_says() -> None:
    plan = [
        ChainStep(
            tool="get_forecast",
            arguments={
                "days": derived(5, "five days"),
                "units": said("metric"),
                "hourly": said(True),
            },
        ),
        ChainStep(tool="search_pages", arguments={"query": said("Opal Bay"), "limit": said(3)}),
    ]
    assert said_in("Five days of weather, and 3 pages on opal bay", plan) == [
        "five days", "Opal Bay", "3"
    ]  # fmt: skip
    assert said_in("Three pages", plan) == []


def test_superfluous_words_go_and_unsaid_defaults_are_no_values_of_the_user() -> None:
    plan = [
        ChainStep(
            tool="get_forecast",
            arguments={"days": said(3), "units": said("metric"), "latitude": derived(7, "seven")},
        ),
        ChainStep(tool="search_pages", arguments={"query": derived("Opal Bay", "Opal Bay")}),
    ]
    first, second = settled("At latitude 7, what of Opal Bay?", plan, NAMED)
    assert first.arguments["days"].origin is ArgumentOrigin.DEFAULT
    assert first.arguments["units"].origin is ArgumentOrigin.TASK
    assert first.arguments["latitude"].said == ""
    assert second.arguments["query"].said == ""
    assert settled("At seven, for 3 days", plan, NAMED)[0].arguments["days"] == said(3)


class Scripted:
    """A teacher that gives the replies it was given, one after the other."""

    name = "scripted"

    def __init__(self, *replies: Any) -> None:
        self._replies = list(replies)
        self.asked: list[Ask[Any]] = []

    async def ask(self, ask: Ask[Reply]) -> Reply:
        self.asked.append(ask)
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return ask.accepted(reply)


def task_of(question: str, *plan: ChainStep, **fields: Any) -> Draft:
    kind = fields.pop("kind", TaskKind.SERVER)
    task = Task(server_id="s", chain_id=None, kind=kind, language="en", question=question,
                plan=plan, **fields)  # fmt: skip
    return Draft(Origin("s", "server 1"), task)


PLACES = server("places", "weather", TOOLS)
FORECAST_TASK = task_of(
    "What will it be like in Missoula over the next five days?",
    ChainStep(
        tool="get_forecast",
        arguments={
            "latitude": derived(48.86, "Missoula"),
            "longitude": derived(-113.99, "Missoula"),
            "days": said(5),
            "units": said("metric"),
            "hourly": said(False),
        },
    ),
)


def scores(*wrong: tuple[str, str]) -> TaskScores:
    labels = dict.fromkeys(("quality", "realism", "necessity", "difficulty", "uniqueness"), 5)
    places = [{"problem": problem, "place": place} for place, problem in wrong]
    return TaskScores.model_validate({"reason": "Plain.", "wrong_values": places, **labels})


def judged(draft: Draft, reply: TaskScores) -> tuple[Draft | Rejection, dict[str, int]]:
    metrics = StageMetrics("t")
    judge, thresholds = Scripted(reply), config().thresholds
    outcome = asyncio.run(score_task(PLACES, draft, judge, thresholds, metrics))
    return outcome, dict(metrics.counts)


def test_what_the_judge_lets_pass_is_kept_and_counted() -> None:
    outcome, counts = judged(FORECAST_TASK, scores())
    assert isinstance(outcome, Draft)
    assert set(outcome.task.scores) == {
        "quality", "realism", "necessity", "difficulty", "uniqueness"
    }  # fmt: skip
    assert counts == {"values_derived": 2, "values_open": 3}


def test_a_wrong_derivation_falls_with_the_judges_words() -> None:
    outcome, counts = judged(FORECAST_TASK, scores(("0.latitude", "That is Paris.")))
    assert isinstance(outcome, Rejection)
    assert outcome.reason == "value_wrongly_derived"
    assert outcome.said == "0.latitude: That is Paris."
    assert outcome.detail.startswith("0.latitude 'Missoula' -> 48.86: What will it be like")
    assert counts == {"values_wrong": 1, "values_derived": 1, "values_open": 3}


def test_a_number_inside_another_falls_as_not_stated() -> None:
    draft = task_of(
        "What is the best page of 2021?",
        ChainStep(tool="search_pages", arguments={"limit": said(1)}),
    )
    outcome, _ = judged(draft, scores(("0.limit", "Nobody gave a limit.")))
    assert isinstance(outcome, Rejection)
    assert outcome.reason == "value_not_stated"


def test_the_judge_may_call_a_stated_value_wrong_too() -> None:
    draft = task_of(
        "Search for Opal Bay in the 3 oldest pages.",
        ChainStep(tool="search_pages", arguments={"query": said("Opal Bay"), "limit": said(3)}),
    )
    assert "0.limit" not in str(score_ask(PLACES, draft.task).variables["unstated"])
    outcome, _ = judged(draft, scores(("0.limit", "Three pages are searched, not returned.")))
    assert isinstance(outcome, Rejection)


def test_a_place_that_does_not_exist_is_no_answer() -> None:
    outcome, _ = judged(FORECAST_TASK, scores(("0.city", "There is none.")))
    assert isinstance(outcome, Rejection)
    assert outcome.reason == "reply_unparsable"
    assert "there is no place ['0.city']" in outcome.detail
    irrelevant = score_ask(PLACES, task_of("How tall is it?", kind=TaskKind.IRRELEVANT).task)
    with pytest.raises(ParseError, match="the places are: none"):
        irrelevant.accepted(scores(("0.x", "?")))


def test_a_reply_that_leaves_the_check_of_values_out_is_no_answer() -> None:
    labels = scores().model_dump(exclude={"wrong_values"})
    with pytest.raises(ParseError, match="wrong_values"):
        parse_reply(json.dumps(labels), TaskScores)


def shown(draft: Draft, of: ToolServer = PLACES) -> str:
    ask = score_ask(of, draft.task)
    return render(ask.template, ask.shown)


def test_the_judge_sees_words_and_suspects_and_the_time() -> None:
    prompt = shown(FORECAST_TASK)
    assert '- 0.latitude: "Missoula" -> 48.86' in prompt
    assert "- 0.days: no words named -> 5" in prompt
    assert "The user writes at" not in prompt
    timed = task_of("What will it be like tomorrow?", now="2026-03-10 14:05")
    assert "The user writes at 2026-03-10 14:05." in shown(timed)


def test_the_judge_sees_what_is_missing_on_purpose() -> None:
    task = FORECAST_TASK.task
    withheld = task_of(
        task.question, kind=TaskKind.MISSING_FUNCTION, withheld_tools=("get_forecast",)
    )
    prompt = shown(withheld)
    assert "- get_forecast (withheld):" in prompt
    assert prompt.count("(withheld)") == 1
    assert "`wrong_values` is []" in prompt
    left_out = task_of(
        "What of it?", ChainStep(tool="search_pages", arguments={"query": said(None)}),
        kind=TaskKind.MISSING_PARAMETER,
    )  # fmt: skip
    assert score_ask(PLACES, left_out.task).variables["unstated"] == []
    assert "left out of the request" in shown(left_out)


def chain_of(*steps: ChainStep) -> Chain:
    return Chain(server_id="s", steps=steps, walk_weight=1, votes_for=1, votes_against=0,
                 task_sketch="")  # fmt: skip


EXCHANGES = Path(__file__).parents[1] / "fixtures/exchanges/sft_track.jsonl.gz"
_TOOL = re.compile(r"^- (\w+): .*?\n?\s*[pP]arameters: (\{.*\})$", re.MULTILINE)
_STEP = re.compile(r"^\d+\. (\w+) (\{.*\})$", re.MULTILINE)
_REQUEST = re.compile(r"Request \(kind `\w+`\): (.*?)\nPlanned", re.DOTALL)


def exchanges(kind: str) -> list[tuple[str, dict[str, Any]]]:
    """Prompts and replies of a strong model about two real servers."""
    found: list[tuple[str, dict[str, Any]]] = []
    for line in gzip.decompress(EXCHANGES.read_bytes()).decode().splitlines():
        exchange = json.loads(line)
        form = exchange["ask"].get("response_format") or {}
        if form.get("json_schema", {}).get("name") == kind:
            prompt = exchange["ask"]["messages"][-1]["content"]
            found.append((prompt, json.loads(exchange["answer"]["content"])))
    return found


def tools_in(prompt: str) -> list[Tool]:
    described = prompt.split("==========")[1]
    return [
        Tool(name=name, description="", parameters=json.loads(parameters))
        for name, parameters in _TOOL.findall(described)
    ]


def steps_in(prompt: str) -> tuple[ChainStep, ...]:
    return tuple(
        ChainStep(tool=name, arguments=json.loads(arguments))
        for name, arguments in _STEP.findall(prompt)
    )


def test_what_a_strong_model_wrote_about_real_servers_passes() -> None:
    found = exchanges("WrittenTask")
    assert len(found) == 9
    for prompt, reply in found:
        of = server("real", "real", tuple(tools_in(prompt)))
        chain = chain_of(*steps) if (steps := steps_in(prompt)) else None
        form = WrittenTask if chain else WrittenCall
        plan = checked_plan(form.model_validate(reply), of, chain, "en", 120)
        assert all(one.standing is Standing.STATED
                   for one in given_values(reply["question"], plan, {t.name: t for t in of.tools})
                   )  # fmt: skip


def test_variants_of_a_strong_model_pass_and_miss_only_what_is_taken_out() -> None:
    found = exchanges("TaskScores")
    assert len(found) == 21
    values = 0
    for prompt, _ in found:
        tools, plan = tools_in(prompt), steps_in(prompt)
        request = _REQUEST.search(prompt)
        assert request is not None
        check_question(request[1], plan, tools, "en", 120)
        for one in given_values(request[1], plan, {t.name: t for t in tools}):
            if isinstance(one.source.value, str):
                values += 1
                without = request[1].replace(one.source.value, "that")
                with pytest.raises(TaskProblem, match=re.escape(one.place)):
                    check_question(without, plan, tools, "en", 120)
    assert values > 20


NATURAL: list[tuple[str, str, dict[str, ArgumentSource]]] = [
    ("create_event", "Put the Henley offsite into my calendar for March 1st as an all-day event "
     "and invite Priya and Tom Baker.",
     {"title": said("Henley offsite"), "starts": derived("2026-03-01", "March 1st"),
      "all_day": derived(True, "as an all-day event"), "guests": said(["Priya", "Tom Baker"])}),
    ("wire_money", "Please send two hundred and fifty euros to my landlord, account DE44 1002.",
     {"amount": derived(250, "two hundred and fifty euros"), "currency": said("EUR"),
      "account": said("DE44 1002"), "fee": said(0)}),
    ("search_pages", "Do we have anything on how long a session cookie may live? The five newest "
     "ones will do.",
     {"query": derived("session cookie lifetime", "how long a session cookie may live"),
      "limit": derived(5, "The five newest ones"), "tags": said([])}),
    ("get_forecast", "未来五天北京每个小时的天气怎么样？",
     {"latitude": derived(39.9, "北京"), "longitude": derived(116.4, "北京"),
      "days": derived(5, "未来五天"), "hourly": derived(True, "每个小时"),
      "units": said("metric")}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "question", "sources"), NATURAL)
def test_natural_requests_pass_every_rule(
    name: str, question: str, sources: dict[str, ArgumentSource]
) -> None:
    plan = (ChainStep(tool=name, arguments=sources),)
    check_question(
        question, settled(question, plan, NAMED), TOOLS, "zh" if "天" in question else "en", 60
    )


@pytest.mark.parametrize(("name", "question", "sources"), NATURAL)
def test_natural_requests_fall_once_their_words_are_taken_from_another_one(
    name: str, question: str, sources: dict[str, ArgumentSource]
) -> None:
    plan = (ChainStep(tool=name, arguments=sources),)
    strangers: Sequence[str] = [other for _, other, _ in NATURAL if other != question]
    for stranger in strangers:
        with pytest.raises(TaskProblem) as problem:
            check_question(stranger, plan, TOOLS, "", 60)
        assert problem.value.reason == "value_not_stated"
