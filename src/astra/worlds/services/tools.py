"""Tools of a service: each operation of its document as checks, changes and a result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from astra.records.state import WriteAction
from astra.records.world import Change, ColumnType, Expr, ToolRole
from astra.text.keys import key_of
from astra.text.openapi import ApiOperation, ApiParameter
from astra.worlds.sentences import with_article
from astra.worlds.services.schemas import Schema, column_type, flat, record, snake
from astra.worlds.services.source import ServiceEffect, ServiceParty
from astra.worlds.services.tables import Place, ServiceTable, place_of
from astra.worlds.soundness import operations
from astra.worlds.specs import (
    Check,
    Filter,
    ListResult,
    Parameter,
    RecordResult,
    RowResult,
    ToolSpec,
)

_PAGE = "page"
_BOUNDS = {"most_": "most", "max_": "most", "least_": "least", "min_": "least"}
_TYPES = {ColumnType.STRING: "string", ColumnType.ENUM: "string", ColumnType.ID: "string",
          ColumnType.DATE: "date", ColumnType.INTEGER: "integer", ColumnType.NUMBER: "number",
          ColumnType.BOOLEAN: "boolean"}  # fmt: skip
_CANCELLING = frozenset({"cancel", "withdraw", "revoke"})


class NotHosted(Exception):
    """An operation that no world can have; the reason's code, and what it is with the repair."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


@dataclass
class _Given:
    """What an operation takes."""

    parameters: list[Parameter] = field(default_factory=list[Parameter])
    cells: dict[str, Expr] = field(default_factory=dict[str, Expr])
    """Columns that are always given."""
    choices: dict[str, Expr] = field(default_factory=dict[str, Expr])
    """Columns that may be given."""


class ServiceTools:
    """Makes the tools of one service."""

    def __init__(
        self, tables: Mapping[str, ServiceTable], effects: Mapping[str, ServiceEffect]
    ) -> None:
        self._tables, self._effects = tables, effects
        self._keys = {table.shape.key: name for name, table in tables.items()}

    def tool(self, operation: ApiOperation) -> ToolSpec:
        """The tool of an operation. Raises NotHosted."""
        place = place_of(operation.path, self._tables)
        if not place.table:
            raise NotHosted(
                "unknown_table",
                f"its path names none of the tables that have rows ({', '.join(self._tables)}): "
                "add rows of that name, or take the operation out of the document",
            )
        method = operation.method
        if method == "get" and not place.verbs:
            return self._get(operation, place) if place.key else self._list(operation, place)
        if method == "post" and not place.key and not place.verbs:
            return self._create(operation, place)
        if method != "get" and place.key:
            return self._delete(operation, place) if self._deletes(operation, place) else (
                self._update(operation, place)
            )  # fmt: skip
        raise NotHosted(
            "no_row_named",
            "its path ends in neither a table nor a row of one (nor, where it writes, in a verb "
            f"after a row): write /{place.table}/{{{self._tables[place.table].shape.key}}}",
        )

    # Reading ------------------------------------------------------------------------------------

    def _get(self, operation: ApiOperation, place: Place) -> ToolSpec:
        table = self._tables[place.table]
        if others := [one.name for one in _asked(operation) if one.name != place.key]:
            why = f"{others}: nothing but the key chooses the row: take them out"
            raise NotHosted("unknown_filter", why)
        return ToolSpec(
            operation.method, tool_name(operation), ToolRole.GET,
            _sentence(operation, f"Show one {table.noun}."), (self._key(place.table),),
            RowResult(place.table, {"arg": table.shape.key}, self._shown(operation, table)),
        )  # fmt: skip

    def _list(self, operation: ApiOperation, place: Place) -> ToolSpec:
        table = self._tables[place.table]
        parameters: list[Parameter] = []
        filters: list[Filter] = []
        for asked in _asked(operation):
            if place.owner is not None and asked.name == place.owner[1]:
                parameter, one = self._owner(place)
            elif asked.name == _PAGE:
                parameters.append(
                    Parameter(_PAGE, "integer", "Page of ten, from 1", optional=True, least=1)
                )
                continue
            else:
                parameter, one = self._filter(asked, table)
            parameters.append(parameter)
            filters.append(one)
        owned = [one for one in parameters if one.table and not one.optional]
        paged = any(one.name == _PAGE for one in parameters)
        what = place.table.replace("_", " ")
        of = f" of {with_article(self._tables[owned[0].table].noun)}" if owned else ""
        text = f"List the {what}{of}." if owned else f"Search {what}."
        return ToolSpec(
            operation.method, tool_name(operation), ToolRole.LIST if owned else ToolRole.SEARCH,
            _sentence(operation, text), tuple(parameters),
            ListResult(place.table, tuple(filters), self._shown(operation, table),
                       "page" if paged else "all"),
        )  # fmt: skip

    def _owner(self, place: Place) -> tuple[Parameter, Filter]:
        """The owner in the path, by the column that refers to it."""
        assert place.owner is not None
        owner, _ = place.owner
        columns = [one.name for one in self._tables[place.table].shape.columns
                   if one.references == owner]  # fmt: skip
        if len(columns) != 1:
            why = f"{len(columns)} columns of {place.table} refer to {owner}, one has to"
            raise NotHosted("unknown_filter", f"{why}: name it `{self._key(owner).name}`")
        return self._key(owner), Filter(columns[0], self._key(owner).name)

    def _filter(self, asked: ApiParameter, table: ServiceTable) -> tuple[Parameter, Filter]:
        """An argument that chooses rows by one of their columns."""
        name = table.columns.get(asked.name, snake(asked.name))
        prefix = next((one for one in _BOUNDS if name.startswith(one)), "")
        column = table.column(name) or (table.column(name.removeprefix(prefix)) if prefix else None)
        if column is None or column.type is ColumnType.JSON:
            raise NotHosted(
                "unknown_filter",
                f"`{asked.name}` is no single cell of {table.shape.name}, no `page`, and no such "
                "cell after most_ or least_: name it so, or take it out",
            )
        optional = asked.required is not True
        if column.name == name:
            parameter = self._parameter(name, asked.schema, table, optional)
            return parameter, Filter(name, name)
        if column.optional or column.type is ColumnType.ENUM:
            why = f"`{asked.name}` is a bound of cells that may be empty or have no order"
            raise NotHosted("unknown_filter", f"{why}: take it out")
        how = _BOUNDS[prefix]
        argument = f"{how}_{column.name}"
        parameter = self._parameter(argument, asked.schema, table, optional)
        return parameter, Filter(column.name, argument, "most" if how == "most" else "least")

    # Writing ------------------------------------------------------------------------------------

    def _create(self, operation: ApiOperation, place: Place) -> ToolSpec:
        table, effect = self._tables[place.table], self._effect(operation)
        given = self._given(operation, place, effect)
        cells: dict[str, Expr] = {}
        for column in table.shape.columns:
            name = column.name
            values = (effect.sets, given.cells, given.choices if column.optional else {},
                      table.defaults)  # fmt: skip
            if name == table.shape.key:
                continue
            found = next((one for one in values if name in one), None)
            if found is None and not column.optional:
                may = "the body may leave it out" if name in given.choices else "nothing gives it"
                raise NotHosted(
                    "unset_cell",
                    f"a new {table.noun} needs `{name}`, and {may}: require it in the body, give "
                    f"its schema a `default`, or set it in rules.yaml "
                    f"(operations: {{{tool_name(operation)}: {{sets: {{{name}: ...}}}}}})",
                )
            cells[name] = None if found is None else found[name]
        key = f"new_{table.shape.key}"
        required = [{"arg": one.name} for one in given.parameters if not one.optional]
        made = Change(
            action=WriteAction.INSERT, table=place.table, parts=tuple(required or [place.table]),
            binds=key, values=cells,
        )  # fmt: skip
        return ToolSpec(
            operation.method, tool_name(operation), ToolRole.CREATE,
            _sentence(operation, f"Make {with_article(table.noun)}."), tuple(given.parameters),
            RowResult(place.table, {"arg": key}, self._shown(operation, table)),
            _needs(effect), (made, *effect.also),
        )  # fmt: skip

    def _update(self, operation: ApiOperation, place: Place) -> ToolSpec:
        table, effect = self._tables[place.table], self._effect(operation)
        given = self._given(operation, place, effect)
        verb = snake(place.verbs[-1]) if place.verbs else "change"
        ends = operation.method == "delete" or bool(_CANCELLING & set(verb.split("_")))
        key: Expr = {"arg": table.shape.key}
        cells = {**given.cells, **effect.sets}
        checks = [*_needs(effect)]
        changes = [Change(action=WriteAction.UPDATE, table=place.table, key=key, values=cells)]
        there = {name: {"not": {"eq": [{"arg": name}, None]}} for name in given.choices}
        changes = changes if cells else []
        changes += [
            Change(action=WriteAction.UPDATE, table=place.table, key=key,
                   values={name: value}, when=there[name])
            for name, value in given.choices.items()
        ]  # fmt: skip
        if not changes and not effect.also:
            raise NotHosted(
                "nothing_changed",
                "neither its body nor rules.yaml says what it changes "
                f"(operations: {{{tool_name(operation)}: {{sets: {{column: value}}}}}})",
            )
        if given.choices and not cells:
            checks.append(Check({"or": [*there.values()]}, "nothing to change is given"))
        for name, value in effect.sets.items():
            column = table.column(name)
            if column is not None and column.type is ColumnType.ENUM and isinstance(value, str):
                said = f"the {table.noun} is {value.replace('_', ' ')} already"
                cell: Expr = {"field": [{"row": [place.table, key]}, name]}
                checks.insert(0, Check({"not": {"eq": [cell, value]}}, said))
        does = "Cancel" if ends else verb.capitalize()
        text = _sentence(operation, f"{does} {with_article(table.noun)}.")
        return ToolSpec(
            operation.method, tool_name(operation), ToolRole.CANCEL if ends else ToolRole.UPDATE,
            text, tuple(given.parameters),
            RowResult(place.table, key, self._shown(operation, table)), tuple(checks),
            (*changes, *effect.also),
        )  # fmt: skip

    def _deletes(self, operation: ApiOperation, place: Place) -> bool:
        """Whether the row goes; one whose state is set stays."""
        return operation.method == "delete" and not place.verbs and not self._effect(operation).sets

    def _delete(self, operation: ApiOperation, place: Place) -> ToolSpec:
        table, effect = self._tables[place.table], self._effect(operation)
        given = self._given(operation, place, effect)
        key: Expr = {"arg": table.shape.key}
        used = [
            Check({"not": {"exists": [name, {column.name: key}]}},
                  f"the {table.noun} still has {with_article(other.noun)}")
            for name, other in self._tables.items()
            for column in other.shape.columns if column.references == place.table
        ]  # fmt: skip
        return ToolSpec(
            operation.method, tool_name(operation), ToolRole.CANCEL,
            _sentence(operation, f"Remove {with_article(table.noun)}."), tuple(given.parameters),
            RecordResult({"removed": True}), (*_needs(effect), *used),
            (*effect.also, Change(action=WriteAction.DELETE, table=place.table, key=key)),
        )  # fmt: skip

    def _effect(self, operation: ApiOperation) -> ServiceEffect:
        """What rules.yaml says of an operation. Raises NotHosted for columns that are none."""
        effect = self._effects.get(tool_name(operation), ServiceEffect())
        table = place_of(operation.path, self._tables).table
        for name, cells in (
            (table, effect.sets),
            *((one.table, one.values) for one in effect.also),
        ):
            known = self._tables[name].shape.columns if name in self._tables else ()
            if strange := sorted(set(cells) - {column.name for column in known}):
                why = f"rules.yaml sets {strange} of {name}, which has no such columns"
                raise NotHosted("unknown_column", f"{why}, only {[one.name for one in known]}")
        return effect

    def _given(self, operation: ApiOperation, place: Place, effect: ServiceEffect) -> _Given:
        """What a writing operation takes: keys in its path, and the fields of its body."""
        given, table = _Given(), self._tables[place.table]
        for asked in _asked(operation):
            if asked.name == place.key:
                given.parameters.append(self._key(place.table))
            elif place.owner is not None and asked.name == place.owner[1] and not place.key:
                parameter, one = self._owner(place)
                given.parameters.append(parameter)
                given.cells[one.column] = {"arg": one.argument}
            else:
                why = "is in the path or the query, and what a write takes stands in its body"
                raise NotHosted("idle_argument", f"`{asked.name}` {why}: move it there")
        trees = [effect.sets, [dict(one) for one in effect.also]]
        used = [operand for name, operand in operations(trees) if name == "arg"]
        for name, schema, optional in _fields(operation):
            column = table.columns.get(name, snake(name))
            if table.column(column) is None and column not in used:
                raise NotHosted(
                    "unknown_column",
                    f"`{name}` of its body is no cell of {place.table}, and nothing that "
                    "rules.yaml says of the operation uses it: add the column, or take it out",
                )
            given.parameters.append(self._parameter(column, schema, table, optional))
            if table.column(column) is not None and column not in effect.sets:
                cells = given.choices if optional else given.cells
                cells[column] = {"arg": column}
        return given

    # Parts --------------------------------------------------------------------------------------

    def _key(self, table: str) -> Parameter:
        one = self._tables[table]
        return Parameter(one.shape.key, "string", f"Key of the {one.noun}", table=table)

    def _parameter(self, name: str, schema: Any, table: ServiceTable, optional: bool) -> Parameter:
        """A parameter for a cell, or for a value of its own."""
        known = flat(schema)
        refers = self._keys.get(key_of(name, self._keys), "")
        column = table.column(name)
        type_ = ColumnType.ID if refers else column_type(known) or (column and column.type)
        if type_ is None or type_ not in _TYPES:
            raise NotHosted(
                "nested_field",
                f"`{name}` is no single value: take a text, number, truth value, day or `enum`, "
                "or an operation of its own for each part",
            )
        values = known.get("enum") or (column.values if column and not refers else ())
        text = known.get("description") or _described(name, self._tables, refers)
        return Parameter(
            name, cast("Any", _TYPES[type_]), text, values=tuple(map(str, values)), table=refers,
            optional=optional, least=known.get("minimum"), most=known.get("maximum"),
        )  # fmt: skip

    def _shown(self, operation: ApiOperation, table: ServiceTable) -> tuple[str, ...]:
        """The columns that its answer has, the key first; all where it does not say."""
        said = record(operation.response).get("properties") or {}
        named = {table.columns[name] for name in said if name in table.columns}
        names = [column.name for column in table.shape.columns]
        kept = [name for name in names if name in named or not named]
        return tuple(dict.fromkeys([table.shape.key, *kept]))


def find_tool(party: ServiceParty, tables: Mapping[str, ServiceTable]) -> ToolSpec:
    """The tool that finds who asks. Raises NotHosted."""
    table = tables.get(party.table)
    if table is None:
        why = f"party: there are no rows of {party.table!r}, only of {', '.join(tables)}"
        raise NotHosted("unknown_party", why)
    ways = party.found_by
    names = [name for way in ways for name in way]
    if strange := [name for name in names if table.column(name) is None]:
        why = f"found_by: {strange} are no columns of {party.table}"
        raise NotHosted("unknown_party", f"{why}, which has {list(table.columns.values())}")
    parameters = tuple(
        Parameter(name, "string", name.replace("_", " ").capitalize(), optional=len(ways) > 1)
        for name in names
    )
    said = ", or by ".join(_joined(way) for way in ways)
    checks: tuple[Check, ...] = ()
    if len(ways) > 1:
        enough = [{"and": [{"not": {"eq": [{"arg": name}, None]}} for name in way]} for way in ways]
        checks = (Check({"or": enough}, f"give {', or '.join(map(_joined, ways))}"),)
    columns = tuple(column.name for column in table.shape.columns)
    return ToolSpec(
        "find", f"find_{table.noun.replace(' ', '_')}", ToolRole.FIND,
        f"Find the {table.noun} by {said}.", parameters,
        ListResult(party.table, tuple(Filter(name, name) for name in names), columns, "only"),
        checks,
    )  # fmt: skip


def _needs(effect: ServiceEffect) -> tuple[Check, ...]:
    return tuple(Check(need.that, need.says) for need in effect.needs)


def _joined(names: Sequence[str]) -> str:
    return " and ".join(name.replace("_", " ") for name in names)


def _asked(operation: ApiOperation) -> list[ApiParameter]:
    """The parameters in path and query: later ones of a name stand for earlier ones."""
    found = {one.name: one for one in operation.parameters if one.place in ("path", "query")}
    return [*found.values()]


def _fields(operation: ApiOperation) -> Iterator[tuple[str, Any, bool]]:
    """The fields of a body: name, schema, and whether it may be left out. Raises NotHosted."""
    for body in operation.parameters:
        if body.place == "formData":
            yield body.name, body.schema, body.required is not True
        if body.place != "body":
            continue
        schema: Schema = flat(body.schema)
        if not schema.get("properties"):
            what = schema.get("type") or "nothing that says its fields"
            raise NotHosted(
                "no_object",
                f"its body is {what}: send an object with `properties`, one for each value",
            )
        required = schema.get("required") or ()
        for name, part in schema["properties"].items():
            if flat(part).get("readOnly") is not True:
                yield name, part, name not in required


def tool_name(operation: ApiOperation) -> str:
    """The tool's name: ``operationId`` where it is a name."""
    name = str(operation.name)
    return name if name.isidentifier() and name.isascii() else snake(name)


def _sentence(operation: ApiOperation, otherwise: str) -> str:
    """The first sentence of the summary, which starts with a verb."""
    said = operation.summary or operation.description
    first = str(said).strip().split(". ")[0].splitlines()[0].rstrip(".") if said else ""
    return f"{first[0].upper()}{first[1:]}." if first else otherwise


def _described(name: str, tables: Mapping[str, ServiceTable], refers: str) -> str:
    if refers:
        return f"Key of the {tables[refers].noun}"
    return f"The {name.replace('_', ' ')}"
