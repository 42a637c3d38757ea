"""Rule checks of a decomposed question, made before any judge is asked and for every teacher.

``check`` goes through the rules in order and gives the first problem; an instance with one is
rejected. A rule is a pure function of the record that yields its problems.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from astra.qa.config import Mode
from astra.qa.knowledge.operations import (
    PLAIN_OPS,
    WRITE_OPS,
    EvaluationError,
    after,
    join,
    perform,
    table_named,
)
from astra.qa.knowledge.references import NEXT_PAGE, ROWS, references, resolve
from astra.qa.questions.outcomes import OUTCOMES
from astra.qa.questions.shapes import scenario_of, steps_of
from astra.qa.wording import Problem, wording
from astra.records.base import canonical_json
from astra.records.qa import (
    Answer,
    AnswerType,
    Bar,
    Operation,
    QAInstance,
    QuestionKind,
    SubQuestion,
    Table,
)
from astra.records.state import FieldClass, Write, WriteAction

TYPES: dict[AnswerType, tuple[type, ...]] = {
    AnswerType.NUMBER: (int, float),
    AnswerType.STRING: (str,),
    AnswerType.BOOLEAN: (bool,),
    AnswerType.DATE: (str,),
    AnswerType.ENUM: (str, int),
    AnswerType.LIST: (list,),
    AnswerType.RECORD: (dict,),
}
BARS = {
    QuestionKind.MISSING_TOOL: Bar.NO_TOOL,
    QuestionKind.MISSING_PARAMETER: Bar.NO_CALL,
    QuestionKind.INFEASIBLE: Bar.NO_CALL,
    QuestionKind.ALREADY_SATISFIED: Bar.NO_CALL,
}
REFUSING = (QuestionKind.INFEASIBLE, QuestionKind.ALREADY_SATISFIED)
"""Kinds whose action the state refuses."""
_STEP = re.compile(r"(?:\bsteps? |步骤)(\d{1,9})(?!\d)")
"""How a question refers to an earlier step's answer; a longer run of digits names no step."""


def check(
    instance: QAInstance,
    allowed_hops: Collection[int],
    names: Collection[str],
    mode: Mode | None = None,
) -> Problem | None:
    """The first problem, or None.

    ``names`` are the entity names of the instance's split; ``mode`` is that of a free question.
    """
    # Later rules presuppose earlier ones, so the first reason is the true one.
    for rule in (_topology, _answers, _kind, _dependencies, _derivation, _final):
        for problem in rule(instance):
            return problem
    for problem in wording(instance, mode):
        return problem
    levels = max(step.hop_level for step in instance.sub_questions)
    if levels not in allowed_hops:
        return ("hop_range", f"{levels} hop levels, allowed are {sorted(allowed_hops)}")
    # Codes are no names: no split owns them.
    named = {name for name in instance.entities if not any(map(str.isdigit, name))}
    strangers = named - set(names)
    if strangers:
        return ("foreign_entity", f"none of the names that may be used: {sorted(strangers)}")
    return None


def _topology(instance: QAInstance) -> Iterator[Problem]:
    """Ids and dependencies make a DAG, whose levels and scenario are as labelled."""
    steps = instance.sub_questions
    if not steps:
        yield ("no_steps", "no sub-question")
        return
    ids = [step.id for step in steps]
    if len(set(ids)) < len(ids):
        yield ("bad_ids", f"id given twice in {ids}")
    for step in steps:
        for dependency in step.dependencies:
            if dependency not in ids:
                yield ("bad_ids", f"{step.id} depends on {dependency}, which does not exist")
    if _has_cycle(steps):
        yield ("cycle", "sub-questions depend on each other in a circle")
        return
    levels = {step.id: step.hop_level for step in steps}
    for step in steps:
        expected = 1 + max((levels[d] for d in step.dependencies), default=0)
        if step.hop_level != expected:
            yield ("hop_level", f"{step.id} has level {step.hop_level}, expected {expected}")
    shapes = {scenario_of(steps_of(shape)) for shape in _readings(steps)}
    if instance.scenario not in shapes:
        yield ("scenario", f"labelled {instance.scenario}, its shape is {sorted(shapes)}")


def _kind(instance: QAInstance) -> Iterator[Problem]:
    """The kind's own steps are barred, and a state is changed only where the kind changes one."""
    steps, kind = instance.sub_questions, instance.kind
    barred = [step for step in steps if step.bar is not None]
    last = ends(steps)
    bars = BARS.get(kind)
    if {step.bar for step in barred} != ({bars} if bars else set()):
        yield ("kind", f"{kind} bars {[(s.id, s.bar) for s in barred]}, expected {bars}")
    elif barred != [step for step in last if step.bar is not None]:
        yield ("kind", "a barred step is not at the end")
    elif len(barred) > 1 and kind is not QuestionKind.MISSING_TOOL:
        yield ("kind", f"{kind} bars {len(barred)} steps")
    if len(barred) == len(steps):
        yield ("kind", "nothing is left to be done")
    acts = any(step.bar is None and is_write(step) for step in steps)
    if acts is not (kind in (QuestionKind.WRITE, QuestionKind.MIXED)):
        yield ("kind", f"{kind} {'changes' if acts else 'does not change'} the state")
    if kind in REFUSING and not all(is_write(step) for step in barred):
        yield ("kind", f"what {kind} bars is no action")


def is_write(step: SubQuestion) -> bool:
    """Whether carrying out the step changes the tables."""
    return step.operation is not None and step.operation.op in WRITE_OPS


def _readings(steps: tuple[SubQuestion, ...]) -> list[tuple[SubQuestion, ...]]:
    """The sets of steps that a scenario may be read off.

    A last summary without an operation may need a tool or not: the steps count with and without
    it.
    """
    last = summary(steps)
    if last is None or last.operation is not None:
        return [steps]
    return [steps, tuple(step for step in steps if step is not last)]


def summary(steps: tuple[SubQuestion, ...]) -> SubQuestion | None:
    """The last step, where it brings several answers together and may need no tool for it."""
    last = ends(steps)
    if len(last) != 1 or len(last[0].dependencies) < 2:
        return None
    plain = last[0].operation is None or last[0].operation.op in PLAIN_OPS
    return last[0] if plain else None


def _has_cycle(steps: tuple[SubQuestion, ...]) -> bool:
    # Take away the steps that wait for none, again and again; what is left waits for itself.
    waiting = {step.id: set(step.dependencies) for step in steps}
    while ready := [id for id, needs in waiting.items() if not needs]:
        for id in ready:
            del waiting[id]
        for needs in waiting.values():
            needs.difference_update(ready)
    return bool(waiting)


def _answers(instance: QAInstance) -> Iterator[Problem]:
    """Every answer holds something, of the type it states."""
    labelled = [(f"step {s.id}", s.answer) for s in instance.sub_questions]
    for where, answer in [*labelled, ("final answer", instance.final_answer)]:
        if _is_empty(answer):
            yield ("empty_answer", where)
        elif not _well_typed(answer):
            yield ("answer_type", f"{where}: {answer.value!r} is no {answer.type}")


def _is_empty(answer: Answer) -> bool:
    """Whether an answer is null or blank, or a list or record with no part or an empty one.

    The last page of several has no next one.
    """
    value = answer.value
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, list | dict):
        parts: list[Any] = list(value.values()) if isinstance(value, dict) else value
        if isinstance(value, dict) and value.keys() == {ROWS, NEXT_PAGE}:
            parts = value[ROWS]
        return not parts or any(part is None or part == "" for part in parts)
    return False


def _well_typed(answer: Answer) -> bool:
    if isinstance(answer.value, bool):  # to Python a bool is an int as well
        return answer.type is AnswerType.BOOLEAN
    return isinstance(answer.value, TYPES[answer.type])


def _dependencies(instance: QAInstance) -> Iterator[Problem]:
    """Declared dependencies are exactly what the arguments use; no call is made twice."""
    answers = {step.id: step.answer.value for step in instance.sub_questions}
    calls: Counter[str] = Counter()
    for step in instance.sub_questions:
        named = {int(number) for number in _STEP.findall(step.question)}
        if unsaid := (named & answers.keys()) - {step.id, *step.dependencies}:
            yield ("undeclared_dependency", f"{step.id} speaks of {sorted(unsaid)}")
        if step.operation is None:
            continue
        used = set(references(step.operation))
        if idle := set(step.dependencies) - used - _state_dependencies(step, instance):
            yield ("unused_dependency", f"{step.id} does not use {sorted(idle)}")
        if hidden := used - set(step.dependencies):
            yield ("undeclared_dependency", f"{step.id} uses {sorted(hidden)}")
        calls[_call(step.operation, answers)] += 1
    if any(count > 1 for count in calls.values()):
        yield ("repeated_call", "two sub-questions make the same call")


def _state_dependencies(step: SubQuestion, instance: QAInstance) -> set[int]:
    """Ids that a step may wait for without using their answers: writes that a reading follows, or
    the look-up that shows a barred action to be of no use or impossible.
    """
    others = [other for other in instance.sub_questions if other.id in step.dependencies]
    if step.bar is None:
        return {other.id for other in others if is_write(other)}
    # That look-up reads the very cell that the action would write.
    shown = step.operation.select if step.operation else ""
    return {
        other.id
        for other in others
        if instance.kind in REFUSING and other.operation and other.operation.select == shown
    }


def _call(operation: Operation, answers: Mapping[int, Any]) -> str:
    """What tells one call from another: relation, selection and arguments; of an argument that
    refers to nothing, the reference as it stands.
    """
    resolved: dict[str, Any] = {}
    for name, given in operation.arguments.items():
        try:
            resolved[name] = resolve(given, answers)
        except EvaluationError:
            resolved[name] = given
    return canonical_json([operation.relation, operation.select, resolved])


def _derivation(instance: QAInstance) -> Iterator[Problem]:
    """Each stated answer and write follows from the state and the answers it depends on.

    Steps are carried out in the order of (hop level, id), each on the state that the writes
    before it have left. Their stated answers feed later steps, so that one wrong answer is one
    problem and not several.
    """
    answers = {step.id: step.answer.value for step in instance.sub_questions}
    tables = instance.knowledge
    written: list[Write] = []
    yield from _joins(instance)
    for step in sorted(instance.sub_questions, key=lambda step: (step.hop_level, step.id)):
        if step.operation is None:
            if instance.knowledge:
                yield ("no_operation", f"{step.id} does not say how its answer follows")
            continue
        try:
            derived, writes = perform(step.operation, step.bar, instance.kind, tables, answers)
        except EvaluationError as error:
            yield ("not_derivable", f"{step.id}: {error}")
            continue
        if not same(derived, step.answer):
            yield ("answer_mismatch", f"{step.id}: says {step.answer.value!r}, is {derived!r}")
        if writes != step.writes:
            yield ("write_mismatch", f"{step.id}: says {step.writes!r}, is {writes!r}")
        yield from _unchecked(writes, tables)
        written += writes
        tables = after(tables, writes) if writes else tables
    for one, other in combinations(written, 2):
        if _conflict(one, other):
            yield ("conflicting_writes", f"two steps write the same cell of {one.table}")


def _conflict(one: Write, other: Write) -> bool:
    """Whether two writes of the same row cannot both stand: they set one cell, or one of them adds
    or removes the row.
    """
    rows = [[write.table, write.where or write.values] for write in (one, other)]
    updates = one.action == other.action == WriteAction.UPDATE
    return rows[0] == rows[1] and not (updates and one.values.keys().isdisjoint(other.values))


def _unchecked(writes: Sequence[Write], tables: Sequence[Table]) -> Iterator[Problem]:
    """A write states no cell that the end state is not compared in."""
    for write in writes:
        fields = table_named(write.table, tables).fields
        if free := [name for name in write.values if fields.get(name) is FieldClass.IGNORE]:
            yield ("unchecked_write", f"{free} of {write.table} are compared with nothing")


def _joins(instance: QAInstance) -> Iterator[Problem]:
    """A table named ``a+b`` is the join of tables ``a`` and ``b``."""
    for table in instance.knowledge:
        if "+" in table.name:
            try:
                parts = [table_named(part, instance.knowledge) for part in table.name.split("+")]
            except EvaluationError as error:
                yield ("bad_join", f"{table.name}: {error}")
                continue
            if join(table.name, parts) != table:
                yield ("bad_join", f"{table.name} is not the join of its parts")


def same(derived: Any, answer: Answer) -> bool:
    """Typed equality: unordered lists as multisets, numbers within the answer's tolerance."""
    if answer.type is AnswerType.LIST and not answer.ordered and isinstance(derived, list):
        return sorted(map(canonical_json, derived)) == sorted(map(canonical_json, answer.value))
    if answer.type is AnswerType.NUMBER and type(derived) in (int, float):
        try:
            return abs(derived - answer.value) <= answer.tolerance + 1e-9
        except OverflowError:  # of a fraction and an integer that no float holds
            return False
    return type(derived) is type(answer.value) and _equal(derived, answer.value)


def _equal(one: Any, other: Any) -> bool:
    """Equality of JSON values in which true is not the number 1, at any depth."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def ends(steps: tuple[SubQuestion, ...]) -> list[SubQuestion]:
    """Sub-questions that nothing depends on, by id."""
    used = {dependency for step in steps for dependency in step.dependencies}
    return sorted((step for step in steps if step.id not in used), key=lambda step: step.id)


def answering(steps: tuple[SubQuestion, ...]) -> list[SubQuestion]:
    """The ends whose answers make up a final value: those that are carried out and only read."""
    return [step for step in ends(steps) if step.bar is None and not is_write(step)]


def _final(instance: QAInstance) -> Iterator[Problem]:
    """The final answer is the outcome that the kind has, else what the last steps give."""
    last = answering(instance.sub_questions)
    final = instance.final_answer
    if instance.kind in OUTCOMES["en"]:
        # Free-form sources may have languages beyond those with a fixed outcome.
        expected: Any = OUTCOMES.get(instance.language, OUTCOMES["en"])[instance.kind]
        if (final.type, final.value) != (AnswerType.ENUM, expected):
            yield ("final_answer", f"says {final.value!r}, a {instance.kind} ends in {expected!r}")
        return
    if not last:
        yield ("final_answer", "no step gives a value")
        return
    if len(last) == 1:
        expected = last[0].answer.value
    else:
        expected = [step.answer.value for step in last]
        if final.type is not AnswerType.LIST:
            yield ("final_answer", f"{len(last)} answers end the question, final is {final.type}")
            return
    if not _equal(final.value, expected):
        yield ("final_answer", f"says {final.value!r}, the sub-answers give {expected!r}")
