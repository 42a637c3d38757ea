"""Rule checks of a decomposed question, made before any judge is asked and for every teacher.

``check`` goes through the rules in order and gives the first problem; an instance with one is
rejected. A rule is a pure function of the record that yields its problems.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from astra.qa.knowledge.operations import (
    PLAIN_OPS,
    WRITE_OPS,
    EvaluationError,
    after,
    join,
    perform,
    references,
    table_named,
)
from astra.qa.questions.outcomes import OUTCOMES
from astra.qa.questions.shapes import scenario_of, steps_of
from astra.records.base import canonical_json
from astra.records.qa import (
    Answer,
    AnswerType,
    Bar,
    QAInstance,
    QuestionKind,
    SubQuestion,
)
from astra.text.language import detect_language

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
Problem = tuple[str, str]
"""Reason code and detail."""
_STEP = re.compile(r"(?:\bsteps? |步骤)(\d+)")
"""How a question refers to an earlier step's answer."""


def check(
    instance: QAInstance, allowed_hops: Collection[int], names: Collection[str]
) -> Problem | None:
    """The first problem, or None. ``names`` are the entity names of the instance's split."""
    # Later rules presuppose earlier ones, so the first reason is the true one.
    for rule in (_topology, _answers, _kind, _dependencies, _derivation, _final, _wording):
        for problem in rule(instance):
            return problem
    levels = max(step.hop_level for step in instance.sub_questions)
    if levels not in allowed_hops:
        return ("hop_range", f"{levels} hop levels, allowed are {sorted(allowed_hops)}")
    strangers = set(instance.entities) - set(names)
    if strangers:
        return ("foreign_entity", f"not of split {instance.split}: {sorted(strangers)}")
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
    acts = any(step.bar is None and _writes(step) for step in steps)
    if acts is not (kind in (QuestionKind.WRITE, QuestionKind.MIXED)):
        yield ("kind", f"{kind} {'changes' if acts else 'does not change'} the state")
    if kind in REFUSING and not all(_writes(step) for step in barred):
        yield ("kind", f"what {kind} bars is no action")


def _writes(step: SubQuestion) -> bool:
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
    """Whether an answer is null or blank, or a list or record with no part or an empty one."""
    value = answer.value
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, list | dict):
        parts: list[Any] = list(value.values()) if isinstance(value, dict) else value
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
        resolved = {
            name: [_value(v, answers) for v in given]
            if isinstance(given, list)
            else _value(given, answers)
            for name, given in step.operation.arguments.items()
        }
        calls[canonical_json([step.operation.relation, step.operation.select, resolved])] += 1
    if any(count > 1 for count in calls.values()):
        yield ("repeated_call", "two sub-questions make the same call")


def _state_dependencies(step: SubQuestion, instance: QAInstance) -> set[int]:
    """Ids that a step may wait for without using their answers: writes that a reading follows, or
    the look-up that shows a barred action to be of no use or impossible.
    """
    others = [other for other in instance.sub_questions if other.id in step.dependencies]
    if step.bar is None:
        return {other.id for other in others if _writes(other)}
    # That look-up reads the very cell that the action would write.
    shown = step.operation.select if step.operation else ""
    return {
        other.id
        for other in others
        if instance.kind in REFUSING and other.operation and other.operation.select == shown
    }


def _value(argument: Any, answers: dict[int, Any]) -> Any:
    known = isinstance(argument, dict) and argument.get("from") in answers
    return answers[argument["from"]] if known else argument


def _derivation(instance: QAInstance) -> Iterator[Problem]:
    """Each stated answer and write follows from the state and the answers it depends on.

    Steps are carried out in the order of (hop level, id), each on the state that the writes
    before it have left. Their stated answers feed later steps, so that one wrong answer is one
    problem and not several.
    """
    answers = {step.id: step.answer.value for step in instance.sub_questions}
    tables = instance.knowledge
    written: list[str] = []
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
        written += [canonical_json([w.table, w.where or w.values]) for w in writes]
        tables = after(tables, writes) if writes else tables
    if len(set(written)) < len(written):
        yield ("conflicting_writes", "two steps write the same cell")


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
    if answer.type is AnswerType.NUMBER and isinstance(derived, int | float):
        return abs(derived - answer.value) <= answer.tolerance + 1e-9
    return type(derived) is type(answer.value) and derived == answer.value


def ends(steps: tuple[SubQuestion, ...]) -> list[SubQuestion]:
    """Sub-questions that nothing depends on, by id."""
    used = {dependency for step in steps for dependency in step.dependencies}
    return sorted((step for step in steps if step.id not in used), key=lambda step: step.id)


def answering(steps: tuple[SubQuestion, ...]) -> list[SubQuestion]:
    """The ends whose answers make up a final value: those that are carried out and only read."""
    return [step for step in ends(steps) if step.bar is None and not _writes(step)]


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
    if final.value != expected:
        yield ("final_answer", f"says {final.value!r}, the sub-answers give {expected!r}")


def _wording(instance: QAInstance) -> Iterator[Problem]:
    """The main question states every literal it rests on, and does not give its answer away."""
    question = instance.main_question
    if not question.strip() or any(not step.question.strip() for step in instance.sub_questions):
        yield ("empty_question", "a question is blank")
    if (detect_language(question) == "zh") is not (instance.language == "zh"):
        yield ("wrong_language", f"the question is not in {instance.language}")
    compares = False
    for step in instance.sub_questions:
        if step.operation is None:
            compares = compares or len(step.dependencies) > 1
            continue
        compares = compares or step.operation.op in PLAIN_OPS
        literals = _literals(step)
        if step.bar is Bar.NO_CALL and instance.kind is QuestionKind.MISSING_PARAMETER:
            if len(literals) != 1 or states(question, literals[0]):
                yield ("nothing_missing", f"{step.id} may lack one value, not {literals}")
        elif missing := [literal for literal in literals if str(literal) not in question]:
            yield ("not_in_question", f"{step.id} needs {missing[0]!r}, never mentioned")
    if instance.kind in OUTCOMES["en"]:
        return  # the question names every outcome
    value = instance.final_answer.value
    revealing = isinstance(value, str) and len(value) > 2 and states(question, value)
    # A comparison has to name what it compares, the winner included.
    if revealing and not compares:
        yield ("answer_in_question", f"{value!r} is in the question")


def _literals(step: SubQuestion) -> list[Any]:
    """Arguments that the question has to give: all but references to earlier answers."""
    assert step.operation is not None
    values: list[Any] = []
    for argument in step.operation.arguments.values():
        values += argument if isinstance(argument, list) else [argument]
    return [value for value in values if not isinstance(value, dict)]


CHINESE = "\u3400-\u9fff"
"""Range of Chinese characters, as it stands in a regular expression's class."""
_LETTER = rf"[^\W{CHINESE}]"
"""A letter, digit or underscore of a script that writes words apart."""


def states(text: str, literal: Any) -> bool:
    """Whether a text contains a literal as whole words; Chinese has no gaps between words."""
    written = str(literal)
    if re.search(rf"[{CHINESE}]", written):
        return written in text
    return re.search(rf"(?<!{_LETTER}){re.escape(written)}(?!{_LETTER})", text) is not None
