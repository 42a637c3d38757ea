"""The recorded exchanges of the SFT track are whole and hold to their own asks."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from exchanges import conversation_of, finished, recorded, replayed
from jsonschema import Draft202012Validator

from astra.records.message import CallStatus, MessageRole
from astra.records.trajectory import StopReason


@pytest.fixture(scope="module")
def exchanges() -> list[dict[str, Any]]:
    return recorded()


def test_all_exchanges_are_read_and_differ(exchanges: list[dict[str, Any]]) -> None:
    assert len(exchanges) == 226
    assert len({one["id"] for one in exchanges}) == 226
    kinds = Counter("agent" if "tools" in one["ask"] else "structured" for one in exchanges)
    assert kinds == {"structured": 186, "agent": 40}


def test_every_structured_reply_satisfies_the_schema_in_its_ask(
    exchanges: list[dict[str, Any]],
) -> None:
    kinds: Counter[str] = Counter()
    for one in exchanges:
        if "response_format" not in one["ask"]:
            continue
        asked = one["ask"]["response_format"]["json_schema"]
        problems = Draft202012Validator(asked["schema"]).iter_errors(
            json.loads(one["answer"]["content"])
        )
        assert [problem.message for problem in problems] == [], one["id"]
        kinds[asked["name"]] += 1
    assert len(kinds) == 13


def test_a_reply_that_breaks_its_schema_would_be_noticed(exchanges: list[dict[str, Any]]) -> None:
    """No schema in the file is one that lets everything through."""
    for one in exchanges:
        if "response_format" in one["ask"]:
            schema = one["ask"]["response_format"]["json_schema"]["schema"]
            assert not Draft202012Validator(schema).is_valid({"unasked": 1}), one["id"]


def test_finished_episodes_can_be_rebuilt(exchanges: list[dict[str, Any]]) -> None:
    done = finished(exchanges)
    assert len(done) == 14
    statuses: Counter[CallStatus] = Counter()
    for one in done:
        episode = replayed(one)
        assert episode.stop_reason == StopReason.ANSWERED, one["id"]
        said = [(message.role, message.content) for message in episode.messages]
        assert said == [(raw["role"], raw["content"] or "") for raw in conversation_of(one)]
        statuses.update(call.result.status for call in episode.calls)
    assert set(statuses) == {CallStatus.OK, CallStatus.TIMEOUT, CallStatus.UNREACHABLE}


def test_conversations_with_two_user_turns_are_among_them(
    exchanges: list[dict[str, Any]],
) -> None:
    asked = Counter(
        sum(message["role"] == MessageRole.USER for message in one["ask"]["messages"])
        for one in finished(exchanges)
    )
    assert set(asked) == {1, 2}
