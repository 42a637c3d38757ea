"""Each dimension on hand-made conversations, with the offline judge and with broken ones."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from astra.errors import StageStop
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask, ModelConfig, ParseError, ProviderError, Reply
from astra.prompting import render
from astra.records.message import (
    CallStatus,
    ExecutedCall,
    Message,
    MessageRole,
    ToolCall,
    ToolResult,
)
from astra.records.score import Score, Scored, Unscored
from astra.records.tool import Execution, Tool
from astra.records.trajectory import StopReason, Trajectory
from astra.scoring import rules
from astra.scoring.judge import DIMENSIONS, AnswerGrade, CallGrades, Grade, mean_score, score
from astra.scoring.offline.handlers import HANDLERS
from astra.scoring.view import view_of

OFFLINE = OfflineTeacher(ModelConfig(backend="offline", model="1"), HANDLERS)
QUERY = "SELECT count(*) FROM homes WHERE place = '{}'"
Call = tuple[str, dict[str, Any], CallStatus, str]


def tool(name: str, **properties: Any) -> Tool:
    return Tool(
        name=name,
        description=f"{name.replace('_', ' ')}.",
        parameters={"type": "object", "properties": properties, "required": list(properties)},
    )


TEXT = {"type": "string"}
TOOLS = (
    tool("get_asking_price", listing=TEXT),
    tool("set_asking_price", listing=TEXT, price={"type": "integer"}),
    tool("find_agent", listing=TEXT),
    tool("get_office", agent=TEXT),
    tool("list_homes", city=TEXT, limit={"type": "integer", "default": 10}),
)


def trajectory(
    question: str, *turns: list[Call], answer: str = "", stop: StopReason = StopReason.ANSWERED
) -> Trajectory:
    messages = [
        Message(role=MessageRole.SYSTEM, content="system"),
        Message(role=MessageRole.USER, content=question),
    ]
    executed: list[ExecutedCall] = []
    for number, turn in enumerate(turns):
        calls = [
            ToolCall(id=f"call_{len(executed) + n}", name=name, arguments=json.dumps(arguments))
            for n, (name, arguments, _, _) in enumerate(turn)
        ]
        messages.append(Message(role=MessageRole.ASSISTANT, tool_calls=tuple(calls)))
        for call, (name, _, status, result) in zip(calls, turn, strict=True):
            messages.append(
                Message(role=MessageRole.TOOL, content=result, tool_call_id=call.id, name=name)
            )
            outcome = ToolResult(status=status, content=result)
            executed.append(ExecutedCall(turn=number, call=call, result=outcome))
    if answer:
        messages.append(Message(role=MessageRole.ASSISTANT, content=answer))
    return Trajectory(
        task_id="t", server_id="s", sample=0, policy="p", execution=Execution.EMULATED,
        language="en", domain="d", tools=TOOLS, messages=tuple(messages), calls=tuple(executed),
        stop_reason=stop,
    )  # fmt: skip


OK, LOST, BAD = CallStatus.OK, CallStatus.TIMEOUT, CallStatus.ERROR
COVE = {"listing": "Amber Cove"}
PRICE: Call = ("get_asking_price", COVE, OK, "410000")
LATE: Call = ("get_asking_price", COVE, LOST, "error: get_asking_price timed out")
AGENT: Call = ("find_agent", COVE, OK, "Mona Kemp")
OFFICE: Call = ("get_office", {"agent": "Mona Kemp"}, OK, "Pine Dock")
QUESTION = "What is the asking price of Amber Cove?"
FAR = "Which office has the agent of Amber Cove?"
GOOD = "The asking price is <answer>410000</answer>"


def scores(one: Trajectory, judge: Any = OFFLINE) -> dict[str, Score]:
    found = asyncio.run(score(one, judge)).scores
    assert set(found) == set(DIMENSIONS)
    return found


def values(one: Trajectory, judge: Any = OFFLINE) -> dict[str, float]:
    return {n: s.value for n, s in scores(one, judge).items() if isinstance(s, Scored)}


def mean(one: Trajectory) -> float:
    total = mean_score(scores(one))
    assert isinstance(total, Scored)
    return total.value


def test_a_clean_episode_scores_one_everywhere() -> None:
    assert values(trajectory(QUESTION, [PRICE], answer=GOOD)) == dict.fromkeys(DIMENSIONS, 1.0)
    chain = trajectory(FAR, [AGENT], [OFFICE], answer="The office is <answer>Pine Dock</answer>")
    assert values(chain) == dict.fromkeys(DIMENSIONS, 1.0)


def test_a_retry_after_a_passing_failure_costs_tool_status_only() -> None:
    one = trajectory(QUESTION, [LATE], [PRICE], answer=GOOD)
    assert values(one) == dict.fromkeys(DIMENSIONS, 1.0) | {"tool_status": 0.5}
    assert mean(one) > 0.9
    assert mean(trajectory(QUESTION, [LATE], [LATE], [PRICE], answer=GOOD)) > 0.9


def test_a_wrong_answer_falls_below_the_cut_off() -> None:
    found = values(trajectory(QUESTION, [PRICE], answer="The asking price is <answer>9</answer>"))
    assert found["final_answer"] == 0.5
    assert found["context_understanding"] == 0.0
    assert mean(trajectory(QUESTION, [PRICE], answer="It is <answer>9</answer>")) < 0.9


def test_a_repeat_after_success_or_lasting_failure_is_redundant_unless_something_was_written() -> (
    None
):
    def marked(*turns: list[Call]) -> set[tuple[int, int]]:
        return rules.redundant_calls(view_of(trajectory(QUESTION, *turns, answer=GOOD)))

    wrong: Call = ("get_asking_price", COVE, BAD, "error: no listing named Amber Cove")
    write: Call = ("set_asking_price", {**COVE, "price": 5}, OK, "updated")
    failed_write: Call = ("set_asking_price", {**COVE, "price": 5}, LOST, "error: timed out")
    assert marked([PRICE], [PRICE]) == {(1, 0)}
    assert marked([PRICE, PRICE]) == {(0, 1)}
    assert marked([wrong], [wrong]) == {(1, 0)}
    assert marked([LATE], [LATE], [PRICE]) == set()
    assert marked([PRICE], [write], [PRICE]) == set()
    assert marked([PRICE], [failed_write], [PRICE]) == {(2, 0)}
    found = values(trajectory(QUESTION, [PRICE], [PRICE], answer=GOOD))
    assert found["conciseness"] == 0.5
    assert found["context_planning"] == found["context_understanding"] == 0.5


@pytest.mark.parametrize(
    ("question", "arguments", "invented"),
    [
        ("Homes in Oslo?", {"city": "Oslo"}, False),
        ("Homes in Oslo?", {"city": "Oslo", "limit": 10}, False),
        ("Homes in Oslo?", {"city": "Oslo", "limit": 25}, True),
        ("The 25 best homes in Oslo?", {"city": "Oslo", "limit": 25}, False),
        ("Homes in Oslo?", {"city": "Oslo Bay"}, True),
        ("Homes on May 3, 2024?", {"city": "2024-05-03"}, False),
        ("Homes in Oslo?", {"city": None}, False),
        ("北京的房子", {"city": "北京"}, False),
        ("北京的房子", {"city": "上海"}, True),
        ("How many homes in Oslo?", {"city": QUERY.format("Oslo")}, False),
        ("How many homes in Oslo?", {"city": QUERY.format("Bergen")}, True),
    ],
)  # fmt: skip
def test_invented_arguments(question: str, arguments: dict[str, Any], invented: bool) -> None:
    one = trajectory(question, [("list_homes", arguments, OK, "[]")], answer="<answer>x</answer>")
    assert rules.invented_arguments(view_of(one)) == ({(0, 0)} if invented else set())
    if invented:
        assert values(one)["query_understanding"] == 0.0
        assert values(one)["conciseness"] == 0.0


def test_a_value_from_a_result_is_known_only_afterwards() -> None:
    early = trajectory(FAR, [AGENT, OFFICE], answer="It is <answer>Pine Dock</answer>")
    assert rules.invented_arguments(view_of(early)) == {(0, 1)}


def test_links_must_have_been_given() -> None:
    link: Call = ("get_office", {"agent": "Mona Kemp"}, OK, "see https://a.example/x.")
    text = "The office of the agent: https://{}.example/x <answer>see</answer>"
    question = "Office of agent Mona Kemp?"
    good = trajectory(question, [link], answer=text.format("a"))
    bad = trajectory(question, [link], answer=text.format("b"))
    assert rules.foreign_urls(view_of(good)) == []
    assert rules.foreign_urls(view_of(bad)) == ["https://b.example/x"]
    assert values(bad)["final_answer"] <= 0.5


def test_another_language_zeroes_correlation() -> None:
    one = trajectory(QUESTION, [PRICE], answer="要价是这个数字，请查收。<answer>410000</answer>")
    assert rules.wrong_language(view_of(one))
    assert values(one)["final_answer"] == 0.5


def test_calling_what_is_not_offered_zeroes_planning() -> None:
    call: Call = ("fly", {}, CallStatus.UNKNOWN_TOOL, "error: there is no tool 'fly'")
    assert values(trajectory(QUESTION, [call], [PRICE], answer=GOOD))["query_planning"] == 0.0


def test_no_call_is_right_only_where_nothing_fits() -> None:
    no_tool = "No offered tool can do this. <answer>no tool</answer>"
    right = trajectory("What is the hall guard of Opal Peak?", answer=no_tool)
    wrong = trajectory(QUESTION, answer=no_tool)
    please = "Please tell me the listing. <answer>missing value</answer>"
    asks = trajectory("What is the asking price?", answer=please)
    assert mean(right) == mean(asks) == 1.0
    assert values(wrong)["query_understanding"] == 0.0
    assert scores(right)["tool_status"] == Unscored(reason=rules.NOT_APPLICABLE)
    guess = trajectory(QUESTION, answer="It is surely <answer>5</answer>")
    assert mean(guess) < 0.5


def test_declining_is_right_where_a_part_cannot_be_done() -> None:
    no_tool = "No offered tool can do this. <answer>no tool</answer>"
    part = "What are the hall guard of Opal Peak and the asking price of Amber Cove?"
    assert mean(trajectory(part, answer=no_tool)) == 1.0
    persona = "I am a farmer of 35 years. What is the asking price of Amber Cove?"
    assert mean(trajectory(persona, [PRICE], answer=GOOD)) == 1.0


def test_an_unfinished_episode_has_no_answer() -> None:
    found = values(trajectory(QUESTION, [PRICE], stop=StopReason.MAX_TURNS))
    assert found["final_answer"] == 0.0


class Judge:
    """Answers from a table; an exception there is raised."""

    name = "judge"

    def __init__(self, **by_name: Any) -> None:
        self.by_name = by_name
        self.asks: list[Ask[Any]] = []

    async def ask(self, ask: Ask[Reply]) -> Reply:
        self.asks.append(ask)
        reply: Any = self.by_name.get(ask.template.removeprefix("scoring/"))
        if isinstance(reply, Exception):
            raise reply
        if reply is None:
            reply = {
                Grade: Grade(reason="", score=1),
                CallGrades: CallGrades(reason="", needed=[1, 1]),
                AnswerGrade: AnswerGrade(reason="", correlation=1, faithfulness=1),
            }[ask.response]
        return reply


CHAIN = trajectory(FAR, [AGENT], [OFFICE], answer="The office is <answer>Pine Dock</answer>")


@pytest.mark.parametrize(
    ("dimension", "template"),
    [(name, name) for name in DIMENSIONS if name != "tool_status"],
)
def test_a_judge_without_an_answer_leaves_the_dimension_unscored(
    dimension: str, template: str
) -> None:
    for error, reason in (
        (ProviderError("down"), "judge_unavailable"),
        (ParseError("prose"), "judge_unparsable"),
    ):
        found = scores(CHAIN, Judge(**{template: error}))
        assert found[dimension] == Unscored(reason=reason)
        assert mean_score(found) == Unscored(reason=f"{dimension}_{reason}")


def test_a_grade_per_call_or_none() -> None:
    found = scores(CHAIN, Judge(conciseness=CallGrades(reason="", needed=[1])))
    assert found["conciseness"] == Unscored(reason="judge_unparsable")


class Together(Judge):
    """Answers once so many asks wait for an answer; ``waiting`` says how many were left alone."""

    def __init__(self, wanted: int, **by_name: Any) -> None:
        super().__init__(**by_name)
        self._all = asyncio.Event()
        self._wanted = wanted
        self.waiting = 0

    async def ask(self, ask: Ask[Reply]) -> Reply:
        self.waiting += 1
        if self.waiting == self._wanted:
            self._all.set()
        try:
            await asyncio.wait_for(self._all.wait(), 20)
            return await super().ask(ask)
        finally:
            self.waiting -= 1


def test_all_that_a_judge_is_asked_about_a_trajectory_is_asked_at_once() -> None:
    judge = Together(2 + 2 * 2 + 2)  # by question, by turn, calls and answer
    assert set(values(CHAIN, judge).values()) == {1.0}
    assert len(judge.asks) == 8
    assert judge.waiting == 0


def test_the_first_turn_without_a_grade_says_why_its_dimension_has_none() -> None:
    class Failing(Judge):
        async def ask(self, ask: Ask[Reply]) -> Reply:
            late = len(ask.variables.get("history", ())) == 1
            if ask.template == "scoring/context_planning":
                await asyncio.sleep(0.02 if late else 0)
                raise ProviderError("turn 2 is  down") if late else ParseError("prose")
            return await super().ask(ask)

    judged = asyncio.run(score(CHAIN, Failing()))
    assert judged.scores["context_planning"] == Unscored(reason="judge_unavailable")
    assert judged.faults == ("context_planning: turn 2 is down",)


def test_a_stop_of_the_stage_ends_the_other_asks_and_is_raised_as_it_is() -> None:
    class Broke(Together):
        async def ask(self, ask: Ask[Reply]) -> Reply:
            if ask.template == "scoring/conciseness":
                raise StageStop("no money left")
            return await super().ask(ask)

    judge = Broke(9)
    with pytest.raises(StageStop, match="no money"):
        asyncio.run(score(CHAIN, judge))
    assert judge.waiting == 0


def test_reasons_of_judge_and_rules_are_kept() -> None:
    redundant = trajectory(QUESTION, [PRICE], [PRICE], answer=f"{GOOD} https://b.example/x")
    grades = {
        "context_planning": Grade(reason="goes\n on", score=0.5),
        "conciseness": CallGrades(reason="the second adds nothing", needed=[1, 0]),
        "final_answer": AnswerGrade(reason="as returned", correlation=1, faithfulness=1),
    }
    judged = asyncio.run(score(redundant, Judge(**grades)))
    assert judged.said == (
        "query_understanding: 1: ",
        "query_planning: 1: ",
        "context_understanding, turn 2: 0: rule: a call is repeated for nothing",
        "context_understanding, turn 3: 1: ",
        "context_planning, turn 2: 0: rule: a call is repeated for nothing",
        "context_planning, turn 3: 0.5: goes on",
        "conciseness: 1 0: the second adds nothing",
        "final_answer: correlation 1, faithfulness 1: as returned",
        "final_answer: 0: rule: a URL that nobody gave",
    )
    assert judged.faults == ()


def test_reasons_of_the_rules_are_the_same_in_every_process(root: Path) -> None:
    """They are stored: nothing in them may follow the order of a set."""
    code = (
        "import asyncio, sys; sys.path[:0] = ['src', 'tests/scoring']\n"
        "from test_scoring import *\n"
        "odd = 'What are the hall guard of Opal Peak and the asking price of Amber Cove?'\n"
        "for one in (CHAIN, trajectory(odd, [LATE], [PRICE], answer=GOOD), trajectory(odd),\n"
        "            trajectory(QUESTION, answer='Please tell me more. <answer>x</answer>')):\n"
        "    print(asyncio.run(score(one, OFFLINE)).said)"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert "names taken up" in said[0]
    assert said[0] == said[1]


def test_turn_judges_see_the_history_only() -> None:
    judge = Judge()
    scores(CHAIN, judge)
    asks = [ask for ask in judge.asks if ask.template == "scoring/context_understanding"]
    assert [len(ask.variables["history"]) for ask in asks] == [1, 2]
    assert "Pine Dock" not in json.dumps(asks[0].variables)


def test_prompts_render_and_do_not_scan_data() -> None:
    odd = trajectory("{{ 7 * 7 }} {% raw %}", [PRICE], [PRICE], answer=GOOD)
    judge = Judge()
    scores(odd, judge)
    for ask in judge.asks:
        assert "{{ 7 * 7 }}" in render(ask.template, ask.shown)
    assert {ask.template for ask in judge.asks} <= set(HANDLERS)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (Grade, {"score": 0.7}),
        (Grade, {"score": 2}),
        (CallGrades, {"needed": [2]}),
        (AnswerGrade, {"correlation": 1, "faithfulness": -1}),
    ],
)
def test_grades_outside_the_scale_are_no_reply(model: type[BaseModel], fields: Any) -> None:
    with pytest.raises(ValidationError):
        model.model_validate({"reason": "", **fields})
