"""The marks of the rules on conversations that the rules' author did not write.

The recorded exchanges hold a strong model's conversations with two tool servers. Each is taken as
it is, which is right, and with one thing changed, which is wrong. The hand-made set holds good
trajectories with derived and chosen values, and copies with one planted fault each.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from selection import faulty, good
from test_scoring import Judge, config

from astra.records.message import (
    CallStatus,
    ExecutedCall,
    Message,
    MessageRole,
    ToolCall,
    ToolResult,
)
from astra.records.tool import Execution, Tool
from astra.records.trajectory import StopReason, Trajectory
from astra.scoring import rules
from astra.scoring.floors import shortfall
from astra.scoring.judge import score
from astra.scoring.suspects import suspects
from astra.scoring.view import view_of

_OUTAGES = (("timed out", CallStatus.TIMEOUT), ("unreachable", CallStatus.UNREACHABLE))


def _status(content: str) -> CallStatus:
    if not content.startswith("error:"):
        return CallStatus.OK
    return next((status for words, status in _OUTAGES if words in content), CallStatus.ERROR)


def _trajectory(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Trajectory:
    seen: list[Message] = []
    executed: list[ExecutedCall] = []
    turn = 0
    waiting: list[ToolCall] = []
    for message in messages:
        content = message.get("content") or ""
        if message["role"] == "tool":
            call = waiting.pop(0)
            result = ToolResult(status=_status(content), content=content)
            executed.append(ExecutedCall(turn=turn, call=call, result=result))
            seen.append(Message(role=MessageRole.TOOL, content=content, tool_call_id=call.id))
            continue
        waiting = [ToolCall(id=c["id"], **c["function"]) for c in message.get("tool_calls") or ()]
        turn += message["role"] == "assistant"
        role = MessageRole(message["role"])
        seen.append(Message(role=role, content=content, tool_calls=tuple(waiting)))
    return Trajectory(
        task_id="t", server_id="s", sample=0, policy="p", execution=Execution.EMULATED,
        language="en", domain="d", tools=tuple(Tool(**one["function"]) for one in tools),
        messages=tuple(seen), calls=tuple(executed), stop_reason=StopReason.ANSWERED,
    )  # fmt: skip


@pytest.fixture(scope="module")
def recorded(root: Path) -> list[Trajectory]:
    path = root / "tests/fixtures/exchanges/sft_track.jsonl.gz"
    found: dict[str, Trajectory] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            exchange = json.loads(line)
            ask, answer = exchange["ask"], exchange["answer"]
            if "tools" in ask and not answer.get("tool_calls"):
                said = {"role": "assistant", "content": answer["content"]}
                one = _trajectory([*ask["messages"], said], ask["tools"])
                found[one.id] = one
    return list(found.values())


def _changed(one: Trajectory, old: str, new: str, role: MessageRole) -> Trajectory:
    """The trajectory with a text replaced in what one side says (an agent's calls included)."""
    document: dict[str, Any] = one.model_dump(mode="json") | {"id": ""}
    for message in document["messages"]:
        if message["role"] != role:
            continue
        message["content"] = message["content"].replace(old, new)
        for call in message["tool_calls"]:
            call["arguments"] = call["arguments"].replace(old, new)
    changed = Trajectory.model_validate(document)
    assert changed.id != one.id
    return changed


def test_what_a_strong_model_did_is_not_marked(recorded: list[Trajectory]) -> None:
    assert len(recorded) >= 10
    for one in recorded:
        view = view_of(one)
        assert suspects(view) == ()
        assert rules.repeats(view) == []
        assert rules.foreign_urls(view) == []
        assert rules.foreign_messages(view) == []
        judge = Judge()
        assert shortfall(asyncio.run(score(one, judge, config())), config()) is None
        assert len(judge.asks) == len(view["rounds"]) + 1


def test_outages_do_not_count_against_it(recorded: list[Trajectory]) -> None:
    hit = [one for one in recorded if any(c.result.status != CallStatus.OK for c in one.calls)]
    assert len(hit) >= 5
    for one in hit:
        found = asyncio.run(score(one, Judge(), config()))
        assert found.scores["tool_status"].model_dump()["value"] < 1
        assert found.selection["own_tool_status"].model_dump()["value"] == 1


def _of(recorded: list[Trajectory], words: str) -> Trajectory:
    return next(one for one in recorded if words in one.messages[1].content)


def test_a_user_who_names_a_place_makes_the_coordinates_a_suspect(
    recorded: list[Trajectory],
) -> None:
    one = _of(recorded, "46.6021,-120.5059")
    spoken = _changed(one, "46.6021,-120.5059", "Yakima", MessageRole.USER)
    marked = suspects(view_of(spoken))
    assert {suspect.unstated for suspect in marked} == {("46.6021,-120.5059",)}
    derived = asyncio.run(score(spoken, Judge(), config()))
    assert shortfall(derived, config()) is None
    assert set(derived.origins) == {"derived"}


@pytest.mark.parametrize(
    ("words", "old", "new"),
    [
        ("46.6021,-120.5059", "46.6021", "46.6121"),
        ("46.6021,-120.5059", '"limit": 5', '"limit": 20'),
        ("Teal Dock", "Teal Dock Deployment Handbook", "Teal Dock Handbook 2"),
        ("retry backoff", "docs.honeygrove.io/queue", "docs.honeygrove.io/queues"),
    ],
)
def test_a_value_that_the_agent_changed_is_marked(
    recorded: list[Trajectory], words: str, old: str, new: str
) -> None:
    wrong = _changed(_of(recorded, words), old, new, MessageRole.ASSISTANT)
    assert suspects(view_of(wrong))


def test_an_address_that_the_agent_changed_costs_nothing_to_refuse(
    recorded: list[Trajectory],
) -> None:
    one = next(o for o in recorded if "https://docs.honeygrove.io/queue" in o.messages[-1].content)
    judge = Judge()
    wrong = _changed(one, "docs.honeygrove.io/queue", "honeygrove.io/docs", MessageRole.ASSISTANT)
    why = shortfall(asyncio.run(score(wrong, judge, config())), config())
    assert why == ("not_faithful", "faithfulness 0.00, floor 1.00")
    assert judge.asks == []
    same = _changed(one, "https://docs.honeygrove", "http://www.docs.honeygrove",
                    MessageRole.ASSISTANT)  # fmt: skip
    assert rules.foreign_urls(view_of(same)) == []


def test_no_rule_decides_against_a_good_trajectory() -> None:
    marks = 0
    for case in good().values():
        view = view_of(case.trajectory)
        marks += len(suspects(view))
        assert rules.repeats(view) == [], case.name
        assert rules.foreign_messages(view) == [], case.name
        found = asyncio.run(score(case.trajectory, Judge(), config()))
        assert shortfall(found, config()) is None, case.name
    assert marks > 50, "derived, converted and chosen values are what the judge is asked about"


def test_every_planted_address_falls_and_every_planted_value_is_marked() -> None:
    kinds = {"invented_url": 0, "fabricated_argument": 0}
    for case in faulty().values():
        assert case.fault is not None
        if case.fault.kind == "invented_url":
            judge = Judge()
            why = shortfall(asyncio.run(score(case.trajectory, judge, config())), config())
            assert why is not None, case.name
            assert why[0] == "not_faithful", case.name
            assert judge.asks == [], case.name
        elif case.fault.kind == "fabricated_argument":
            before = {one.unstated for one in suspects(view_of(good()[case.parent].trajectory))}
            after = {one.unstated for one in suspects(view_of(case.trajectory))}
            assert after - before, case.name
        else:
            continue
        kinds[case.fault.kind] += 1
    assert min(kinds.values()) >= 5
