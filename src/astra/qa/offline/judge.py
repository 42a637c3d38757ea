"""The offline judge: rules that check necessity, dependencies, atomicity, order, completeness.

They read what an endpoint's judge reads (questions, answers, operations) and nothing else, and
they share no code with rules.py, though both may find the same fault.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from astra.llm.protocol import Handler
from astra.qa.knowledge import chinese
from astra.qa.knowledge.operations import WRITE_OPS
from astra.qa.knowledge.references import literals, references
from astra.qa.questions.outcomes import OUTCOMES, closings
from astra.qa.replies import (
    CompletenessReport,
    Necessity,
    NecessityReport,
    StepReport,
    StepVerdict,
)
from astra.records.qa import Operation, QuestionKind

Step = Mapping[str, Any]
COMPARING = re.compile(r"^(which|who) (of|is|has)\b|更[高低]的是哪一个？$", re.IGNORECASE)
NAME = re.compile(r"[A-Z][a-z]+(?: [A-Z][a-z]+)*")
NUMBER_WORDS = re.compile(r"\b\d+\b")


def necessity(variables: Mapping[str, Any], rng: random.Random) -> NecessityReport:
    """Data, calculations and dates need a tool; choosing among values that are given does not."""
    del rng
    verdicts: list[Necessity] = []
    for step in variables["steps"]:
        operation = step["operation"]
        if step["id"] not in variables["asked"]:
            continue
        if operation:
            plain = operation["op"] in ("greater", "less", "pick")
        else:
            plain = COMPARING.search(step["question"]) is not None and bool(step["dependencies"])
        reason = "chooses among values already given" if plain else "needs data or a calculation"
        verdicts.append(Necessity(id=step["id"], needs_tool=not plain, reason=reason))
    return NecessityReport(verdicts=tuple(verdicts))


def dependency(variables: Mapping[str, Any], rng: random.Random) -> StepReport:
    """Every reference is useful, and with the references the step can be answered."""
    del rng
    question: str = variables["main_question"]
    steps: Sequence[Step] = variables["steps"]
    verdicts: list[StepVerdict] = []
    for step in steps:
        if not step["dependencies"]:
            continue
        used = _references(step, steps)
        useless = sorted(set(step["dependencies"]) - used)
        mentions = f"{question} {step['question']}"
        lacking = [str(v) for v in _literals(step) if str(v) not in mentions]
        if step["bar"] and variables["kind"] == QuestionKind.MISSING_PARAMETER:
            lacking = []  # the question is meant to lack it
        reason = "sufficient and useful"
        if useless:
            reason = f"does not use the answer of {useless}"
        elif lacking:
            reason = f"rests on {lacking}, which nothing provides"
        verdicts.append(StepVerdict(id=step["id"], ok=not useless and not lacking, reason=reason))
    return StepReport(verdicts=tuple(verdicts))


def atomicity(variables: Mapping[str, Any], rng: random.Random) -> StepReport:
    """One request per sub-question, in the words of its relation; a final comparison is exempt."""
    del rng
    steps: Sequence[Step] = variables["steps"]
    used = {id for step in steps for id in step["dependencies"]}
    verdicts: list[StepVerdict] = []
    for step in steps:
        text: str = step["question"]
        summary = step["id"] not in used and len(step["dependencies"]) > 1
        several = text.count("?") > 1 or re.search(r"\band (then|what|how|who|which|also)\b", text)
        compound = re.search(r"\b(and the|, then)\b", text) and len(step["dependencies"]) < 2
        off_topic = not _on_topic(step, variables["language"])
        reason = "one task"
        if not summary and (several or compound):
            reason = "asks for more than one thing"
        elif not summary and off_topic:
            reason = "the question does not name what its operation looks up"
        verdicts.append(StepVerdict(id=step["id"], ok=reason == "one task", reason=reason))
    return StepReport(verdicts=tuple(verdicts))


def sequential(variables: Mapping[str, Any], rng: random.Random) -> StepReport:
    """A step waits for another only if it needs that answer: nothing is serialised by force."""
    del rng
    steps: Sequence[Step] = variables["steps"]
    verdicts: list[StepVerdict] = []
    for step in steps:
        needed = _references(step, steps)
        level = 1 + max((s["hop_level"] for s in steps if s["id"] in needed), default=0)
        ok = step["hop_level"] <= level
        reason = "as early as possible" if ok else f"could run at level {level}"
        verdicts.append(StepVerdict(id=step["id"], ok=ok, reason=reason))
    return StepReport(verdicts=tuple(verdicts))


def completeness(variables: Mapping[str, Any], rng: random.Random) -> CompletenessReport:
    """Every name and number in the question is used, and the last answers make up the final."""
    del rng
    steps: Sequence[Step] = variables["steps"]
    question: str = variables["main_question"]
    for ending in closings(variables["language"]):
        question = question.removesuffix(ending)
    covered = " ".join(
        [step["question"] for step in steps] + [str(v) for s in steps for v in _literals(s)]
    )
    missing = [name for name in _names(question) if name not in covered]
    numbers = set(NUMBER_WORDS.findall(question)) - set(NUMBER_WORDS.findall(covered))
    missing += sorted(numbers)
    if not _final_fits(variables):
        missing.append("final answer")
    return CompletenessReport(complete=not missing, missing=tuple(missing))


def _final_fits(variables: Mapping[str, Any]) -> bool:
    """Whether the final answer is what the last steps that read give, or the kind's outcome."""
    steps: Sequence[Step] = variables["steps"]
    outcomes = OUTCOMES.get(variables["language"], OUTCOMES["en"])
    if variables["kind"] in outcomes:
        return variables["final_answer"] == outcomes[QuestionKind(variables["kind"])]
    used = {id for step in steps for id in step["dependencies"]}
    ends = [step for step in steps if step["id"] not in used and not _acts(step)]
    last = [step["answer"] for step in ends if not step["bar"]]
    return variables["final_answer"] == (last[0] if len(last) == 1 else last)


def _acts(step: Step) -> bool:
    return bool(step["operation"]) and step["operation"]["op"] in WRITE_OPS


def _references(step: Step, steps: Sequence[Step]) -> set[int]:
    """Ids of the steps that a step needs.

    They are those whose answers it uses (by its operation or, where it has none, by its wording),
    actions whose effect it sees, and the look-up that shows a barred action to be of no use.
    """
    operation = step["operation"]
    if operation:
        used = set(references(Operation.model_validate(operation)))
        barred_action = step["bar"] and _acts(step)
        for other in steps:
            if other["id"] in step["dependencies"] and (barred_action or _acts(other)):
                used.add(other["id"])
        return used
    text: str = step["question"]
    # A longer run of digits names no step, and int() may refuse it.
    named = {int(number) for number in re.findall(r"\bsteps? (\d{1,9})(?!\d)", text)}
    return named | {
        other["id"] for other in steps if other["id"] != step["id"] and str(other["answer"]) in text
    }


def _literals(step: Step) -> list[Any]:
    operation = step["operation"]
    return literals(Operation.model_validate(operation)) if operation else []


def _names(text: str) -> list[str]:
    """Capitalised names in a question, its opening word aside."""
    names: list[str] = []
    for match in NAME.finditer(text):
        words = match.group().split()
        if match.start() == 0:
            words = words[1:]
        if words and words != ["I"]:
            names.append(" ".join(words))
    return names


def _on_topic(step: Step, language: str) -> bool:
    """Whether the question has the words of what its operation looks up or does."""
    operation = step["operation"]
    if not operation or operation["op"] == "pick":
        return True  # what it picks has no words of its own
    if language == "zh":
        return _on_chinese_topic(operation, step["question"])
    tail = str(operation["relation"]).partition(".")[2]
    words = {word[:4] for word in tail.split("_")}
    spoken = {word[:4] for word in re.findall(r"[a-z]+", step["question"].lower())}
    return bool(words & spoken)


def _on_chinese_topic(operation: Mapping[str, Any], question: str) -> bool:
    """Whether the question has the fixed parts of one of the relation's phrases.

    A relation without a known phrase is taken to be on topic.
    """
    relation = str(operation["relation"])
    phrases = [phrase for phrase in chinese.PHRASES.get(relation, ()) if phrase]
    if word := chinese.WORDS.get(relation.partition(".")[2]):
        phrases.append(word)
    fixed = [[part for part in re.split(r"\{[xy]\}", phrase) if part] for phrase in phrases]
    return not fixed or any(all(part in question for part in parts) for parts in fixed)


JUDGES: dict[str, Handler] = {
    "qa/necessity": necessity,
    "qa/dependency": dependency,
    "qa/atomicity": atomicity,
    "qa/sequential": sequential,
    "qa/completeness": completeness,
}
