"""The shape that every sort of knowledge takes: a source, its tables and its relations.

A ``KnowledgeSource`` holds the typed tables of one split. A ``Relation`` is one thing that can be
asked of them; questions are composed of relations alone, so they need not know where a table
comes from. Entities are the names in columns of type ENTITY, and splits share none of them.
Category words, numbers, dates and codes are vocabulary that all splits share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from astra.errors import AstraError
from astra.qa.knowledge.operations import WRITE_OPS
from astra.records.qa import AnswerType, Split, Table
from astra.text.names import Pool, pool_of

LEAST_ROWS = 8
"""A table with fewer rows in a split is left out: it could not hold distractors."""


class KnowledgeError(AstraError):
    """Knowledge cannot be used: a package or a file is missing, broken or not as configured."""


class CellType(StrEnum):
    """The type of a column's cells."""

    ENTITY = "entity"
    NUMBER = "number"
    DATE = "date"
    CATEGORY = "category"


ANSWER_TYPES = {
    CellType.ENTITY: AnswerType.STRING,
    CellType.NUMBER: AnswerType.NUMBER,
    CellType.DATE: AnswerType.DATE,
    CellType.CATEGORY: AnswerType.ENUM,
}
OP_TYPES = {
    **dict.fromkeys(("list", "rows", "above", "below", "sort"), AnswerType.LIST),
    **dict.fromkeys(("record", "page"), AnswerType.RECORD),
    "check": AnswerType.BOOLEAN,
}
"""Operations whose answer has a type of its own, whatever the columns hold."""


@dataclass(frozen=True)
class RowChoice:
    """What is chosen of an answer of several cells: a field of a record, or of one of its rows.

    It becomes a reference that picks (references.py).
    """

    field: str
    phrase: str
    """A noun phrase for it, with ``{x}`` for what the relation is asked of and ``{y}`` for the
    cell of ``where``.
    """
    kind: CellType
    """The type of the field."""
    where: str = ""
    """The column by whose cell, a literal of the question, the row is chosen."""
    lowest: str = ""
    """The measure of which the row has the least."""
    highest: str = ""
    """The measure of which the row has the most."""
    pages: int = 1
    """How many pages hold the rows; each is asked for by itself."""

    @property
    def signature(self) -> str:
        """The field with what its row is chosen by."""
        way = [f"={self.where}", f"<{self.lowest}", f">{self.highest}"]
        return self.field + "".join(sign for sign in way if len(sign) > 1)

    def reference(self, ids: tuple[int, ...], cell: Any) -> dict[str, Any]:
        """The reference to it in the answers of steps ``ids``; ``cell`` is that of ``where``."""
        chosen: dict[str, Any] = {"from": ids[0] if len(ids) == 1 else list(ids)}
        chosen["pick"] = self.field
        if self.where:
            chosen["where"] = {self.where: cell}
        for name, measure in (("lowest", self.lowest), ("highest", self.highest)):
            if measure:
                chosen[name] = measure
        return chosen


@dataclass(frozen=True)
class Relation:
    """One thing that can be asked (or done): an operation over a table.

    ``name`` is ``<asked of>.<asked for>``, for example ``listing.asking_price``. A step of a
    question is a relation asked of something that is named or found by an earlier step.
    """

    name: str
    op: str
    """The operation (operations.py)."""
    source: str
    """What it is asked of: an entity type, ``date``, ``amount``, a dimension or ``value``."""
    table: str
    """The table it reads; empty where it only calculates."""
    key: str
    """The parameter that takes what it is asked of; in a table, the column that is matched."""
    select: str
    """What it returns, in the form that its operation takes (operations.py)."""
    phrase: str
    """A noun phrase with ``{x}`` for what it is asked of and ``{y}`` for the literal of
    ``extra``.
    """
    kind: CellType
    """The type of the cells that it returns."""
    target: str = ""
    """What relations can be asked of its answer, or of what is chosen of it: those with this
    ``source``; empty: none.
    """
    extra: str = ""
    """The second parameter, whose value is a literal of the question; empty: there is none."""
    draws: str = ""
    """Entity type that the literal of ``extra`` is drawn from; empty: from the relation's rows."""
    vague: str = ""
    """The phrase without the literal of ``extra``, for questions that leave it out."""
    unit: str = ""
    """Unit of a number."""
    choice: RowChoice | None = None
    """What of its answer the question goes on with; None: all of it."""
    twin: str = ""
    """The relation that asks the same without ``extra``, where a question may need both."""

    @property
    def answer_type(self) -> AnswerType:
        """The type of its answer: the operation's own, else that of the cells it returns."""
        return OP_TYPES.get(self.op) or ANSWER_TYPES[self.kind]

    @property
    def writes(self) -> bool:
        """Whether it changes the tables."""
        return self.op in WRITE_OPS


@dataclass(frozen=True)
class KnowledgeSource:
    """The knowledge of one source for one split: nothing in it belongs to another split."""

    name: str
    domain: str
    split: Split
    tables: Mapping[str, Table]
    kinds: Mapping[str, Mapping[str, CellType]]
    """Table -> column -> type of its cells."""
    relations: tuple[Relation, ...]
    starts: Mapping[str, tuple[str, ...]]
    """Entity type -> names, each the key of a row."""
    language: str = "en"
    """Language of names, category words and phrases; columns and relations are in English."""

    def column(self, table: str, column: str) -> list[object]:
        """The cells of a column, in the order of the table's rows."""
        position = self.tables[table].columns.index(column)
        return [row[position] for row in self.tables[table].rows]

    @property
    def names(self) -> set[str]:
        """Every entity name that the source holds."""
        return self.entities_in(tuple(self.tables.values()))

    def entities_in(self, tables: tuple[Table, ...]) -> set[str]:
        """Names in the entity columns of tables of this source, or of excerpts from them."""
        names: set[str] = set()
        for table in tables:
            kinds = self.kinds[table.name]
            for position, column in enumerate(table.columns):
                if kinds[column] is CellType.ENTITY:
                    names.update(str(row[position]) for row in table.rows)
        return names


def lookup(entity: str, table: str, column: str, kind: CellType, target: str = "") -> Relation:
    """The relation that reads ``column`` of one ``entity``."""
    words = column.replace("_", " ")
    return Relation(
        name=f"{entity}.{column}",
        op="lookup",
        source=entity,
        table=table,
        key=entity,
        select=column,
        phrase=f"the {words} of {{x}}",
        kind=kind,
        target=target,
    )


def split_of_name(name: str) -> Split | None:
    """The split that owns a real name, by its pool; None for names kept for tool servers."""
    pool = pool_of(name)
    return None if pool is Pool.SERVERS else Split(pool.value)
