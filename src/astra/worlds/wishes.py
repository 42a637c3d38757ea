"""Calls that somebody could wish for in a world, drawn from its rows and sorted by their ends."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

from astra.arena.world_runner import CallEnd
from astra.records.base import canonical_json
from astra.records.state import Row
from astra.records.world import ColumnType, ToolRole, WriteAction
from astra.worlds.calls import CallDraw
from astra.worlds.executions import Executions
from astra.worlds.fuzz import names_rule
from astra.worlds.view import WorldView


class Wish(NamedTuple):
    """A call, and the party whose wish it is."""

    tool: str
    arguments: Row
    party: str


@dataclass
class WishPool:
    """The wishes found in a world, each sort in the order of drawing."""

    legal: dict[str, list[Wish]] = field(default_factory=dict[str, list[Wish]])
    """Calls that succeed and break no rule, by tool."""
    forbidden: dict[str, list[Wish]] = field(default_factory=dict[str, list[Wish]])
    """Calls that succeed and break one rule that no tool enforces, by rule."""
    refused: dict[str, list[Wish]] = field(default_factory=dict[str, list[Wish]])
    """Calls that a rule's tool refuses, by rule, and break no other rule."""
    unavailable: list[Wish] = field(default_factory=list[Wish])
    """Calls that fail, and would not for another row of nobody's."""

    def legal_of(self, party: str) -> list[Wish]:
        return [wish for wishes in self.legal.values() for wish in wishes if wish.party == party]


def draw_wishes(
    view: WorldView, executions: Executions, per_tool: int, rng: random.Random
) -> WishPool:
    """Draw ``per_tool`` calls of each tool that writes, and sort them."""
    pool, draw = WishPool(), CallDraw(view.world, rng)
    parties = sorted(view.rows[view.party.name])
    busy = sorted(
        {
            owner
            for table, rows in view.rows.items()
            if table != view.party.name
            for row in rows.values()
            if (owner := view.owner(table, row, view.rows))
        }
    )
    for tool in view.writing:
        seen: set[str] = set()
        for _ in range(per_tool):
            party = rng.choice(busy if busy and rng.random() < 0.8 else parties)
            arguments = draw.arguments(tool, view.world.rows, {view.party.key: party})
            wish = _whole(view, tool.tool.name, arguments, rng)
            text = canonical_json(wish.arguments) if wish else ""
            if wish is None or text in seen:
                continue
            seen.add(text)
            _sort(view, executions, pool, wish)
    _find_unavailable(view, executions, pool)
    return pool


def _whole(view: WorldView, tool: str, arguments: Row, rng: random.Random) -> Wish | None:
    """The wish of one party, with texts that are new; None where rows of several are in it."""
    owners: set[str] = set()
    given = dict(arguments)
    for name, value in arguments.items():
        table = view.table_of(name)
        if table is not None:
            row = view.rows[table.name].get(value)
            if row is None:
                return None
            owners |= {owner} if (owner := view.owner(table.name, row, view.rows)) else set()
    if len(owners) != 1:
        return None
    (party,) = owners
    for name in arguments:
        if view.parameters(tool)[name].get("format") == "date" and not _is_date(arguments[name]):
            return None
        if _is_text(view, tool, name):
            given[name] = _fresh(str(view.rows[view.party.name][party].get(name, "")), rng)
            if not given[name]:
                return None
    return Wish(tool, given, party)


def _is_text(view: WorldView, tool: str, name: str) -> bool:
    schema = view.parameters(tool)[name]
    free = schema.get("type") == "string" and "enum" not in schema and "format" not in schema
    return free and view.table_of(name) is None


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _fresh(text: str, rng: random.Random) -> str:
    """Another text of the same form: every run of digits is another one."""
    if not re.search(r"\d", text):
        return ""
    changed = re.sub(r"\d", lambda _: str(rng.randint(1, 9)), text)
    return changed if changed != text else ""


def _sort(view: WorldView, executions: Executions, pool: WishPool, wish: Wish) -> None:
    made = executions.call(wish.tool, wish.arguments)
    broken = view.broken(wish.tool, wish.arguments)
    if made.end is CallEnd.DONE and made.event.changes:
        if not broken:
            pool.legal.setdefault(wish.tool, []).append(wish)
        elif len(broken) == 1:
            pool.forbidden.setdefault(broken[0].id, []).append(wish)
    elif made.end is CallEnd.REFUSED and not broken:
        for rule in view.rules.values():
            if wish.tool in rule.tools and names_rule(made.event.failed, rule):
                pool.refused.setdefault(rule.id, []).append(wish)


def _find_unavailable(view: WorldView, executions: Executions, pool: WishPool) -> None:
    """Legal wishes for a row of nobody's, with another such row that is not to be had."""
    for tool, wishes in pool.legal.items():
        free = [(name, table.name) for name in view.required(tool)
                if (table := view.table_of(name)) and not view.is_owned(table.name)
                and table.name != view.party.name]  # fmt: skip
        for wish in wishes if free else ():
            name, held = free[0]
            rows = list(view.rows[held])
            start = len(pool.unavailable) * 7
            for key in (rows[(start + at) % len(rows)] for at in range(12)):
                arguments = {**wish.arguments, name: key}
                made = executions.call(tool, arguments)
                named = any(names_rule(made.event.failed, rule) for rule in view.rules.values())
                if made.end is CallEnd.REFUSED and not named and "already" not in made.event.failed:
                    pool.unavailable.append(Wish(tool, arguments, wish.party))
                    break


class Satisfied(NamedTuple):
    """A wish that holds already: the row whose cell the tool would set."""

    wish: Wish
    table: str
    key: str
    column: str


def satisfied(view: WorldView, rng: random.Random) -> Iterator[Satisfied]:
    """Wishes to set a cell to what it is, of tools that set one to a fixed value."""
    found: list[Satisfied] = []
    for tool in view.writing:
        if tool.role not in (ToolRole.CANCEL, ToolRole.UPDATE):
            continue
        for change in tool.changes:
            fixed = {c: v for c, v in change.values.items() if isinstance(v, str)}
            key = change.key
            named = isinstance(key, dict) and "arg" in key and change.when is None
            if change.action is not WriteAction.UPDATE or not named or len(fixed) != 1:
                continue
            ((column, value),) = fixed.items()
            if view.column(change.table, column).type is not ColumnType.ENUM:
                continue
            for row_key, row in view.rows[change.table].items():
                owner = view.owner(change.table, row, view.rows)
                if row[column] == value and owner:
                    wish = Wish(tool.tool.name, {key["arg"]: row_key}, owner)
                    found.append(Satisfied(wish, change.table, row_key, column))
    rng.shuffle(found)
    yield from found


def nothing_there(view: WorldView, pool: WishPool, rng: random.Random) -> Wish | None:
    """A legal wish whose first row of its own is none that exists; None where no wish has one."""
    tools = sorted(pool.legal)
    wish = rng.choice(pool.legal[rng.choice(tools)]) if tools else None
    for name, value in wish.arguments.items() if wish else ():
        table = view.table_of(name)
        if wish is not None and table is not None and table.name != view.party.name:
            key = f"{value[:-4]}{rng.randint(1000, 9999)}"
            if key not in view.rows[table.name]:
                return wish._replace(arguments={**wish.arguments, name: key})
    return None
