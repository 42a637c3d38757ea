"""A world's rows belong to the host: what sessions say, honest or not, cannot change them."""

from __future__ import annotations

import json

import pytest
from world_samples import offer, yard

from astra.arena.delta import (
    MAX_CELL_CHARS,
    MAX_CELL_DEPTH,
    MAX_CHANGES,
    WorldBase,
    world_base,
)
from astra.arena.state import same_state
from astra.arena.world_runner import CallEnd, WorldRunner
from astra.records.state import Tables
from astra.records.world import EventKind, RowChange, ToolRole, TraceEvent, WorldTool
from astra.sandbox.protocol import Sandbox, SandboxLoadError

BOOKING = {"person_id": "p1", "boat_id": "boat-1", "day": "2026-03-05"}


def rogue(body: str, writes: tuple[str, ...] = ("boats",)) -> WorldTool:
    """A tool ``act`` with the given body, which may write boats unless told otherwise."""
    code = "\n".join(["def act(world):", *(f"    {line}" for line in body.splitlines())])
    return offer("act", code, ToolRole.UPDATE, writes)


def run(sandbox: Sandbox, tool: WorldTool, *more: WorldTool) -> WorldRunner:
    return WorldRunner(yard((tool, *more)), sandbox)


def test_calls_change_the_hosts_rows_and_say_how(sandbox: Sandbox) -> None:
    with WorldRunner(yard(), sandbox) as runner:
        made, end = runner.call("book_boat", BOOKING)
        assert end == CallEnd.DONE
        assert made.result["made"] == "2026-02-01T09:00:00"
        key = made.result["booking_id"]
        boat = {"boat_id": "boat-1", "name": "Heron 1", "seats": 2, "price": 12.5, "free": False,
                "log": ["2026-01-01", "2026-03-05"]}  # fmt: skip
        assert {change.key for change in made.changes} == {"boat-1", key}
        assert RowChange(table="boats", key="boat-1", row=boat) in made.changes
        assert runner.tables["boats"][0] == boat
        assert runner.tables["bookings"][1] == made.result
        again = runner.call("book_boat", BOOKING)
        assert (again.end, again.event.failed) == (CallEnd.REFUSED, "the boat is taken")
        gone = runner.call("cancel_booking", {"booking_id": key}).event
        assert gone.changes == (RowChange(table="bookings", key=key, row=None),)
        assert [row["booking_id"] for row in runner.tables["bookings"]] == ["bookings-1"]
        assert len(runner.trace) == 3


def test_calls_that_cannot_run_change_nothing(sandbox: Sandbox) -> None:
    with WorldRunner(yard(), sandbox) as runner:
        assert runner.call("sink_boat", {}).end == CallEnd.INVALID
        wrong = runner.call("book_boat", {"person_id": "p1"})
        assert wrong.end == CallEnd.INVALID
        assert "boat_id" in wrong.event.failed
        assert runner.tables == yard().rows


def test_a_call_that_fails_halfway_leaves_no_trace(sandbox: Sandbox) -> None:
    tool = rogue('world.tables["boats"].clear()\nraise KeyError("x")')
    with run(sandbox, tool) as runner:
        failed = runner.call("act", {})
        assert (failed.end, failed.event.failed) == (CallEnd.CRASHED, "KeyError: 'x'")
        assert len(runner.call("list_boats", {}).event.result["items"]) == 3


def test_reset_is_the_start_again(sandbox: Sandbox) -> None:
    with WorldRunner(yard(), sandbox) as runner:
        first = runner.call("book_boat", BOOKING).event
        runner.reset()
        assert runner.tables == yard().rows
        assert runner.trace == []
        assert runner.call("book_boat", BOOKING).event == first


def test_replay_keeps_what_is_said_and_runs_what_is_called(sandbox: Sandbox) -> None:
    said = TraceEvent(kind=EventKind.ASSISTANT, text="Done.")
    asked = TraceEvent(kind=EventKind.CALL, tool="book_boat", arguments=BOOKING)
    with WorldRunner(yard(), sandbox) as runner:
        runner.call("cancel_booking", {"booking_id": "bookings-1"})
        trace = runner.replay([asked, said])
        assert trace[0].result["day"] == "2026-03-05"
        assert trace[1] == said
        assert len(runner.tables["bookings"]) == 2


def test_ids_come_from_what_they_are_made_of(sandbox: Sandbox) -> None:
    body = 'return [world.new_id("boats", *parts) for parts in (("x", 1), ("y",), ("x", 1))]'
    with run(sandbox, rogue(body)) as runner:
        one, other, again = runner.call("act", {}).event.result
        assert one.startswith("boats-")
        assert other != one
        assert again == f"{one}-2"
        assert runner.call("act", {}).event.result[0] == one

    def booked(*boats: str) -> Tables:
        with WorldRunner(yard(), sandbox) as runner:
            for boat in boats:
                assert runner.call("book_boat", {**BOOKING, "boat_id": boat}).end == CallEnd.DONE
            return runner.tables

    assert same_state(booked("boat-1", "boat-3"), booked("boat-3", "boat-1"), {})


def test_a_dead_session_is_made_good(sandbox: Sandbox) -> None:
    tool = rogue('world.tables["boats"].clear()\nraise SystemExit(0)')
    with run(sandbox, tool) as runner:
        runner.call("book_boat", BOOKING)
        runner.call("cancel_booking", {"booking_id": "bookings-1"})
        before = runner.tables
        assert runner.call("act", {}).end == CallEnd.ENDED
        assert runner.tables == before
        again = runner.call("book_boat", {**BOOKING, "boat_id": "boat-3"})
        assert again.end == CallEnd.DONE
        assert [row["free"] for row in runner.tables["boats"]] == [False, False, False]
        runner.reset()
        assert runner.call("list_boats", {}).event.result["items"] == yard().rows["boats"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('world.tables["people"][0]["tier"] = "basic"', "must not change table people"),
        ('world.tables["people"] = []', "must not change table people"),
        ('world.tables["boats"][0]["colour"] = "red"', "columns are not the table's: ['colour']"),
        ('del world.tables["boats"][0]["name"]', "columns are not the table's: ['name']"),
        ('world.tables["boats"].append(dict(world.tables["boats"][0]))', "two rows of boats"),
        ('world.tables["boats"].append("boat")', "no key in boat_id"),
        ('world.tables["boats"][0]["boat_id"] = 7', "no key in boat_id"),
        ('world.tables["boats"][0]["name"] = "x" * 20000',
         f"more than {MAX_CELL_CHARS} characters"),
        ('world.tables["boats"][0]["log"] = ["x" * 9] * 2000',
         f"{MAX_CELL_CHARS} characters as JSON"),
        ('cell = []\nfor _ in range(9): cell = [cell]\nworld.tables["boats"][0]["log"] = cell',
         f"nested more than {MAX_CELL_DEPTH} deep"),
        ('row = world.tables["boats"][0]\nworld.tables["boats"] += '
         '[{**row, "boat_id": f"n{at}"} for at in range(1200)]', f"the limit is {MAX_CHANGES}"),
    ],
)  # fmt: skip
def test_what_a_tool_may_not_write(sandbox: Sandbox, body: str, told: str) -> None:
    with run(sandbox, rogue(body)) as runner:
        refused = runner.call("act", {})
        assert refused.end == CallEnd.VIOLATION, refused.event
        assert told in refused.event.failed
        assert runner.tables == yard().rows
        # the session, too, is where it was
        assert runner.call("list_boats", {}).event.result["items"] == yard().rows["boats"]
        assert runner.call("book_boat", BOOKING).end == CallEnd.DONE


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('world.tables["boats"][0]["price"] = float("nan")', "write violation: Out of range"),
        ('world.tables["boats"][0]["log"] = {1, 2}', "write violation: Object of type set"),
        ('del world.tables["boats"]', "cannot be removed"),
        ('world.tables["cars"] = []', "there is no table 'cars'"),
        ("return " + '{"deep": [' * 40 + "]}" * 40, "deep"),
        ('return "x" * (1 << 21)', "the limit is 1048576"),
    ],
)
def test_what_cannot_be_written_or_told(sandbox: Sandbox, body: str, told: str) -> None:
    with run(sandbox, rogue('world.tables["boats"][0]["price"] = 1\n' + body)) as runner:
        refused = runner.call("act", {})
        assert refused.end in (CallEnd.CRASHED, CallEnd.VIOLATION)
        assert told in refused.event.failed
        assert runner.tables == yard().rows
        assert runner.call("list_boats", {}).event.result["items"] == yard().rows["boats"]


REWRITTEN = """
def act(world):
    outer = type(world).new_id.__globals__["_session"]
    honest = type(outer).call
    def lying(self, tool, arguments, version):
        told = honest(self, tool, arguments, version)
        {lie}
        return told
    type(outer).call = lying
    return "rewritten"
"""


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        ('told["digest"] = {name: "1" for name in told["digest"]}', "digest is not that"),
        ('told["writes"] = {name: {} for name in told["writes"]}', "digest is not that"),
        ('told["digest"] = {}', "digest is not that"),
        ('told["writes"]["people"] = {"p1": None}', "digest is not that"),
        ('told["writes"]["cars"] = {}; told["digest"]["cars"] = "0"', "digest is not that"),
        ('told["more"] = 1', "taken over"),
        ('told = [told]', "taken over"),
        ('told["writes"] = [1]', "taken over"),
        ('told["writes"] = {"boats": {"boat-1": 3}}', "taken over"),
    ],
)  # fmt: skip
def test_a_tool_that_rewrites_the_protocol(sandbox: Sandbox, lie: str, told: str) -> None:
    code = REWRITTEN.replace("{lie}", lie)
    with run(sandbox, offer("act", code, ToolRole.GET)) as runner:
        assert runner.call("act", {}).event.result == "rewritten"
        refused = runner.call("book_boat", BOOKING)
        assert refused.end == CallEnd.VIOLATION
        assert told in refused.event.failed
        assert runner.tables == yard().rows
        # the session was ended: a new one is honest
        assert runner.call("book_boat", BOOKING).end == CallEnd.DONE


def test_what_was_hidden_shows_at_the_next_write(sandbox: Sandbox) -> None:
    hide = 'told["writes"], told["digest"] = {}, {}'
    with run(sandbox, offer("act", REWRITTEN.replace("{lie}", hide), ToolRole.GET)) as runner:
        runner.call("act", {})
        assert runner.call("book_boat", BOOKING).event.changes == ()
        assert runner.tables == yard().rows


def test_a_tool_cannot_take_the_name_of_the_protocol(sandbox: Sandbox) -> None:
    with pytest.raises((SandboxLoadError, ValueError)):
        run(sandbox, offer("delta", "def delta(world): return 1", ToolRole.GET)).call("delta", {})


def test_a_large_world_travels_in_parts(sandbox: Sandbox) -> None:
    world = yard(boats=13_000, title="Großer Hafen")
    assert len(json.dumps(world.rows)) > 1_400_000
    with WorldRunner(world, sandbox) as runner:
        made = runner.call("book_boat", {**BOOKING, "boat_id": "boat-11999"})
        assert made.end == CallEnd.DONE
        assert runner.tables["boats"][11_998]["free"] is False
        assert len(made.event.changes) == 2


def test_base_is_parsed_once_and_never_changed(sandbox: Sandbox) -> None:
    held = yard().model_dump_json()
    base = world_base(held)
    assert world_base(held) is base
    with WorldRunner(base, sandbox) as runner:
        runner.call("book_boat", BOOKING)
    assert {name: list(rows.values()) for name, rows in base.rows.items()} == yard().rows


def test_a_world_with_a_key_twice_is_refused(sandbox: Sandbox) -> None:
    rows = yard().rows
    twice = {**rows, "people": [*rows["people"], rows["people"][0]]}
    with pytest.raises(ValueError, match="two rows of people share a key"):
        WorldBase(yard(rows=twice))
