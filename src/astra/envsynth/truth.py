"""What a tool's other calls truly give, where an operation and its table say it.

A gold call's arguments are matched with those of the sub-question's operation. Other values put in
their place give operations that ``evaluate`` answers, so code that is right only for the gold call
is told apart from code that is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from astra.arena.answers import matches, same_value
from astra.qa.knowledge.operations import (
    FREE_OPS,
    NO_FILTER,
    TABLE_OPS,
    UNORDERED,
    evaluate,
    table_named,
)
from astra.qa.knowledge.references import EvaluationError, is_reference, referred, resolve
from astra.records.base import canonical_json
from astra.records.qa import Operation, QAInstance, SubQuestion, Table
from astra.text.forms import Form, written

MOST_MIXED = 8
"""Calls tried whose values are known, but not together."""
MOST_PAGES = 9
"""Pages turned at most, of one list of rows."""
WHOLE_TABLE = 40
"""A tool must know every row of a table of at most so many; of a longer one it may know a part."""


@dataclass(frozen=True)
class Truth:
    """What a call truly gives."""

    value: Any = None
    exists: bool = True
    """False where the tables have no answer: the call must be refused."""
    required: bool = True
    """Whether the call must be answered; a right answer or a refusal will do where it need not."""


NOTHING = Truth(exists=False, required=False)


@dataclass(frozen=True)
class Meaning:
    """What the arguments of a tool mean to the operation behind it.

    Values are *plain* as the tables have them; a call may have to write them in another form.
    """

    operation: Operation
    """Its arguments are the plain values of the gold call."""
    tables: tuple[Table, ...]
    names: Mapping[str, str]
    """Parameter -> the operation's argument or the column that it stands for."""
    forms: Mapping[str, Form]
    """Parameter -> the form in which calls write it, where that is not the plain one."""
    fixed: frozenset[str]
    """Parameters whose form is ambiguous, so that no other value of theirs can be written."""

    @property
    def table(self) -> Table | None:
        """The table that the operation reads; None for a calculation."""
        named = self.operation.table
        return table_named(named, self.tables) if named else None

    @property
    def gold(self) -> dict[str, Any]:
        """The plain values of the gold call, by parameter."""
        given = self.operation.arguments
        return {name: given[own] for name, own in self.names.items() if own in given}

    def values(self, name: str) -> list[Any]:
        """The cells of the column that a parameter stands for, without repeats, in table order."""
        table, column = self.table, self.names.get(name)
        if table is None or column not in table.columns or name in self.fixed:
            return []
        at = table.columns.index(column)
        return list(dict.fromkeys(row[at] for row in table.rows if row[at] is not None))

    def rows(self, optional: str = "") -> list[dict[str, Any]]:
        """The plain call about each row, with the optional parameter if one is named."""
        table = self.table
        if table is None or self.fixed:
            return []
        at = {
            name: table.columns.index(self.names[name])
            for name in [*self.gold, *([optional] if optional else [])]
            if self.names[name] in table.columns
        }
        calls = [{**self.gold, **{name: row[i] for name, i in at.items()}} for row in table.rows]
        return [call for call in calls if None not in call.values()]

    def written(self, plain: Mapping[str, Any]) -> dict[str, Any] | None:
        """The call that gives these plain values; None where one of them cannot be written."""
        call = {
            name: written(value, self.forms[name]) if name in self.forms else value
            for name, value in plain.items()
        }
        return None if None in call.values() else call

    def truth(self, plain: Mapping[str, Any]) -> Truth | None:
        """What a call with these plain values gives; None where that is not determined."""
        given = {self.names[name]: value for name, value in plain.items()}
        arguments = {**self.operation.arguments, **given}
        asked = self.operation.model_copy(update={"arguments": arguments})
        try:
            value = evaluate(asked, self.tables, {})
        except (EvaluationError, ArithmeticError):
            return self._refusal(arguments)
        return None if value is None else Truth(value, required=value != [] and self._is_whole)

    def _refusal(self, arguments: Mapping[str, Any]) -> Truth | None:
        """The truth where evaluation fails: no row matches, or several do and none is meant."""
        op, table = self.operation.op, self.table
        if table is None:
            return NOTHING
        if op == "page":
            empty = {"rows": [], "next_page": None}
            return Truth(empty, required=False) if arguments.get("page") == 1 else NOTHING
        stated = {NO_FILTER.get(op), self.operation.select if op == "check" else None}
        filters = [
            (table.columns.index(name), value)
            for name, value in arguments.items()
            if name in table.columns and name not in stated
        ]
        if any(all(row[at] == value for at, value in filters) for row in table.rows):
            return None
        nothing = 0 if op == "count" else []
        if op != "count" and op not in UNORDERED | {"sort"}:
            return NOTHING
        return Truth(nothing, required=self._is_whole and self._is_known(arguments))

    def _is_known(self, arguments: Mapping[str, Any]) -> bool:
        """Whether each value that a call gives is a cell of its column: then that no row has all of
        them is an answer, and no refusal.
        """
        return all(
            arguments[own] in self.values(name)
            for name, own in self.names.items()
            if own in arguments
        )

    @property
    def optional(self) -> list[str]:
        """The optional parameters that filter by a column."""
        return [name for name in self.names if name not in self.gold]

    @property
    def _is_whole(self) -> bool:
        return self.table is None or len(self.table.rows) <= WHOLE_TABLE


def mixed(meaning: Meaning, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The plain calls about a row with one value of another, where no row has all of them: each
    value is known, so only looking for all of them at once can tell.
    """
    found: dict[str, dict[str, Any]] = {}
    for one, other in pairwise([*rows, *rows[:1]]):
        for name in one:
            call = {**one, name: other[name]}
            truth = meaning.truth(call) if other[name] != one[name] else None
            if truth is not None and not (truth.exists and truth.required):
                found.setdefault(canonical_json(call), call)
        if len(found) >= MOST_MIXED:
            break
    return list(found.values())[:MOST_MIXED]


def pages(meaning: Meaning, drawn: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The plain calls for all pages about some rows, and for the one after the last; none where the
    answer is no page.
    """
    for name in (name for name, own in meaning.names.items() if own == "page"):
        for row in drawn:
            page, exists = 0, True
            while exists and page < MOST_PAGES:
                page += 1
                truth = meaning.truth({**row, name: page})
                exists = truth is not None and truth.exists and bool(truth.value["rows"])
                yield {**row, name: page}


def meaning_of(
    instance: QAInstance,
    question: SubQuestion,
    parameters: Sequence[str],
    gold: Mapping[str, Any],
    tables: Sequence[Table],
) -> Meaning | None:
    """What a call means; None where no operation says it, or it does not give the gold answer.

    ``parameters`` are all that the tool has, ``tables`` those that the gold call meets.
    """
    operation = question.operation
    if operation is None or operation.op not in TABLE_OPS | FREE_OPS:
        return None
    answers = {other.id: other.answer.value for other in instance.sub_questions}
    try:
        plain = {name: resolve(value, answers) for name, value in operation.arguments.items()}
        asked = operation.model_copy(update={"arguments": plain})
        value = evaluate(asked, tables, {})
    except (EvaluationError, ArithmeticError):
        return None
    table = next((one for one in tables if one.name == operation.table), None)
    names = names_between(plain, gold)
    if names is None and table is not None:
        further = _further_cells(table, plain, gold)
        asked = asked.model_copy(update={"arguments": {**plain, **further}})
        plain = asked.arguments
        names = names_between(plain, gold)
        with suppress(EvaluationError, ArithmeticError):
            names = names if evaluate(asked, tables, {}) == value else None
    referring = {name for name, given in operation.arguments.items() if is_reference(given)}
    if names is None or not referring <= set(names.values()) or not matches(question.answer, value):
        return None
    meaning = Meaning(asked, tuple(tables), names, *_forms(plain, names, gold))
    columns = meaning.table.columns if meaning.table else ()
    further = {
        name: column
        for name in parameters
        if name not in gold and (column := column_named(name, columns))
    }
    return Meaning(asked, meaning.tables, {**names, **further}, meaning.forms, meaning.fixed)


def _further_cells(
    table: Table, plain: Mapping[str, Any], gold: Mapping[str, Any]
) -> dict[str, Any]:
    """Column -> plain value of each argument of the gold call that the operation lacks, where the
    argument is named as a column and just one cell of that can be meant by it.
    """
    cells: dict[str, Any] = {}
    for name, value in gold.items():
        column = column_named(name, table.columns)
        if name in plain or not column or column in plain:
            continue
        at = table.columns.index(column)
        found = dict.fromkeys(
            row[at] for row in table.rows if row[at] == value or forms_between(row[at], value)
        )
        if len(found) == 1:
            cells[column] = next(iter(found))
    return cells


def column_named(name: str, columns: Iterable[str]) -> str:
    """The column that an optional parameter filters: of its name, or the only one whose words hold
    all of its own; empty where there is none.
    """
    if name in columns:
        return name
    words = set(name.lower().split("_"))
    holding = [column for column in columns if words <= set(column.lower().split("_"))]
    return holding[0] if len(holding) == 1 else ""


def names_between(plain: Mapping[str, Any], gold: Mapping[str, Any]) -> dict[str, str] | None:
    """Parameter of the gold call -> argument of the operation: of one name, else of one value."""
    names = {name: name for name in gold if name in plain}
    for name, value in gold.items():
        if name in names:
            continue
        free = [own for own in plain if own not in names.values()]
        alike = [
            own for own in free if same_value(plain[own], value) or forms_between(plain[own], value)
        ]
        if len(alike) != 1:
            return None
        names[name] = alike[0]
    return names


def _forms(
    plain: Mapping[str, Any], names: Mapping[str, str], gold: Mapping[str, Any]
) -> tuple[dict[str, Form], frozenset[str]]:
    """The form of each parameter that has one, and the parameters with several or none known."""
    forms: dict[str, Form] = {}
    fixed: set[str] = set()
    for name, own in names.items():
        if plain[own] == gold[name]:
            continue
        # Values that count as the same may still differ in form: a code is a name in upper case.
        between = forms_between(plain[own], gold[name])
        if len(between) == 1:
            forms[name] = between[0]
        elif not same_value(plain[own], gold[name]):
            fixed.add(name)
    return forms, frozenset(fixed)


def forms_between(plain: Any, other: Any) -> list[Form]:
    """The forms in which ``other`` writes ``plain``."""
    return [form for form in Form if other is not None and written(plain, form) == other]


def filters_of(instance: QAInstance, question: SubQuestion) -> tuple[str, ...] | None:
    """The names that optional parameters can have: the columns of the operation's table, but for
    those that a later step picks rows by, and its own arguments; None where there is no table.

    With a filter by such a column, one call gives what several are meant to find.
    """
    operation = question.operation
    named = operation.table if operation else ""
    columns = next((table.columns for table in instance.knowledge if table.name == named), None)
    if operation is None or columns is None:
        return None
    picked = _picked_by(instance, operation)
    free = [column for column in columns if column not in picked]
    return tuple(dict.fromkeys([*free, *operation.arguments]))


def _picked_by(instance: QAInstance, operation: Operation) -> set[str]:
    """The columns by which later steps pick among the rows that steps of the operation return."""
    asked = [operation.op, operation.table, operation.select]
    sources = {
        step.id
        for step in instance.sub_questions
        if step.operation
        and [step.operation.op, step.operation.table, step.operation.select] == asked
    }
    return {
        column
        for step in instance.sub_questions
        if step.operation is not None
        for value in step.operation.arguments.values()
        if is_reference(value) and not sources.isdisjoint(referred(value))
        for column in [*value.get("where", {}), value.get("lowest"), value.get("highest")]
        if column is not None
    }
