"""Whether a tool's document fits its question: the operation, the cells, the units, the results.

What is found here lies in the document: neither another call nor other code can mend it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from astra.envsynth.known import leaves_of
from astra.envsynth.static import Problem
from astra.envsynth.truth import column_named
from astra.envsynth.worlds import is_refused
from astra.records.qa import Operation, QAInstance, SubQuestion, Table
from astra.records.state import WriteAction
from astra.records.tool import Tool
from astra.text.forms import Form, written
from astra.text.schemas import conforms, descriptions_of, schema_at, violation
from astra.text.units import amounts_in, is_alike, measures_in, mentioned_in, units_of

_FROM_ZERO = re.compile(
    r"\b(?:zero|0)[- ](?:based|indexed)|从\s*[0零]|"
    r"\b(?:count|number|start|begin|index|page)[^.]{0,20} (?:from|at|with) (?:zero|0)\b",
    re.IGNORECASE,
)
_NO_LIMITS = frozenset({"description"})
"""Keywords of a schema that do not tell which cells fit."""
_SHARED = ("$defs", "definitions")
"""Where a schema keeps what its parts refer to."""
_CELL_OPS = frozenset({"lookup", "list", "argmax", "argmin", "max", "min"})
"""Operations whose answer is a cell of the column that they select, or a list of such cells."""
_MOMENTS = frozenset({"date-time", "time"})
"""Formats of a schema that a bare date has not."""


def operation_problem(tool: Tool, instance: QAInstance, question: SubQuestion) -> Problem | None:
    """Why the document does not fit the question and the operation behind the tool."""
    operation, tables = question.operation, instance.knowledge
    return (
        _page_problem(tool, operation)
        or _write_problem(tool, operation)
        or _cells_problem(tool, operation, tables)
        or _unit_problem(tool, instance, question)
        or (None if is_refused(instance, question) else result_problem(tool, question.answer.value))
        or _results_problem(tool, question, tables)
    )


def _write_problem(tool: Tool, operation: Operation | None) -> Problem | None:
    """Why a tool that makes a change can be called without what says which: of what its operation
    is given, all that is a parameter is required.
    """
    if operation is None or operation.op not in set(WriteAction):
        return None
    required = tool.parameters.get("required", ())
    for name in tool.parameters.get("properties", {}):
        if name not in required and (needed := column_named(name, operation.arguments)):
            return "optional_argument", f"{name}: the change needs {needed}, so it is required"
    return None


def _unit_problem(tool: Tool, instance: QAInstance, question: SubQuestion) -> Problem | None:
    """Why the document measures in another unit than what is asked for and known by then."""
    if question.operation is not None and question.operation.op == "convert":
        return None
    answers = [one.answer for one in instance.sub_questions if one.id in question.dependencies]
    stated = {unit for one in (question.answer, *answers) for unit in units_of(one.unit)}
    asked = (question.question, instance.main_question)
    measured = stated.union(*map(amounts_in, asked))
    said = stated.union(*map(mentioned_in, asked))
    texts = [tool.description, *descriptions_of([tool.parameters, tool.output_schema])]
    for word, meant in (found for text in texts for found in measures_in(text)):
        alike = [[unit for unit in measured if is_alike(unit, one)] for one in meant]
        if all(alike) and not meant & said:
            right = ", ".join(sorted({unit for units in alike for unit in units}))
            return "other_unit", f"the document measures in {word}, what is asked is in {right}"
    return None


def result_problem(tool: Tool, value: Any) -> Problem | None:
    """Why a true result breaks what the document says of results."""
    schema = tool.output_schema
    if schema is None:
        return None
    fault = violation(value, schema)
    for path, leaf in leaves_of(value):
        if schema_at(schema, path).get("format") in _MOMENTS and _is_day(leaf):
            fault = fault or f"{leaf!r} is a date without a time of day"
    if not fault:
        return None
    return "answer_violates_schema", f"a true result breaks the output schema: {fault}"


def _is_day(value: Any) -> bool:
    return isinstance(value, str) and written(value, Form.DIGITS) is not None


def _results_problem(tool: Tool, question: SubQuestion, tables: Sequence[Table]) -> Problem | None:
    """Why the result for another row breaks the output schema: every cell of the column that a
    tool reads is one.
    """
    operation = question.operation
    table = next((one for one in tables if operation and one.name == operation.table), None)
    if operation is None or table is None or operation.op not in _CELL_OPS:
        return None
    column = operation.select.partition(":")[0]
    at = table.columns.index(column) if column in table.columns else -1
    for row in table.rows if at >= 0 else ():
        value = [row[at]] if operation.op == "list" else row[at]
        problem = result_problem(tool, value) if row[at] is not None else None
        if problem is not None:
            return problem
    return None


def _page_problem(tool: Tool, operation: Operation | None) -> Problem | None:
    """Why a tool that returns pages counts them wrongly: the first one is 1."""
    if operation is None or operation.op != "page":
        return None
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    others = operation.arguments.keys() - {"page"}
    counting = {
        name: schema
        for name, schema in properties.items()
        if name in tool.parameters.get("required", ())
        and name not in others
        and isinstance(schema, dict)
        and schema.get("type") == "integer"
    }
    texts = [tool.description, *(str(one.get("description", "")) for one in counting.values())]
    from_zero = [name for name, schema in counting.items() if schema.get("minimum") == 0]
    if from_zero or any(_FROM_ZERO.search(text) for text in texts):
        return "page_base", "pages are counted from 1: say so, with 1 as the minimum"
    return None


def _cells_problem(
    tool: Tool, operation: Operation | None, tables: Sequence[Table]
) -> Problem | None:
    """Why a parameter cannot take the values that there are: a cell of its column violates its
    schema, in every form that the cell can be written in. An optional parameter filters by its
    column, so it has the type of the cells, too.
    """
    table = next((one for one in tables if operation and one.name == operation.table), None)
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    for name, schema in properties.items():
        required = name in tool.parameters.get("required", ())
        column = name if required else column_named(name, table.columns if table else ())
        if table is None or column not in table.columns or not isinstance(schema, dict):
            continue
        limits = {key: value for key, value in schema.items() if key not in _NO_LIMITS}
        if required and limits.keys() <= {"type"}:
            continue
        limits |= {key: tool.parameters[key] for key in _SHARED if key in tool.parameters}
        at = table.columns.index(column)
        for cell in dict.fromkeys(row[at] for row in table.rows if row[at] is not None):
            ways = [cell, *(written(cell, form) for form in Form)]
            if required:
                ways.append(str(cell))
            if not any(conforms(way, limits) for way in ways if way is not None):
                return "cell_violates_schema", f"{name}: {violation(cell, limits)}"
    return None
