"""Tables of a service: its rows, with the columns that the document says they have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from astra.records.state import Row
from astra.records.world import ColumnType, Expr, Invariant, WorldColumn, WorldTable
from astra.text.keys import key_of
from astra.text.openapi import ApiOperation
from astra.worlds.services.schemas import Schema, column_type, one_of, row_schema, snake
from astra.worlds.services.source import ServiceFiles, ServiceRefused
from astra.worlds.soundness import WorldFault

_KEY_END = "_id"


@dataclass(frozen=True)
class Place:
    """What the path of an operation is about."""

    table: str
    """The last table that it names; empty for none of those that have rows."""
    key: str = ""
    """The path's parameter for one of its rows; empty for all of them."""
    owner: tuple[str, str] | None = None
    """The table before it, and the parameter for a row of that."""
    verbs: tuple[str, ...] = ()
    """What follows."""


@dataclass(frozen=True)
class ServiceTable:
    """One table as the world has it, and what the document calls its parts."""

    shape: WorldTable
    rows: tuple[Row, ...]
    columns: Mapping[str, str]
    """The document's names of cells -> those of the columns."""
    defaults: Mapping[str, Any]
    """What the document says that a cell is where nothing is given, by column."""
    invariants: tuple[Invariant, ...]
    """Its least and greatest numbers."""

    @property
    def noun(self) -> str:
        """What one of its rows is called."""
        return self.shape.key.removesuffix(_KEY_END).replace("_", " ")

    def column(self, name: str) -> WorldColumn | None:
        """The column of that name, if there is one."""
        return next((one for one in self.shape.columns if one.name == name), None)


@dataclass(frozen=True)
class _Draft:
    """A table before it is known which of its columns refer to others."""

    name: str
    schema: Schema
    key: str
    """The document's name of the key."""
    rows: Sequence[Mapping[str, Any]]

    def renamed(self, name: str) -> str:
        """The column of a cell that the document names."""
        known = snake(name)
        if name == self.key and (known == "id" or not known.endswith(_KEY_END)):
            return f"{one_of(self.name)}{_KEY_END}"
        return known


def place_of(path: str, tables: Iterable[str]) -> Place:
    """What a path is about, by the names of tables that stand in it."""
    parts, known = [part for part in path.split("/") if part], set(tables)

    def key(at: int) -> str:
        return parts[at + 1].strip("{}") if parts[at + 1 :] and "{" in parts[at + 1] else ""

    ends = [at for at, part in enumerate(parts) if "{" not in part and snake(part) in known]
    if not ends:
        return Place("")
    last = ends[-1]
    before = [(snake(parts[at]), key(at)) for at in ends[:-1] if key(at)]
    rest = parts[last + 1 + bool(key(last)) :]
    return Place(snake(parts[last]), key(last), before[-1] if before else None, tuple(rest))


def service_tables(
    files: ServiceFiles, operations: Sequence[ApiOperation]
) -> dict[str, ServiceTable]:
    """The tables of all rows, by name. Raises ServiceRefused with everything that is unclear."""
    named = {snake(name): rows for name, rows in files.rows.items()}
    places = [(one, place_of(one.path, named)) for one in operations]
    drafts = [_draft(name, named[name], files.document, places) for name in named]
    if found := [fault for draft in drafts for fault in _unclear(draft)]:
        raise ServiceRefused(found)
    keys = {draft.renamed(draft.key): draft.name for draft in drafts}
    if len(keys) < len(drafts):
        raise ServiceRefused([WorldFault("shared_key", f"two tables have one of {sorted(keys)}")])
    return {draft.name: _table(draft, keys) for draft in drafts}


def _draft(
    name: str, rows: list[dict[str, Any]], document: Any,
    places: Sequence[tuple[ApiOperation, Place]],
) -> _Draft:  # fmt: skip
    own = [(one, place) for one, place in places if place.table == name]
    shown = [one for one, place in own if one.method == "get" and not place.verbs]
    schema = row_schema(name, document, shown)
    there = {snake(cell): cell for cell in schema["properties"]}
    wanted = (f"{one_of(name)}{_KEY_END}", *(snake(place.key) for _, place in own), "id")
    return _Draft(name, schema, next((there[one] for one in wanted if one in there), ""), rows)


def _unclear(draft: _Draft) -> Iterator[WorldFault]:
    """What keeps rows from being a table."""
    name, properties = draft.name, draft.schema["properties"]
    if not properties:
        why = "no GET operation answers with its rows, and no schema of the document has its name"
        yield WorldFault("no_schema", f"{name}: {why}: give GET /{name} a response of objects")
        return
    if not draft.key:
        why = f"no cell of {sorted(properties)} tells its rows apart"
        wanted = f"give its schema `{one_of(name)}{_KEY_END}` or `id`"
        yield WorldFault("no_key", f"{name}: {why}: {wanted}, and each row one of its own")
        return
    if column_type(properties[draft.key]) is not ColumnType.STRING:
        why = f"its key `{draft.key}` is no text: write keys as `{one_of(name)}-1001`"
        yield WorldFault("no_text_key", f"{name}: {why}, in the document and in the rows")
    for cell, schema in properties.items():
        if column_type(schema) is None:
            why = "has no type: say one (string, integer, number, boolean) or its `enum`"
            yield WorldFault("no_type", f"{name}: `{cell}` {why}")
    for number, row in enumerate(draft.rows, start=1):
        if not isinstance(row.get(draft.key), str):
            why = f"row {number} has {row.get(draft.key)!r} under `{draft.key}`, its key"
            yield WorldFault("no_text_key", f"{name}: {why}: give it a text of its own")
            return
        if strange := sorted(set(row) - set(properties)):
            why = f"row {number} has {strange}, which no schema of {name} describes"
            yield WorldFault("unknown_cell", f"{name}: {why}: add them there, or leave them out")
            return


def _table(draft: _Draft, keys: Mapping[str, str]) -> ServiceTable:
    columns = {cell: draft.renamed(cell) for cell in draft.schema["properties"]}
    key = columns[draft.key]
    shapes = [_column(draft, cell, name, keys, name == key) for cell, name in columns.items()]
    properties = draft.schema["properties"].items()
    defaults = {columns[cell]: one["default"] for cell, one in properties if "default" in one}
    rows = tuple({name: row.get(cell) for cell, name in columns.items()} for row in draft.rows)
    return ServiceTable(
        WorldTable(name=draft.name, key=key, columns=tuple(shapes)), rows, columns, defaults,
        tuple(_bounds(draft, columns)),
    )  # fmt: skip


def _column(
    draft: _Draft, cell: str, name: str, keys: Mapping[str, str], is_key: bool
) -> WorldColumn:
    """A column. One that is not in every row may be empty, one whose schema says so too."""
    schema = draft.schema["properties"][cell]
    type_ = column_type(schema)
    assert type_ is not None
    given = all(row.get(cell) is not None for row in draft.rows)
    left_out = cell not in draft.schema["required"] and not given
    optional = not is_key and (schema.get("nullable") is True or left_out)
    may_refer = type_ is ColumnType.STRING and not is_key
    refers = keys.get(key_of(name, keys), "") if may_refer else ""
    if is_key or refers:
        return WorldColumn(name=name, type=ColumnType.ID, references=refers, optional=optional)
    values = [str(one) for one in schema.get("enum", ()) if one is not None]
    return WorldColumn(name=name, type=type_, values=tuple(values), optional=optional)


def _bounds(draft: _Draft, columns: Mapping[str, str]) -> Iterator[Invariant]:
    """The bounds that the document sets to numbers, as what always holds."""
    for cell, name in columns.items():
        schema = draft.schema["properties"][cell]
        if column_type(schema) not in (ColumnType.INTEGER, ColumnType.NUMBER):
            continue
        own: Expr = {"self": name}
        for bound, words in (("minimum", "at least"), ("maximum", "at most")):
            if bound not in schema:
                continue
            pair = [schema[bound], own] if bound == "minimum" else [own, schema[bound]]
            kept: Expr = {"le": pair}
            if _may_lack(draft, cell):
                kept = {"or": [{"eq": [own, None]}, kept]}
            text = f"{name} is {words} {schema[bound]}"
            yield Invariant(table=draft.name, text=text, holds=kept)


def _may_lack(draft: _Draft, cell: str) -> bool:
    nullable = draft.schema["properties"][cell].get("nullable") is True
    return nullable or any(row.get(cell) is None for row in draft.rows)
