"""BFCL multi-turn hosted as worlds: attributes of its classes as our tables, our verdicts by turn.

A check of runner and checker against classes, solutions and verdicts that others wrote. The
package's classes run in the cage of the bench environment (``drivers/play_bfcl_world.py``) as
``hosted.py`` says. A turn is a goal: what the solution has made of the tables by its end, and what
must have been read. What the package asks of results is said as needed reads: each result that the
solution hears in the turn, as often as it does, from any call so far; and some result of this turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from astra.arena.verdict import GoalVerdict
from astra.bench.harness.hosted import Call, Changes, hosted_world, writes_of
from astra.records.qa import QuestionKind
from astra.records.state import Tables
from astra.records.tool import Tool
from astra.records.world import (
    ColumnType,
    GoalOutcome,
    OutcomeKind,
    ReadProof,
    ToolRole,
    World,
    WorldColumn,
    WorldGoal,
    WorldTable,
    WorldTool,
)
from astra.text.schemas import violation

DRIVER = "bfcl_world"
KEY, CELL = "attribute", "value"
RESULTS, TURNS = "results", "turns"
"""Tables without rows: what calls return are keys of theirs, so that results can be asked for."""
READS = {RESULTS: "result_id", TURNS: "turn_id"}
MISSES = {
    "empty_turn": "multi_turn:empty_turn_model_response",
    "state": "multi_turn:instance_state_mismatch",
    "results": "multi_turn:execution_response_mismatch",
}
"""Why a turn is missed, in the order in which the package looks, and what the package calls it."""
UNASKED: dict[str, Call] = {
    "GorillaFileSystem": ("touch", {"file_name": "unasked.txt"}),
    "MathAPI": ("add", {"a": 1.0, "b": 1.0}),
    "MessageAPI": ("add_contact", {"user_name": "Unasked"}),
    "TwitterAPI": ("follow_user", {"username_to_follow": "unasked"}),
    "TicketAPI": ("create_ticket", {"title": "Unasked"}),
    "TradingBot": ("add_to_watchlist", {"stock": "NVDA"}),
    "TravelAPI": ("register_credit_card", {
        "access_token": "abc123xyz", "card_number": "1", "expiration_date": "01/30",
        "cardholder_name": "Unasked", "card_verification_number": 1}),
    "VehicleControlAPI": ("fillFuelTank", {"fuelAmount": 0.5}),
}  # fmt: skip
"""A call of each class that no solution asks for; most change something."""


@dataclass(frozen=True)
class BfclCall:
    """A call, and how the package writes it."""

    tool: str
    arguments: dict[str, Any]
    text: str


@dataclass(frozen=True)
class BfclTurn:
    """A turn's solution, and what it leads to."""

    calls: tuple[BfclCall, ...]
    heard: tuple[str, ...]
    """The results of its calls, by name."""
    effect: Changes
    """What it and the turns before have made of the tables."""


@dataclass(frozen=True)
class BfclEntry:
    """An entry before any of its turns."""

    id: str
    tables: Tables
    tools: tuple[WorldTool, ...]
    documents: dict[str, dict[str, Any]]
    """The parameters of each tool as JSON Schema."""
    owners: dict[str, str]
    """The class of each tool."""
    turns: tuple[BfclTurn, ...]

    @classmethod
    def of(cls, entry: str, told: Mapping[str, Any]) -> Self:
        """An entry as the driver tells it."""
        return cls(
            id=entry,
            tables=told["tables"],
            tools=tuple(tool_of(one) for one in told["tools"]),
            documents={one["name"]: one["parameters"] for one in told["tools"]},
            owners={one["name"]: one["owner"] for one in told["tools"]},
            turns=tuple(
                BfclTurn(
                    tuple(BfclCall(**call) for call in turn["calls"]),
                    tuple(turn["heard"]),
                    turn["effect"],
                )
                for turn in told["turns"]
            ),
        )

    @property
    def category(self) -> str:
        """Which of the four parts of the benchmark it belongs to."""
        return self.id.removeprefix("multi_turn_").rpartition("_")[0]


def tool_of(told: Mapping[str, Any]) -> WorldTool:
    """A method as a world's tool. It may change the attributes of its own class alone, and takes
    any arguments: the package holds no document against a call, and a solution breaks one."""
    return WorldTool(
        tool=Tool(
            name=told["name"], description=told["description"], parameters={"type": "object"}
        ),
        code="",  # it is the package's own, and runs in the cage
        role=ToolRole.UPDATE,
        reads=(told["owner"],),
        writes=(told["owner"],),
        shows={table: (column,) for table, column in READS.items()},
    )


def world_of(entry: BfclEntry) -> World:
    """An entry as a world: a table for each class, a row for each part of an attribute."""
    shapes = [
        WorldTable(name=name, key=KEY, columns=(
            WorldColumn(name=KEY, type=ColumnType.ID),
            WorldColumn(name=CELL, type=ColumnType.JSON, optional=True)))
        for name in entry.tables
    ]  # fmt: skip
    for name, key in READS.items():
        column = WorldColumn(name=key, type=ColumnType.ID)
        shapes.append(WorldTable(name=name, key=key, columns=(column,)))
    tables = {**entry.tables, **{name: [] for name in READS}}
    return hosted_world(entry.id, shapes, tables, entry.tools)


def against_documents(entry: BfclEntry) -> list[str]:
    """The calls of the solution that their own tools' documents do not allow."""
    return [
        f"{entry.id}: {call.text}: {why}"
        for turn in entry.turns
        for call in turn.calls
        if (why := violation(call.arguments, entry.documents[call.tool]))
    ]


def turn_goal(entry: BfclEntry, at: int) -> WorldGoal | None:
    """What must hold at the end of a turn; None where its solution makes no call, of which the
    package looks at nothing."""
    turn = entry.turns[at]
    if not turn.calls:
        return None
    keys = dict.fromkeys(entry.tables, KEY)
    wanted = [(TURNS, str(at)), *((RESULTS, name) for name in turn.heard)]
    return WorldGoal(
        kind=QuestionKind.MIXED, trace=(), effect=writes_of(entry.tables, keys, turn.effect),
        outcome=GoalOutcome(kind=OutcomeKind.DONE),
        must_read=tuple(
            ReadProof(table=table, key=key, column=READS[table]) for table, key in wanted
        ),
    )  # fmt: skip


def missed(verdict: GoalVerdict) -> list[str]:
    """Why a turn is missed by our verdict, in the order of ``MISSES``; empty where it is not."""
    unread = {reason.split(":")[1].split(".")[0] for reason in verdict.reasons
              if reason.startswith("unread:")}  # fmt: skip
    found = {"empty_turn": TURNS in unread, "state": not (verdict.state and verdict.outcome),
             "results": RESULTS in unread}  # fmt: skip
    return [why for why in MISSES if found[why]]


# What is played ------------------------------------------------------------------------------

Turns = tuple[tuple[BfclCall, ...], ...]


def replays(entry: BfclEntry, unasked: BfclCall | None) -> Iterator[tuple[str, Turns]]:
    """The solution (``gold``), then what spoils it: its last call left out, or made twice; a call
    added to that turn that nobody asked for; the first turn's last call made a turn late; the last
    turn's calls in reverse order; no call."""
    gold = tuple(turn.calls for turn in entry.turns)
    yield "gold", gold
    acting = [at for at, calls in enumerate(gold) if calls]
    last, first = acting[-1], acting[0]
    yield "dropped", _with(gold, last, gold[last][:-1])
    yield "doubled", _with(gold, last, (*gold[last], gold[last][-1]))
    if unasked is not None:
        yield "added", _with(gold, last, (*gold[last], unasked))
    if len(gold) > first + 1:
        late = _with(gold, first, gold[first][:-1])
        yield "late", _with(late, first + 1, (gold[first][-1], *late[first + 1]))
    if len(gold[last]) > 1:
        yield "reversed", _with(gold, last, gold[last][::-1])
    yield "nothing", tuple(() for _ in gold)


def _with(turns: Turns, at: int, calls: tuple[BfclCall, ...]) -> Turns:
    return (*turns[:at], calls, *turns[at + 1 :])


def unasked_call(entry: BfclEntry) -> Call:
    """A call of another class of the entry than its last one, where it has several."""
    last = next(turn.calls[-1] for turn in reversed(entry.turns) if turn.calls)
    others = [name for name in entry.tables if name != entry.owners[last.tool]]
    return UNASKED[(others or [*entry.tables])[0]]
