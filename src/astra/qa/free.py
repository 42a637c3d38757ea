"""Questions that a teacher makes and decomposes freely: the five modes of ASTRA section 4.1.

Questions planned from tables (questions/plan.py) hold by construction; these hold by check, by
every rule of rules.py and those of ``_problem`` below. A reply that breaks a rule goes back once
with the reason; that try is kept. An item of a corpus decides the split of the questions about
it. Where a mode needs made-up names, they are offered from the split's pool. A question whose
steps write is of kind ``write``, or ``mixed`` if it ends in a value; its writes are derived.

Reasons for rejection: ``teacher`` (it gave no usable reply), ``off_request`` (another scenario
than asked for, or another question than given), ``ungrounded`` (an answer that the text does not
state), ``not_acting`` (the question asks for an action and no step makes one, or the other way
round), and every reason of rules.py.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from astra.llm.protocol import Ask, ParseError, ProviderError, Teacher
from astra.prompting import template_hash
from astra.qa.budgets import deepest, draw_budget
from astra.qa.config import Corpus, Language, Mode, QAConfig
from astra.qa.knowledge import chinese
from astra.qa.knowledge.corpora import Item, items_of
from astra.qa.knowledge.operations import (
    AGGREGATES,
    ARITHMETIC,
    ROUNDED,
    UNORDERED,
    writes_of,
)
from astra.qa.knowledge.references import EvaluationError
from astra.qa.knowledge.worlds import name_stock
from astra.qa.questions.outcomes import OUTCOMES, closing
from astra.qa.questions.shapes import split_of
from astra.qa.replies import Synthesis, SynthesisStep
from astra.qa.report import refusal_detail
from astra.qa.rules import answering, check, is_write, summary
from astra.qa.wording import Problem
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
from astra.records.state import Write
from astra.text.actions import asks_for_action
from astra.text.mentions import mentions
from astra.text.names import Pool

TEMPLATES = {"en": "qa/synthesise", "zh": "qa/synthesise_zh"}
"""Language -> prompt."""
OFFERED = {"person": 30, "thing": 40}
"""How many names of each sort a question is offered."""
INVENTING_MODES = (Mode.BASE, Mode.TAXONOMY)
"""Modes in which every name is made up: only offered names may occur."""
ASKS = 2
"""How often a teacher is asked for a question: again, once, where a reply breaks a rule; ours."""
ROUNDING = 0.01
"""Tolerance of a number that is rounded to two places."""
COMPUTED = AGGREGATES | ARITHMETIC | {"convert"}
"""Operations that round what they make; of those that are not ROUNDED it is whole as a rule."""
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
    """Variables of the first ask."""


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
    scenario = None if _chooses_scenario(spec.mode, config) else _scenario(config, spec, rng)
    single = scenario in (Scenario.SINGLE_HOP, Scenario.PARALLEL_SINGLE_HOP)
    least, most = (1, 1) if single else (2, spec.hops.max)
    steps = draw_budget(scenario, config.steps, rng)
    if scenario and steps:
        most = min(most, deepest(scenario, steps))
    variables = {
        "mode": spec.mode.value,
        "domain": item.domain,
        "language": spec.language,
        "scenario": scenario.value if scenario else "",
        "min_hops": min(most, spec.hops.min if not scenario else max(least, spec.hops.min)),
        "max_hops": most,
        "steps": steps,
        "text": item.text,
        "question": item.question,
        "description": item.description,
        "may_act": spec.mode is not Mode.KNOWLEDGE_BASE
        and config.kinds_used != [QuestionKind.READ_ONLY],
        "examples": [] if masked else list(item.examples),
        "names": {
            who: _offered(who, split, config, spec.language, rng) for who in ("person", "thing")
        },
        "refused": "",
        "why": "",
    }
    return FreeRequest(name, spec, item, sample, split, variables)


def _chooses_scenario(mode: Mode, config: QAConfig) -> bool:
    """Whether the teacher takes the scenario that fits; a drawn budget fixes that of a text."""
    return mode is Mode.QUESTION or (mode is Mode.CONTEXT and not config.steps)


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


async def synthesise(request: FreeRequest, teacher: Teacher) -> list[Outcome]:
    """What came of a request: the instance that the teacher makes if every rule passes it, else
    why not. A first reply that breaks a rule is a try before that.
    """
    tries: list[Outcome] = []
    shown: dict[str, Any] = {}
    for attempt in range(ASKS):
        outcome, shown = await _attempt(request, teacher, attempt, shown)
        tries.append(outcome)
        if isinstance(outcome, QAInstance) or outcome.final:
            break
    return tries


async def _attempt(
    request: FreeRequest, teacher: Teacher, attempt: int, shown: Mapping[str, Any]
) -> tuple[Outcome, dict[str, Any]]:
    """One ask and what came of it, with what the next one shows: the reply and why it is refused.

    ``shown`` is that of the ask before, if any. A teacher without a reply has nothing to mend.
    """
    item = f"{request.corpus}/{request.split}/{request.item.domain}/{request.item.place}"
    part = f"sample {request.sample}"
    template = TEMPLATES[request.spec.language]
    ask = Ask(template, {**request.variables, **shown}, Synthesis, request.sample)
    try:
        reply = await teacher.ask(ask)
    except (ProviderError, ParseError) as error:
        lost = Rejection(item=item, part=part, reason="teacher", detail=str(error), attempt=attempt)
        return lost, {}
    instance = build_instance(request, reply, template_hash(template))
    problem = _problem(request, reply, instance) or check(
        instance,
        _allowed_hops(request, instance),
        _known_names(request, instance),
        request.spec.mode,
    )
    if problem is None:
        return instance, {}
    reason, why = problem
    refused = Rejection(
        item=item,
        part=part,
        reason=reason,
        detail=refusal_detail(why, instance),
        attempt=attempt,
        final=attempt + 1 == ASKS,
    )
    return refused, {"refused": reply.model_dump(mode="json"), "why": f"{reason}: {why}"}


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
    stated = {step.id: step.answer.value for step in reply.sub_questions}
    steps = tuple(_step(step, reply.knowledge, stated) for step in reply.sub_questions)
    kind = _kind(steps)
    question = reply.main_question
    if kind is not QuestionKind.READ_ONLY:
        ending = closing(spec.language, acts=True, reads=kind is QuestionKind.MIXED)
        question = f"{_sentence(question.strip(), spec.language)} {ending}"
    # A teacher may forget to list a name that it finds. What a write sets is none: "booked".
    found = [step.answer for step in steps if not is_write(step)]
    texts = [answer.value for answer in found if answer.type is AnswerType.STRING]
    named = {text for text in texts if isinstance(text, str)}
    return QAInstance(
        split=request.split,
        domain=item.domain,
        language=spec.language,
        source=f"{spec.mode}:{request.corpus}",
        kind=kind,
        scenario=reply.scenario,
        main_question=question,
        final_answer=_final(reply.final_answer, steps, kind, spec.language),
        sub_questions=steps,
        knowledge=reply.knowledge,
        knowledge_text=item.text,
        entities=tuple(sorted({*reply.entities, *named})),
        composition=_composition(request, reply.sub_questions),
        prompt_hash=prompt_hash,
    )


def _sentence(text: str, language: Language) -> str:
    """The text with a full stop, where no mark ends it."""
    if text.endswith(tuple(".!?…。！？:：;；")) or text.rstrip("\"'”’)）").endswith(
        tuple(".!?。！？")
    ):
        return text
    return text + ("。" if language == "zh" else ".")


def _step(step: SynthesisStep, tables: Sequence[Table], stated: Mapping[int, Any]) -> SubQuestion:
    """The step with what its operation says of it; ``stated`` are the answers of all steps."""
    operation = step.operation
    answer = step.answer.model_copy(update={"tolerance": _tolerance(step.answer, operation)})
    writes: tuple[Write, ...] = ()
    if operation is not None:
        details: dict[str, Any] = {
            "domain_size": _domain_size(operation, tables),
            "ordered": operation.op not in UNORDERED,
        }
        answer = answer.model_copy(update=details)
        with suppress(EvaluationError):  # the rules say why it cannot be carried out
            writes = writes_of(operation, stated)
    return SubQuestion(
        id=step.id,
        hop_level=step.hop_level,
        question=step.question,
        answer=answer,
        dependencies=step.dependencies,
        operation=operation,
        writes=writes,
    )


def _tolerance(answer: Answer, operation: Operation | None) -> float:
    """How far off a number may be: what rounding makes of it, and nothing where a cell is read.

    A teacher may state less than rounding where the operation does not settle it, never more: its
    own tolerance would make any number right.
    """
    if operation is not None and operation.op in ROUNDED:
        return ROUNDING
    if operation is not None and operation.op not in COMPUTED:
        return 0.0
    return min(max(0.0, answer.tolerance), ROUNDING)


def _kind(steps: tuple[SubQuestion, ...]) -> QuestionKind:
    """The kind that the steps make a question: it changes the state, or asks for a value, or
    both.
    """
    if not any(is_write(step) for step in steps):
        return QuestionKind.READ_ONLY
    return QuestionKind.MIXED if answering(steps) else QuestionKind.WRITE


def _domain_size(operation: Operation, tables: Sequence[Table]) -> int | None:
    """How many answers the tables hold; a count may be any number up to that of the rows."""
    for table in tables:
        if table.name == operation.table:
            column = operation.select.partition(":")[0]
            if operation.op == "count" or column not in table.columns:
                return len(table.rows)
            return len({canonical_json(row[table.columns.index(column)]) for row in table.rows})
    return None


def _final(
    answer: Answer, steps: tuple[SubQuestion, ...], kind: QuestionKind, language: Language
) -> Answer:
    """The outcome of an action; else the answer with what is known of the only last one.

    Of several answers, the order counts only where two of them say the same of different things:
    the question lists the things, while the steps that tell different things of one come in any
    order. A list is held to no more tolerance than its parts.
    """
    if kind is QuestionKind.WRITE:
        outcomes = OUTCOMES[language]
        return Answer(type=AnswerType.ENUM, value=outcomes[kind], domain_size=len(outcomes))
    last = answering(steps)
    if len(last) != 1:
        most = max((step.answer.tolerance for step in last), default=0.0)
        ordered = any(_tell_alike(*pair) for pair in combinations(last, 2))
        tolerance = min(max(0.0, answer.tolerance), most)
        return answer.model_copy(update={"ordered": ordered, "tolerance": tolerance})
    kept = {name: getattr(last[0].answer, name) for name in ("ordered", "domain_size", "tolerance")}
    return answer.model_copy(update=kept)


def _tell_alike(one: SubQuestion, other: SubQuestion) -> bool:
    """Whether two steps tell the same of different things, or may do so."""
    if one.operation is None or other.operation is None:
        return True
    told = [[step.table, step.select] for step in (one.operation, other.operation)]
    return one.operation.relation == other.operation.relation or told[0] == told[1]


def _composition(request: FreeRequest, steps: tuple[SynthesisStep, ...]) -> str:
    """The signature: what is asked of what in which arrangement, without names."""
    nodes = [f"{s.relation}({','.join(map(str, s.dependencies)) or '@'})" for s in steps]
    return f"{request.item.domain}:free:" + ";".join(nodes)


def _problem(request: FreeRequest, reply: Synthesis, instance: QAInstance) -> Problem | None:
    """How a reply differs from what was requested, or is not stated by its text."""
    wanted, given = request.variables["scenario"], request.item.question
    if wanted and instance.scenario != wanted:
        return ("off_request", f"asked for {wanted}, got {instance.scenario}")
    # A question that asks for an action is turned into one for information where none may act.
    kept = request.variables["may_act"] or not asks_for_action(given)
    if given and kept and reply.main_question.strip() != given.strip():
        return ("off_request", f"asked to decompose {given!r}, got {reply.main_question!r}")
    acts = instance.kind is not QuestionKind.READ_ONLY
    if acts is not reply.acts:
        done = "some step writes" if acts else "no step writes"
        return ("not_acting", f"acts is {str(reply.acts).lower()}, but {done}")
    if acts and not request.variables["may_act"]:
        return ("off_request", "a step makes a change, but only information may be asked for")
    if not acts and asks_for_action(reply.main_question):
        return ("not_acting", "the main question asks for an action, but no step makes it")
    if request.spec.mode is Mode.KNOWLEDGE_BASE:
        text = request.item.text
        for claim in _claims(instance):
            if not mentions(text, claim):
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
