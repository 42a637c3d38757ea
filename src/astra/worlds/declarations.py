"""What the tools and rules of a world have to declare so that it can be proved what they do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from astra.records.state import WriteAction
from astra.records.world import (
    OUTCOMES,
    ColumnType,
    Expr,
    OutcomeKind,
    PolicyRule,
    ToolRole,
    World,
    WorldTool,
)
from astra.text.keys import key_of
from astra.worlds.filters import LISTING, filters_of
from astra.worlds.soundness import WorldFault, operations

_ENDINGS = {ToolRole.DECLINE: OutcomeKind.DECLINED, ToolRole.HAND_OVER: OutcomeKind.HANDED_OVER}


def declaration_faults(world: World) -> Iterator[WorldFault]:
    """Everything that is not declared, or declared and of no use."""
    yield from outline_faults(world)
    for tool in world.tools:
        yield from idle_faults(world, tool)
        yield from _ending_faults(tool)
    for rule in world.rules:
        yield from _uncounted(world, rule)


def _ending_faults(tool: WorldTool) -> Iterator[WorldFault]:
    """A tool that ends a request and leaves another row, or more, than its role says."""
    if tool.role not in _ENDINGS:
        return
    kind = _ENDINGS[tool.role].value
    row = {"outcome": kind, "reason": {"arg": "reason"}}
    made = [(one.action, one.table, one.values, one.when) for one in tool.changes]
    if made != [(WriteAction.INSERT, OUTCOMES, row, None)]:
        yield WorldFault("roles", f"{tool.tool.name} has to leave one row {kind} with its reason")


def outline_faults(world: World) -> Iterator[WorldFault]:
    """Arguments of tools that show rows which do not say by their names what they filter, and
    quotes of nothing."""
    for tool in world.tools:
        if tool.role in LISTING and tool.shows:
            for name in filters_of(world, tool).unknown:
                yield WorldFault(
                    "unknown_filter",
                    f"{tool.tool.name}: {name!r} is no column of what it shows, no such column "
                    "after most_ or least_, and no page: by which cells does it choose rows?",
                )
        if tool.role is ToolRole.QUOTE and not priced_by(world, tool):
            yield WorldFault(
                "unmatched_quote",
                f"{tool.tool.name}: no tool that writes takes all of its arguments by these names",
            )


def priced_by(world: World, quote: WorldTool) -> list[WorldTool]:
    """The tools that write what a quote is about: they take all that it takes."""
    asked = set(quote.tool.parameters.get("properties", {}))
    return [tool for tool in world.tools
            if tool.writes and tool.role not in _ENDINGS
            and asked <= set(tool.tool.parameters.get("properties", {}))]  # fmt: skip


def idle_faults(world: World, tool: WorldTool) -> Iterator[WorldFault]:
    """Keys, days and numbers that a tool is given and that nothing it writes depends on."""
    if not tool.changes or tool.role in _ENDINGS:
        return
    keys = [table.key for table in world.tables if table.name != OUTCOMES]
    used = {
        operand for change in tool.changes
        for name, operand in operations([change.key, change.when, list(change.values.values())])
        if name == "arg"
    }  # fmt: skip
    for name, schema in tool.tool.parameters.get("properties", {}).items():
        keyed = key_of(name, keys) != ""
        counted = schema.get("type") in ("integer", "number") or schema.get("format") == "date"
        if (keyed or counted) and name not in used:
            yield WorldFault(
                "idle_argument",
                f"{tool.tool.name}: nothing that it writes depends on {name!r}: does a row lack?",
            )


def _uncounted(world: World, rule: PolicyRule) -> Iterator[WorldFault]:
    """A count of earlier calls that a rule limits and that no call ever raises."""
    columns = {(table.name, column.name): column
               for table in world.tables for column in table.columns}  # fmt: skip
    changes = [change for tool in world.tools for change in tool.changes]
    for table, name in sorted(set(_limited(rule.require))):
        column = columns.get((table, name))
        if column is None or column.type is not ColumnType.INTEGER or column.unit:
            continue
        given = [change.values.get(name) for change in changes
                 if change.table == table and change.action is WriteAction.INSERT]  # fmt: skip
        raised = any(change.table == table and change.action is WriteAction.UPDATE
                     and name in change.values for change in changes)  # fmt: skip
        if not raised and all(isinstance(value, int) for value in given):
            yield WorldFault(
                "uncounted",
                f"{rule.tools[0]}: rule {rule.id} limits {table}.{name}, which no tool ever "
                "changes (a number that counts no calls has a unit)",
            )


def _limited(expr: Expr) -> Iterator[tuple[str, str]]:
    """The cells, by table and column, that may not be above a constant."""
    for name, operand in operations(expr):
        if name not in ("lt", "le") or not isinstance(operand, list | tuple):
            continue
        low, high = (*cast("list[Any]", operand), None, None)[:2]
        if isinstance(high, int) and isinstance(low, dict) and "field" in low:
            row, column = cast("Any", low["field"])
            if isinstance(row, dict) and "row" in row:
                yield cast("Any", row)["row"][0], column
