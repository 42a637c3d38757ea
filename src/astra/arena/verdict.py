"""Whether an episode in a world reached its goal, from the goal, the trace and the rows at its end.

All of it must hold: the tables are what the goal's effect makes of the world and nothing else;
the outcome is the goal's, so that declining leaves a row and doing nothing never pays; what was to
be said was said, after it could be known; what was to be read was read; and no successful call
broke a rule that no tool enforces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from astra.arena.answers import matches
from astra.arena.expressions import all_rows, holds, scope_of
from astra.arena.state import Fields, apply_writes, row_line
from astra.arena.statements import others, stated, states
from astra.arena.traces import is_success, records_in
from astra.records.qa import Answer, AnswerType
from astra.records.state import Row, Tables
from astra.records.world import (
    OUTCOMES,
    Enforced,
    EventKind,
    OutcomeKind,
    PolicyRule,
    ReadProof,
    Say,
    TraceEvent,
    World,
    WorldGoal,
    WorldTool,
)

MAX_VALUES = 2
"""How many values of a column one message may state (reference: the right one and another): who
lists all candidates has told nothing."""
Cells = dict[tuple[str, str, str], Any]
"""Cells by table, key and column."""


@dataclass(frozen=True)
class GoalVerdict:
    """What became of a goal. ``reasons`` are codes, each with what it concerns after a colon:
    ``state_missing``, ``state_extra``, ``table_missing``, ``table_unknown``; ``outcome_missing``,
    ``outcome_wrong``; ``unsaid``, ``said_unread``, ``said_among_others``; ``unread``; ``rule``."""

    state: bool
    outcome: bool
    said: bool
    read: bool
    rules_broken: tuple[str, ...]
    """Ids, each once, in the order in which they were first broken."""
    reasons: tuple[str, ...]

    @property
    def success(self) -> bool:
        """Whether nothing is wrong."""
        return not self.reasons


def judge(world: World, goal: WorldGoal, trace: Sequence[TraceEvent], rows: Tables) -> GoalVerdict:
    """Judge an executed trace (of ``WorldRunner`` or ``ArenaEnv``) and the rows at its end."""
    state = _state_faults(world, goal, rows)
    outcome = _outcome_faults(world, goal, rows)
    seen = cells_seen(world, trace)
    said = [
        f"{why}:{at}" for at, say in enumerate(goal.say) if (why := _say_fault(world, say, trace))
    ]
    unread = [
        f"unread:{proof.table}.{proof.column}"
        for proof in goal.must_read
        if _cell_of(proof) not in seen
    ]
    broken = tuple(dict.fromkeys(rule.id for _, rule in broken_rules(world, trace)))
    rules = [f"rule:{id}" for id in broken]
    return GoalVerdict(
        state=not state, outcome=not outcome, said=not said, read=not unread, rules_broken=broken,
        reasons=(*state, *outcome, *said, *unread, *rules),
    )  # fmt: skip


def expected_rows(world: World, goal: WorldGoal) -> Tables:
    """What the goal makes of all tables but ``outcomes``. Raises StateError."""
    tables = {name: rows for name, rows in all_rows(world).items() if name != OUTCOMES}
    columns = {table.name: [column.name for column in table.columns] for table in world.tables}
    return apply_writes(tables, goal.effect, columns, _fields(world))


def _fields(world: World) -> Fields:
    return {table.name: table.fields for table in world.tables}


def _state_faults(world: World, goal: WorldGoal, rows: Tables) -> list[str]:
    expected, fields = expected_rows(world, goal), _fields(world)
    names = sorted({*expected, *rows} - {OUTCOMES})
    faults: list[str] = []
    for name in names:
        if name not in rows or name not in expected:
            faults.append(f"table_{'missing' if name in expected else 'unknown'}:{name}")
            continue
        missing, extra = _differences(expected[name], rows[name], fields.get(name, {}))
        faults += [f"state_missing:{name}"] * missing + [f"state_extra:{name}"] * extra
    return faults


def _differences(
    expected: Sequence[Row], found: Sequence[Row], classes: Mapping[str, Any]
) -> tuple[bool, bool]:
    """Whether rows that are expected are not found, and the reverse."""
    mine, theirs = Counter(map(id, expected)), Counter(map(id, found))
    shared = mine & theirs  # the same objects need no comparison
    owed = Counter(row_line(row, classes) for row in _besides(expected, shared))
    there = Counter(row_line(row, classes) for row in _besides(found, shared))
    return bool(owed - there), bool(there - owed)


def _besides(rows: Sequence[Row], shared: Counter[int]) -> Iterator[Row]:
    left = Counter(shared)
    for row in rows:
        if left[id(row)]:
            left[id(row)] -= 1
        else:
            yield row


def _outcome_faults(world: World, goal: WorldGoal, rows: Tables) -> list[str]:
    """Declining and handing over add one row each, and a request that is met none."""
    key = next(table.key for table in world.tables if table.name == OUTCOMES)
    before = {row[key]: row for row in world.rows.get(OUTCOMES, ())}
    found = rows.get(OUTCOMES)
    if found is None:
        return [f"table_missing:{OUTCOMES}"]
    added = [row for row in found if before.get(row.get(key)) != row]
    kept = len(found) - len(added) == len(before)
    wanted = goal.outcome
    if wanted.kind == OutcomeKind.DONE:
        return [] if kept and not added else [f"outcome_wrong:{OutcomeKind.DONE}"]
    if not added:
        return [f"outcome_missing:{wanted.kind}"]
    told = [(row.get("outcome"), row.get("reason")) for row in added]
    right = told == [(wanted.kind.value, wanted.reason)]
    return [] if right and kept else [f"outcome_wrong:{wanted.kind}"]


# What was read ------------------------------------------------------------------------------


def cells_seen(world: World, trace: Sequence[TraceEvent]) -> Cells:
    """The cells that successful calls have shown, as they last showed them."""
    tools = {tool.tool.name: tool for tool in world.tools}
    seen: Cells = {}
    for event in trace:
        if is_success(event) and event.tool in tools:
            for record in records_in(event.result):
                seen.update(_cells_of(world, tools[event.tool], record))
    return seen


def _cells_of(world: World, tool: WorldTool, record: Row) -> Cells:
    """The cells of tables that a record shows: of each table whose key it holds, the columns that
    the tool shows; one that several tables have belongs to the table that has most of the
    record's columns."""
    cells: Cells = {}
    shown = [
        (table, {column.name for column in table.columns})
        for table in world.tables
        if table.name in tool.shows and isinstance(record.get(table.key), str)
    ]
    shown.sort(key=lambda pair: -len(pair[1] & record.keys()))
    taken: set[str] = set()
    for table, columns in shown:
        own = (columns & record.keys()) - taken
        for column in (own & {*tool.shows[table.name]}) | {table.key}:
            cells[table.name, record[table.key], column] = record[column]
        taken |= own
    return cells


def _cell_of(proof: ReadProof) -> tuple[str, str, str]:
    return proof.table, proof.key, proof.column


# What was said ------------------------------------------------------------------------------


def _say_fault(world: World, say: Say, trace: Sequence[TraceEvent]) -> str:
    """Why a value was not told; empty if it was."""
    fault = "unsaid"
    for at, event in enumerate(trace):
        if event.kind != EventKind.ASSISTANT or not states(say.answer, event.text):
            continue
        seen = cells_seen(world, trace[:at])
        if any(_cell_of(proof) not in seen for proof in say.read):
            fault = "said_unread"
        elif _is_one_of_many(world, say, seen, event.text):
            fault = "said_among_others"
        else:
            return ""
    return fault


def _is_one_of_many(world: World, say: Say, seen: Cells, text: str) -> bool:
    """Whether a message that states the answer states more than one other value like it.

    Others are values of the column that the answer was read from; of a number or date that was
    computed, all others of its kind but those that it was computed from.
    """
    answer = say.answer
    read = [(proof, seen[_cell_of(proof)]) for proof in say.read]
    direct = [proof for proof, value in read if _is_in(answer, value)]
    if not direct and answer.type in (AnswerType.NUMBER, AnswerType.DATE):
        basis = [value for _, value in read if not isinstance(value, bool)]
        return sum(other not in basis for other in others(answer, text)) >= MAX_VALUES
    columns = {(proof.table, proof.column) for proof in direct or say.read}
    return any(
        sum(not _is_in(answer, value) for value in stated(_values(world, *column), text))
        >= MAX_VALUES
        for column in sorted(columns)
    )


def _is_in(answer: Answer, value: Any) -> bool:
    """Whether a cell is the answer or, of a list or record, a part of it."""
    if answer.type == AnswerType.LIST:
        return any(item == value for item in answer.value)
    if answer.type == AnswerType.RECORD:
        return any(item == value for item in answer.value.values())
    return matches(answer, value)


def _values(world: World, table: str, column: str) -> list[Any]:
    cells = [row.get(column) for row in world.rows[table]]
    return [cell for cell in cells if not isinstance(cell, list | dict)]


# What was respected -------------------------------------------------------------------------


def broken_rules(world: World, trace: Sequence[TraceEvent]) -> Iterator[tuple[int, PolicyRule]]:
    """The rules without a tool that enforces them that successful calls of a trace broke, each
    with the event's position. Tables are taken as each call found them."""
    rules = [rule for rule in world.rules if rule.enforced == Enforced.POLICY]
    scope = scope_of(world)
    keys = {table.name: table.key for table in world.tables}
    for at, event in enumerate(trace):
        if not is_success(event):
            continue
        now = replace(scope, arguments=event.arguments, events=trace[:at])
        for rule in rules:
            governed = event.tool in rule.tools and (rule.when is None or holds(rule.when, now))
            if governed and not holds(rule.require, now):
                yield at, rule
        if event.changes:
            scope = replace(scope, tables=_after(scope.tables, event, keys), by_key={})


def _after(tables: Tables, event: TraceEvent, keys: Mapping[str, str]) -> Tables:
    """The tables after an event's changes."""
    changed: dict[str, dict[str, Row | None]] = {}
    for change in event.changes:
        changed.setdefault(change.table, {})[change.key] = change.row
    after = dict(tables)
    for table, rows in changed.items():
        by_key: dict[str, Row | None] = {row[keys[table]]: row for row in tables[table]}
        after[table] = [row for row in {**by_key, **rows}.values() if row is not None]
    return after
