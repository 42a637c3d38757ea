"""Scores of conversations with several user messages, and of Chinese ones."""

from __future__ import annotations

import json
from typing import Any

from test_scoring import (
    AGENT,
    COVE,
    FAR,
    GOOD,
    LATE,
    OFFICE,
    OK,
    PRICE,
    QUESTION,
    Call,
    Judge,
    mean,
    scores,
    trajectory,
    values,
)

from astra.prompting import render
from astra.records.message import Message, MessageRole
from astra.records.trajectory import Trajectory
from astra.scoring import rules
from astra.scoring.view import requests, view_of


def talk(*parts: tuple[str, list[list[Call]], str]) -> Trajectory:
    """A conversation of (user message, turns of calls, final message)."""
    single = [trajectory(user, *turns, answer=answer) for user, turns, answer in parts]
    messages: list[Message] = [single[0].messages[0]]
    calls: list[Any] = []
    for one in single:
        shift = len(calls)
        for message in one.messages[1:]:
            renamed = [
                call.model_copy(update={"id": f"call_{int(call.id[5:]) + shift}"})
                for call in message.tool_calls
            ]
            reply = message.tool_call_id
            messages.append(
                message.model_copy(
                    update={
                        "tool_calls": tuple(renamed),
                        "tool_call_id": f"call_{int(reply[5:]) + shift}" if reply else None,
                    }
                )
            )
        calls += one.calls
    whole = {**single[0].model_dump(), "id": "", "messages": messages, "calls": calls}
    return Trajectory.model_validate(whole)


OFFICE_ANSWER = "The office is <answer>Pine Dock</answer>"
TWO = talk((QUESTION, [[PRICE]], GOOD), (FAR, [[AGENT], [OFFICE]], OFFICE_ANSWER))
ASKS = "Please tell me the listing. <answer>missing value</answer>"
TOLD = talk(
    ("What is the asking price?", [], ASKS), ("The listing is Amber Cove.", [[PRICE]], GOOD)
)
NO_TOOL = "No offered tool can do this. <answer>no tool</answer>"


def test_the_view_says_what_the_user_wrote_and_when() -> None:
    view = view_of(TWO)
    assert view["question"] == QUESTION
    assert [round_["user"] for round_ in view["rounds"]] == ["", "", FAR, "", ""]
    assert requests(view) == [QUESTION, FAR]
    assert [len(r["calls"]) for r in view["rounds"]] == [1, 0, 1, 1, 0]
    assert view["rounds"][3]["calls"][0]["result"] == "Pine Dock"


def test_a_clean_conversation_scores_one_everywhere() -> None:
    for one in (TWO, TOLD):
        found = values(one)
        assert set(found.values()) == {1.0}, found
    refused = talk(
        ("What is the hall guard of Opal Peak?", [], NO_TOOL), (QUESTION, [[PRICE]], GOOD)
    )
    assert mean(refused) == 1.0


def test_each_request_counts() -> None:
    lazy = talk((QUESTION, [[PRICE]], GOOD), (FAR, [], "No. <answer>no tool</answer>"))
    assert values(lazy)["query_understanding"] == 0.0
    wrong = talk((QUESTION, [[PRICE]], "The asking price is <answer>9</answer>"),
                 (FAR, [[AGENT], [OFFICE]], OFFICE_ANSWER))  # fmt: skip
    assert values(wrong)["final_answer"] == 0.75
    given_up = talk((QUESTION, [[PRICE]], GOOD), (FAR, [[LATE]], "It is <answer>far</answer>"))
    assert values(given_up)["context_planning"] < 1.0


def test_every_message_to_the_user_is_checked_for_language_and_links() -> None:
    mixed = talk((QUESTION, [[PRICE]], "要价是这个数字。<answer>410000</answer>"),
                 (FAR, [[AGENT], [OFFICE]], OFFICE_ANSWER))  # fmt: skip
    assert [one["turn"] for one in rules.foreign_messages(view_of(mixed))] == [2]
    link = talk((QUESTION, [[PRICE]], f"{GOOD} https://a.example/x"),
                (FAR, [[AGENT], [OFFICE]], OFFICE_ANSWER))  # fmt: skip
    assert rules.foreign_urls(view_of(link)) == ["https://a.example/x"]
    assert rules.foreign_messages(view_of(TWO)) == []


def test_prompts_show_the_users_messages_in_their_place() -> None:
    judge = Judge()
    scores(TWO, judge)
    assert judge.asked() == ["conduct", "final_answer", *["turn"] * 4]
    for ask in judge.asks:
        prompt = render(ask.template, ask.shown)
        late = "history" in ask.variables and len(ask.variables["history"]) < 2
        assert (f"The user then writes: {FAR}" in prompt) is not late
    shown = render(judge.asks[0].template, judge.asks[0].shown)
    assert "call 4.1: get_office" in shown
    assert "each of these calls in this order: 1.1, 3.1, 4.1." in shown
    assert json.dumps(COVE) in shown


CHINESE: Call = ("get_asking_price", COVE, OK, "410000")


def test_a_clean_chinese_episode_passes() -> None:
    one = trajectory(
        "请告诉我Amber Cove的asking price。",
        [CHINESE],
        answer="查询的结果是 <answer>410000</answer>",
    )
    assert mean(one) == 1.0
    assert one.messages[1].role == MessageRole.USER
