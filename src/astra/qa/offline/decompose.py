"""The offline teacher's replies to outlines: worded by rule, read off the excerpt it is sent.

The answers are its own reading of the tables. The rules of ``astra.qa.rules`` derive them in
another way (knowledge/operations.py), so that the two check each other.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from astra.llm.protocol import ProviderError
from astra.qa.offline import phrases, phrases_zh
from astra.qa.replies import Decomposition
from astra.records.qa import Answer, AnswerType, Operation, Scenario, SubQuestion

Row = dict[str, Any]
"""Column -> cell."""
WORDING = {
    "en": (phrases.main_question, phrases.sub_question),
    "zh": (phrases_zh.main_question, phrases_zh.sub_question),
}
"""Language -> functions that word a main question and a sub-question."""
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()


def decompose(variables: Mapping[str, Any], rng: random.Random) -> Decomposition:
    """Word the outline's steps and answer each from the tables of the ask alone."""
    main_question, sub_question = WORDING[variables["language"]]
    steps: Sequence[Mapping[str, Any]] = variables["steps"]
    names: Sequence[str] = variables["names"]
    tables: dict[str, list[Row]] = {
        table["name"]: [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
        for table in variables["tables"]
    }
    answers: dict[int, Any] = {}
    sub_questions: list[SubQuestion] = []
    for step in steps:
        answers[step["id"]] = _answer(step, tables, answers)
        if step.get("writes") and not step["bar"]:
            _write(step, tables, answers)
        wording = sub_question(step, steps, names)
        sub_questions.append(_sub_question(step, wording, answers[step["id"]]))
    question = main_question(variables["form"], steps, names, rng)
    if closing := variables.get("closing"):
        question += closing if variables["language"] == "zh" else f" {closing}"
    return Decomposition(
        scenario=Scenario(variables["scenario"]),
        main_question=question,
        final_answer=_final(variables, sub_questions),
        sub_questions=tuple(sub_questions),
    )


def _sub_question(step: Mapping[str, Any], wording: str, answer: Any) -> SubQuestion:
    return SubQuestion(
        id=step["id"],
        hop_level=step["hop_level"],
        question=wording,
        answer=Answer(
            type=AnswerType(step["answer_type"]),
            value=answer,
            tolerance=0.01 if step["op"] == "mean" else 0.0,
        ),
        dependencies=tuple(step.get("dependencies", step["parents"])),
        operation=Operation(
            op=step["op"],
            relation=step["relation"],
            table=step["table"],
            arguments=step["arguments"],
            select=step["select"],
        ),
    )


def _final(variables: Mapping[str, Any], sub_questions: Sequence[SubQuestion]) -> Answer:
    """The final answer: the outcome, the answers of all ends, or that of the last step."""
    if variables["final"] == "outcome":
        return Answer(type=AnswerType.ENUM, value=variables["outcome"])
    if variables["final"] == "list":
        used = {parent for step in variables["steps"] for parent in step["parents"]}
        ends = [step.answer.value for step in sub_questions if step.id not in used]
        return Answer(type=AnswerType.LIST, value=ends)
    return sub_questions[-1].answer


def _answer(
    step: Mapping[str, Any], tables: Mapping[str, list[Row]], answers: Mapping[int, Any]
) -> Any:
    """A step's answer, read off the tables and the ``answers`` of earlier steps by id."""

    def value(argument: Any) -> Any:
        """The literal, or the answer that the argument refers to."""
        return answers[argument["from"]] if isinstance(argument, dict) else argument

    given: dict[str, Any] = step["arguments"]
    op: str = step["op"]
    if op in ("greater", "less"):
        ranked = sorted(zip(map(value, given["values"]), given["names"], strict=True))
        return ranked[-1 if op == "greater" else 0][1]
    if op == "add_days":
        return str(date.fromisoformat(value(given["date"])) + timedelta(days=given["days"]))
    if op == "days_between":
        first, second = sorted(date.fromisoformat(value(given[end])) for end in ("start", "end"))
        return (second - first).days
    if op == "weekday":
        return WEEKDAYS[date.fromisoformat(value(given["date"])).weekday()]
    if op == "multiply":
        return _two_places(value(given["amount"]) * given["times"])
    if op in ("insert", "update", "delete"):
        return _act(step, tables, value)
    rows = tables[step["table"]]
    if op == "convert":
        [target] = [name for name in given if name != "amount"]
        [rate] = [row[step["select"]] for row in rows if row[target] == given[target]]
        return _two_places(value(given["amount"]) * rate)
    bound = given.get("bound")
    no_filter = step["select"] if op == "check" else "bound"
    for column, argument in given.items():
        if column != no_filter:
            wanted = value(argument)
            rows = [row for row in rows if row[column] == wanted]
    if op == "check":
        return bool(rows) and rows[0][no_filter] == value(given[no_filter])
    if bound is not None:
        measure = str(step["select"]).partition(":")[2]
        rows = [r for r in rows if (r[measure] > bound) is (op == "above") and r[measure] != bound]
    return _read(op, str(step["select"]), rows)


def _two_places(number: float) -> float:
    rounded = round(number, 2)
    return int(rounded) if float(rounded).is_integer() else rounded


def _act(step: Mapping[str, Any], tables: Mapping[str, list[Row]], value: Any) -> Any:
    """The cell named by select: as the action leaves or removes it, or as it stands in its way."""
    given, select = step["arguments"], step["select"]
    [key] = [name for name in given if name != select]
    standing = [row[select] for row in tables[step["table"]] if row[key] == value(given[key])]
    if step["op"] == "delete" or (step["op"] == "insert" and standing):
        return standing[0]
    return value(given[select])


def _write(
    step: Mapping[str, Any], tables: dict[str, list[Row]], answers: Mapping[int, Any]
) -> None:
    """Make a step's change in the rows that later steps read."""
    given = {
        name: answers[argument["from"]] if isinstance(argument, dict) else argument
        for name, argument in step["arguments"].items()
    }
    [key] = [name for name in given if name != step["select"]]
    rows = tables[step["table"]]
    if step["op"] == "insert":
        rows.append(given)
    elif step["op"] == "delete":
        tables[step["table"]] = [row for row in rows if row[key] != given[key]]
    else:
        for row in rows:
            if row[key] == given[key]:
                row.update(given)


def _read(op: str, select: str, rows: list[Row]) -> Any:
    """What an operation returns of the rows that match. Raises ProviderError where none do."""
    if not rows:
        raise ProviderError("the excerpt does not answer a step of the outline")
    if op in ("argmax", "argmin"):
        returned, _, measure = select.partition(":")
        ranked = sorted(rows, key=lambda row: row[measure])
        return ranked[-1 if op == "argmax" else 0][returned]
    if op in ("sort", "above", "below"):
        returned, _, measure = select.partition(":")
        ordered = sorted(rows, key=lambda row: row[measure]) if op == "sort" else rows
        return [row[returned] for row in ordered]
    if op == "record":
        return {column: rows[0][column] for column in select.split(":")}
    if op == "count":
        return len(rows)
    cells = [row[select] for row in rows]
    match op:
        case "lookup":
            return cells[0]
        case "list":
            return cells
        case "sum":
            return sum(cells)
        case "max":
            return max(cells)
        case "min":
            return min(cells)
        case "mean":
            return _two_places(sum(cells) / len(cells))
        case _:
            raise ProviderError(f"the offline teacher has no rule for op {op!r}")
