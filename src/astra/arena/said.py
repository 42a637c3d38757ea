"""Whether the agent told the user what a goal asks it to, counted over all of its messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from astra.arena.answers import matches, normalise
from astra.arena.cells import Cells
from astra.arena.claims import (
    AskedCell,
    claims,
    is_told,
    normal,
    stems,
    values_in,
    values_told,
)
from astra.arena.statements import others, places_of, states
from astra.records.qa import Answer, AnswerType
from astra.records.state import Row
from astra.records.world import (
    ColumnType,
    EventKind,
    ReadProof,
    Say,
    TraceEvent,
    World,
    WorldGoal,
    WorldTable,
)

MAX_VALUES = 2
"""How many values of a column one message may state where the answer is computed or has parts
(reference: the right one and another): who lists all candidates has told nothing."""
_COUNTED = (AnswerType.NUMBER, AnswerType.DATE)
_LEAST = 3
"""Letters of a word that may name a row, a table or a column."""


def say_faults(
    world: World, goal: WorldGoal, trace: Sequence[TraceEvent], shown: Sequence[Cells]
) -> list[str]:
    """Why each value that was to be told was not; empty where it was. ``shown``: the cells that
    each event has shown."""
    if not goal.say:
        return []
    final = _Rows(world)
    for event in trace:
        final.take(event)
    hearings = [_hearing(world, goal, say, trace, final) for say in goal.say]
    now = _Rows(world)
    seen: Cells = {}
    for event, cells in zip(trace, shown, strict=True):
        if event.kind == EventKind.ASSISTANT:
            for one in hearings:
                one.hear(event.text, seen, now)
        now.take(event)
        seen.update(cells)
    return [one.fault() for one in hearings]


class _Rows:
    """The rows that a goal is about as they are now, and what they have been."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._keys = {table.name: table.key for table in world.tables}
        self._tables: dict[str, dict[str, Row]] = {}
        self.versions: dict[tuple[str, str], list[Row]] = {}

    def take(self, event: TraceEvent) -> None:
        """What a call made of them; a row that is gone stays as it was."""
        for change in event.changes:
            if change.row is not None:
                self._started(change.table, change.key).append(change.row)

    def _started(self, table: str, key: str) -> list[Row]:
        if (table, key) not in self.versions:
            base = self.table(table).get(key)
            self.versions[table, key] = [] if base is None else [base]
        return self.versions[table, key]

    def table(self, name: str) -> dict[str, Row]:
        """The rows of a table at the start, by key."""
        if name not in self._tables:
            key = self._keys.get(name, "")
            self._tables[name] = {row[key]: row for row in self._world.rows.get(name, ())}
        return self._tables[name]

    def row(self, table: str, key: str) -> Row:
        """A row as it is; empty where there is none."""
        return (self.versions.get((table, key)) or [self.table(table).get(key, {})])[-1]

    def past(self, table: str, key: str, column: str) -> list[Any]:
        """What a cell has been."""
        return [row.get(column) for row in self.versions.get((table, key), ())[:-1]]


@dataclass
class _Hearing:
    """What the messages so far have made of one value."""

    say: Say
    subject: AskedCell | None
    """The cell that holds the answer; None where none does."""
    cells: tuple[tuple[str, str], ...]
    """Tables and keys of the rows that hold it."""
    known: frozenset[Any]
    """What else may be told; of a computed answer, the other answers."""
    named: bool
    """Whether the user named the row by its key."""
    values: Mapping[str, list[Any]]
    """What the columns hold that a computed answer was read from."""
    told: bool = False
    wrong: bool = False
    """Something else was told in its place."""
    early: bool = False
    among: bool = False
    """It was stated, but not told as the answer."""
    listed: int = 0
    """How often it was told of the row by its key, in time."""
    rest: Counter[str] = field(default_factory=Counter[str])
    """How often a value was told of other rows, by key."""
    hinted: bool = False
    """It was told in time, but only in words that claim nothing for certain."""
    hedged: set[Any] = field(default_factory=set[Any])
    """The values that were said in such words: of several none is told."""
    sentences: dict[str, frozenset[Any]] = field(default_factory=dict[str, frozenset[Any]])

    def hear(self, text: str, seen: Cells, now: _Rows) -> None:
        is_known = all(_is_fresh(proof, seen, now) for proof in self.say.read)
        if self.subject is None:
            self._hear_computed(text, seen, is_known)
        else:
            self._hear_cell(self.subject, text, is_known, now)

    def fault(self) -> str:
        told = self.told or self._is_told_of_the_row or (self.hinted and len(self.hedged) == 1)
        if told and not self.wrong:
            return ""
        if self.told or self.listed or self.hinted or (self.among and not self.early):
            return "said_among_others"
        return "said_unread" if self.early else "unsaid"

    @property
    def _is_told_of_the_row(self) -> bool:
        """Whether a value told of the row by its key answers: the user named the row, or no other
        row of a list was told as often."""
        most = max(self.rest.values(), default=0)
        is_alone = len(self.rest) <= 1  # one other row makes no list
        return self.listed > 0 and (self.named or is_alone or self.listed > most)

    def _hear_cell(self, subject: AskedCell, text: str, is_known: bool, now: _Rows) -> None:
        rows = [now.row(*one) for one in self.cells]
        current = [row.get(subject.column) for row in rows]
        is_true = any(matches(self.say.answer, cell) for cell in current)
        still = (subject.normal(cell) for row in rows for cell in row.values())
        past = (subject.normal(cell) for one in self.cells
                for cell in now.past(*one, subject.column))  # fmt: skip
        found = claims(subject, text, self.known | {*still}, frozenset(past))
        of_row = [one for one in found if not one.about or one.about & subject.keys]
        self.rest.update(key for one in found if one not in of_row for key in one.about)
        self.hedged |= {one.value for one in found if one.hedged}
        self.wrong |= any(not (one.right or one.hedged) for one in of_row)
        right = [one for one in of_row if one.right]
        if not right:
            self.among |= _is_stated_among(subject, self.say.answer, text)
        elif not (is_known and is_true):
            self.early = True
        else:
            self.told |= any(not (one.about or one.hedged) for one in right)
            self.listed += sum(bool(one.about) for one in right)
            self.hinted |= any(one.hedged for one in right)

    def _hear_computed(self, text: str, seen: Cells, is_known: bool) -> None:
        answer = self.say.answer
        basis = frozenset(_scalar(seen.get(_cell(proof))) for proof in self.say.read)
        if answer.type in _COUNTED:
            for gap, values in values_told(answer, text).items():
                self.sentences[gap] = self.sentences.get(gap, frozenset()) | (
                    values - basis - self.known
                )
                self.wrong |= len(self.sentences[gap]) > 1 and len(values) == 1
        if not is_told(answer, text):
            self.among |= answer.type in _COUNTED and self._is_one_of(text)
            return
        if not is_known:
            self.early = True
        elif self._is_among_many(text, seen):
            self.among = True
        else:
            self.told = True

    def _is_one_of(self, text: str) -> bool:
        return states(self.say.answer, text) and bool(others(self.say.answer, text))

    def _is_among_many(self, text: str, seen: Cells) -> bool:
        """Whether a message that states a computed answer states more than one other like it."""
        answer = self.say.answer
        if answer.type in _COUNTED:
            basis = [seen[_cell(proof)] for proof in self.say.read]
            basis = [value for value in basis if not isinstance(value, bool)]
            return sum(other not in basis for other in others(answer, text)) >= MAX_VALUES
        body = normalise(text)
        return any(
            sum(next(places_of(str(value), body, True), None) is not None for value in column
                if not _is_in(answer, value)) >= MAX_VALUES
            for column in self.values.values()
        )  # fmt: skip


def _is_stated_among(subject: AskedCell, answer: Answer, text: str) -> bool:
    return len(values_in(subject, text)) > 1 and states(answer, text)


def _cell(proof: ReadProof) -> tuple[str, str, str]:
    return proof.table, proof.key, proof.column


def _is_fresh(proof: ReadProof, seen: Cells, now: _Rows) -> bool:
    """Whether the agent was shown the cell as it is now."""
    if _cell(proof) not in seen:
        return False
    row = now.row(proof.table, proof.key)
    return proof.column not in row or seen[_cell(proof)] == row[proof.column]


def _scalar(cell: Any) -> Any:
    return float(cell) if isinstance(cell, int | float) else cell


def _is_in(answer: Answer, value: Any) -> bool:
    """Whether a cell is a part of a list or record."""
    parts: Any = answer.value
    items = parts if answer.type == AnswerType.LIST else ()
    if answer.type == AnswerType.RECORD:
        items = parts.values()
    return matches(answer, value) or any(item == value for item in items)


# What a goal asks about ---------------------------------------------------------------------


def _hearing(
    world: World, goal: WorldGoal, say: Say, trace: Sequence[TraceEvent], final: _Rows
) -> _Hearing:
    user = "\n".join(event.text for event in trace if event.kind == EventKind.USER)
    direct = [proof for proof in say.read if _holds(say.answer, proof, final)]
    if say.answer.type in (AnswerType.LIST, AnswerType.RECORD, AnswerType.BOOLEAN):
        direct = []
    columns = {f"{one.table}.{one.column}": _column(final, one) for one in say.read}
    if not direct:
        rest = [one.answer.value for one in goal.say if one is not say]
        return _Hearing(say, None, (), _normal(say.answer, rest), False, columns)
    first = direct[0]
    asked = [one.answer.value for one in goal.say if one is not say and
             any((p.table, p.column) == (first.table, first.column) for p in one.read)]  # fmt: skip
    subject = _subject(world, say.answer, direct, final, asked)
    given = [value for event in trace if event.changes for value in event.arguments.values()]
    known = values_in(subject, user) | _normal(say.answer, given)
    named = any(
        next(places_of(key, normalise(user), False), None) is not None for key in subject.keys
    )
    cells = tuple((one.table, one.key) for one in direct)
    return _Hearing(say, subject, cells, known, named, columns)


def _holds(answer: Answer, proof: ReadProof, final: _Rows) -> bool:
    """Whether a cell is the answer, or is at some time."""
    rows = final.versions.get((proof.table, proof.key)) or [final.row(proof.table, proof.key)]
    return any(matches(answer, row.get(proof.column)) for row in rows)


def _column(final: _Rows, proof: ReadProof) -> list[Any]:
    cells = dict.fromkeys(
        cell for row in final.table(proof.table).values()
        if isinstance(cell := row.get(proof.column), str | int | float)
    )  # fmt: skip
    return list(cells)


def _subject(
    world: World, answer: Answer, direct: Sequence[ReadProof], final: _Rows, asked: Sequence[Any]
) -> AskedCell:
    first = direct[0]
    keys = frozenset(one.key for one in direct)
    changed = {key: rows for (table, key), rows in final.versions.items() if table == first.table}
    former = (row.get(first.column) for rows in changed.values() for row in rows)
    nouns = [table.name for table in world.tables]
    nouns += [column.name for table in world.tables for column in table.columns
              if column.name != first.column]  # fmt: skip
    shapes = {table.name: table for table in world.tables}

    def naming(key: str) -> frozenset[str]:
        own = frozenset[str]().union(*(_names(shapes, final, first.table, one) for one in keys))
        return _names(shapes, final, first.table, key) - own

    return AskedCell(
        answer=answer, column=first.column, keys=keys, nouns=_words(nouns), naming=naming,
        rows={**final.table(first.table), **{key: rows[-1] for key, rows in changed.items()}},
        asked=_normal(answer, asked), former=_normal(answer, former),
    )  # fmt: skip


def _normal(answer: Answer, cells: Iterable[Any]) -> frozenset[Any]:
    """Cells as texts state them."""
    return frozenset(one for cell in cells if (one := normal(answer.type, cell)) is not None)


def _names(
    shapes: Mapping[str, WorldTable], final: _Rows, table: str, key: str, deep: int = 2
) -> frozenset[str]:
    """The keys and texts of a row and of the rows that it refers to."""
    found: set[str] = set()
    row = final.row(table, key)
    for column in shapes[table].columns:
        cell = row.get(column.name)
        if column.type not in (ColumnType.ID, ColumnType.STRING) or not isinstance(cell, str):
            continue
        found |= {cell} if len(cell) >= _LEAST else {*()}
        if column.references and deep:
            found |= _names(shapes, final, column.references, cell, deep - 1)
    return frozenset(found)


def _words(names: Iterable[str]) -> frozenset[str]:
    words = frozenset[str]().union(*map(stems, names))
    return frozenset(word for word in words if len(word) >= _LEAST)
