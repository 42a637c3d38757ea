"""Questions that a teacher makes and decomposes freely: the five modes of ASTRA section 4.1.

Questions planned from tables (questions/plan.py) hold by construction; these hold by check, by
every rule of rules.py and those of ``_problem`` below. An item of a corpus decides the split of
the questions about it. Where a mode needs made-up names, they are offered from the split's pool.

Reasons for rejection: ``teacher`` (it gave no usable reply), ``off_request`` (another scenario
than asked for, or another question than given), ``ungrounded`` (an answer that the text does not
state), and every reason of rules.py.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astra.llm.protocol import Ask, ParseError, ProviderError, Teacher
from astra.prompting import template_hash
from astra.qa.config import Corpus, Language, Mode, QAConfig
from astra.qa.knowledge import chinese
from astra.qa.knowledge.corpora import Item, items_of
from astra.qa.knowledge.operations import UNORDERED
from astra.qa.knowledge.worlds import name_stock
from astra.qa.questions.shapes import split_of
from astra.qa.replies import Synthesis, SynthesisStep
from astra.qa.report import refusal_detail
from astra.qa.rules import Problem, check, ends, states, summary
from astra.records.base import canonical_json, content_id
from astra.records.qa import (
    Answer,
    AnswerType,
    Operation,
    QAInstance,
    QuestionKind,
    Scenario,
    Split,
    SubQuestion,
    Table,
)
from astra.records.score import Rejection
from astra.text.names import Pool

TEMPLATES = {"en": "qa/synthesise", "zh": "qa/synthesise_zh"}
"""Language -> prompt."""
OFFERED = {"person": 30, "thing": 40}
"""How many names of each sort a question is offered."""
INVENTING_MODES = (Mode.BASE, Mode.TAXONOMY)
"""Modes in which every name is made up: only offered names may occur."""
Outcome = QAInstance | Rejection


@dataclass(frozen=True)
class FreeRequest:
    """One question that is to be made from an item."""

    corpus: str
    """The corpus's name; ``spec`` is its configuration."""
    spec: Corpus
    item: Item
    sample: int
    """The question's number among those of its item, from 0."""
    split: Split
    variables: dict[str, Any]
    """Variables of the ask."""


def count_requests(config: QAConfig, folder: Path) -> Counter[Language]:
    """How many requests ``requests_of`` gives, by language. Reads every item and raises as it
    does."""
    counts: Counter[Language] = Counter()
    for _, spec, _ in _items(config, folder):
        counts[spec.language] += spec.samples
    return counts


def requests_of(config: QAConfig, folder: Path) -> Iterator[FreeRequest]:
    """A request per item and sample of every corpus whose language is used, in order.

    Raises KnowledgeError where a corpus cannot be read.
    """
    for name, spec, item in _items(config, folder):
        for sample in range(spec.samples):
            yield _request(config, name, spec, item, sample)


def _items(config: QAConfig, folder: Path) -> Iterator[tuple[str, Corpus, Item]]:
    for name, spec in sorted(config.corpora.items()):
        if spec.language in config.languages_used:
            for item in items_of(name, spec, folder):
                yield name, spec, item


def _request(config: QAConfig, name: str, spec: Corpus, item: Item, sample: int) -> FreeRequest:
    identity = [spec.mode, spec.language, item.domain, item.text, item.question, item.description]
    # All samples of a text or a given question name the same things, so they share a split. Where
    # names are made up, each sample has those of its own split.
    owner = content_id([*identity, sample] if spec.mode in INVENTING_MODES else identity)
    split = split_of(owner, config.compositions)
    rng = random.Random(int(content_id(["request", config.seed, *identity, sample]), 16))
    masked = spec.mode is Mode.TAXONOMY and rng.random() < spec.mask
    scenario = None if spec.mode is Mode.QUESTION else _scenario(config, spec, rng)
    single = scenario in (Scenario.SINGLE_HOP, Scenario.PARALLEL_SINGLE_HOP)
    variables = {
        "mode": spec.mode.value,
        "domain": item.domain,
        "language": spec.language,
        "scenario": scenario.value if scenario else "",
        "min_hops": spec.hops.min if single or not scenario else max(2, spec.hops.min),
        "max_hops": 1 if single else spec.hops.max,
        "text": item.text,
        "question": item.question,
        "description": item.description,
        "examples": [] if masked else list(item.examples),
        "names": {
            who: _offered(who, split, config, spec.language, rng) for who in ("person", "thing")
        },
    }
    return FreeRequest(name, spec, item, sample, split, variables)


def _scenario(config: QAConfig, spec: Corpus, rng: random.Random) -> Scenario:
    """A scenario that the hop range allows, drawn by the configured shares."""
    possible = [
        scenario
        for scenario in Scenario
        if (spec.hops.min == 1 if "single" in scenario else spec.hops.max > 1)
    ]
    weights = [config.scenarios.get(scenario, 0.0) for scenario in possible]
    return rng.choices(possible, weights if any(weights) else None)[0]


def _offered(
    who: str, split: Split, config: QAConfig, language: str, rng: random.Random
) -> list[str]:
    if language == "zh":
        return chinese.draw_names(who, Pool(split.value), OFFERED[who], rng)
    stock = name_stock(who, split, config.seed, config.names_per_kind)
    return rng.sample(stock, min(OFFERED[who], len(stock)))


async def synthesise(request: FreeRequest, teacher: Teacher) -> Outcome:
    """The instance that the teacher makes for a request, if every rule passes it."""
    item = f"{request.corpus}/{request.split}/{request.item.domain}/{request.item.place}"
    part = f"sample {request.sample}"
    template = TEMPLATES[request.spec.language]
    try:
        reply = await teacher.ask(Ask(template, request.variables, Synthesis, request.sample))
    except (ProviderError, ParseError) as error:
        return Rejection(item=item, part=part, reason="teacher", detail=str(error))
    instance = build_instance(request, reply, template_hash(template))
    problem = _problem(request, instance) or check(
        instance, _allowed_hops(request, instance), _known_names(request, instance)
    )
    if problem is not None:
        reason, why = problem
        return Rejection(item=item, part=part, reason=reason, detail=refusal_detail(why, instance))
    return instance


def _allowed_hops(request: FreeRequest, instance: QAInstance) -> range:
    """The hop levels that the request allows.

    A last comparison is no hop of the question, though it stands on a level of its own.
    """
    most = request.variables["max_hops"]
    if summary(instance.sub_questions) is not None:
        most += 1
    return range(request.variables["min_hops"], most + 1)


def build_instance(request: FreeRequest, reply: Synthesis, prompt_hash: str) -> QAInstance:
    """The record: what the reply says, with what its tables show of each answer."""
    spec, item = request.spec, request.item
    steps = tuple(_step(step, reply.knowledge) for step in reply.sub_questions)
    # A teacher may forget to list a name that it answers with.
    named = {s.answer.value for s in reply.sub_questions if s.answer.type is AnswerType.STRING}
    return QAInstance(
        split=request.split,
        domain=item.domain,
        language=spec.language,
        source=f"{spec.mode}:{request.corpus}",
        kind=QuestionKind.READ_ONLY,
        scenario=reply.scenario,
        main_question=reply.main_question,
        final_answer=_final(reply.final_answer, steps),
        sub_questions=steps,
        knowledge=reply.knowledge,
        knowledge_text=item.text,
        entities=tuple(sorted({*reply.entities, *(n for n in named if isinstance(n, str))})),
        composition=_composition(request, reply.sub_questions),
        prompt_hash=prompt_hash,
    )


def _step(step: SynthesisStep, tables: Sequence[Table]) -> SubQuestion:
    answer = step.answer
    if step.operation is not None:
        details = {
            "domain_size": _domain_size(step.operation, tables),
            "ordered": step.operation.op not in UNORDERED,
        }
        answer = answer.model_copy(update=details)
    return SubQuestion(
        id=step.id,
        hop_level=step.hop_level,
        question=step.question,
        answer=answer,
        dependencies=step.dependencies,
        operation=step.operation,
    )


def _domain_size(operation: Operation, tables: Sequence[Table]) -> int | None:
    """How many answers the tables hold; a count may be any number up to that of the rows."""
    for table in tables:
        if table.name == operation.table:
            column = operation.select.partition(":")[0]
            if operation.op == "count" or column not in table.columns:
                return len(table.rows)
            return len({canonical_json(row[table.columns.index(column)]) for row in table.rows})
    return None


def _final(answer: Answer, steps: tuple[SubQuestion, ...]) -> Answer:
    """The final answer with what is known of the only last one; of several, the order counts."""
    last = ends(steps)
    if len(last) != 1:
        return answer.model_copy(update={"ordered": True})
    kept = {name: getattr(last[0].answer, name) for name in ("ordered", "domain_size", "tolerance")}
    return answer.model_copy(update=kept)


def _composition(request: FreeRequest, steps: tuple[SynthesisStep, ...]) -> str:
    """The signature: what is asked of what in which arrangement, without names."""
    nodes = [f"{s.relation}({','.join(map(str, s.dependencies)) or '@'})" for s in steps]
    return f"{request.item.domain}:free:" + ";".join(nodes)


def _problem(request: FreeRequest, instance: QAInstance) -> Problem | None:
    """How the instance differs from what was requested, or is not stated by its text."""
    wanted, given = request.variables["scenario"], request.item.question
    if wanted and instance.scenario != wanted:
        return ("off_request", f"asked for {wanted}, got {instance.scenario}")
    if given and instance.main_question.strip() != given.strip():
        return ("off_request", f"asked to decompose {given!r}, got {instance.main_question!r}")
    if request.spec.mode is Mode.KNOWLEDGE_BASE:
        text = request.item.text
        for claim in _claims(instance):
            if not states(text, claim):
                return ("ungrounded", f"the text does not state {claim!r}")
    return None


def _claims(instance: QAInstance) -> Iterator[Any]:
    """The values that a text has to state: table cells, and text answers that nothing derives."""
    for table in instance.knowledge:
        for row in table.rows:
            yield from row
    for step in instance.sub_questions:
        texts = (AnswerType.STRING, AnswerType.ENUM)
        if step.operation is None and not step.dependencies and step.answer.type in texts:
            yield step.answer.value


def _known_names(request: FreeRequest, instance: QAInstance) -> set[str]:
    """The names that may occur: the offered ones where all are made up, else any."""
    if request.spec.mode in INVENTING_MODES:
        return {name for names in request.variables["names"].values() for name in names}
    return set(instance.entities)
