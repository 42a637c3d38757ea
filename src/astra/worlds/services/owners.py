"""Whose the rows of a service are: a call about rows of two parties is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from astra.records.state import WriteAction
from astra.records.world import Expr
from astra.worlds.services.tables import ServiceTable
from astra.worlds.specs import Check, Parameter, ToolSpec

_OTHERS = "that belongs to somebody else"


class Owners:
    """Leads from rows to the party that they belong to. A reference that some tool changes says who
    has a row at the moment and not whose it is."""

    def __init__(
        self, specs: Iterable[ToolSpec], tables: Mapping[str, ServiceTable], party: str
    ) -> None:
        self._party = party
        changed = {(change.table, column) for spec in specs for change in spec.changes
                   if change.action is WriteAction.UPDATE for column in change.values}  # fmt: skip
        self._references = {
            name: {
                column.references: column.name for column in reversed(table.shape.columns)
                if column.references and (name, column.name) not in changed
            }
            for name, table in tables.items()
        }  # fmt: skip

    def checked(self, spec: ToolSpec) -> ToolSpec:
        """A tool that refuses calls about rows of two parties; one that writes nothing stays."""
        owners = [*self._owners(spec.parameters)] if spec.changes else []
        return replace(spec, checks=(*self._alike(owners), *spec.checks))

    def _owners(self, parameters: Iterable[Parameter]) -> Iterator[tuple[Parameter, Expr]]:
        for parameter in parameters:
            owner = self._owner(parameter.table, {"arg": parameter.name}, frozenset())
            if parameter.table and owner is not None:
                yield parameter, owner

    def _owner(self, table: str, key: Expr, passed: frozenset[str]) -> Expr:
        """The key of a row's party as an expression; None where the row is nobody's."""
        if table == self._party:
            return key
        references = self._references.get(table, {})
        for other in sorted(set(references) - passed, key=lambda name: name != self._party):
            cell: Expr = {"field": [{"row": [table, key]}, references[other]]}
            if (found := self._owner(other, cell, passed | {table})) is not None:
                return found
        return None

    def _alike(self, owners: list[tuple[Parameter, Expr]]) -> Iterator[Check]:
        for first, second in pairwise(owners):
            same: Expr = {"eq": [first[1], second[1]]}
            left_out = [{"eq": [{"arg": one.name}, None]} for one, _ in (first, second)
                        if one.optional]  # fmt: skip
            yield Check({"or": [*left_out, same]} if left_out else same, _OTHERS)
