"""Which planned dependencies between calls an episode kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from homes import given, output, step

from astra.records.message import CallStatus, ExecutedCall, ToolCall, ToolResult
from astra.trajectories.dependencies import held_dependencies

FIND = step("find_papers", topic=given("tides"))


def call(
    turn: int, name: str, arguments: Any, result: Any = "done", status: str = "ok"
) -> ExecutedCall:
    text = result if isinstance(result, str) else json.dumps(result)
    value = None if status != "ok" else result
    return ExecutedCall(
        turn=turn,
        call=ToolCall(id=f"call_{turn}", name=name, arguments=json.dumps(arguments)),
        result=ToolResult(status=CallStatus(status), content=text, value=value),
    )


def find(result: Any, **fields: Any) -> ExecutedCall:
    return call(0, "find_papers", {"topic": "tides"}, result, **fields)


def held(calls: list[ExecutedCall], *path: str | int) -> bool:
    plan = (FIND, step("open_paper", id=output(0, *path), pages=given(3)))
    (found,) = held_dependencies(plan, calls)
    assert (found.step, found.argument) == (1, "id")
    return found.held


ROWS = {"papers": [{"id": 411, "title": "Spring tides"}, {"id": 530, "title": "Neap tides"}]}


@pytest.mark.parametrize(
    ("result", "used", "path"),
    [
        (ROWS, 411, ("papers", 0, "id")),
        (ROWS, 530, ("papers", 0, "id")),  # another item of the list is as good
        (ROWS, "530", ("papers", 0, "id")),
        ("411", 411, ()),
        (411, "411", ()),
        ("Found: paper 411 (Spring tides).", "411", ()),
        ("Found: paper 411 (Spring tides).", 411, ("papers", 0, "id")),  # no such path in a text
        ({"hits": [{"ref": "A-7"}]}, "A-7", ("papers", 0, "id")),  # another shape
        ({"id": "A-7"}, "A-7", ("result", "id")),  # a wrapper of the SDK
        (ROWS, [411, 530], ("papers", 0, "id")),
        ({"id": 3.0}, 3, ("id",)),
        (["A-7", "B-8"], ["B-8"], ()),
        ("论文编号：A-7。", "A-7", ()),
    ],
)
def test_a_value_taken_from_the_planned_place_is_held(
    result: Any, used: Any, path: tuple[str | int, ...]
) -> None:
    assert held([find(result), call(1, "open_paper", {"id": used})], *path)


@pytest.mark.parametrize(
    ("result", "used", "path"),
    [
        (ROWS, 999, ("papers", 0, "id")),
        (ROWS, "Spring tides", ("papers", 0, "id")),  # from the result, not from the planned place
        ({"id": 4110}, 411, ("id",)),
        ("Found: paper 4110.", "411", ()),
        ("Found: paper 41.1", "41", ()),
        (ROWS, [411, 999], ("papers", 0, "id")),
        (ROWS, [], ("papers", 0, "id")),
        ("", "411", ()),
    ],
)
def test_any_other_value_is_not(result: Any, used: Any, path: tuple[str | int, ...]) -> None:
    assert not held([find(result), call(1, "open_paper", {"id": used})], *path)


def test_the_giver_has_to_succeed_before_the_taker_is_called() -> None:
    taker = call(1, "open_paper", {"id": 411})
    place = ("papers", 0, "id")
    assert not held([taker], *place)
    assert not held([find(ROWS, status="timeout"), taker], *place)
    assert not held([find(ROWS), call(0, "open_paper", {"id": 411})], *place), "in the same turn"
    assert not held([call(0, "open_paper", {"id": 411}), find(ROWS)], *place)
    assert not held([find(ROWS)], *place), "never called"
    assert not held([find(ROWS), call(1, "open_paper", {"pages": 3})], *place)
    broken = call(1, "open_paper", {"id": 411}, "error: no JSON", "malformed")
    assert not held([find(ROWS), broken], *place)
    retried = [find("error", status="unreachable"), find(ROWS), taker]
    assert held(retried, *place)
    assert held([find(ROWS), call(1, "open_paper", {"id": 411}, "error", "timeout")], *place)


def test_every_planned_dependency_is_listed_and_no_other() -> None:
    plan = (FIND, step("open_paper", id=output(0), pages=given(3)), step("cite", a=output(0),
            b=output(1, "doi")))  # fmt: skip
    calls = [find("paper A-7"), call(1, "open_paper", {"id": "A-7"}, {"doi": "10.1/x"}),
             call(2, "cite", {"a": "A-7", "b": "10.1/y"})]  # fmt: skip
    found = held_dependencies(plan, calls)
    assert [(d.step, d.argument, d.held) for d in found] == [
        (1, "id", True), (2, "a", True), (2, "b", False)
    ]  # fmt: skip
    assert held_dependencies((FIND,), calls) == ()
    assert held_dependencies((), []) == ()
