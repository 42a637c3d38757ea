"""The offline teacher of the free modes: facts of a text, or a world of its own, and a plan.

It reads what an endpoint reads and answers in the same form. Where no rule can (a text without
plain sentences of fact, a question outside its grammar), it has no answer.
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
from astra.qa.questions.outline import outline_variables
from astra.qa.questions.plan import QuestionPlan, fill
from astra.qa.questions.shapes import Composition, Path, compositions, copies
from astra.qa.questions.walk import Index
from astra.qa.replies import Synthesis, SynthesisStep

TRIES = 60
DISTRACTORS = 12
_ENGLISH = re.compile(
    r"((?:(?:the )?[a-z]+(?: [a-z]+)? of )+)"
    r"([A-Z][\w'-]*(?: [A-Z][\w'-]*)*(?:(?:, | and )[A-Z][\w'-]*(?: [A-Z][\w'-]*)*)*)[.?]"
)
_OPENING = re.compile(
    r"^(?:麻烦查出|请告诉我|请查询|请列出|我想知道|帮我查一下|请问)?(.+?)的(.+?)(?:分别)?(?:是[什多谁哪].*)?[。？?]$"
)
_WORD = {word: name for name, word in WORDS.items()}


@dataclass(frozen=True)
class Asked:
    """A question as read: columns to follow from the named things, innermost first."""

    names: tuple[str, ...]
    columns: tuple[str, ...]


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
    outlined = outline_variables(plan, language, closes=False)
    reply = decompose(outlined, rng)
    return Synthesis(
        scenario=reply.scenario,
        main_question=question or reply.main_question,
        final_answer=reply.final_answer,
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
            for step, operation in zip(reply.sub_questions, plan.operations, strict=True)
        ),
        entities=tuple(sorted(plan.source.entities_in(plan.tables) | set(plan.names))),
        knowledge=plan.tables,
    )


def _free(variables: Mapping[str, Any], rng: random.Random) -> QuestionPlan:
    """Any question of the shape asked for, in the words of a description where there is one."""
    source = _source(variables, rng)
    low, high = variables["min_hops"], variables["max_hops"]
    wanted = [
        made
        for made in compositions(source, high)
        if low <= made.hops <= high and variables["scenario"] in ("", made.scenario)
    ]
    described = set(re.findall(r"[a-z]+", variables["description"].lower()))
    index = Index(source)
    for _ in range(TRIES):
        if not wanted:
            break
        weights = [1 + 4 * len(described & _words(made)) for made in wanted]
        made = rng.choices(wanted, weights)[0]
        pool = source.starts[made.starts[0]]
        if len(pool) >= len(made.starts):
            names = tuple(rng.sample(pool, len(made.starts)))
            plan = fill(index, made, names, DISTRACTORS, rng)
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


def _words(made: Composition) -> set[str]:
    return {word for node in made.nodes for word in re.findall("[a-z]+", node.relation.name)}


def _like(
    question: str, variables: Mapping[str, Any], rng: random.Random
) -> tuple[QuestionPlan, str]:
    """A plan of an example's question under other names; of any other shape if it must be."""
    try:
        plan = _given(question, variables, rng)
    except ProviderError:
        return _free(variables, rng), ""
    made = plan.composition
    fits = variables["min_hops"] <= made.hops <= variables["max_hops"]
    if fits and variables["scenario"] in ("", made.scenario):
        return plan, question
    return _free(variables, rng), ""


def _given(question: str, variables: Mapping[str, Any], rng: random.Random) -> QuestionPlan:
    """The plan of a question in its own words."""
    asked = (_read_english if variables["language"] == "en" else _read_chinese)(question)
    if variables["text"]:
        source = _source(variables, rng)
    else:
        source = invent_for(
            variables["domain"], asked.columns, asked.names, variables["names"],
            variables["language"], rng,
        )  # fmt: skip
    made = _composition(source, asked)
    plan = fill(Index(source), made, asked.names, DISTRACTORS, rng)
    if plan is None:
        raise ProviderError("what is known does not answer the question in one way")
    return plan


def _read_english(question: str) -> Asked:
    match = _ENGLISH.search(question)
    if match is None:
        raise ProviderError(f"no rule reads the question {question!r}")
    chain = [part.removeprefix("the ") for part in match.group(1).split(" of ") if part.strip()]
    names = re.split(r", | and ", match.group(2))
    return Asked(tuple(names), tuple(part.replace(" ", "_") for part in reversed(chain)))


def _read_chinese(question: str) -> Asked:
    match = _OPENING.match(question)
    columns = [_WORD.get(word, "") for word in match.group(2).split("的")] if match else []
    if match is None or not all(columns):
        raise ProviderError(f"no rule reads the question {question!r}")
    return Asked(tuple(re.split("[、和]", match.group(1))), tuple(columns))


def _composition(source: KnowledgeSource, asked: Asked) -> Composition:
    """The look-ups that a question means, once per named thing."""
    holders = [kind for kind, names in source.starts.items() if set(asked.names) <= set(names)]
    for kind in holders:
        path = _path(source, kind, asked.columns)
        if path:
            width = len(asked.names)
            form = "last" if width == 1 else "list"
            return Composition(source.domain, form, copies(path, width), (kind,) * width, form)
    raise ProviderError("nothing known has what the question asks for")


def _path(source: KnowledgeSource, kind: str, columns: tuple[str, ...]) -> Path:
    found: list[Relation] = []
    for column in columns:
        fitting = [r for r in source.relations if r.name == f"{kind}.{column}" and r.op == "lookup"]
        if not fitting:
            return ()
        found.append(fitting[0])
        kind = fitting[0].target
    return tuple(found)


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
