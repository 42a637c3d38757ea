"""The offline teacher's replies to free asks: it finds knowledge, plans a question, words it.

The knowledge is the facts of a text, or a world that it makes up. It reads what an endpoint reads
and answers in the same form. Where no rule can (a text without plain sentences of fact, a question
outside its grammar), it raises ProviderError.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from astra.llm.protocol import ProviderError
from astra.qa.knowledge.chinese import WORDS
from astra.qa.knowledge.schema import KnowledgeSource, Relation
from astra.qa.offline.decompose import decompose
from astra.qa.offline.facts import read_facts
from astra.qa.offline.invent import invent, invent_for
from astra.qa.planned import planned_final, planned_step
from astra.qa.questions.outline import outline_variables
from astra.qa.questions.plan import QuestionPlan, fill
from astra.qa.questions.shapes import Composition, RelationPath, compositions, copies
from astra.qa.questions.walk import RowIndex
from astra.qa.replies import Synthesis, SynthesisStep

TRIES = 60
"""Draws of a question before it gives up."""
DISTRACTORS = 12
"""Distractor rows of an excerpt."""
_ENGLISH = re.compile(
    r"((?:(?:the )?[a-z]+(?: [a-z]+)? of )+)"
    r"([A-Z][\w'-]*(?: [A-Z][\w'-]*)*(?:(?:, | and )[A-Z][\w'-]*(?: [A-Z][\w'-]*)*)*)[.?]"
)
_OPENING = re.compile(
    r"^(?:麻烦查出|请告诉我|请查询|请列出|我想知道|帮我查一下|请问)?(.+?)的(.+?)(?:分别)?(?:是[什多谁哪].*)?[。？?]$"
)
_ENGLISH_NAMES = {word: name for name, word in WORDS.items()}
"""Chinese word -> the column or type that it names."""


@dataclass(frozen=True)
class ParsedQuestion:
    """A question of nested look-ups, as read."""

    names: tuple[str, ...]
    """The named things that it asks about."""
    columns: tuple[str, ...]
    """The columns to follow from them, innermost first."""


def synthesise(variables: Mapping[str, Any], rng: random.Random) -> Synthesis:
    """A reply to ``qa/synthesise`` or ``qa/synthesise_zh``."""
    language = variables["language"]
    question: str = variables["question"]
    if variables["examples"]:
        question = _with_names(rng.choice(variables["examples"]), variables["names"], rng)
    if question and variables["mode"] == "taxonomy":
        plan, question = _like(question, variables, rng)
    elif question:
        plan = _given(question, variables, rng)
    else:
        plan = _free(variables, rng)
    outlined = outline_variables(plan, language, closes=False) | {"paraphrased": True}
    reply = decompose(outlined, rng)
    steps = tuple(
        planned_step(plan, number, step.question) for number, step in enumerate(reply.sub_questions)
    )
    return Synthesis(
        acts=False,
        scenario=plan.composition.scenario,
        main_question=question or reply.main_question,
        final_answer=planned_final(plan, steps, language),
        sub_questions=tuple(
            SynthesisStep(
                id=step.id,
                hop_level=step.hop_level,
                question=step.question,
                answer=step.answer,
                dependencies=step.dependencies,
                relation=operation.relation,
                operation=operation,
            )
            for step, operation in zip(steps, plan.operations, strict=True)
        ),
        entities=tuple(sorted(plan.source.entities_in(plan.tables) | set(plan.names))),
        knowledge=plan.tables,
    )


def _free(variables: Mapping[str, Any], rng: random.Random) -> QuestionPlan:
    """A plan of the shape asked for; relations that a description speaks of are likelier."""
    source = _source(variables, rng)
    low, high = variables["min_hops"], variables["max_hops"]
    fitting = [
        composition
        for composition in compositions(source, high)
        if low <= composition.hops <= high and variables["scenario"] in ("", composition.scenario)
    ]
    if not fitting:
        raise ProviderError("what is known does not hold a question of the shape asked for")
    described = set(re.findall(r"[a-z]+", variables["description"].lower()))
    weights = [1 + 4 * len(described & _words(composition)) for composition in fitting]
    index = RowIndex(source)
    for _ in range(TRIES):
        composition = rng.choices(fitting, weights)[0]
        pool = source.starts[composition.starts[0]]
        if len(pool) >= len(composition.starts):
            names = tuple(rng.sample(pool, len(composition.starts)))
            plan = fill(index, composition, names, DISTRACTORS, rng)
            if plan is not None:
                return plan
    raise ProviderError("what is known does not hold a question of the shape asked for")


def _source(variables: Mapping[str, Any], rng: random.Random) -> KnowledgeSource:
    if not variables["text"]:
        return invent(variables["domain"], variables["names"], variables["language"], rng)
    source = read_facts(variables["text"], variables["domain"], variables["language"])
    if source is None:
        raise ProviderError("no rule reads a fact in the text; plain sentences are needed")
    return source


def _words(composition: Composition) -> set[str]:
    return {word for node in composition.nodes for word in re.findall("[a-z]+", node.relation.name)}


def _like(
    question: str, variables: Mapping[str, Any], rng: random.Random
) -> tuple[QuestionPlan, str]:
    """The plan of an example's question and the question, or a free plan and no question.

    The plan is free where the example cannot be planned, or is not of the shape asked for.
    """
    try:
        plan = _given(question, variables, rng)
    except ProviderError:
        return _free(variables, rng), ""
    composition = plan.composition
    fits = variables["min_hops"] <= composition.hops <= variables["max_hops"]
    if fits and variables["scenario"] in ("", composition.scenario):
        return plan, question
    return _free(variables, rng), ""


def _given(question: str, variables: Mapping[str, Any], rng: random.Random) -> QuestionPlan:
    """The plan of a question in its own words."""
    read = _read_english if variables["language"] == "en" else _read_chinese
    parsed = read(question)
    if variables["text"]:
        source = _source(variables, rng)
    else:
        domain, language = variables["domain"], variables["language"]
        source = invent_for(domain, parsed.columns, parsed.names, variables["names"], language, rng)
    composition = _composition(source, parsed)
    plan = fill(RowIndex(source), composition, parsed.names, DISTRACTORS, rng)
    if plan is None:
        raise ProviderError("what is known does not answer the question in one way")
    return plan


def _read_english(question: str) -> ParsedQuestion:
    match = _ENGLISH.search(question)
    if match is None:
        raise ProviderError(f"no rule reads the question {question!r}")
    chain = [part.removeprefix("the ") for part in match.group(1).split(" of ") if part.strip()]
    names = re.split(r", | and ", match.group(2))
    return ParsedQuestion(tuple(names), tuple(part.replace(" ", "_") for part in reversed(chain)))


def _read_chinese(question: str) -> ParsedQuestion:
    match = _OPENING.match(question)
    columns = [_ENGLISH_NAMES.get(word, "") for word in match.group(2).split("的")] if match else []
    if match is None or not all(columns):
        raise ProviderError(f"no rule reads the question {question!r}")
    return ParsedQuestion(tuple(re.split("[、和]", match.group(1))), tuple(columns))


def _composition(source: KnowledgeSource, parsed: ParsedQuestion) -> Composition:
    """The look-ups that a question means, once per named thing.

    Several types may have the names; the first whose columns lead on as asked is meant.
    """
    width = len(parsed.names)
    form = "last" if width == 1 else "list"
    for entity_type, names in source.starts.items():
        if set(parsed.names) <= set(names):
            path = _path(source, entity_type, parsed.columns)
            if path:
                starts = (entity_type,) * width
                return Composition(source.domain, form, copies(path, width), starts, form)
    raise ProviderError("nothing known has what the question asks for")


def _path(source: KnowledgeSource, entity_type: str, columns: tuple[str, ...]) -> RelationPath:
    """The look-ups of ``columns`` from a thing of a type; empty where one of them is missing."""
    lookups = {r.name: r for r in source.relations if r.op == "lookup"}
    path: list[Relation] = []
    for column in columns:
        relation = lookups.get(f"{entity_type}.{column}")
        if relation is None:
            return ()
        path.append(relation)
        entity_type = relation.target
    return tuple(path)


def _with_names(question: str, names: Mapping[str, Any], rng: random.Random) -> str:
    """An example's question with offered names in place of its own."""
    try:
        own = _read_english(question).names
    except ProviderError:
        try:
            own = _read_chinese(question).names
        except ProviderError:
            return question
    for old, new in zip(own, rng.sample(list(names["thing"]), len(own)), strict=True):
        question = question.replace(old, new)
    return question
