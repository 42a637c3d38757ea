"""Following a composition from named entities through the tables of a source."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from astra.qa.knowledge.operations import BOUNDED, PLAIN_OPS, WRITE_OPS, after, perform
from astra.qa.knowledge.schema import KnowledgeSource, Relation
from astra.qa.questions.shapes import Composition, Node
from astra.records.base import canonical_json
from astra.records.qa import AnswerType, Operation, QuestionKind, Table
from astra.records.state import Write

GROUP_SIZES = {
    "sum": (2, 5),
    "mean": (2, 5),
    "max": (2, 5),
    "list": (2, 3),
    "argmax": (2, 6),
    "argmin": (2, 6),
    "count": (1, 9),
    "above": (2, 6),
    "below": (2, 6),
    "sort": (2, 4),
}
"""Rows that a group may have: answers stay short and calculations small."""
DAYS = (7, 10, 14, 21, 30)
TIMES = (2, 3, 4, 5, 6, 7, 8, 9)
ONCE = frozenset({*GROUP_SIZES, *WRITE_OPS, "lookup", "record", "check"})
"""Operations that no question makes twice with the same arguments."""


class Unsuitable(Exception):
    """These entities make a poor question (a tie, a repeated call, a group too large)."""


class Index:
    """Rows of a source by table, column and value."""

    def __init__(self, source: KnowledgeSource) -> None:
        self.source = source
        self._by: dict[tuple[str, str], dict[Any, list[tuple[Any, ...]]]] = {}

    def rows(self, table: str, column: str, value: Any) -> list[tuple[Any, ...]]:
        found = self._by.get((table, column))
        if found is None:
            found = defaultdict(list)
            whole = self.source.tables[table]
            position = whole.columns.index(column)
            for row in whole.rows:
                found[row[position]].append(row)
            self._by[table, column] = found = dict(found)
        return found.get(value, [])


class CompositionWalk:
    """Follows a composition from named entities; collects operations and the rows they read."""

    def __init__(
        self, index: Index, made: Composition, names: tuple[str, ...], rng: random.Random
    ) -> None:
        self._index = index
        self._made = made
        self._names = names
        self._rng = rng
        self._calls: set[str] = set()
        self.answers: dict[int, Any] = {}
        self.operations: list[Operation] = []
        self.literals: list[Any] = []
        self.rows: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
        """Rows read, as they are before any write."""
        self.writes: list[tuple[Write, ...]] = []

    def run(self) -> None:
        """Raises Unsuitable or EvaluationError where the names make no good question."""
        met = set(self._names)
        for number, node in enumerate(self._made.nodes, start=1):
            answer = self._step(node)
            self.answers[number] = answer
            relation = node.relation
            if relation.op == "days_between" and answer < 2:
                raise Unsuitable
            told = relation.op in PLAIN_OPS or relation.writes
            if relation.answer_type is AnswerType.STRING and not told:
                if answer in met:
                    raise Unsuitable
                met.add(answer)

    def _step(self, node: Node) -> Any:
        relation = node.relation
        literal, asked = None, None
        if node.start is not None:
            asked = self._names[node.start]
        elif len(node.parents) == 1:
            asked = self.answers[node.parents[0]]
        relevant = self._relevant(relation, asked)
        if relation.extra:
            literal = self._literal(relation, relevant)
        operation = operation_of(node, self._names, literal)
        # Two writes of one cell would make the end state hang on their order.
        call = canonical_json([relation.name, asked, None if relation.writes else literal])
        if relation.op in ONCE:
            if call in self._calls:
                raise Unsuitable
            self._calls.add(call)
        before = self._now(relation, relevant)
        answer, writes = perform(operation, node.bar, self._made.kind, before, self.answers)
        if answer == []:
            raise Unsuitable
        if relation.table:
            self.rows[relation.table].extend(relevant)
        self.operations.append(operation)
        self.literals.append(literal)
        self.writes.append(writes)
        return answer

    def _now(self, relation: Relation, relevant: Sequence[tuple[Any, ...]]) -> tuple[Table, ...]:
        """The rows that a relation reads, after the writes made so far."""
        if not relation.table:
            return ()
        made = [w for writes in self.writes for w in writes if w.table in relation.table.split("+")]
        if made and "+" in relation.table:
            raise Unsuitable
        columns = self._index.source.tables[relation.table].columns
        table = Table.model_construct(
            name=relation.table, columns=columns, rows=tuple(relevant), fields={}
        )
        return after([table], made) if made else (table,)

    def _relevant(self, relation: Relation, asked: Any) -> list[tuple[Any, ...]]:
        if not relation.table:
            return []
        if relation.op == "convert":
            return list(self._index.source.tables[relation.table].rows)
        found = self._index.rows(relation.table, relation.key, asked)
        if relation.op == "insert":
            return found  # there may be none
        least, most = GROUP_SIZES.get(relation.op, (1, 1))
        if not least <= len(found) <= most:
            raise Unsuitable
        return found

    def _literal(self, relation: Relation, relevant: Sequence[tuple[Any, ...]]) -> Any:
        rng, source = self._rng, self._index.source
        if relation.op == "add_days":
            return rng.choice(DAYS)
        if relation.op == "multiply":
            return rng.choice(TIMES)
        columns = source.tables[relation.table].columns
        if relation.op in BOUNDED:
            measure = columns.index(relation.select.partition(":")[2])
            values = sorted({row[measure] for row in relevant})
            # One value at least lies beyond the bound.
            kept = values[:-1] if relation.op == "above" else values[1:]
            if not kept:
                raise Unsuitable
            return rng.choice(kept)
        position = columns.index(relation.extra)
        standing = [row[position] for row in relevant]
        wants = self._made.kind is QuestionKind.ALREADY_SATISFIED
        if relation.op == "insert" and not wants:
            return rng.choice(source.starts[relation.draws])
        if relation.op == "update" and not wants:
            return self._new_value(source.column(relation.table, relation.extra))
        if relation.op == "check" and rng.random() < 0.5:
            return rng.choice(source.column(relation.table, relation.extra))
        if not standing:
            raise Unsuitable
        return rng.choice(standing)

    def _new_value(self, cells: Sequence[Any]) -> Any:
        """A number that no row has, so that a write makes no tie."""
        taken = set(cells)
        spare = [n for n in range(min(taken), max(taken) + 20) if n not in taken]
        return self._rng.choice(spare)


def operation_of(node: Node, names: Sequence[str], literal: Any) -> Operation:
    """The operation of a node whose starts are ``names`` and second parameter is ``literal``."""
    relation = node.relation
    sources: list[Any] = [{"from": parent} for parent in node.parents]
    if node.start is not None:
        sources = [names[node.start]]
    arguments: dict[str, Any]
    if relation.op in ("greater", "less"):
        arguments = {"names": list(names), "values": sources}
    elif relation.op == "days_between":
        arguments = {"start": sources[0], "end": sources[1]}
    elif relation.op == "convert":
        arguments = {"amount": sources[0], relation.extra: literal}
    else:
        arguments = {relation.key: sources[0]}
        if relation.extra:
            arguments[relation.extra] = literal
    return Operation(
        op=relation.op,
        relation=relation.name,
        table=relation.table,
        arguments=arguments,
        select=relation.select,
    )
