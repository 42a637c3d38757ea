"""Wrong calls made from a gold call: a true tool must not do for them what it does for that."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Any

from astra.records.base import canonical_json, content_id
from astra.records.qa import AnswerType, QAInstance, SubQuestion
from astra.records.tool import Tool

KNOWN_VALUES, FURTHER_VALUES = 5, 2
"""Other values tried per argument: some that the code mentions, some that it may not know."""
UNKNOWN_NAME = "Qwrx Vzzt"
SYMMETRIC_OPS = frozenset({"days_between", "multiply"})
"""Operations whose arguments may be swapped by definition."""
_BEYOND = {"above": 10**9, "below": -(10**9)}
"""Bounds that nothing passes: one a little off may well leave the same rows."""


class PerturbationKind(StrEnum):
    """What is wrong about a call."""

    OTHER = "other"  # another known value of one argument
    UNKNOWN = "unknown"  # a value nobody knows
    MISSING = "missing"  # one argument left out, or all
    SWAPPED = "swapped"  # two arguments of one type exchanged
    WRONG_TYPE = "wrong_type"  # a value of another type
    OPTIONAL = "optional"  # an optional argument given that nothing has


@dataclass(frozen=True)
class Perturbation:
    """One wrong call."""

    kind: PerturbationKind
    argument: str
    """Which argument was changed; empty where several were."""
    arguments: dict[str, Any]
    """All arguments of the call."""


def perturbations(
    instance: QAInstance,
    question: SubQuestion,
    tool: Tool,
    code: str,
    gold: Mapping[str, Any],
) -> tuple[Perturbation, ...]:
    """Perturbed versions of a gold call, without repeats; the same calls for the same inputs.

    ``code`` is only read to find values that the tool knows, since wrong calls that get no answer
    prove little. For a stateful tool it is the table that the tool reads.
    """
    rng = random.Random(int(content_id([instance.id, question.id, dict(gold)]), 16))
    wrong: list[Perturbation] = []
    for name, value in gold.items():
        for other in _others(instance, question, code, gold, name, rng):
            wrong.append(Perturbation(PerturbationKind.OTHER, name, {**gold, name: other}))
        if isinstance(value, str):
            wrong.append(Perturbation(PerturbationKind.UNKNOWN, name, {**gold, name: UNKNOWN_NAME}))
        wrong.append(
            Perturbation(PerturbationKind.WRONG_TYPE, name, {**gold, name: _mistyped(value)})
        )
        rest = {other: given for other, given in gold.items() if other != name}
        wrong.append(Perturbation(PerturbationKind.MISSING, name, rest))
    wrong.append(Perturbation(PerturbationKind.MISSING, "", {}))
    if question.operation is None or question.operation.op not in SYMMETRIC_OPS:
        wrong += _swaps(gold)
    seen = {canonical_json(dict(gold))}
    distinct: list[Perturbation] = []
    for perturbation in wrong:
        key = canonical_json(perturbation.arguments)
        if key not in seen:
            seen.add(key)
            distinct.append(perturbation)
    return tuple(distinct)


def optional_probes(tool: Tool, gold: Mapping[str, Any]) -> tuple[Perturbation, ...]:
    """The gold call with each optional text argument that it leaves out set to an unknown value.

    Numbers and enumerations are not probed: a limit or a sort order may change nothing.
    """
    return tuple(
        Perturbation(PerturbationKind.OPTIONAL, name, {**gold, name: UNKNOWN_NAME})
        for name, schema in tool.parameters.get("properties", {}).items()
        if name not in gold
        and isinstance(schema, dict)
        and schema.get("type") == "string"
        and not schema.keys() & {"enum", "const", "format", "pattern"}
    )


def _others(
    instance: QAInstance,
    question: SubQuestion,
    code: str,
    gold: Mapping[str, Any],
    name: str,
    rng: random.Random,
) -> list[Any]:
    """Other values for an argument: from the knowledge column that holds it, else made up.

    A value that shares a row with the gold answer may truly have that answer too (two cities
    of one country), so it is no evidence and left out.
    """
    value, op = gold[name], question.operation.op if question.operation else ""
    if name == "bound" and op in _BEYOND:
        return [_BEYOND[op]]
    pool: dict[str, Any] = {}
    gold_rows: set[str] = set()
    for table in instance.knowledge:
        for position, column in enumerate(table.columns):
            cells = [row[position] for row in table.rows]
            if column == name or value in cells:
                pool.update({json.dumps(cell): cell for cell in cells if type(cell) is type(value)})
                gold_rows |= {
                    json.dumps(row[position])
                    for row in table.rows
                    if _states(row, question.answer.value)
                }
    if isinstance(value, str) and not pool and _as_date(value) is None:
        pool = {json.dumps(entity): entity for entity in instance.entities}
    others = [cell for key, cell in sorted(pool.items()) if cell != value and key not in gold_rows]
    known = [cell for cell in others if isinstance(cell, str) and cell in code]
    further = [cell for cell in others if cell not in known]
    return [
        *_mates(instance, question, gold, name),
        *rng.sample(known, min(KNOWN_VALUES, len(known))),
        *rng.sample(further, min(FURTHER_VALUES, len(further))),
        *_shifted(value),
    ]


def _mates(
    instance: QAInstance, question: SubQuestion, gold: Mapping[str, Any], name: str
) -> list[Any]:
    """Values of a yes-or-no question's argument that stand in a row with all its other arguments.

    They give the other answer, which values drawn at random seldom do where the answer is no.
    """
    if question.answer.type != AnswerType.BOOLEAN or question.writes:
        return []
    rest = [value for other, value in gold.items() if other != name]
    mates: dict[str, Any] = {}
    for table in instance.knowledge:
        if rest and name in table.columns:
            position = table.columns.index(name)
            mates |= {
                json.dumps(row[position]): row[position]
                for row in table.rows
                if row[position] != gold[name] and all(value in row for value in rest)
            }
    return [mates[key] for key in sorted(mates)]


def _states(row: Sequence[Any], value: Any) -> bool:
    """Whether a cell is the value; true is not 1."""
    return any(cell is value for cell in row) if isinstance(value, bool) else value in row


def _shifted(value: Any) -> list[Any]:
    """Values near a number or a date, which code that computes will answer."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value * 2 + 3]
    day = _as_date(value)
    if day is not None:
        return [(day + timedelta(days=3)).isoformat(), (day - timedelta(days=11)).isoformat()]
    return []


def _as_date(value: Any) -> date | None:
    if not isinstance(value, str):
        return None
    try:
        return date.fromisoformat(value)
    except ValueError:
        return None


def _mistyped(value: Any) -> Any:
    return ["not", "expected"] if not isinstance(value, list) else 0


def _swaps(gold: Mapping[str, Any]) -> Sequence[Perturbation]:
    """Neighbouring arguments of one type exchanged."""
    swapped: list[Perturbation] = []
    for one, other in pairwise(gold):
        if type(gold[one]) is type(gold[other]):
            mixed = {**gold, one: gold[other], other: gold[one]}
            swapped.append(Perturbation(PerturbationKind.SWAPPED, "", mixed))
    return swapped
