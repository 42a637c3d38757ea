"""The rules of the stage meet what a strong model wrote as agent, service and user."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from astra.agent.prompt import extract_answer, untagged
from astra.llm.structured import parse_reply
from astra.trajectories.emulated import EmulatedReply, check_reply, result_text
from astra.trajectories.follow_up import FollowUp, check_follow_up
from astra.trajectories.results import parse_result

PATH = Path(__file__).parents[1] / "fixtures" / "exchanges" / "sft_track.jsonl.gz"
PLACE = re.compile(r"-?\d+\.\d{4},-?\d+\.\d{4}")


@pytest.fixture(scope="module")
def exchanges() -> list[dict[str, Any]]:
    with gzip.open(PATH, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def answered(exchanges: list[dict[str, Any]], beginning: str) -> list[tuple[str, str]]:
    """Prompt and answer of the asks that begin like this."""
    return [
        (prompt, one["answer"]["content"])
        for one in exchanges
        if (prompt := one["ask"]["messages"][0]["content"]).startswith(beginning)
    ]


def test_what_a_service_sent_passes_and_keeps_its_order(exchanges: list[dict[str, Any]]) -> None:
    replies = [
        parse_reply(answer, EmulatedReply)
        for _, answer in answered(exchanges, "You stand in for a tool server")
    ]
    assert len(replies) == 30
    for reply in replies:
        check_reply(reply, None, 8192)
        assert parse_result(result_text(reply.result)) == reply.result
    long = [reply for reply in replies if len(result_text(reply.result)) > 400]
    assert long
    for reply in long:
        with pytest.raises(ValueError, match="at most 400 fit"):
            check_reply(reply, None, 400)
    objects = [reply for reply in replies if isinstance(reply.result, dict)]
    for reply in objects:
        check_reply(reply, {"type": "object", "required": list(reply.result)}, 8192)
        with pytest.raises(ValueError, match="violates the schema"):
            check_reply(reply, {"type": "object", "required": ["unheard_of"]}, 8192)


def test_people_see_what_an_agent_said_and_no_tag(exchanges: list[dict[str, Any]]) -> None:
    finals = [
        one["answer"]["content"]
        for one in exchanges
        if "tools" in one["ask"] and not one["answer"].get("tool_calls")
    ]
    assert len(finals) == 14
    for text in finals:
        answer = extract_answer(text)
        assert answer
        assert answer in untagged(text)
        assert "answer>" not in untagged(text)


def test_two_lives_are_not_one_users(exchanges: list[dict[str, Any]]) -> None:
    """The second goals of the recorded users concern other people and places than the first."""
    pairs: set[tuple[str, str]] = set()
    for prompt, _ in answered(exchanges, "You play a user"):
        goals = re.findall(r"^\d\. (.*)$", prompt.split("What you want")[1].split("====")[0], re.M)
        if len(goals) == 2:
            pairs.add((goals[0], goals[1]))
    assert pairs
    for first, second in pairs:
        here, there = PLACE.findall(first), PLACE.findall(second)
        wish = FollowUp(reason="", about=(there or [second])[0], request=second, values=there)
        with pytest.raises(ValueError, match="person or thing of the first request"):
            check_follow_up(wish, [first], here)
        if here:
            same = second if not there else second.replace(there[0], here[0])
            again = FollowUp(reason="", about=here[0], request=same, values=[])
            check_follow_up(again, [first], here)
        with pytest.raises(ValueError, match="says the same"):
            check_follow_up(
                FollowUp(reason="", about=first[:20], request=f"One more: {first}", values=[]),
                [first], here,
            )  # fmt: skip
