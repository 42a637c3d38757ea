"""Wrong calls made from a gold call: a true tool must not do for them what it does for that.

Where the operation behind a tool says what another call truly gives (``truth.py``), the call
carries it. Elsewhere values come from the knowledge and the literals of the code (``known.py``).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

from astra.envsynth.known import known_calls, known_values, leaves_of, replaced
from astra.envsynth.near import as_date, near_names, shifted
from astra.envsynth.truth import NOTHING, Meaning, Truth, mixed, pages
from astra.qa.knowledge.operations import ARITHMETIC
from astra.records.base import canonical_json, content_id
from astra.records.qa import AnswerType, QAInstance, SubQuestion
from astra.records.tool import Tool

MOST_VALUES = 24
"""Values tried per argument where each has a known truth: all cells of nearly every column."""
MOST_ROWS, MOST_KNOWN = 8, 24
"""Whole rows tried, with a known truth and of those that the code alone holds."""
KNOWN_VALUES, FURTHER_VALUES = 5, 2
"""Other values tried per argument: some that the code mentions, some that it may not know."""
PROBES = 5
"""Real values given to each optional argument."""
UNKNOWN_NAME = "Qwrx Vzzt"
_UNKNOWN = {"string": UNKNOWN_NAME, "integer": 987_654_321, "number": 987_654_321.5}
_UNKNOWN_DAY = "1891-02-03"
UNKNOWN_VALUES = (*_UNKNOWN.values(), _UNKNOWN_DAY, 0)
"""Values of optional arguments that nothing has."""
SYMMETRIC_OPS = frozenset({"days_between", "multiply"})
"""Operations whose arguments may be swapped by definition."""
_BEYOND = {"above": 10**9, "below": -(10**9)}
"""Bounds that nothing passes: one a little off may well leave the same rows."""


class PerturbationKind(StrEnum):
    """What is wrong about a call."""

    OTHER = "other"  # another known value of one argument, or of several
    UNKNOWN = "unknown"  # a value nobody knows
    MISSING = "missing"  # one argument left out, or all
    SWAPPED = "swapped"  # two arguments of one type exchanged
    WRONG_TYPE = "wrong_type"  # a value of another type
    OPTIONAL = "optional"  # an optional argument given


@dataclass(frozen=True)
class Perturbation:
    """One wrong call."""

    kind: PerturbationKind
    argument: str
    """Which argument was changed; empty where several were."""
    arguments: dict[str, Any]
    """All arguments of the call."""
    truth: Truth | None = None
    """What the call truly gives; None where nothing says it."""


def perturbations(
    instance: QAInstance,
    question: SubQuestion,
    code: str,
    gold: Mapping[str, Any],
    meaning: Meaning | None = None,
) -> tuple[Perturbation, ...]:
    """Perturbed versions of a gold call, without repeats; the same calls for the same inputs.

    ``code`` is only read to find values that the tool knows, since wrong calls that get no answer
    prove little. For a stateful tool it is the table that the tool reads. ``meaning`` says what the
    calls truly give, where that is known.
    """
    rng = random.Random(int(content_id([instance.id, question.id, dict(gold)]), 16))
    if meaning is not None:
        wrong = [*_true_others(meaning, gold, rng), *_broken(question, gold, meaning)]
    else:
        wrong = [
            *_known_others(question, code, gold),
            *_others_by_argument(instance, question, code, gold, rng),
            *_broken(question, gold, None),
        ]
    if (
        meaning is not None
        or question.operation is None
        or (question.operation.op not in SYMMETRIC_OPS)
    ):
        wrong += _swaps(gold, meaning)
    seen = {canonical_json(dict(gold))}
    distinct: list[Perturbation] = []
    for perturbation in wrong:
        key = canonical_json(perturbation.arguments)
        if key not in seen:
            seen.add(key)
            distinct.append(perturbation)
    return tuple(distinct)


def optional_probes(
    tool: Tool, code: str, gold: Mapping[str, Any], meaning: Meaning | None = None
) -> tuple[Perturbation, ...]:
    """The gold call with each optional argument that it leaves out: set to real values, as far as
    table, code or document tell any, and to one that nothing has.
    """
    probes: list[Perturbation] = []
    for name, schema in tool.parameters.get("properties", {}).items():
        if name in gold or not isinstance(schema, dict):
            continue
        named = meaning is not None and name in meaning.names
        for value in _probe_values(name, schema, code, meaning):
            truth = meaning.truth({**meaning.gold, name: value}) if meaning and named else None
            given = {**gold, name: value}
            probes.append(Perturbation(PerturbationKind.OPTIONAL, name, given, truth))
    return tuple(probes)


def _probe_values(
    name: str, schema: Mapping[str, Any], code: str, meaning: Meaning | None
) -> list[Any]:
    if "enum" in schema:
        return list(schema["enum"])[: PROBES + 2]
    if schema.get("type") == "boolean":
        return [True, False]
    real = (meaning.values(name) if meaning else []) or known_values(code, name)
    unknown = _UNKNOWN.get(str(schema.get("type")))
    if isinstance(unknown, str) and schema.keys() & {"format", "pattern"}:
        unknown = _UNKNOWN_DAY
    step = max(1, len(real) // PROBES)
    chosen = real[::step][:PROBES]
    if schema.get("type") in ("integer", "number") and 0 not in real:
        chosen.append(0)  # code that asks whether it is true takes it for not given
    return [*chosen, unknown] if unknown is not None else chosen


def _broken(
    question: SubQuestion, gold: Mapping[str, Any], meaning: Meaning | None
) -> Iterator[Perturbation]:
    """The gold call with a value that nobody knows, not in the form that the schema wants, of a
    wrong type, or left out.

    Operations compare for equality, so a part of a name is unknown to them, and so is a longer one.
    What a call writes may be spelled in any way.
    """
    written = [cell for write in question.writes for cell in write.values.values()]
    for name, value in gold.items():
        reformed = meaning is not None and name in {*meaning.forms, *meaning.fixed}
        if meaning is not None and reformed:
            plain = {**gold, name: meaning.gold[name]}
            yield Perturbation(PerturbationKind.UNKNOWN, name, plain, NOTHING)
        unknown = _unknown(value)
        if unknown != value:
            given = {**gold, name: unknown}
            truth = meaning.truth({**meaning.gold, name: unknown}) if meaning else None
            yield Perturbation(PerturbationKind.UNKNOWN, name, given, truth)
        for near in near_names(value) if question.operation is not None else ():
            if value in written or (meaning is not None and near in meaning.values(name)):
                continue
            given = {**gold, name: near}
            known = meaning if not reformed else None
            truth = known.truth({**known.gold, name: near}) if known else None
            yield Perturbation(PerturbationKind.UNKNOWN, name, given, truth)
        if meaning is not None and name in meaning.forms:
            yield from _unknown_in_form(meaning, name)
        yield Perturbation(PerturbationKind.WRONG_TYPE, name, {**gold, name: _mistyped(value)})
        rest = {other: given for other, given in gold.items() if other != name}
        yield Perturbation(PerturbationKind.MISSING, name, rest)
    yield Perturbation(PerturbationKind.MISSING, "", {})


def _unknown_in_form(meaning: Meaning, name: str) -> Iterator[Perturbation]:
    """A value that nobody knows in the form that the schema wants, so that only looking it up can
    tell.
    """
    known = meaning.values(name)
    for plain in (UNKNOWN_NAME, _UNKNOWN_DAY, *shifted(meaning.gold[name])):
        call = meaning.written({**meaning.gold, name: plain})
        if call is not None and plain not in known:
            truth = meaning.truth({**meaning.gold, name: plain})
            yield Perturbation(PerturbationKind.UNKNOWN, name, call, truth)
            return


def _unknown(value: Any) -> Any:
    """The value with text that nobody knows in place of all its text."""
    texts = {path: UNKNOWN_NAME for path, leaf in leaves_of(value) if isinstance(leaf, str)}
    return replaced(value, texts)


# Calls whose truth is known ------------------------------------------------------------------


def _true_others(
    meaning: Meaning, gold: Mapping[str, Any], rng: random.Random
) -> Iterator[Perturbation]:
    """Other values of each argument, then whole rows (the first and the last among them), also with
    an optional argument; each with what it truly gives.
    """
    for name in gold:
        for value in _true_values(meaning, name, rng):
            yield from _true_call(meaning, name, {**meaning.gold, name: value})
    for optional in ("", *meaning.optional):
        rows = meaning.rows(optional)
        rows = [row for row in rows if not row.items() >= meaning.gold.items()]
        rows = list({canonical_json(row): row for row in rows}.values())
        drawn = rng.sample(range(len(rows)), min(MOST_ROWS, len(rows)))
        chosen = [rows[at] for at in sorted({0, *drawn, len(rows) - 1})] if rows else []
        about = chosen if optional else [*chosen, meaning.gold]
        for row in [*chosen, *mixed(meaning, rows), *pages(meaning, about)]:
            yield from _true_call(meaning, "", row)
        for plain in ({**row, name: UNKNOWN_NAME} for row in chosen[:1] for name in row):
            yield from _true_call(meaning, "", plain, PerturbationKind.UNKNOWN)


def _true_values(meaning: Meaning, name: str, rng: random.Random) -> list[Any]:
    """Other plain values of an argument: the cells of its column, of all too many the first, the
    last and some between; of a number or date that is no cell its neighbours.
    """
    value = meaning.gold[name]
    cells = [cell for cell in meaning.values(name) if cell != value]
    if len(cells) > MOST_VALUES:
        between = rng.sample(range(1, len(cells) - 1), MOST_VALUES - 2)
        cells = [cells[0], *(cells[at] for at in sorted(between)), cells[-1]]
    if name in meaning.fixed or isinstance(value, bool):
        return cells
    further = shifted(value)
    if meaning.names[name] == "bound":
        further.append(_BEYOND[meaning.operation.op])
    if meaning.names[name] == "page":
        further += range(value)  # the pages before it, and none
    if meaning.operation.op in ARITHMETIC:
        further += [
            value + 0.25,
            0.5,
        ]  # code may have been written for numbers from 1, or whole ones
    if meaning.table is None and isinstance(value, int | float):
        further.append(0)  # what nothing can be divided by
    return [*cells, *further]


def _true_call(
    meaning: Meaning,
    name: str,
    plain: Mapping[str, Any],
    kind: PerturbationKind = PerturbationKind.OTHER,
) -> Iterator[Perturbation]:
    call = meaning.written(plain)
    if call is not None:
        yield Perturbation(kind, name, call, meaning.truth(plain))


# Calls whose truth is not known --------------------------------------------------------------


def _known_others(
    question: SubQuestion, code: str, gold: Mapping[str, Any]
) -> Iterator[Perturbation]:
    """Calls about the data in the code."""
    calls = known_calls(code, gold, question.answer.value)
    for call in calls[:MOST_KNOWN]:
        changed = [name for name in gold if call[name] != gold[name]]
        name = changed[0] if len(changed) == 1 else ""
        yield Perturbation(PerturbationKind.OTHER, name, call)


def _others_by_argument(
    instance: QAInstance,
    question: SubQuestion,
    code: str,
    gold: Mapping[str, Any],
    rng: random.Random,
) -> Iterator[Perturbation]:
    for name in gold:
        for other in _others(instance, question, code, gold, name, rng):
            yield Perturbation(PerturbationKind.OTHER, name, {**gold, name: other})


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
    if isinstance(value, str) and not pool and as_date(value) is None:
        pool = {json.dumps(entity): entity for entity in instance.entities}
    others = [cell for key, cell in sorted(pool.items()) if cell != value and key not in gold_rows]
    known = [cell for cell in others if isinstance(cell, str) and cell in code]
    further = [cell for cell in others if cell not in known]
    return [
        *_mates(instance, question, gold, name),
        *rng.sample(known, min(KNOWN_VALUES, len(known))),
        *rng.sample(further, min(FURTHER_VALUES, len(further))),
        *shifted(value),
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


def _mistyped(value: Any) -> Any:
    return ["not", "expected"] if not isinstance(value, list) else 0


def _swaps(gold: Mapping[str, Any], meaning: Meaning | None) -> Sequence[Perturbation]:
    """Neighbouring arguments of one type exchanged."""
    swapped: list[Perturbation] = []
    for one, other in pairwise(gold):
        if type(gold[one]) is not type(gold[other]):
            continue
        mixed = {**gold, one: gold[other], other: gold[one]}
        plain = meaning.gold if meaning else {}
        written = bool(meaning and {one, other} & {*meaning.forms, *meaning.fixed})
        truth = (
            meaning.truth({**plain, one: plain[other], other: plain[one]})
            if meaning and not written
            else None
        )
        swapped.append(Perturbation(PerturbationKind.SWAPPED, "", mixed, truth))
    return swapped
