"""Pairs of calls of which the second takes back what the first did, and leaves rows behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from astra.records.state import Row
from astra.records.world import ToolRole, TraceEvent
from astra.worlds.executions import Executions
from astra.worlds.view import WorldView
from astra.worlds.wishes import Wish, WishPool


def undoings(view: WorldView, executions: Executions, pool: WishPool) -> list[tuple[Wish, ...]]:
    """Pairs of calls of which the second takes back what the first did, and leaves rows behind."""
    pairs: list[tuple[Wish, ...]] = []
    for tool, wishes in sorted(pool.legal.items()):
        if view.tools[tool].role is not ToolRole.CREATE:
            continue
        for wish in wishes[:4]:
            made = executions.call(tool, wish.arguments).event
            new = {change.table: change.key for change in made.changes if change.row is not None
                   and change.key not in view.rows[change.table]}  # fmt: skip
            for other in (one for one in view.writing if one.role is ToolRole.CANCEL):
                arguments = _about(view, other.tool.name, new)
                again = executions.call(other.tool.name, arguments, after=[(tool, wish.arguments)])
                if again.event.changes and leaves_rows(view, made, again.event):
                    pairs.append((wish, Wish(other.tool.name, arguments, wish.party)))
    if not pairs:
        pairs += _there_and_back(view, executions, pool)
    return pairs


def _about(view: WorldView, tool: str, new: Mapping[str, str]) -> Row:
    given: Row = {}
    for name in view.required(tool):
        table, listed = view.table_of(name), view.parameters(tool)[name].get("enum", ("",))
        given[name] = new.get(table.name, "") if table else listed[0]
    return given


def _there_and_back(
    view: WorldView, executions: Executions, pool: WishPool
) -> Iterator[tuple[Wish, ...]]:
    """Calls of one tool of which the second brings the main cell back: what they count stays."""
    for tool, wishes in sorted(pool.legal.items()):
        for wish in wishes[:6]:
            made = executions.call(tool, wish.arguments).event
            for change in made.changes:
                before = view.rows[change.table].get(change.key, {})
                back = {**wish.arguments, **{name: before[name] for name in wish.arguments
                                             if name in before}}  # fmt: skip
                again = executions.call(tool, back, after=[(tool, wish.arguments)]).event
                if again.changes and back != wish.arguments and leaves_rows(view, made, again):
                    yield wish, Wish(tool, back, wish.party)


def leaves_rows(view: WorldView, first: TraceEvent, second: TraceEvent) -> bool:
    """Whether two calls leave a row that was not there so before them."""
    rows = {(one.table, one.key): one.row for one in (*first.changes, *second.changes)}
    return any(view.rows[table].get(key) != row for (table, key), row in rows.items())
