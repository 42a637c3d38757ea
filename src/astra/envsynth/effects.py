"""Further calls of a tool that writes, where operation and document say what they must do.

Four faults leave the gold call as it should be: a condition that the document states and the code
does not check, a new cell that is taken for the standing one because it is much alike, a name that
is written though no table knows it, and one that is refused since nothing was written of it yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from astra.arena.state import apply_writes
from astra.envsynth.perturb import UNKNOWN_NAME
from astra.envsynth.static import call_problem
from astra.envsynth.truth import names_between
from astra.envsynth.worlds import effects, key_of
from astra.qa.knowledge.operations import WRITE_OPS
from astra.qa.knowledge.references import EvaluationError, resolve
from astra.records.qa import QAInstance, SubQuestion, Table
from astra.records.state import Row, Tables, World, Write, WriteAction
from astra.records.tool import Tool
from astra.text.words import says

MOST_ROWS = 4
"""Rows tried that a condition of the document leaves out."""
LEAST_ROWS = 3
"""Rows that a column needs so that cells without repeats show that it holds no categories."""


@dataclass(frozen=True)
class KnownEffect:
    """A call, and the tables that it must leave."""

    arguments: dict[str, Any]
    after: Tables | None
    """None where the call must be refused."""
    reason: str
    """Why it must do so."""


def known_effects(
    instance: QAInstance,
    question: SubQuestion,
    tool: Tool,
    arguments: Mapping[str, Any],
    before: World,
) -> tuple[KnownEffect, ...]:
    """The further calls with a known effect: about other names, and of a tool that changes or
    removes a row about that row and others.

    There are none where a parameter does not stand for an argument of the operation, value for
    value: then nobody knows how to write another.
    """
    operation, table = question.operation, _table(instance, question)
    if operation is None or table is None or operation.op not in WRITE_OPS:
        return ()
    answers = {other.id: other.answer.value for other in instance.sub_questions}
    try:
        plain = {name: resolve(value, answers) for name, value in operation.arguments.items()}
    except EvaluationError:
        return ()
    names = names_between(plain, arguments)
    if names is None or any(arguments[name] != plain[own] for name, own in names.items()):
        return ()
    found = [*_named_elsewhere(instance, question, arguments, names, before)]
    if operation.op != "insert":
        found += _about_rows(instance, question, tool, arguments, names, plain, before)
    return tuple(one for one in found if call_problem(tool, one.arguments) is None)


def _about_rows(
    instance: QAInstance,
    question: SubQuestion,
    tool: Tool,
    arguments: Mapping[str, Any],
    names: Mapping[str, str],
    plain: Mapping[str, Any],
    before: World,
) -> list[KnownEffect]:
    """The calls about the one row that the gold call changes or removes, and about others."""
    operation, table = question.operation, _table(instance, question)
    assert operation is not None
    assert table is not None
    written = operation.select if operation.op == "update" else None
    where = {name: own for name, own in names.items() if own in table.columns and own != written}
    rows = before.tables[table.name]
    chosen = [row for row in rows if all(row[own] == plain[own] for own in where.values())]
    if not where or len(chosen) != 1:
        return []
    return [
        *_barred(tool, arguments, where, chosen[0], rows),
        *_nearly_standing(instance, question, arguments, names, chosen[0], before),
    ]


def _named_elsewhere(
    instance: QAInstance,
    question: SubQuestion,
    arguments: Mapping[str, Any],
    names: Mapping[str, str],
    before: World,
) -> Iterator[KnownEffect]:
    """The gold call with another name in a cell that it writes, where that column is the key of
    another table: nobody's name, and where a row is added, one that no row has so far.
    """
    (write, *others) = effects(instance, question) or (None,)
    if write is None or others:
        return
    keyed = {key_of(table): table for table in instance.knowledge if table.name != write.table}
    for name, column in names.items():
        if column not in write.values or column not in keyed:
            continue
        owner, value = keyed[column], arguments[name]
        known = {row[column]: row for row in before.tables[owner.name]}
        cells = {value, *(row[column] for row in before.tables[write.table])}
        if not isinstance(value, str) or not cells <= known.keys():
            continue
        reason = f"{owner.name} has no such {column}, so it must raise ValueError"
        yield KnownEffect({**arguments, name: UNKNOWN_NAME}, None, reason)
        constants = [write.values[own] for own in write.values if own not in names.values()]
        copied = any(cell in known[value].values() for cell in constants)
        if write.action == WriteAction.INSERT and not copied:
            used = {row[column] for row in before.tables[write.table]}
            rest = [given for other, given in arguments.items() if other != name]
            alike = _alike(known[value], list(known.values()), rest)
            for other in [row[column] for row in alike if row[column] not in used][:1]:
                changed = write.model_copy(update={"values": {**write.values, column: other}})
                reason = f"{owner.name} has {other!r}, so the row is added"
                after = _after(instance, before, changed)
                yield KnownEffect({**arguments, name: other}, after, reason)


def _alike(gold: Row, rows: list[Row], stated: list[Any]) -> list[Row]:
    """The other rows that no condition is likely to tell from the gold one: they have its cell in
    each column of text that repeats cells and where the call states the cell, and no 0 or blank
    where it has something.
    """
    shared = [
        column
        for column in gold
        if gold[column] in stated
        or (isinstance(gold[column], str) and len({row[column] for row in rows}) < len(rows))
    ]
    return [
        row
        for row in rows
        if row != gold
        and all(row[column] == gold[column] for column in shared)
        and all(row[column] or not gold[column] for column in gold)
    ]


def _after(instance: QAInstance, before: World, write: Write) -> Tables:
    """The tables that a write leaves."""
    columns = {table.name: table.columns for table in instance.knowledge}
    fields = {table.name: table.fields for table in instance.knowledge}
    return apply_writes(before.tables, [write], columns, fields)


def _table(instance: QAInstance, question: SubQuestion) -> Table | None:
    named = question.operation.table if question.operation else ""
    return next((table for table in instance.knowledge if table.name == named), None)


def _barred(
    tool: Tool,
    arguments: Mapping[str, Any],
    where: Mapping[str, str],
    gold: Row,
    rows: list[Row],
) -> Iterator[KnownEffect]:
    """The call about other rows, where the description names a cell of the gold row as what a row
    has to be ("an available listing") and they have another one.

    A description that names several cells of a column lists what there is.
    """
    for column, cell in gold.items():
        cells = {row[column] for row in rows if isinstance(row[column], str)}
        named = [one for one in cells if says(one, tool.description)]
        if column in where.values() or named != [cell]:
            continue
        others = [row for row in rows if row[column] != cell]
        for row in others[:MOST_ROWS]:
            other = {**arguments, **{name: row[own] for name, own in where.items()}}
            alike = [one for one in rows if all(one[own] == row[own] for own in where.values())]
            if len(alike) == 1:
                reason = f"the description says {cell!r}, its {column} is {row[column]!r}"
                yield KnownEffect(other, None, f"{reason}, so it must raise ValueError")


def _nearly_standing(
    instance: QAInstance,
    question: SubQuestion,
    arguments: Mapping[str, Any],
    names: Mapping[str, str],
    gold: Row,
    before: World,
) -> Iterator[KnownEffect]:
    """The gold call with a new cell that is nearly the standing one; only of free text or numbers,
    not of categories, names that other cells have, or what has a form of its own.
    """
    (write, *others) = effects(instance, question) or (None,)
    if write is None or others or write.action != WriteAction.UPDATE or len(write.values) != 1:
        return
    ((column, new),) = write.values.items()
    parameter = next((name for name, own in names.items() if own == column), None)
    cells = [row[column] for row in before.tables[write.table]]
    near = _near(gold[column])
    elsewhere = [
        cell
        for name, rows in before.tables.items()
        for row in rows
        for own, cell in row.items()
        if (name, own) != (write.table, column)
    ]
    if (
        parameter is None
        or near is None
        or near in (new, gold[column])
        or len(cells) < LEAST_ROWS
        or len({repr(cell) for cell in cells}) < len(cells)
        or (isinstance(new, str) and (new in elsewhere or gold[column] in elsewhere))
    ):
        return
    changed = write.model_copy(update={"values": {column: near}})
    after = _after(instance, before, changed)
    reason = f"{column} is {gold[column]!r}, so it must become {near!r}"
    yield KnownEffect({**arguments, parameter: near}, after, reason)


def _near(cell: Any) -> Any:
    """A value near a cell: of text of several words its last letter less, of a number one more."""
    if isinstance(cell, bool) or cell is None:
        return None
    if isinstance(cell, int | float):
        return cell + 1
    if isinstance(cell, str) and " " in cell and cell[-1:].isalpha() and "@" not in cell:
        return cell[:-1]
    return None
