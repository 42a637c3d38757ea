"""The offline teacher's rules for questions: answers read off the excerpt it is sent."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from astra.llm.protocol import OfflineHandlers, ProviderError
from astra.qa.judging import JUDGES
from astra.qa.phrases import main_question, sub_question
from astra.qa.replies import Decomposition
from astra.records.qa import Answer, AnswerType, Operation, Scenario, SubQuestion

Row = dict[str, Any]


def decompose(variables: Mapping[str, Any], rng: random.Random) -> Decomposition:
    """Word the outline's steps and answer each from the tables of the ask alone."""
    if variables["language"] != "en":
        raise ProviderError(f"the offline teacher writes English, not {variables['language']!r}")
    steps: Sequence[Mapping[str, Any]] = variables["steps"]
    names: Sequence[str] = variables["names"]
    tables: dict[str, list[Row]] = {
        table["name"]: [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
        for table in variables["tables"]
    }
    known: dict[int, Any] = {}
    made: list[SubQuestion] = []
    for step in steps:
        known[step["id"]] = value = _answer(step, tables, known)
        made.append(
            SubQuestion(
                id=step["id"],
                hop_level=step["hop_level"],
                question=sub_question(step, steps, names),
                answer=Answer(
                    type=AnswerType(step["answer_type"]),
                    value=value,
                    tolerance=0.01 if step["op"] == "mean" else 0.0,
                ),
                dependencies=tuple(step["parents"]),
                operation=Operation(
                    op=step["op"],
                    relation=step["relation"],
                    table=step["table"],
                    arguments=step["arguments"],
                    select=step["select"],
                ),
            )
        )
    final = made[-1].answer
    if variables["final"] == "list":
        used = {parent for step in steps for parent in step["parents"]}
        ends = [step.answer.value for step in made if step.id not in used]
        final = Answer(type=AnswerType.LIST, value=ends)
    return Decomposition(
        scenario=Scenario(variables["scenario"]),
        main_question=main_question(variables["form"], steps, names, rng),
        final_answer=final,
        sub_questions=tuple(made),
    )


def _answer(
    step: Mapping[str, Any], tables: Mapping[str, list[Row]], known: Mapping[int, Any]
) -> Any:
    """The teacher's own reading of the tables; the rule checks derive the answer another way."""

    def value(argument: Any) -> Any:
        return known[argument["from"]] if isinstance(argument, dict) else argument

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
    rows = tables[step["table"]]
    if op == "convert":
        [rate] = [row["rate"] for row in rows if row["currency"] == given["currency"]]
        return value(given["amount"]) * rate
    for column, argument in given.items():
        wanted = value(argument)
        rows = [row for row in rows if row[column] == wanted]
    return _read(op, str(step["select"]), rows)


def _read(op: str, select: str, rows: list[Row]) -> Any:
    if not rows:
        raise ProviderError("the excerpt does not answer a step of the outline")
    if op in ("argmax", "argmin"):
        returned, _, measure = select.partition(":")
        ranked = sorted(rows, key=lambda row: row[measure])
        return ranked[-1 if op == "argmax" else 0][returned]
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
            mean = round(sum(cells) / len(cells), 2)
            return int(mean) if mean.is_integer() else mean
        case _:
            raise ProviderError(f"the offline teacher has no rule for op {op!r}")


HANDLERS: OfflineHandlers = {"qa/decompose": decompose, **JUDGES}
