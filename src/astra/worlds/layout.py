"""A domain's tables: which columns the archetypes have there, and expressions over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from astra.records.state import WriteAction
from astra.records.world import (
    OUTCOMES,
    Change,
    ColumnType,
    Expr,
    OutcomeKind,
    WorldColumn,
    WorldShape,
    WorldTable,
)
from astra.worlds.domain import Archetype, Noun, WorldDomain

TITLED = ("title", "category", "price")
"""Columns of a kind; an asset has them itself where a domain has no kinds."""
_TYPES = {
    "integer": "dues price extensions capacity left seats amount quantity",
    "date": "since start end date booked_on opened_on",
    "enum": "tier standing state category place entry type topic item",
    "string": "name email postcode phone title label",
}
_TYPE_OF = {
    column: ColumnType(type_) for type_, columns in _TYPES.items() for column in columns.split()
}
_ARCHETYPES = frozenset(archetype.value for archetype in Archetype)
_OPTIONAL = {("ledger", "contract"), ("ledger", "means"), ("ticket", "contract")}


@dataclass(frozen=True)
class Layout:
    """The archetypes that a world has, by the names that its domain gives them."""

    domain: WorldDomain
    present: tuple[Archetype, ...]
    shape: WorldShape

    @property
    def small(self) -> bool:
        return self.shape is WorldShape.SMALL

    @property
    def slots(self) -> bool:
        """Whether assets are dated slots with places."""
        return self.domain.family == "slot"

    def has(self, archetype: Archetype) -> bool:
        return archetype in self.present

    def noun(self, archetype: Archetype) -> Noun:
        return self.domain.nouns[archetype]

    def table(self, archetype: Archetype) -> str:
        """The table's name."""
        return self.noun(archetype).plural.replace(" ", "_")

    def key(self, archetype: Archetype) -> str:
        """The name of its key column, and of every column that refers to it."""
        return f"{self.noun(archetype).noun.replace(' ', '_')}_id"

    def column(self, archetype: Archetype, name: str) -> str:
        """The domain's name of an archetype's column; another archetype's name is a reference."""
        if name in _ARCHETYPES:
            return self.key(Archetype(name))
        return self.noun(archetype).columns.get(name, name)

    def values(self, archetype: Archetype, name: str) -> tuple[str, ...]:
        """What an enumerated column may hold."""
        noun = self.noun(archetype)
        if name in noun.attributes:
            return noun.attributes[name]
        if name == "item":
            return self.domain.extras
        return noun.values[name]

    def value(self, archetype: Archetype, name: str, at: int) -> str:
        """One value of an enumerated column, by its place in the archetype's order."""
        return self.values(archetype, name)[at]

    def arg(self, archetype: Archetype) -> Expr:
        return {"arg": self.key(archetype)}

    def row(self, archetype: Archetype, key: Expr) -> Expr:
        return {"row": [self.table(archetype), key]}

    def cell(self, archetype: Archetype, key: Expr, name: str) -> Expr:
        """The cell of a row given by its key."""
        return {"field": [self.row(archetype, key), self.column(archetype, name)]}

    def where(self, archetype: Archetype, **cells: Expr) -> dict[str, Expr]:
        return {self.column(archetype, name): value for name, value in cells.items()}

    def names(self, archetype: Archetype) -> tuple[str, ...]:
        """The archetype's columns besides the key, in order and in its own words."""
        return tuple(
            name
            for name in (*self._core(archetype), *self._attributes(archetype))
            if name not in _ARCHETYPES or self.has(Archetype(name))
        )

    def _attributes(self, archetype: Archetype) -> tuple[str, ...]:
        return () if self.small else tuple(self.noun(archetype).attributes)

    def _core(self, archetype: Archetype) -> Sequence[str]:
        slots, small = self.slots, self.small
        titled = () if self.has(Archetype.KIND) else TITLED[:1] if small else TITLED
        match archetype:
            case Archetype.PARTY:
                full = "name email postcode phone tier standing dues since".split()
                return ("name", "email", "tier") if small else full
            case Archetype.KIND:
                return TITLED
            case Archetype.ASSET:
                state = ("date", "capacity", "left") if slots else ("state",)
                return (*titled, "kind", *(() if small else ("place",)), *state)
            case Archetype.CONTRACT:
                span = ("seats",) if slots else ("start", "end")
                full = ("extensions",) if not small or not slots else ()
                price = () if small else ("price",)
                return ("party", "asset", "state", *span, *price, *full)
            case Archetype.MEANS:
                return ("party", "type", "label")
            case Archetype.LEDGER:
                return ("party", "contract", "means", "entry", "amount", "booked_on")
            case Archetype.LINE:
                return ("contract", "item", "quantity", "price")
            case Archetype.TICKET:
                return ("party", "contract", "topic", "state", "opened_on")

    def columns(self, archetype: Archetype) -> tuple[str, ...]:
        """The table's columns by their names in the domain, the key first."""
        names = (self.column(archetype, name) for name in self.names(archetype))
        return (self.key(archetype), *names)

    def tables(self) -> tuple[WorldTable, ...]:
        """The shapes of all tables, ``outcomes`` last."""
        return (*(self._table(archetype) for archetype in self.present), outcomes_table())

    def _table(self, archetype: Archetype) -> WorldTable:
        columns = [WorldColumn(name=self.key(archetype), type=ColumnType.ID)]
        for name in self.names(archetype):
            shown = self.column(archetype, name)
            if name in _ARCHETYPES:
                columns.append(
                    WorldColumn(
                        name=shown,
                        type=ColumnType.ID,
                        references=self.table(Archetype(name)),
                        optional=(archetype.value, name) in _OPTIONAL,
                    )
                )
                continue
            type_ = _TYPE_OF.get(name, ColumnType.ENUM)
            values = self.values(archetype, name) if type_ is ColumnType.ENUM else ()
            unit = self.domain.unit if name in ("price", "dues", "amount") else ""
            columns.append(WorldColumn(name=shown, type=type_, values=values, unit=unit))
        return WorldTable(
            name=self.table(archetype), key=self.key(archetype), columns=tuple(columns)
        )

    def insert(self, archetype: Archetype, parts: Sequence[Expr], **cells: Expr) -> Change:
        """A new row, whose key later changes know by the name ``new_`` and the key column's."""
        return Change(
            action=WriteAction.INSERT,
            table=self.table(archetype),
            parts=tuple(parts),
            binds=f"new_{self.key(archetype)}",
            values={self.column(archetype, name): value for name, value in cells.items()},
        )

    def update(self, archetype: Archetype, key: Expr, when: Expr = None, **cells: Any) -> Change:
        return Change(
            action=WriteAction.UPDATE,
            table=self.table(archetype),
            key=key,
            values={self.column(archetype, name): value for name, value in cells.items()},
            when=when,
        )

    def delete(self, archetype: Archetype, key: Expr) -> Change:
        return Change(action=WriteAction.DELETE, table=self.table(archetype), key=key)

    def price_of(self, asset: Expr) -> Expr:
        """The price of a day or a place of an asset."""
        if self.has(Archetype.KIND):
            return self.cell(Archetype.KIND, self.cell(Archetype.ASSET, asset, "kind"), "price")
        return self.cell(Archetype.ASSET, asset, "price")

    def category_of(self, asset: Expr) -> Expr:
        """The category of an asset."""
        if self.has(Archetype.KIND):
            kind = self.cell(Archetype.ASSET, asset, "kind")
            return self.cell(Archetype.KIND, kind, "category")
        return self.cell(Archetype.ASSET, asset, "category")


def outcomes_table() -> WorldTable:
    """The table in which declining and handing over leave a row."""
    kinds = (OutcomeKind.DECLINED.value, OutcomeKind.HANDED_OVER.value)
    return WorldTable(
        name=OUTCOMES,
        key="outcome_id",
        columns=(
            WorldColumn(name="outcome_id", type=ColumnType.ID),
            WorldColumn(name="outcome", type=ColumnType.ENUM, values=kinds),
            WorldColumn(name="reason", type=ColumnType.STRING),
        ),
    )
