"""The world of an arena whose tools write: kept by the host, changed by executed calls only.

Every call gets the whole world and gives back what it became; the host compares the two, so
what a tool may write is enforced outside the session, a call that fails changes nothing, and a
session that dies takes no state with it. A snapshot is a value, and a reset is forgetting.

Two states are the same when their canonical forms are: rows without order, columns of class
IGNORE left out, text columns normalised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from astra.arena.answers import normalise
from astra.records.base import canonical_json, content_id
from astra.records.environment import Arena
from astra.records.state import ArenaState, FieldClass, Row, Tables, WorldState, Write, WriteAction
from astra.sandbox.protocol import SandboxResult, SandboxStatus

Fields = Mapping[str, Mapping[str, FieldClass]]
"""How columns are compared, by table and column; a column that is left out is EXACT."""
VIOLATION = "write violation: "
"""How the error of a call starts that changed more of the world than it may."""
_ENTRY = """

class _World:
    def __init__(self, state):
        self.tables, self.clock, self._ids = state["tables"], state["clock"], state["ids"]

    def new_id(self, table):
        self._ids[table] = self._ids.get(table, 0) + 1
        return f"{{table}}-{{self._ids[table]}}"


def {entry}(state, arguments):
    world = _World(state)
    value = {name}(world, **arguments)
    return {{"value": value, "tables": world.tables, "ids": world._ids}}
"""


class StateError(ValueError):
    """A write that the tables do not admit: no such table, column or row."""


def entry_of(name: str, code: str) -> tuple[str, str]:
    """The function that a session calls for a stateful tool, and the source that defines it.

    It takes ``state`` (what ``WorldState`` holds) and ``arguments``. The tool's own function gets
    an object with ``tables``, ``clock`` and ``new_id(table)`` as its first argument.
    """
    entry = f"_call_{name}"
    return entry, code + _ENTRY.format(entry=entry, name=name)


def state_of(arena: Arena) -> ArenaState | None:
    """What the arena's tools share; None where none of them is stateful, and in a persistent world
    (``arena/worlds.py``)."""
    return parse_state(arena.state) if arena.state and not arena.world_id else None


@lru_cache(maxsize=512)
def parse_state(text: str) -> ArenaState:
    """The state that ``Arena.state`` holds as JSON; not to be changed."""
    return ArenaState.model_validate_json(text)


@lru_cache(maxsize=512)
def expected_tables(text: str) -> Tables:
    """The tables of ``Arena.expected_state``; not to be changed."""
    return WorldState.model_validate_json(f'{{"tables": {text}, "clock": ""}}').tables


def settle(
    state: ArenaState, name: str, before: WorldState, result: SandboxResult
) -> tuple[SandboxResult, WorldState]:
    """A stateful call as its caller sees it, and the world after it.

    What the call returned is checked like anything else that comes out of a session; a call
    that wrote where tool ``name`` must not is an exception that changes nothing.
    """
    if result.status != SandboxStatus.OK:
        return result, before
    returned = cast("dict[str, Any]", result.value)
    fault = _fault(state, name, before, returned)
    if fault:
        failed = SandboxStatus.EXCEPTION
        return result._replace(status=failed, value=None, error=f"{VIOLATION}{fault}"), before
    after = WorldState.model_construct(
        tables=returned["tables"], clock=before.clock, ids=returned["ids"]
    )
    return result._replace(value=returned["value"]), after


def _fault(state: ArenaState, name: str, before: WorldState, returned: Any) -> str:
    """What is wrong with what a stateful call returned; empty if nothing is."""
    if not isinstance(returned, dict) or set(cast("Row", returned)) != {"value", "tables", "ids"}:
        return f"{name} took its entry over"
    tables = cast("Row", returned)["tables"]
    if not isinstance(tables, dict) or set(cast("Tables", tables)) != set(before.tables):
        return "the set of tables changed"
    for table, rows in cast("Tables", tables).items():
        if canonical_json(rows) == canonical_json(before.tables[table]):
            continue
        if table not in state.writes[name]:
            return f"{name} must not change table {table}"
        if not isinstance(rows, list) or not all(
            _is_row(row, state.columns[table]) for row in rows
        ):
            return f"table {table} no longer has its columns"
    return ""


def _is_row(row: Any, columns: Sequence[str]) -> bool:
    return (
        isinstance(row, dict)
        and set(cast("Row", row)) == set(columns)
        and all(
            cell is None or isinstance(cell, str | int | float)
            for cell in cast("Row", row).values()
        )
    )


def same_cell(one: Any, other: Any) -> bool:
    """Whether two JSON values are one: 1 is 1.0, and neither is true."""
    if isinstance(one, list | dict) or isinstance(other, list | dict):
        return canonical_json(plain(one)) == canonical_json(plain(other))
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def plain(value: Any) -> Any:
    """A JSON value in which whole numbers are integers, however deep they stand."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in cast("Row", value).items()}
    return value


def same_state(one: Tables, other: Tables, fields: Fields) -> bool:
    """Whether two states have the same canonical form."""
    return state_hash(one, fields) == state_hash(other, fields)


def state_hash(tables: Tables, fields: Fields) -> str:
    """16 hex digits that two states share exactly when they are the same."""
    return content_id(
        {
            table: sorted(row_line(row, fields.get(table, {})) for row in rows)
            for table, rows in tables.items()
        }
    )


def row_line(row: Row, classes: Mapping[str, FieldClass]) -> str:
    """The canonical form of a row as text."""
    return canonical_json(_comparable(row, classes))


def _comparable(row: Row, classes: Mapping[str, FieldClass]) -> Row:
    """The canonical form of a row."""
    kept: Row = {}
    for column, cell in row.items():
        kind = classes.get(column, FieldClass.EXACT)
        if kind == FieldClass.IGNORE:
            continue
        if kind == FieldClass.TEXT and isinstance(cell, str):
            cell = normalise(cell)
        kept[column] = plain(cell)  # one number written twice is one
    return kept


def apply_writes(
    tables: Tables, writes: Iterable[Write], columns: Mapping[str, Sequence[str]], fields: Fields
) -> Tables:
    """The tables after the writes, by their definition. Raises StateError; changes nothing given,
    and shares with it the rows that stay as they are.

    Cells of an inserted row that its write leaves out (columns of class IGNORE) become None.
    """
    after = {name: list(rows) for name, rows in tables.items()}
    for write in writes:
        if write.table not in after:
            raise StateError(f"there is no table {write.table!r}")
        strangers = {*write.where, *write.values} - set(columns[write.table])
        if strangers:
            raise StateError(f"table {write.table} has no columns {sorted(strangers)}")
        rows, classes = after[write.table], fields.get(write.table, {})
        generated = {
            name for name in columns[write.table] if classes.get(name) == FieldClass.IGNORE
        }
        uncompared = generated & set(write.values)
        if uncompared:
            raise StateError(f"{sorted(uncompared)} of {write.table} go uncompared")
        if write.action == WriteAction.INSERT:
            missing = set(columns[write.table]) - set(write.values) - generated
            if missing:
                raise StateError(f"a new row of {write.table} needs {sorted(missing)}")
            rows.append({name: write.values.get(name) for name in columns[write.table]})
            continue
        chosen = [row for row in rows if all(row[k] == v for k, v in write.where.items())]
        if not chosen or not write.where:
            raise StateError(f"no row of {write.table} is chosen by {write.where}")
        if write.action == WriteAction.UPDATE:
            after[write.table] = [{**row, **write.values} if row in chosen else row for row in rows]
        else:
            after[write.table] = [row for row in rows if row not in chosen]
    return after
