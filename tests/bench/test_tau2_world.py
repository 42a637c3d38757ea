"""tau2-Bench as worlds: documents as tables, replays and wordings; the real package where it is."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import BaseModel

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import worlds_tau2
from worlds_tau2 import Tally, compare_states, compare_words, hosted, summary

from astra.arena.state import StateError
from astra.arena.verdict import judge
from astra.bench.harness.environment import DRIVERS
from astra.bench.harness.hosted import HostedDesk, changed, writes_of
from astra.bench.harness.protocol import SuiteError
from astra.bench.harness.tau2_world import (
    DRIVER,
    Scriptable,
    Tau2Domain,
    Tau2Task,
    conversations,
    goal_of,
    replays,
    scriptable,
    substring_told,
    told,
    world_of,
)
from astra.records.state import Tables
from astra.records.world import EventKind, TraceEvent
from astra.sandbox.delta_session import DIGESTS, as_text, line_hash

# Documents as tables -------------------------------------------------------------------------


class Pet(BaseModel):
    pet_id: str
    weight: Any
    visits: list[str] = []


class Room(BaseModel):
    room: str
    name: str


class Clinic(BaseModel):
    pets: dict[str, Pet]
    rooms: list[Room]
    desk: Room


def driver() -> ModuleType:
    """The driver's file without the package, which it imports when it is run."""
    if str(DRIVERS) not in sys.path:
        sys.path.append(str(DRIVERS))
    spec = importlib.util.spec_from_file_location("driver", DRIVERS / "play_tau2_world.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def environment() -> Any:
    clinic = Clinic(
        pets={"p1": Pet(pet_id="p1", weight=4.5), "p2": Pet(pet_id="p2", weight=1)},
        rooms=[Room(room="r1", name="blue"), Room(room="r2", name="blue")],
        desk=Room(room="front", name="desk"),
    )
    user = SimpleNamespace(db=Clinic(pets={}, rooms=[], desk=Room(room="home", name="own")))
    return SimpleNamespace(tools=SimpleNamespace(db=clinic), user_tools=user)


def test_mappings_lists_and_single_parts_become_tables() -> None:
    rows = driver().Rows()
    there = environment()
    there.user_tools = None
    assert rows.look(there) == {
        "pets": {"p1": {"pet_id": "p1", "weight": 4.5, "visits": []},
                 "p2": {"pet_id": "p2", "weight": 1, "visits": []}},
        "rooms": {"r1": {"room": "r1", "name": "blue", "place": 0},
                  "r2": {"room": "r2", "name": "blue", "place": 1}},
        "desk": {"desk": {"room": "front", "name": "desk", "key": "desk"}},
    }  # fmt: skip
    assert rows.keys == {"pets": "pet_id", "rooms": "room", "desk": "key"}
    assert rows.look(there) == {}


def test_what_changed_is_told_with_the_digest_that_sessions_tell() -> None:
    rows, there = driver().Rows(), environment()
    there.user_tools = None
    rows.look(there)
    clinic = there.tools.db
    clinic.pets["p2"].weight = 1.0  # another text, though Python takes it for the same
    clinic.pets["p3"] = Pet(pet_id="p3", weight=2, visits=["tomorrow – ü"])
    del clinic.pets["p1"]
    clinic.rooms.reverse()
    writes = rows.look(there)
    assert writes["pets"]["p1"] is None
    assert repr(writes["pets"]["p2"]["weight"]) == "1.0"
    assert writes["pets"]["p3"]["visits"] == ["tomorrow – ü"]
    assert {key: row["place"] for key, row in writes["rooms"].items()} == {"r1": 1, "r2": 0}
    assert "desk" not in writes
    for name in ("pets", "rooms"):
        lines = [as_text(row) for row in rows.rows[name].values()]
        assert rows.digest(name) == str(sum(map(line_hash, lines)) % DIGESTS)


def test_a_copy_is_no_part_of_what_it_was_made_of() -> None:
    rows, there = driver().Rows(), environment()
    there.user_tools = None
    rows.look(there)
    copy = rows.copy()
    there.tools.db.pets["p1"].weight = 9
    assert set(copy.look(there)["pets"]) == {"p1"}
    assert rows.rows["pets"]["p1"]["weight"] == 4.5
    assert set(rows.look(there)["pets"]) == {"p1"}


@pytest.mark.parametrize("fault", ["misnamed", "alike", "twins", "bare"])
def test_documents_that_tables_cannot_hold_are_refused(fault: str) -> None:
    module, there = driver(), environment()
    there.user_tools = None
    rows, clinic = module.Rows(), there.tools.db
    if fault == "alike":
        clinic.rooms = [Room(room="r", name="blue"), Room(room="r", name="blue")]
    elif fault == "bare":
        clinic.desk = "a text"
    else:
        rows.look(there)
        if fault == "misnamed":
            clinic.pets["p1"].pet_id = "p9"
        else:
            clinic.rooms.append(Room(room="r1", name="red"))
    with pytest.raises(module.DocumentError):
        rows.look(there)


# Changes, replays, wordings ------------------------------------------------------------------

KEYS = {"pets": "pet_id"}
PETS: Tables = {"pets": [{"pet_id": "p1", "weight": 4.5, "visits": []},
                 {"pet_id": "p2", "weight": 1, "visits": ["mon"]}]}  # fmt: skip


def test_changes_become_the_writes_that_make_them() -> None:
    after = {"pets": {"p1": {"pet_id": "p1", "weight": 5, "visits": []}, "p2": None,
                      "p3": {"pet_id": "p3", "weight": True, "visits": []}}}  # fmt: skip
    writes = writes_of(PETS, KEYS, after)
    assert [(write.action.value, write.where, write.values) for write in writes] == [
        ("update", {"pet_id": "p1"}, {"weight": 5}),
        ("delete", {"pet_id": "p2"}, {}),
        ("insert", {}, {"pet_id": "p3", "weight": True, "visits": []}),
    ]
    rows = changed(PETS, KEYS, after)["pets"]
    assert [row["pet_id"] for row in rows] == ["p1", "p3"]
    with pytest.raises(StateError, match="no columns"):
        changed(PETS, KEYS, {"pets": {"p1": {**PETS["pets"][0], "colour": "red"}}})


def tool(name: str, side: str, kind: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"pet_id": {"type": "string"}}}
    return {"name": name, "side": side, "type": kind, "description": name, "parameters": schema}


ACTIONS = [{"tool": name, "arguments": {"pet_id": pet}} for name, pet in
           (("get_pet", "p1"), ("feed", "p1"), ("pay", "p1"), ("feed", "p2"))]  # fmt: skip
OPENED = {
    "tables": {"pets": {"key": "pet_id", "rows": PETS["pets"]}},
    "tools": [tool("get_pet", "assistant", "read"), tool("feed", "assistant", "write"),
              tool("pay", "user", "write")],
    "policy": "Feed all pets; each needs 10 grams.",
    "tasks": [{"id": "t", "actions": ACTIONS, "tell": ["5.50", "Rex"],
               "basis": ["DB", "COMMUNICATE"], "user": "You want p1 and p2 fed."}],
}  # fmt: skip


def test_replays_spoil_a_solution_one_write_at_a_time() -> None:
    domain = Tau2Domain.of("clinic", OPENED)
    made = {one.name: one for one in replays(domain.tasks[0], domain)}
    calls = {name: [f"{tool} {given['pet_id']}" for tool, given in one.calls]
             for name, one in made.items()}  # fmt: skip
    whole = ["get_pet p1", "feed p1", "pay p1", "feed p2"]
    assert calls == {
        "gold": whole, "nothing": [],
        "dropped:1": ["get_pet p1", "pay p1", "feed p2"],
        "doubled:1": ["get_pet p1", "feed p1", "feed p1", "pay p1", "feed p2"],
        "dropped:2": ["get_pet p1", "feed p1", "feed p2"],
        "doubled:2": ["get_pet p1", "feed p1", "pay p1", "pay p1", "feed p2"],
        "dropped:3": whole[:3], "doubled:3": [*whole, "feed p2"],
        "reversed": ["get_pet p1", "feed p2", "pay p1", "feed p1"],
        "careless": whole[:3], "idle": ["pay p1"],
    }  # fmt: skip
    assert made["gold"].closing == "All is done. 5.50 Rex"
    assert made["idle"].closing == "Done."
    looker = Tau2Task("u", task_calls := domain.tasks[0].actions[:1], (), ("DB",), "")
    names = [(one.name, one.calls) for one in replays(looker, domain)]
    assert names == [("gold", task_calls), ("nothing", ()), ("careless", task_calls), ("idle", ())]


@pytest.mark.parametrize(
    ("text", "theirs", "ours"),
    [
        ("It is 5.50 for Rex.", [True, True], [True, True]),
        ("It is 5.5 for rex.", [False, True], [True, True]),  # a number written otherwise
        ("It is 15.501 for Rexford.", [True, True], [False, False]),  # parts of others
        ("It is 5.50, 6.50, 7.50 or 8.50.", [True, False], [False, False]),  # who lists all
        ("Done.", [False, False], [False, False]),
    ],
)
def test_what_is_told_by_each_sides_rule(text: str, theirs: list[bool], ours: list[bool]) -> None:
    domain = Tau2Domain.of("clinic", OPENED)
    task, world = domain.tasks[0], world_of(domain, domain.tables)
    trace = [TraceEvent(kind=EventKind.ASSISTANT, text=text)]
    verdict = judge(world, goal_of(task, ()), trace, world.rows)
    assert substring_told(task.tell, [text]) == theirs
    assert told(verdict, task.tell) == ours


def test_wordings_hold_each_fact_but_the_one_left_out() -> None:
    wordings = dict(conversations(["5.50", "Rex"]))
    assert wordings["without:0"] == ["It is Rex."]
    assert wordings["as_money"] == ["That makes $5.50.", "That makes REX."]
    assert "without:0" not in dict(conversations(["Rex"]))


@pytest.mark.parametrize(
    ("user", "result", "what"),
    [
        ("Have p1 fed, please.", None, Scriptable.PLAIN),
        ("If p1 is thin, have it fed.", None, Scriptable.CONDITIONAL),
        ("Have Rex fed.", {"pet_id": "p1"}, Scriptable.PLAIN),  # a result tells which
        ("Have p1x fed.", {"pet_id": "p12"}, Scriptable.UNKNOWN),
    ],
)
def test_a_script_follows_where_all_values_are_known(
    user: str, result: Any, what: Scriptable
) -> None:
    domain = Tau2Domain.of("clinic", OPENED)
    task = replace(domain.tasks[0], user=user)
    look = TraceEvent(kind=EventKind.CALL, tool="get_pet", arguments={}, result=result)
    feed = TraceEvent(kind=EventKind.CALL, tool="feed", arguments={"pet_id": ["p1", None, True]})
    pay = TraceEvent(kind=EventKind.CALL, tool="pay", arguments={"pet_id": "p7"})  # the user's
    assert scriptable(task, domain, [look, pay, feed]) == what
    assert scriptable(task, domain, [feed, look]) == (Scriptable.UNKNOWN if result else what)
    assert scriptable(task, domain, [look, pay]) == Scriptable.NO_WRITE


# The comparison itself -----------------------------------------------------------------------


class Clerk(HostedDesk):
    """A desk whose driver is this class: feeding adds a kilo, and it can be told to misbehave."""

    def __init__(self) -> None:
        self.name, self.fault, self.failed_writes = "clinic", "", []
        self.gold = {"p1": {**PETS["pets"][0], "weight": 5.5},
                     "p2": {**PETS["pets"][1], "weight": 2}}  # fmt: skip
        self._reset()

    def _reset(self) -> None:
        self.rows = {row["pet_id"]: dict(row) for row in PETS["pets"]}

    def close(self) -> None: ...

    def ask(self, do: str, **given: Any) -> Any:
        match do:
            case "open":
                return OPENED
            case "start":
                self._reset()
                if self.fault == "unreachable":
                    self.gold = {**self.gold, "p2": {**PETS["pets"][1], "weight": 7}}
                return {"changed": {}, "effect": {"pets": self.gold}, "errors": ["pay: no card"]}
            case "reset":
                self._reset()
            case "call":
                return self._call(given["tool"], given["arguments"]["pet_id"])
            case "verdict":
                same = self.rows == self.gold
                database = same != (self.fault == "verdict")
                return {"reward": float(same), "database": database, "told": []}
            case "hashes":
                return [as_text(self.rows), None]
            case "told":
                return substring_told(["5.50", "Rex"], given["texts"])
            case _:
                return None

    def _call(self, tool: str, pet: str) -> dict[str, Any]:
        writes: dict[str, Any] = {}
        if tool == "feed" or (tool == "get_pet" and self.fault == "read"):
            self.rows[pet] = {**self.rows[pet], "weight": self.rows[pet]["weight"] + 1}
            writes = {"pets": {pet: self.rows[pet]}}
        lines = [as_text(row) for row in self.rows.values()]
        total = sum(map(line_hash, lines)) + (self.fault == "digest")
        digest = {name: str(total % DIGESTS) for name in writes}
        failed = tool == "pay" or self.fault == "torn"
        return {"failed": failed, "value": {"pet_id": pet}, "writes": writes, "digest": digest}


def compared(fault: str = "") -> tuple[dict[str, Any], Tally]:
    desk, tally = Clerk(), Tally()
    desk.fault = fault
    for one in hosted(desk, "clinic", None, tally):
        compare_states(one)
        compare_words(one)
    tally.faults += desk.failed_writes
    return summary(tally, 0.0, 0.0), tally


def test_two_sides_that_agree_are_counted_by_what_both_say() -> None:
    figures, tally = compared()
    assert figures["state_differences"] == figures["faults"] == []
    assert figures["state_verdicts"] == figures["state_equal"] == 11
    assert figures["states"] == {
        "clinic/careless/missed": 1, "clinic/doubled/missed": 2, "clinic/doubled/reached": 1,
        "clinic/dropped/missed": 2, "clinic/dropped/reached": 1, "clinic/gold/reached": 1,
        "clinic/idle/missed": 1, "clinic/nothing/missed": 1, "clinic/reversed/reached": 1,
    }  # fmt: skip
    assert figures["rewards"]["clinic/oracle/success"] == 1.0
    assert figures["rewards"]["clinic/does_nothing/success"] == 0.0
    assert figures["gold_errors"] == 1
    assert figures["scripts"] == {"clinic/plain": 1}
    assert {one["wording"] for one in tally.differences} == {"inside_longer", "among_others"}
    assert figures["substring_differences"] == []


def test_a_solution_that_misses_its_own_reference_gets_another() -> None:
    """A verdict that refuses everything shows nothing: the end as played is compared too."""
    figures, tally = compared("unreachable")
    assert tally.state_differences == []
    assert all(name.endswith("missed") for name in figures["states"] if "as_played" not in name)
    played = {name: many for name, many in figures["states"].items() if "as_played" in name}
    assert played == {
        "clinic/as_played/careless/missed": 1, "clinic/as_played/doubled/missed": 2,
        "clinic/as_played/doubled/reached": 1, "clinic/as_played/dropped/missed": 2,
        "clinic/as_played/dropped/reached": 1, "clinic/as_played/gold/reached": 1,
        "clinic/as_played/idle/missed": 1, "clinic/as_played/nothing/missed": 1,
        "clinic/as_played/reversed/reached": 1,
    }  # fmt: skip
    assert figures["state_verdicts"] == 22


@pytest.mark.parametrize("fault", ["verdict", "read", "digest", "torn"])
def test_what_goes_wrong_on_either_side_is_seen(fault: str) -> None:
    figures, tally = compared(fault)
    if fault == "verdict":
        assert len(figures["state_differences"]) == 11
        assert tally.state_differences[0]["replay"] == "gold"
    else:
        assert figures["faults"]


# The package ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_package_and_our_verdicts_agree(bench_env: Path, tmp_path: Path,
                                            capsys: pytest.CaptureFixture[str],
                                            monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    path = tmp_path / "differences.jsonl"
    arguments = ["worlds_tau2", "--count", "3", "--differences", str(path)]
    monkeypatch.setattr(sys, "argv", [*arguments, "--domain", "retail", "--domain", "telecom"])
    worlds_tau2.main()
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["tasks"] == {"retail": 3, "telecom": 3}
    assert figures["state_equal"] == figures["state_verdicts"] > 30
    assert figures["rewards"]["retail/oracle/tau2"] == 1.0
    listed = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(listed) == figures["facts"] - figures["facts_equal"] > 0


@pytest.mark.slow
def test_a_wrong_goal_shows_as_a_difference(bench_env: Path) -> None:
    desk, tally = HostedDesk(DRIVER), Tally()
    try:
        one = next(hosted(desk, "retail", 1, tally))
        assert one.goal.effect
        one.goal = one.goal.model_copy(update={"effect": one.goal.effect[:-1]})
        compare_states(one)
        found = {(row["replay"], row["tau2"], row["ours"]) for row in tally.state_differences}
        assert ("gold", True, False) in found
        assert ("nothing", False, True) in found
        with pytest.raises(SuiteError, match="KeyError"):
            desk.ask("start", task="no such task")
    finally:
        desk.close()


def test_a_driver_that_ends_is_told_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = cast("Any", object.__new__(HostedDesk))

    class Closed:
        def write(self, _: bytes) -> None:
            raise BrokenPipeError

    desk._cage = SimpleNamespace(process=SimpleNamespace(stdin=Closed(), stdout=None))
    desk.name, desk._errors = DRIVER, ["no package tau2"]
    with pytest.raises(SuiteError, match="no package tau2"):
        desk.ask("open", domain="retail")
