"""The walk from named entities through a composition: its operations, answers, rows and writes.

A walk draws what a composition leaves open (literals) and gives up where the entities make a poor
question; the planner then draws others.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from astra.qa.knowledge.operations import (
    BOUNDED,
    COMPARING,
    PAGE_ROWS,
    PLAIN_OPS,
    WRITE_OPS,
    after,
    perform,
)
from astra.qa.knowledge.references import NEXT_PAGE, resolve, rows_of
from astra.qa.knowledge.schema import KnowledgeSource, Relation, RowChoice
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
    "rows": (2, 4),
}
"""Rows that a group may have: answers stay short and calculations small."""
DAYS = (7, 10, 14, 21, 30)
"""Literals of ``add_days``."""
TIMES = (2, 3, 4, 5, 6, 7, 8, 9)
"""Literals of ``multiply``."""
ONCE = frozenset({*GROUP_SIZES, *WRITE_OPS, "lookup", "record", "page", "check"})
"""Operations that no question makes twice with the same arguments."""


class Unsuitable(Exception):
    """These entities make a poor question (a tie, a repeated call, a group too large)."""


class RowIndex:
    """The rows of a source by table, column and value; a column is indexed when first asked."""

    def __init__(self, source: KnowledgeSource) -> None:
        self.source = source
        self._by: dict[tuple[str, str], dict[Any, list[tuple[Any, ...]]]] = {}

    def rows(self, table: str, column: str, value: Any) -> list[tuple[Any, ...]]:
        """The rows whose cell in ``column`` is ``value``, in table order."""
        if (table, column) not in self._by:
            by_value: dict[Any, list[tuple[Any, ...]]] = {}
            whole = self.source.tables[table]
            position = whole.columns.index(column)
            for row in whole.rows:
                by_value.setdefault(row[position], []).append(row)
            self._by[table, column] = by_value
        return self._by[table, column].get(value, [])


class CompositionWalk:
    """Follows a composition from named entities.

    ``run`` fills ``operations``, ``literals`` and ``writes`` (one per node, in order),
    ``answers`` (by node id) and ``rows``.
    """

    def __init__(
        self, index: RowIndex, composition: Composition, names: tuple[str, ...], rng: random.Random
    ) -> None:
        self._index = index
        self._composition = composition
        self._names = names
        self._rng = rng
        self._calls: set[str] = set()
        self._met = set(names)
        self._cells: dict[tuple[tuple[int, ...], RowChoice], Any] = {}
        """The cell by which each choice of a row was made."""
        self.answers: dict[int, Any] = {}
        self.operations: list[Operation] = []
        self.literals: list[Any] = []
        self.rows: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
        """The rows that are read, by table, as they are before any write."""
        self.writes: list[tuple[Write, ...]] = []

    def run(self) -> None:
        """Follow every node. Raises Unsuitable or EvaluationError on a poor question."""
        for number, node in enumerate(self._composition.nodes, start=1):
            answer = self._step(node)
            self.answers[number] = answer
            relation = node.relation
            if relation.op == "days_between" and answer < 2:
                raise Unsuitable
            # An entity that is met twice makes a circle, or two ways to one answer. A comparison
            # or a write answers with a name that the question gives; that is no second meeting.
            given = relation.op in PLAIN_OPS or relation.writes
            if relation.answer_type is AnswerType.STRING and not given:
                self._meet(answer)

    def _meet(self, name: Any) -> None:
        """Raises Unsuitable where a name was met before."""
        if name in self._met:
            raise Unsuitable
        self._met.add(name)

    def _step(self, node: Node) -> Any:
        """Carry out a node on the answers so far, and return its answer."""
        relation = node.relation
        literal, asked = None, None
        if node.start is not None:
            asked = self._names[node.start]
        elif node.choice:
            asked = self._chosen(node.parents, node.choice)
        elif len(node.parents) == 1:
            asked = self.answers[node.parents[0]]
        relevant = self._relevant(relation, asked)
        if relation.extra:
            literal = self._literal(relation, relevant)
        cell = self._cells.get((node.parents, node.choice)) if node.choice else None
        operation = operation_of(node, self._names, literal, cell)
        if node.page_after is None:  # pages of one list are one call, as far as repetition goes
            self._refuse_repetition(relation, asked, literal)
        before = self._current(relation, relevant)
        answer, writes = perform(operation, node.bar, self._composition.kind, before, self.answers)
        if answer == []:
            raise Unsuitable
        if relation.table:
            self.rows[relation.table].extend(relevant)
        self.operations.append(operation)
        self.literals.append(literal)
        self.writes.append(writes)
        return answer

    def _chosen(self, ids: tuple[int, ...], choice: RowChoice) -> Any:
        """What a choice picks of the answers of ``ids``; the same whenever it is made again."""
        drawn = (ids, choice) in self._cells
        if not drawn:
            cell = None
            if choice.where:
                rows = [row for id in ids for row in rows_of(self.answers[id])]
                cell = self._rng.choice([row[choice.where] for row in rows])
            self._cells[ids, choice] = cell
        picked = resolve(choice.reference(ids, self._cells[ids, choice]), self.answers)
        if not drawn and isinstance(picked, str):
            self._meet(picked)
        return picked

    def _refuse_repetition(self, relation: Relation, asked: Any, literal: Any) -> None:
        """Raises Unsuitable where an operation of ONCE has been called like this before."""
        if relation.op not in ONCE:
            return
        # Two writes of one cell would make the end state hang on their order, whatever they write.
        call = canonical_json([relation.name, asked, None if relation.writes else literal])
        if call in self._calls:
            raise Unsuitable
        self._calls.add(call)

    def _current(
        self, relation: Relation, relevant: Sequence[tuple[Any, ...]]
    ) -> tuple[Table, ...]:
        """The rows that a relation reads, after the writes made so far."""
        if not relation.table:
            return ()
        parts = relation.table.split("+")
        earlier = [write for writes in self.writes for write in writes if write.table in parts]
        # Of a join only the relevant rows are at hand; they cannot be joined anew after a write.
        if earlier and len(parts) > 1:
            raise Unsuitable
        columns = self._index.source.tables[relation.table].columns
        table = Table.model_construct(
            name=relation.table, columns=columns, rows=tuple(relevant), fields={}
        )
        return after([table], earlier) if earlier else (table,)

    def _relevant(self, relation: Relation, asked: Any) -> list[tuple[Any, ...]]:
        """The rows that a relation reads when it is asked of ``asked``."""
        if not relation.table:
            return []
        if relation.op == "convert":
            return list(self._index.source.tables[relation.table].rows)
        rows = self._index.rows(relation.table, relation.key, asked)
        if relation.op == "insert":
            return rows  # there may be none
        least, most = GROUP_SIZES.get(relation.op, (1, 1))
        if relation.op == "page" and relation.choice:
            pages = relation.choice.pages
            least, most = (pages - 1) * PAGE_ROWS + 1, pages * PAGE_ROWS
        if not least <= len(rows) <= most:
            raise Unsuitable
        return rows

    def _literal(self, relation: Relation, relevant: Sequence[tuple[Any, ...]]) -> Any:
        """A value of the second parameter, drawn such that the kind of the question comes true."""
        rng, source = self._rng, self._index.source
        if relation.op == "add_days":
            return rng.choice(DAYS)
        if relation.op == "multiply":
            return rng.choice(TIMES)
        columns = source.tables[relation.table].columns
        if relation.op in BOUNDED:
            measure = columns.index(relation.select.partition(":")[2])
            values = sorted({row[measure] for row in relevant})
            # The bound is a row's own value, and at least one row has to lie beyond it.
            bounds = values[:-1] if relation.op == "above" else values[1:]
            if not bounds:
                raise Unsuitable
            return rng.choice(bounds)
        position = columns.index(relation.extra)
        standing = [row[position] for row in relevant]
        if relation.twin:
            return self._narrowing(relation, relevant, standing)
        # Where the goal is to hold already, the question asks for what stands in the cell.
        repeats = self._composition.kind is QuestionKind.ALREADY_SATISFIED
        if relation.op == "insert" and not repeats:
            return rng.choice(source.starts[relation.draws])
        if relation.op == "update" and not repeats:
            return self._new_value(source.column(relation.table, relation.extra))
        # About half of the checks hold: the others take any value of the column.
        if relation.op == "check" and rng.random() < 0.5:
            return rng.choice(source.column(relation.table, relation.extra))
        if not standing:
            raise Unsuitable
        return rng.choice(standing)

    def _narrowing(
        self, relation: Relation, rows: Sequence[tuple[Any, ...]], standing: Sequence[Any]
    ) -> Any:
        """A value of the parameter that a twin has more, with which its answer is another one."""
        barred: set[Any] = set()
        choice = relation.choice
        measure = choice.lowest or choice.highest if choice else relation.select.partition(":")[2]
        if measure:
            highest = bool(choice and choice.highest) or relation.op == "argmax"
            place = self._index.source.tables[relation.table].columns.index(measure)
            best = (max if highest else min)(range(len(rows)), key=lambda at: rows[at][place])
            barred = {standing[best]}
        values = sorted(set(standing) - barred)
        if not values or len(set(standing)) < 2:
            raise Unsuitable
        return self._rng.choice(values)

    def _new_value(self, cells: Sequence[Any]) -> Any:
        """A number that no row has, so that a write makes no tie."""
        taken = set(cells)
        spare = [n for n in range(min(taken), max(taken) + 20) if n not in taken]
        return self._rng.choice(spare)


def operation_of(node: Node, names: Sequence[str], literal: Any, cell: Any = None) -> Operation:
    """The operation of a node whose starts are ``names`` and second parameter is ``literal``.

    ``cell`` is that by which its choice picks a row.
    """
    relation = node.relation
    sources: list[Any] = [{"from": parent} for parent in node.parents]
    if node.choice:
        sources = [node.choice.reference(node.parents, cell)]
    if node.start is not None:
        sources = [names[node.start]]
    arguments: dict[str, Any]
    if relation.op in COMPARING:
        arguments = {"names": list(names), "values": sources}
    elif relation.op == "days_between":
        arguments = {"start": sources[0], "end": sources[1]}
    elif relation.op == "convert":
        arguments = {"amount": sources[0], relation.extra: literal}
    else:
        arguments = {relation.key: sources[0]}
        if relation.extra:
            arguments[relation.extra] = literal
        if relation.op == "page":
            page = node.page_after
            arguments["page"] = 1 if page is None else {"from": page, "pick": NEXT_PAGE}
    return Operation(
        op=relation.op,
        relation=relation.name,
        table=relation.table,
        arguments=arguments,
        select=relation.select,
    )
