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
from typing import Any, cast

from astra.arena.agreements import without_other_agreements
from astra.arena.cells import cells_by_event
from astra.arena.expressions import all_rows, holds, scope_of
from astra.arena.said import say_faults
from astra.arena.state import Fields, apply_writes, row_line
from astra.arena.traces import is_success
from astra.records.state import Row, Tables
from astra.records.world import (
    OUTCOMES,
    Enforced,
    OutcomeKind,
    PolicyRule,
    TraceEvent,
    World,
    WorldGoal,
)


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
    shown = cells_by_event(world, trace)
    seen = frozenset[tuple[str, str, str]]().union(*shown)
    said = [f"{why}:{at}" for at, why in enumerate(say_faults(world, goal, trace, shown)) if why]
    unread = [
        f"unread:{proof.table}.{proof.column}"
        for proof in goal.must_read
        if (proof.table, proof.key, proof.column) not in seen
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


# What was respected -------------------------------------------------------------------------


def broken_rules(world: World, trace: Sequence[TraceEvent]) -> Iterator[tuple[int, PolicyRule]]:
    """The rules without a tool that enforces them that successful calls of a trace broke, each
    with the event's position. Tables are taken as each call found them."""
    rules = [rule for rule in world.rules if rule.enforced == Enforced.POLICY]
    scope = scope_of(world)
    keys = {table.name: table.key for table in world.tables}
    asking = {rule.id for rule in rules if _asks_consent((rule.when, rule.require))}
    for at, event in enumerate(trace):
        if not is_success(event):
            continue
        now = replace(scope, arguments=event.arguments, events=trace[:at])
        for rule in rules:
            if event.tool not in rule.tools:
                continue
            if rule.id in asking:
                heard = without_other_agreements(world, trace[:at], event, now.tables)
                now = replace(now, events=heard)
            governed = rule.when is None or holds(rule.when, now)
            if governed and not holds(rule.require, now):
                yield at, rule
        if event.changes:
            scope = replace(scope, tables=_after(scope.tables, event, keys), by_key={})


def _asks_consent(expr: Any) -> bool:
    """Whether a tree asks what the user agreed to."""
    if isinstance(expr, Mapping):
        tree = cast("Mapping[str, Any]", expr)
        return "confirmed" in tree or any(_asks_consent(part) for part in tree.values())
    return isinstance(expr, list | tuple) and any(
        _asks_consent(part) for part in cast("Sequence[Any]", expr)
    )


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
