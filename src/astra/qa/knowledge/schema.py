"""What a knowledge source offers: typed tables of one split and the relations over them.

Entities are the names in ENTITY-typed columns; splits share none. Category words, numbers,
dates, continents, currencies and codes are shared vocabulary, not entities.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from astra.qa.knowledge.operations import WRITE_OPS
from astra.records.qa import Answer, AnswerType, Split, Table


class CellType(StrEnum):
    """What a column's cells are."""

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
    **dict.fromkeys(("list", "above", "below", "sort"), AnswerType.LIST),
    "record": AnswerType.RECORD,
    "check": AnswerType.BOOLEAN,
}
"""Operations whose answer has a type of its own, whatever the columns hold."""


@dataclass(frozen=True)
class Relation:
    """One step of a question: op over a table, asked of a ``source`` thing.

    ``phrase`` is a noun phrase with ``{x}`` for what is asked of, and ``{y}`` for the literal of
    the second parameter ``extra`` where there is one. ``target`` is the type of the answer (an
    entity type, ``date`` or ``amount``) where a further relation can be asked of it, else empty.
    """

    name: str
    op: str
    source: str
    table: str
    key: str
    select: str
    phrase: str
    kind: CellType
    target: str = ""
    extra: str = ""
    draws: str = ""
    """Entity type that the literal of ``extra`` is drawn from; empty: from the relation's rows."""
    vague: str = ""
    """The phrase without the literal of ``extra``, for questions that leave it out."""
    unit: str = ""
    """Unit of a number."""

    @property
    def answer_type(self) -> AnswerType:
        return OP_TYPES.get(self.op) or ANSWER_TYPES[self.kind]

    @property
    def writes(self) -> bool:
        return self.op in WRITE_OPS


@dataclass(frozen=True)
class KnowledgeSource:
    """The knowledge of one source for one split: nothing in it belongs to another split."""

    name: str
    domain: str
    split: Split
    tables: Mapping[str, Table]
    kinds: Mapping[str, Mapping[str, CellType]]
    """Table -> column -> kind."""
    relations: tuple[Relation, ...]
    starts: Mapping[str, tuple[str, ...]]
    """Entity type -> names, each the key of a row."""
    language: str = "en"
    """Of names, category words and phrases; columns and relations are named in English."""

    def column(self, table: str, column: str) -> list[object]:
        found = self.tables[table]
        position = found.columns.index(column)
        return [row[position] for row in found.rows]

    @property
    def names(self) -> set[str]:
        """Every entity name that it holds."""
        return self.entities_in(tuple(self.tables.values()))

    def entities_in(self, tables: tuple[Table, ...]) -> set[str]:
        """Names in the entity columns of an excerpt."""
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


def is_empty(answer: Answer) -> bool:
    """Whether an answer holds nothing: null, blank text or an empty list."""
    value = answer.value
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, list | dict):
        parts: list[Any] = list(value.values()) if isinstance(value, dict) else value
        return not parts or any(part is None or part == "" for part in parts)
    return False
