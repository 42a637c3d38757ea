"""Stage ``qa``: plans -> asks -> decomposed questions that pass the rule checks.

Counted drops: ``no_plan`` (no question could be made), ``teacher`` (no answer), ``off_outline``
(the reply answers another question than the one asked), ``no_closing`` (it does not name the
outcomes), and every reason of rules.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterator
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

from astra.llm.pool import flow
from astra.llm.protocol import Ask, ParseError, ProviderError, Teacher
from astra.prompting import template_hash
from astra.qa.config import QAConfig
from astra.qa.free import FreeRequest, count_requests, requests_of, synthesise
from astra.qa.knowledge.operations import AGGREGATES, BOUNDED, UNORDERED, WEEKDAYS, WRITE_OPS
from astra.qa.knowledge.packaged import KnowledgeError
from astra.qa.knowledge.schema import KnowledgeSource, Relation
from astra.qa.knowledge.sources import (
    KNOWLEDGE,
    Sources,
    build_sources,
    every,
    shared_entities,
    source_weights,
)
from astra.qa.questions.outcomes import OUTCOMES
from astra.qa.questions.outline import ask_variables, outline_variables
from astra.qa.questions.plan import Cell, Planner, QuestionPlan, Unplanned, cells_of
from astra.qa.questions.shapes import Composition
from astra.qa.replies import Decomposition
from astra.qa.report import told
from astra.qa.rules import answering, check
from astra.records.qa import (
    Answer,
    QAInstance,
    QuestionKind,
    Split,
    SubQuestion,
)
from astra.records.score import Rejection
from astra.store.metrics import StageMetrics

TEMPLATE = "qa/decompose"
OUTLINES = {"en": "qa/outline", "zh": "qa/outline_zh"}
"""What ``qa/decompose`` does not cover: other operations and kinds, Chinese."""
Outcome = QAInstance | Rejection
Wanted = FreeRequest | tuple[Cell, QuestionPlan | Unplanned]
"""One question that is to be made."""


def questions(
    generator: QuestionWriter, teacher: Teacher, open_items: int, metrics: StageMetrics
) -> AsyncGenerator[Outcome, None]:
    """One outcome per wanted instance, in a fixed order. Counts ``in``."""

    async def work(wanted: Wanted) -> list[Outcome]:
        outcome = await generator.make(wanted, teacher)
        metrics.count("in")
        return [outcome]

    return flow(generator.wanted(), work, open_items)


class QuestionWriter:
    """All cells of a configuration. Building it loads the knowledge and enumerates shapes."""

    def __init__(self, config: QAConfig, knowledge: Path = KNOWLEDGE) -> None:
        self._config = config
        sources: dict[Split, Sources] = {
            split: build_sources(config, split, knowledge)
            for split in Split
            if config.instances.get(split, 0) > 0
        }
        shared = shared_entities(sources)
        if shared:
            raise KnowledgeError(
                f"knowledge sources put names into two splits: {sorted(shared)[:5]}; leave "
                "one of the sources out (weight 0), or those rows"
            )
        self._folder = knowledge
        # Read once ahead of any paid work: a broken corpus is found now, not hours later.
        self._requested = count_requests(config, knowledge)
        weights = source_weights(config)
        self._cells = [
            (cell, Planner(config, cell, found[cell.language], weights))
            for split, found in sources.items()
            for cell in cells_of(config, split)
        ]
        self._names = {
            split: frozenset[str]().union(*(source.names for source in every(found)))
            for split, found in sources.items()
        }

    def composition_counts(self) -> dict[str, int]:
        """Compositions that each split owns within the hop budget, over languages and kinds."""
        counts: Counter[str] = Counter()
        for cell, planner in self._cells:
            counts[cell.split.value] += planner.composition_count()
        return dict(counts)

    def total(self) -> int:
        return sum(cell.total for cell, _ in self._cells) + self._requested

    def wanted(self) -> Iterator[Wanted]:
        """Every question to be made: those planned from tables, then those of corpora."""
        for cell, planner in self._cells:
            for plan in planner.plans():
                yield cell, plan
        yield from requests_of(self._config, self._folder)

    async def make(self, wanted: Wanted, teacher: Teacher) -> Outcome:
        """The instance that the teacher makes, if every rule passes it."""
        if isinstance(wanted, FreeRequest):
            return await synthesise(wanted, teacher)
        cell, plan = wanted
        if isinstance(plan, Unplanned):
            return Rejection(
                item=f"{cell.split}/{cell.kind}/{plan.scenario}",
                part=f"{cell.language} {plan.number}",
                reason="no_plan",
                detail=plan.why,
            )
        return await self._decompose(cell, plan, teacher)

    def ask(self, cell: Cell, plan: QuestionPlan) -> Ask[Decomposition]:
        """What the teacher is asked for a plan."""
        closes = self._config.kinds_used != [QuestionKind.READ_ONLY]
        if plan.composition.classic and cell.language == "en" and not closes:
            return Ask(TEMPLATE, ask_variables(plan, cell.language), Decomposition)
        variables = outline_variables(plan, cell.language, closes)
        return Ask(OUTLINES[cell.language], variables, Decomposition)

    async def _decompose(self, cell: Cell, plan: QuestionPlan, teacher: Teacher) -> Outcome:
        item = f"{cell.split}/{plan.composition.signature}/{', '.join(plan.names)}"
        ask = self.ask(cell, plan)
        try:
            reply = await teacher.ask(ask)
        except (ProviderError, ParseError) as error:
            return Rejection(item=item, reason="teacher", detail=str(error))
        stated = tuple(step.operation for step in reply.sub_questions)
        if stated != plan.operations or reply.scenario is not plan.composition.scenario:
            why = (
                f"asked {plan.composition.scenario} {plan.operations}, "
                f"got {reply.scenario} {stated}"
            )
            return Rejection(item=item, reason="off_outline", detail=told(why, reply))
        ending = ask.variables.get("closing", "")
        if not reply.main_question.endswith(ending):
            why = f"does not end in {ending!r}"
            return Rejection(item=item, reason="no_closing", detail=told(why, reply))
        instance = build_instance(
            plan, reply, cell, self._names[cell.split], template_hash(ask.template)
        )
        allowed = {hops for hops, weight in self._config.hops.items() if weight > 0}
        problem = check(instance, allowed, self._names[cell.split])
        if problem is not None:
            reason, why = problem
            return Rejection(item=item, reason=reason, detail=told(why, instance))
        return instance


def build_instance(
    plan: QuestionPlan,
    reply: Decomposition,
    cell: Cell,
    names: Collection[str],
    prompt_hash: str,
) -> QAInstance:
    """The record: what the reply says, with what only the source knows (domains, units, entities).

    ``names`` are the entity names of the split.
    """
    made = plan.composition
    steps = tuple(
        step.model_copy(
            update={
                "answer": _completed(step.answer, plan, number),
                "bar": node.bar,
                "writes": plan.writes[number],
                "tool_necessity": None,
            }
        )
        for number, (step, node) in enumerate(zip(reply.sub_questions, made.nodes, strict=True))
    )
    known = plan.source.entities_in(plan.tables)
    mentioned = {literal for literal in plan.literals if literal in names}
    return QAInstance(
        split=cell.split,
        domain=made.domain,
        language=cell.language,
        source=plan.source.name,
        kind=plan.kind,
        scenario=reply.scenario,
        main_question=reply.main_question,
        final_answer=_final(reply.final_answer, steps, plan),
        sub_questions=steps,
        knowledge=plan.tables,
        entities=tuple(sorted(known | set(plan.names) | mentioned)),
        composition=made.signature,
        prompt_hash=prompt_hash,
    )


def _completed(answer: Answer, plan: QuestionPlan, number: int) -> Answer:
    relation, literal = plan.composition.nodes[number].relation, plan.literals[number]
    known: dict[str, Any] = {
        "domain_size": domain_size(plan.source, relation, plan.composition),
        "ordered": relation.op not in UNORDERED,
    }
    if relation.op == "convert" and relation.extra == "unit":
        # The factors are not whole, so that a tool may or may not round as we do.
        known |= {"unit": str(literal), "tolerance": 0.01}
    elif relation.unit:
        known["unit"] = relation.unit
    return answer.model_copy(update=known)


def _final(answer: Answer, steps: tuple[SubQuestion, ...], plan: QuestionPlan) -> Answer:
    """Several answers come in the question's order; the only one keeps its own freedom."""
    if plan.composition.final == "outcome":
        return answer.model_copy(update={"domain_size": len(OUTCOMES["en"])})
    last = [step.answer for step in answering(steps)]
    known = [end.domain_size for end in last if end.domain_size is not None]
    size = prod(known) if len(known) == len(last) else None
    if len(last) == 1:
        kept = {"ordered": last[0].ordered, "unit": last[0].unit, "tolerance": last[0].tolerance}
    else:
        kept = {"ordered": True}
    return answer.model_copy(update={"domain_size": size, **kept})


def domain_size(source: KnowledgeSource, relation: Relation, made: Composition) -> int | None:
    """How many answers the relation has in the whole source, where that can be counted."""
    if relation.op in ("greater", "less"):
        return len(made.starts)
    if relation.op in ("check", "weekday"):
        return 2 if relation.op == "check" else len(WEEKDAYS)
    if not relation.table or relation.op == "convert":
        return None
    return _distinct(_Key(source, relation))


ANSWERS_PER_KEY = AGGREGATES | BOUNDED | WRITE_OPS | {"list", "sort", "record"}
"""Operations that have about as many answers as there are things to ask them of."""


class _Key:
    """A source and relation as a cache key: by the source's identity, tables being large."""

    def __init__(self, source: KnowledgeSource, relation: Relation) -> None:
        self.source = source
        self.relation = relation

    def __hash__(self) -> int:
        return hash((id(self.source), self.relation))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Key)
            and self.source is other.source
            and self.relation == other.relation
        )


@lru_cache(maxsize=4096)
def _distinct(key: _Key) -> int:
    source, relation = key.source, key.relation
    keys = source.column(relation.table, relation.key)
    if relation.op == "count":
        filters = [keys]
        if relation.extra:
            filters.append(source.column(relation.table, relation.extra))
        return len(set(Counter(zip(*filters, strict=True)).values()))
    if relation.op in ANSWERS_PER_KEY:
        return len(set(keys))
    return len(set(source.column(relation.table, relation.select.partition(":")[0])))
