"""Whether two codes of one tool do the same on all calls over the product of its columns' values.

The calls are made inside one sandbox session per code, in batches: a batch is a range of places in
the product, and only a digest of its results comes back unless the digests differ. Two refusals by
the same kind of error are equal however they are worded, unless one states the answer; a tool that
works on a world also has to leave the same tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import islice
from typing import Any

from astra.arena.answers import matches, same_value
from astra.arena.state import entry_of, same_state
from astra.envsynth.candidates import CandidateTool
from astra.envsynth.known import known_calls, known_values, leaves_of, replaced
from astra.envsynth.static import call_problem
from astra.envsynth.truth import column_named, meaning_of
from astra.envsynth.worlds import tables_in
from astra.records.base import canonical_json
from astra.records.qa import AnswerType, QAInstance, Table
from astra.records.state import WorldState
from astra.sandbox.protocol import Sandbox, SandboxLoadError, SandboxStatus, Session
from astra.text.forms import written

UNKNOWN_CALLS, BATCH = 20, 500
ENTRY = "_all_calls"
DRIVER = """

def _all_calls(gold, paths, values, others, start, stop, state, whole, answer):
    import copy, hashlib, json
    results = []
    total = 1
    for one in values:
        total *= len(one)
    for number in range(start, stop):
        arguments = copy.deepcopy(gold)
        if number < total:
            left, chosen = number, []
            for one in reversed(values):
                left, at = divmod(left, len(one))
                chosen.append(one[at])
            for path, picked in zip(paths, reversed(chosen)):
                inner = arguments
                for key in path[:-1]:
                    inner = inner[key]
                inner.pop(path[-1], None)
                if picked:
                    inner[path[-1]] = picked[0]
        else:
            arguments = copy.deepcopy(others[number - total])
        try:
            if state is None:
                value = {function}(**arguments)
            else:
                value = {function}(copy.deepcopy(state), arguments)
            json.dumps(value)
            results.append(["ok", copy.deepcopy(value)])
        except Exception as error:
            results.append([type(error).__name__, answer in str(error)])
    if whole:
        return results
    return hashlib.sha256(json.dumps(results, sort_keys=True).encode()).hexdigest()
"""
"""What a session runs beside the code: all calls from one place to another."""
Path = tuple[Any, ...]


@dataclass(frozen=True)
class Calls:
    """All calls about one gold call: the product of values, then those with unknown ones."""

    gold: Mapping[str, Any]
    paths: Sequence[Path]
    values: Sequence[Sequence[Sequence[Any]]]
    """The choices of each path: a list with the value, an empty one where it is left out."""
    others: Sequence[Mapping[str, Any]]
    before: WorldState | None
    """The world that each of them meets."""

    def __len__(self) -> int:
        return math.prod(len(one) for one in self.values) + len(self.others)


def all_calls(source: QAInstance, candidate: CandidateTool, at: int, step: int) -> Calls:
    """The calls about the gold call ``at`` of a candidate, which serves sub-question ``step``."""
    call = candidate.calls[at]
    question = next(one for one in source.sub_questions if one.id == step)
    tables = tables_in(source, call.before) if call.before else source.knowledge
    schemas: dict[str, Any] = candidate.tool.parameters.get("properties", {})
    parameters = list(schemas)
    meaning = meaning_of(source, question, parameters, call.arguments, tables)
    values: dict[Path, list[Any]] = {}
    for path, gold in leaves_of(call.arguments):
        found: list[Any] = []
        if meaning is not None:
            form = meaning.forms.get(path[0])
            plain = meaning.values(path[0])
            found = [written(one, form) for one in plain] if form else plain
        found = found or _cells(tables, str(path[-1]), gold)
        found = found or _in_code(candidate.code, call.arguments, path)
        whole = schemas[path[0]].get("type") == "integer"
        found = found or [one for one in _near(gold) if not whole or isinstance(one, int)]
        values[path] = _distinct([gold, *found])
    for name in parameters:
        if name not in call.arguments:
            found = meaning.values(name) if meaning is not None else []
            values[(name,)] = found or known_values(candidate.code, name)
    optional = {(name,) for name in parameters if name not in call.arguments}
    slots = [
        [*([[]] if path in optional else []), *([one] for one in found)]
        for path, found in values.items()
    ]
    fitting = (
        other
        for other in _unknown(call.arguments, values)
        if call_problem(candidate.tool, other) is None
    )
    others = list(islice(fitting, UNKNOWN_CALLS))
    return Calls(call.arguments, list(values), slots, others, call.before)


def _cells(tables: Iterable[Table], name: str, gold: Any) -> list[Any]:
    """The cells of the columns that hold a value, or have the argument's name."""
    return [
        cell
        for table in tables
        for at, column in enumerate(table.columns)
        for cells in [[row[at] for row in table.rows]]
        if gold in cells or column_named(name, [column])
        for cell in cells
        if type(cell) is type(gold)
    ]


def _in_code(code: str, gold: Mapping[str, Any], path: Path) -> list[Any]:
    """The values that stand in a code where the gold call's stands."""
    return [dict(leaves_of(call)).get(path) for call in known_calls(code, gold, None)]


def _near(value: Any) -> list[Any]:
    """Values of an argument that is no column: numbers and dates round about, both booleans."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        around = [value + by for by in (1, -1, 2, 0.25, -0.5, 10)]
        plain = [0, 1, 2, 3, 4, 5, 7, 10, 12.5, 60, 99, 100, 365, 1000, 0.25, -1, -value, value * 2]
        return [*around, *plain]
    try:
        day = date.fromisoformat(value)
    except (TypeError, ValueError):
        return []
    shifts = (1, -1, 2, 3, 7, -11, 30, -31, 60, 90, 365, -366, 1000)
    return [(day + timedelta(days=by)).isoformat() for by in shifts]


def _distinct(values: Iterable[Any]) -> list[Any]:
    kept = {canonical_json(one): one for one in values if one is not None}
    return list(kept.values())


def _unknown(
    gold: Mapping[str, Any], values: Mapping[Path, Sequence[Any]]
) -> Iterator[dict[str, Any]]:
    """Calls with one value that nothing has, argument by argument: a text that is made up, one that
    lacks the last letter, one with a letter more; a number far from all.
    """
    kinds = {path: values[path] or [None] for path in values}
    for number in range(UNKNOWN_CALLS * 5):
        for path, known in kinds.items():
            value = known[number % len(known)]
            if isinstance(value, str):
                ways = (f"Zxqv {number}", value[:-1], f"{value}s")
                value = ways[number % 3]
            elif isinstance(value, int | float) and not isinstance(value, bool):
                value = 900_001 + number
            else:
                continue
            if value not in known:
                call = replaced(gold, {path: value})
                yield call if len(path) > 1 or path[0] in call else {**call, path[0]: value}


# Comparing -----------------------------------------------------------------------------------


@dataclass
class Original:
    """An accepted code in a session of its own, and what it does on all calls."""

    candidate: CandidateTool
    calls: Sequence[Calls]
    sandbox: Sandbox
    session: Session
    digests: dict[tuple[int, int], Any] = field(default_factory=dict[tuple[int, int], Any])

    @property
    def tried(self) -> int:
        """How many calls there are."""
        return sum(map(len, self.calls))

    def is_equivalent(self, code: str) -> bool:
        """Whether another code gives equal results on all calls."""
        try:
            other = self.sandbox.session({ENTRY: source_of(self.candidate, code)})
        except SandboxLoadError:
            return False
        try:
            return all(
                self._is_equal(other, at, start)
                for at, calls in enumerate(self.calls)
                for start in range(0, len(calls), BATCH)
            )
        finally:
            other.close()

    def _is_equal(self, other: Session, at: int, start: int) -> bool:
        """Whether both do the same in one batch."""
        key = (at, start)
        if key not in self.digests:
            self.digests[key] = self._run(self.session, at, start, False)
        if self._run(other, at, start, False) == self.digests[key]:
            return True
        mine, theirs = (self._run(one, at, start, True) for one in (self.session, other))
        return (
            isinstance(mine, list)
            and isinstance(theirs, list)
            and all(self._is_same(at, *pair) for pair in zip(mine, theirs, strict=True))
        )

    def _run(self, session: Session, at: int, start: int, whole: bool) -> Any:
        """The digest of a batch, or all of its results; the way a session ended otherwise."""
        calls = self.calls[at]
        given = {
            "gold": calls.gold, "paths": calls.paths, "values": calls.values,
            "others": calls.others, "start": start, "stop": min(start + BATCH, len(calls)),
            "state": calls.before and calls.before.model_dump(), "whole": whole,
            "answer": str(self.candidate.calls[at].answer.value),
        }  # fmt: skip
        result = session.call(ENTRY, given)
        return result.value if result.status == SandboxStatus.OK else f"{result.status}"

    def _is_same(self, at: int, one: Sequence[Any], other: Sequence[Any]) -> bool:
        """Whether two results are equal: errors by their kind, answers as answers are compared."""
        if one[0] != other[0] or one[0] != "ok":
            return bool(one == other)
        mine, theirs = one[1], other[1]
        state = self.candidate.state
        if state is not None:
            if not same_state(mine["tables"], theirs["tables"], state.fields):
                return False
            mine, theirs = mine["value"], theirs["value"]
        answer = self.candidate.calls[at].answer
        if answer.type == AnswerType.LIST and isinstance(mine, list):
            return matches(answer.model_copy(update={"value": mine}), theirs)
        return same_value(mine, theirs)


def source_of(candidate: CandidateTool, code: str) -> str:
    """The code with what makes all calls."""
    function = candidate.tool.name
    if candidate.state is not None:
        function, code = entry_of(candidate.tool.name, code)
    return code + DRIVER.replace("{function}", function)
