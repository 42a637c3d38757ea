"""Further calls of a tool that writes, where operation and document say what they must do.

Two faults leave the gold call as it should be: a condition that the document states and the code
does not check, and a new cell that is taken for the standing one because it is much alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from astra.arena.state import apply_writes
from astra.envsynth.static import call_problem
from astra.envsynth.truth import names_between
from astra.envsynth.worlds import effects
from astra.qa.knowledge.references import EvaluationError, resolve
from astra.records.qa import QAInstance, SubQuestion, Table
from astra.records.state import Row, Tables, World, WriteAction
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
    """The further calls about the one row that a gold call changes or removes, and about others.

    There are none where a parameter does not stand for an argument of the operation, value for
    value: then nobody knows how to write another.
    """
    operation, table = question.operation, _table(instance, question)
    if operation is None or table is None or operation.op not in ("update", "delete"):
        return ()
    answers = {other.id: other.answer.value for other in instance.sub_questions}
    try:
        plain = {name: resolve(value, answers) for name, value in operation.arguments.items()}
    except EvaluationError:
        return ()
    names = names_between(plain, arguments)
    if names is None or any(arguments[name] != plain[own] for name, own in names.items()):
        return ()
    written = operation.select if operation.op == "update" else None
    where = {name: own for name, own in names.items() if own in table.columns and own != written}
    rows = before.tables[table.name]
    chosen = [row for row in rows if all(row[own] == plain[own] for own in where.values())]
    if not where or len(chosen) != 1:
        return ()
    found = [
        *_barred(tool, arguments, where, chosen[0], rows),
        *_nearly_standing(instance, question, arguments, names, chosen[0], before),
    ]
    return tuple(one for one in found if call_problem(tool, one.arguments) is None)


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
    columns = {table.name: table.columns for table in instance.knowledge}
    fields = {table.name: table.fields for table in instance.knowledge}
    after = apply_writes(before.tables, [changed], columns, fields)
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
