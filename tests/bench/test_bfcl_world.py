"""BFCL's classes as worlds: attributes as rows, verdicts by turn; the real package where it is."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import worlds_bfcl
from worlds_bfcl import Tally, compare, hosted, summary

from astra.bench.harness.bfcl_world import (
    DRIVER,
    BfclCall,
    BfclEntry,
    against_documents,
    replays,
    turn_goal,
    unasked_call,
)
from astra.bench.harness.environment import DRIVERS
from astra.bench.harness.hosted import HostedDesk
from astra.bench.harness.protocol import SuiteError
from astra.sandbox.delta_session import DIGESTS, as_text, line_hash


def driver() -> ModuleType:
    """The driver's file without the package, which it imports when it is run."""
    if str(DRIVERS) not in sys.path:
        sys.path.append(str(DRIVERS))
    spec = importlib.util.spec_from_file_location("bfcl_driver", DRIVERS / "play_bfcl_world.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Attributes as rows --------------------------------------------------------------------------


class File:
    def __init__(self, name: str, content: str) -> None:
        self.name, self.content = name, content


class Directory:
    def __init__(self, name: str, **contents: Any) -> None:
        self.name, self.contents, self.parent = name, contents, None


def cells(**attributes: Any) -> dict[str, Any]:
    return {key: row["value"] for key, row in driver().rows_of(attributes).items()}


def test_items_and_files_are_rows_and_private_attributes_are_not() -> None:
    found = cells(queue=[{"id": 1}, {"id": 2}], root=Directory("r", a=File("a", "text")),
                  user=None, _now="x")  # fmt: skip
    assert found == {
        "/queue": {"$list": 2}, "/queue/0": {"id": 1}, "/queue/1": {"id": 2},
        "/root": {"$directory": "r", "entries": 1}, "/root/a": {"$file": "a"},
        "/root/a/content": "text", "/user": None,
    }  # fmt: skip


DEEP: Any = "deep"
for _ in range(9):
    DEEP = {"in": DEEP}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({1: "a"}, {"1": "a"}),
        ({"int:1": "a"}, {1: "a"}),
        ({"a/b": 1}, {"a": {"b": 1}}),
        ((1, 2), [1, 2]),
        ({1, 2}, [1, 2]),
        ([], {}),
        (["x" * 9_000], ["x" * 9_001]),
        (["x" * 8_000, "y"], ["x" * 8_000 + "y"]),
        (Directory("d", f=File("f", "")), Directory("d")),
        (Directory("d", f=File("f", "z")), Directory("d", f=File("g", "z"))),
        (DEEP, {"in": DEEP}),
        (1, True),
        (None, "null"),
    ],
)
def test_what_differs_has_other_rows(one: Any, other: Any) -> None:
    rows, others = cells(it=one), cells(it=other)
    assert json.dumps(rows, sort_keys=True) != json.dumps(others, sort_keys=True)
    for cell in (*rows.values(), *others.values()):
        assert len(json.dumps(cell)) < 16_384
        assert driver().depth(cell) <= 8


def test_order_counts_in_lists_alone() -> None:
    assert cells(it={"a": 1, "b": {3, 1}}) == cells(it={"b": {1, 3}, "a": 1})
    assert cells(it=[{2: "x", 1: "y"}]) == cells(it=[{1: "y", 2: "x"}])
    assert cells(it=[1, 2]) != cells(it=[2, 1])


@pytest.mark.parametrize("value", [object(), [object()], b"bytes"])
def test_what_no_cell_holds_is_refused(value: Any) -> None:
    module = driver()
    with pytest.raises(module.AttributeFault, match="no cell holds"):
        module.rows_of({"it": value})


def test_what_changed_is_told_with_the_digest_that_sessions_tell() -> None:
    rows, there = driver().Rows(), Directory("d")
    there.name = {"n": 1, "gone": "ü"}  # type: ignore[assignment]
    rows.look({"Box": there})
    copy = rows.copy()
    there.name = {"n": 1.0}  # type: ignore[assignment]
    (changed,) = rows.look({"Box": there}).values()
    assert changed["/name/gone"] is None
    assert repr(changed["/name/n"]["value"]) == "1.0"
    assert set(changed) == {"/name", "/name/gone", "/name/n"}
    lines = [as_text(row) for row in rows.tables["Box"].values()]
    assert rows.digest("Box") == str(sum(map(line_hash, lines)) % DIGESTS)
    assert set(copy.look({"Box": there})) == {"Box"}
    assert rows.look({"Box": there}) == {}


def test_calls_results_and_documents_of_the_package_are_read() -> None:
    module = driver()

    def cd(folder: str, deep: int = 0) -> None: ...

    methods = {"cd": cd}
    assert module.parsed("cd('a b', deep=2)", methods) == {
        "tool": "cd", "arguments": {"folder": "a b", "deep": 2}, "text": "cd('a b', deep=2)"
    }  # fmt: skip
    with pytest.raises(module.AttributeFault):
        module.parsed("[cd(folder='a')]", methods)
    with pytest.raises(TypeError):
        module.parsed("cd(fold='a')", methods)
    assert module.written("cd", {"folder": "it's"}) == 'cd(folder="it\'s")'
    results = [{"a": 1}, {"a": {1}}, "text", None, [1]]
    assert [*map(module.result_text, results)] == ['{"a": 1}', "{'a': {1}}", "text", "None", "[1]"]
    told = {"type": "dict", "properties": {"x": {"type": "float", "default": 1.5},
            "y": {"type": "any"}, "z": {"type": "tuple", "items": {"type": "dict"}}}}  # fmt: skip
    assert module.schema(told) == {
        "type": "object", "properties": {"x": {"type": "number"}, "y": {},
        "z": {"type": "array", "items": {"type": "object"}}}}  # fmt: skip


# The comparison itself -----------------------------------------------------------------------


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return {"tool": tool, "arguments": arguments, "text": f"{tool}({given})"}


ADD, COUNT = call("add_contact", user_name="Ann"), call("count")
SCHEMA = {"type": "object", "properties": {"user_name": {"type": "integer"}}}
START = [{"attribute": "/names", "value": []}]


def after(names: list[str]) -> dict[str, Any]:
    return {"MessageAPI": {"/names": {"attribute": "/names", "value": names}}}


OPENED: dict[str, Any] = {
    "tables": {"MessageAPI": START},
    "tools": [{"name": name, "owner": "MessageAPI", "description": name, "parameters": SCHEMA}
              for name in ("add_contact", "count")],
    "turns": [
        {"calls": [COUNT, ADD], "heard": ["0-1", "added-1"], "effect": after(["Ann"])},
        {"calls": [], "heard": [], "effect": after(["Ann"])},
        {"calls": [COUNT], "heard": ["1-1"], "effect": after(["Ann"])},
    ],
}  # fmt: skip


class Clerk(HostedDesk):
    """A desk whose driver is this class: a list of names; it can be told to misbehave."""

    def __init__(self, fault: str = "") -> None:
        self.name, self.fault, self.failed_writes = "clerk", fault, []
        self._reset()

    def _reset(self) -> None:
        self.names: list[str] = []
        self.heard: list[str] = []
        self.now = 0

    def close(self) -> None: ...

    def ask(self, do: str, **given: Any) -> Any:
        match do:
            case "start":
                self._reset()
                return OPENED
            case "reset":
                self._reset()
            case "turn":
                self.now = given["at"]
            case "call":
                return self._call(given["tool"], given["arguments"])
            case "written":
                return call(given["tool"], **given["arguments"])["text"]
            case "verdict":
                return self._verdict(given["turns"])
        return None

    def _made(self, tool: str, arguments: dict[str, Any]) -> str:
        if tool == "count":
            return str(len(self.names))
        self.names = [*self.names, arguments["user_name"]]
        return "added"

    def _call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        before = self.names
        text = self._made(tool, arguments)
        self.heard.append(text)
        changed = self.names != before
        writes = after(self.names) if changed else {}
        total = line_hash(as_text({"attribute": "/names", "value": self.names}))
        total += self.fault == "digest"
        result = {"result_id": f"{text}-{self.heard.count(text)}", "turn_id": str(self.now)}
        return {"failed": False, "value": result, "writes": writes,
                "digest": {name: str(total % DIGESTS) for name in writes}}  # fmt: skip

    def _verdict(self, turns: list[list[str]]) -> dict[str, Any]:
        """The package's rule, over texts of calls."""
        names: list[str] = []
        heard: list[str] = []
        for at, calls in enumerate(turns):
            for text in calls:
                heard.append(str(len(names)) if text == "count()" else "added")
                names += [] if text == "count()" else [text.split("'")[1]]
            turn = OPENED["turns"][at]
            wrong = [kind for kind, missed in (
                ("empty_turn_model_response", not calls),
                ("instance_state_mismatch", names != ["Ann"]),
                ("execution_response_mismatch",
                 any(one[:-2] not in heard for one in turn["heard"]))) if missed]  # fmt: skip
            if self.fault == "verdict":
                wrong = []
            if turn["calls"] and wrong:
                return {"valid": False, "turn": at, "why": f"multi_turn:{wrong[0]}"}
        return {"valid": True, "turn": None, "why": ""}


def compared(fault: str = "") -> tuple[dict[str, Any], Tally]:
    tally = Tally()
    compare(hosted(Clerk(fault), "multi_turn_base_7", tally))
    return summary(tally, 0.0, 0.0), tally


def test_two_sides_that_agree_are_counted_by_what_both_say() -> None:
    figures, tally = compared()
    assert tally.differences == figures["faults"] == []
    assert figures["by_replay"] == {
        "base/added/wrong": 1, "base/doubled/right": 1, "base/dropped/wrong": 1,
        "base/gold/right": 1, "base/late/wrong": 1, "base/nothing/wrong": 1,
    }  # fmt: skip
    assert figures["verdicts"] == figures["equal"] == 6
    assert figures["gold_and_dropped_equal"] == 2
    assert figures["turns"] == {
        "right": 6, "not looked at": 4, "empty_turn_model_response": 2,
        "instance_state_mismatch": 2,
    }  # fmt: skip
    assert figures["against_documents"] == [
        "multi_turn_base_7: add_contact(user_name='Ann'): user_name: 'Ann' is not of type 'integer'"
    ]


def test_a_turn_is_missed_for_the_first_reason_that_the_package_gives() -> None:
    entry = BfclEntry.of("multi_turn_miss_func_3", OPENED)
    assert entry.category == "miss_func"
    assert turn_goal(entry, 1) is None
    goal = turn_goal(entry, 0)
    assert goal is not None
    assert [(one.table, one.key) for one in goal.must_read] == [
        ("turns", "0"), ("results", "0-1"), ("results", "added-1")
    ]  # fmt: skip
    assert goal.effect[0].values == {"value": ["Ann"]}
    assert against_documents(entry)


def test_replays_spoil_one_thing_each() -> None:
    entry = BfclEntry.of("multi_turn_base_7", OPENED)
    tool, arguments = unasked_call(entry)
    assert tool == "add_contact"
    unasked = BfclCall(tool, arguments, "add_contact()")
    texts = {name: [[one.text for one in calls] for calls in turns]
             for name, turns in replays(entry, unasked)}  # fmt: skip
    add, count = ADD["text"], "count()"
    assert texts == {
        "gold": [[count, add], [], [count]],
        "dropped": [[count, add], [], []],
        "doubled": [[count, add], [], [count, count]],
        "added": [[count, add], [], [count, "add_contact()"]],
        "late": [[count], [add], [count]],
        "nothing": [[], [], []],
    }


@pytest.mark.parametrize("fault", ["verdict", "digest"])
def test_what_goes_wrong_on_either_side_is_seen(fault: str) -> None:
    figures, tally = compared(fault)
    if fault == "verdict":
        found = {(one["replay"], one["bfcl"]) for one in tally.differences}
        assert found == {(name, None) for name in ("dropped", "added", "late", "nothing")}
    else:
        assert figures["faults"]
        assert figures["differences"]


# The package ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_package_and_our_verdicts_agree(bench_env: Path, tmp_path: Path,
                                            capsys: pytest.CaptureFixture[str],
                                            monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    path = tmp_path / "differences.jsonl"
    arguments = ["worlds_bfcl", "--json", "--count", "2", "--differences", str(path)]
    monkeypatch.setattr(sys, "argv", arguments)
    worlds_bfcl.main()
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["entries"] == dict.fromkeys(worlds_bfcl.CATEGORIES, 2)
    assert figures["gold_and_dropped_equal"] == 16
    assert figures["equal"] == figures["verdicts"] > 40
    assert figures["by_replay"]["long_context/gold/right"] == 2
    assert path.read_text() == ""


@pytest.mark.slow
def test_a_wrong_goal_shows_as_a_difference(bench_env: Path) -> None:
    desk, tally = HostedDesk(DRIVER), Tally()
    try:
        one = hosted(desk, "multi_turn_base_0", tally)
        goals = [goal and goal.model_copy(update={"effect": ()}) for goal in one.goals]
        one.goals = tuple(goals)
        compare(one)
        assert ("gold", None) in {(row["replay"], row["bfcl"]) for row in tally.differences}
        with pytest.raises(SuiteError, match=r"driver bfcl_world failed at start.*KeyError"):
            desk.ask("start", entry="no such entry")
    finally:
        desk.close()
