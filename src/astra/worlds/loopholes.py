"""Ways round a refusal: a bounded search for legal calls that bring about what may not be.

Ways are found on the host, by the tools' declared changes alone, so that no refusal of a tool hides
one; what is found there is then made with tools. Arguments are values of the goal and rows that its
reads have shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from astra.arena.effects import EffectError, RowsAfter, effects, with_rows
from astra.arena.expressions import ExpressionError, all_rows, scope_of
from astra.arena.traces import records_in
from astra.records.state import Row, Tables
from astra.records.world import EventKind, TraceEvent, WorldGoal
from astra.worlds.executions import Executions
from astra.worlds.view import WorldView

Call = tuple[str, Row]


def way_round(
    view: WorldView, executions: Executions, goal: WorldGoal, trace: Sequence[TraceEvent],
    depth: int, most_calls: int,
) -> tuple[Call, ...] | None:  # fmt: skip
    """Policy-legal calls of tools on offer after which the rows are as the declined wish wants
    them, and no other row that was there is changed; None if there are none within the bounds."""
    if not goal.wish:
        return None
    wish = goal.wish[0]
    target = _effects(view, all_rows(view.world), (wish.tool, wish.arguments))
    if not target:
        return None
    calls = _calls(view, goal, trace)[:most_calls]
    for way in _ways(view, calls, target, depth):
        if _works(view, executions, way, target):
            return way
    return None


def _calls(view: WorldView, goal: WorldGoal, trace: Sequence[TraceEvent]) -> list[Call]:
    """Every call of a writing tool on offer whose arguments the goal or its reads hold; those of
    the wish's own rows first."""
    wish = goal.wish[0].arguments
    keys: dict[str, list[str]] = {}
    for event in trace:
        for record in records_in(event.result) if event.kind == EventKind.CALL else ():
            for table in view.tables.values():
                value = record.get(table.key)
                if isinstance(value, str) and value in view.rows[table.name]:
                    held = keys.setdefault(table.name, [])
                    held += [value] if value not in held else []
    for name, value in wish.items():
        if table := view.table_of(name):
            rest = [key for key in keys.get(table.name, []) if key != value]
            keys[table.name] = [value, *rest]
    calls: list[Call] = []
    for tool in view.writing:
        name = tool.tool.name
        if name in goal.withheld:
            continue
        options = [_options(view, name, one, wish, keys) for one in view.required(name)]
        given = [dict(zip(view.required(name), values, strict=True)) for values in
                 product(*options)]  # fmt: skip
        calls += [(name, arguments) for arguments in given
                  if (name, arguments) != (goal.wish[0].tool, wish)]  # fmt: skip
    return sorted(calls, key=lambda call: -sum(value in wish.values() for value in
                                               call[1].values()))  # fmt: skip


def _options(
    view: WorldView, tool: str, name: str, wish: Row, keys: dict[str, list[str]]
) -> list[object]:
    table = view.table_of(name)
    if table is not None:
        return [*keys.get(table.name, [])[:3]]
    if name in wish:
        return [wish[name]]
    return [*view.parameters(tool)[name].get("enum", ())][:2]


def _ways(
    view: WorldView, calls: Sequence[Call], target: RowsAfter, depth: int
) -> Iterator[tuple[Call, ...]]:
    """Sequences that reach the target by their changes, the shortest first; no rows twice."""
    seen: set[str] = set()
    open_: list[tuple[tuple[Call, ...], Tables]] = [((), all_rows(view.world))]
    for _ in range(depth):
        further: list[tuple[tuple[Call, ...], Tables]] = []
        for way, tables in open_:
            for call in calls:
                made = _effects(view, tables, call)
                if not made:
                    continue
                after = with_rows(view.world, tables, made)
                if _reached(view, after, target):
                    yield (*way, call)
                    continue
                place = repr(_changed(view, after))
                if place not in seen:
                    seen.add(place)
                    further.append(((*way, call), after))
        open_ = further


def _effects(view: WorldView, tables: Tables, call: Call) -> RowsAfter:
    tool, arguments = call
    scope = scope_of(view.world, tables, arguments=arguments)
    try:
        return effects(view.world, view.tools[tool], scope)
    except (EffectError, ExpressionError, TypeError):
        return {}  # no such row: the tool refuses


def _changed(view: WorldView, tables: Tables) -> list[tuple[str, str, Row | None]]:
    """The rows that are not as at the start."""
    changed: list[tuple[str, str, Row | None]] = []
    for table in view.world.tables:
        before = view.rows[table.name]
        if tables[table.name] is view.world.rows.get(table.name):
            continue
        now = {row[table.key]: row for row in tables[table.name]}
        changed += [
            (table.name, key, now.get(key))
            for key in sorted({*before, *now})
            if before.get(key) is not now.get(key) and before.get(key) != now.get(key)
        ]
    return changed  # fmt: skip


def _reached(view: WorldView, tables: Tables, target: RowsAfter) -> bool:
    """Whether the target's rows are there, and no other row of the start is changed."""
    changed = {(table, key): row for table, key, row in _changed(view, tables)}
    return all(changed.get(place, ...) == row for place, row in target.items()) and all(
        place in target or place[1] not in view.rows[place[0]] for place in changed
    )


def _works(view: WorldView, executions: Executions, way: Sequence[Call], target: RowsAfter) -> bool:
    """Whether the calls succeed, keep the rules about rows, and reach the target."""
    done: list[Call] = []
    tables = all_rows(view.world)
    for tool, arguments in way:
        made = executions.call(tool, arguments, after=done).event
        if not made.changes or view.broken(tool, arguments, tables):
            return False
        done.append((tool, arguments))
        rows = {(change.table, change.key): change.row for change in made.changes}
        tables = with_rows(view.world, tables, rows)
    return _reached(view, tables, target)
