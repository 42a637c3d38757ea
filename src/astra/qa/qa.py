"""Stage ``qa``: questions are planned, asked of the teacher, and kept if the rules pass them.

Questions of tables are planned first (questions/plan.py) and worded by the teacher; those of
corpora are made by the teacher (free.py).

Reasons for rejection: ``no_plan`` (no question could be planned), ``teacher`` (it gave no usable
reply), ``off_outline`` (the reply is to another question than the one asked), ``no_closing`` (the
question does not end by naming the outcomes), and every reason of rules.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterator
from math import prod
from pathlib import Path
from typing import Any

from astra.llm.pool import flow
from astra.llm.protocol import Ask, ParseError, ProviderError, Teacher
from astra.prompting import template_hash
from astra.qa.config import QAConfig
from astra.qa.free import FreeRequest, count_requests, requests_of, synthesise
from astra.qa.knowledge.operations import AGGREGATES, BOUNDED, UNORDERED, WEEKDAYS, WRITE_OPS
from astra.qa.knowledge.schema import KnowledgeError, KnowledgeSource, Relation
from astra.qa.knowledge.sources import (
    KNOWLEDGE,
    Sources,
    all_sources,
    build_sources,
    shared_entities,
    source_weights,
)
from astra.qa.questions.outcomes import OUTCOMES
from astra.qa.questions.outline import ask_variables, outline_variables
from astra.qa.questions.plan import Planner, QuestionPlan, Stratum, Unplanned, strata_of
from astra.qa.questions.shapes import Composition
from astra.qa.replies import Decomposition
from astra.qa.report import refusal_detail
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
"""The prompt for classic operations, in English questions that only read."""
OUTLINES = {"en": "qa/outline", "zh": "qa/outline_zh"}
"""Language -> the prompt for what ``qa/decompose`` does not cover."""
Outcome = QAInstance | Rejection
Wanted = FreeRequest | tuple[Stratum, QuestionPlan | Unplanned]
"""One question that is to be made."""


def instances(
    writer: QuestionWriter, teacher: Teacher, open_items: int, metrics: StageMetrics
) -> AsyncGenerator[Outcome, None]:
    """One outcome per wanted question, in a fixed order. Counts ``in``."""

    async def work(wanted: Wanted) -> list[Outcome]:
        outcome = await writer.make(wanted, teacher)
        metrics.count("in")
        return [outcome]

    return flow(writer.wanted(), work, open_items)


class QuestionWriter:
    """Lists the questions that a configuration wants, and makes each with a teacher.

    Building it loads all knowledge and enumerates every composition. Raises KnowledgeError.
    """

    def __init__(self, config: QAConfig, knowledge: Path = KNOWLEDGE) -> None:
        self._config = config
        sources_of: dict[Split, Sources] = {
            split: build_sources(config, split, knowledge)
            for split in Split
            if config.instances.get(split, 0) > 0
        }
        shared = shared_entities(sources_of)
        if shared:
            raise KnowledgeError(
                f"knowledge sources put names into two splits: {sorted(shared)[:5]}; leave "
                "one of the sources out (weight 0), or those rows"
            )
        self._folder = knowledge
        # Read once ahead of any paid work: a broken corpus is found now, not hours later.
        self.requested = count_requests(config, knowledge)
        """The questions that corpora want, by language."""
        weights = source_weights(config)
        self._planners = [
            Planner(config, stratum, sources[stratum.language], weights)
            for split, sources in sources_of.items()
            for stratum in strata_of(config, split)
        ]
        self._names = {
            split: frozenset[str]().union(*(source.names for source in all_sources(sources)))
            for split, sources in sources_of.items()
        }

    def composition_counts(self) -> dict[str, int]:
        """Compositions that each split owns within the hop budget, over languages and kinds."""
        counts: Counter[str] = Counter()
        for planner in self._planners:
            counts[planner.stratum.split.value] += planner.composition_count()
        return dict(counts)

    def total(self) -> int:
        """How many questions are wanted."""
        return sum(planner.stratum.total for planner in self._planners) + self.requested.total()

    def wanted(self) -> Iterator[Wanted]:
        """Every question to be made: those planned from tables, then those of corpora."""
        for planner in self._planners:
            for plan in planner.plans():
                yield planner.stratum, plan
        yield from requests_of(self._config, self._folder)

    async def make(self, wanted: Wanted, teacher: Teacher) -> Outcome:
        """The instance that the teacher makes, if every rule passes it."""
        if isinstance(wanted, FreeRequest):
            return await synthesise(wanted, teacher)
        stratum, plan = wanted
        if isinstance(plan, Unplanned):
            return Rejection(
                item=f"{stratum.split}/{stratum.kind}/{plan.scenario}",
                part=f"{stratum.language} {plan.number}",
                reason="no_plan",
                detail=plan.why,
            )
        return await self._decompose(stratum, plan, teacher)

    def ask(self, stratum: Stratum, plan: QuestionPlan) -> Ask[Decomposition]:
        """The ask that words a plan."""
        closes = self._config.kinds_used != [QuestionKind.READ_ONLY]
        if plan.composition.classic and stratum.language == "en" and not closes:
            return Ask(TEMPLATE, ask_variables(plan, stratum.language), Decomposition)
        variables = outline_variables(plan, stratum.language, closes)
        return Ask(OUTLINES[stratum.language], variables, Decomposition)

    async def _decompose(self, stratum: Stratum, plan: QuestionPlan, teacher: Teacher) -> Outcome:
        item = f"{stratum.split}/{plan.composition.signature}/{', '.join(plan.names)}"
        ask = self.ask(stratum, plan)
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
            return Rejection(item=item, reason="off_outline", detail=refusal_detail(why, reply))
        ending = ask.variables.get("closing", "")
        if not reply.main_question.endswith(ending):
            why = f"does not end in {ending!r}"
            return Rejection(item=item, reason="no_closing", detail=refusal_detail(why, reply))
        instance = build_instance(
            plan, reply, stratum, self._names[stratum.split], template_hash(ask.template)
        )
        allowed = {hops for hops, weight in self._config.hops.items() if weight > 0}
        problem = check(instance, allowed, self._names[stratum.split])
        if problem is not None:
            reason, why = problem
            return Rejection(item=item, reason=reason, detail=refusal_detail(why, instance))
        return instance


def build_instance(
    plan: QuestionPlan,
    reply: Decomposition,
    stratum: Stratum,
    names: Collection[str],
    prompt_hash: str,
) -> QAInstance:
    """The record: what the reply says, with what only the source knows (domains, units, entities).

    ``names`` are the entity names of the split.
    """
    steps = tuple(
        step.model_copy(
            update={
                "answer": _completed(step.answer, plan, number),
                "bar": node.bar,
                "writes": plan.writes[number],
                "tool_necessity": None,
            }
        )
        for number, (step, node) in enumerate(
            zip(reply.sub_questions, plan.composition.nodes, strict=True)
        )
    )
    in_tables = plan.source.entities_in(plan.tables)
    mentioned = {literal for literal in plan.literals if literal in names}
    return QAInstance(
        split=stratum.split,
        domain=plan.composition.domain,
        language=stratum.language,
        source=plan.source.name,
        kind=plan.kind,
        scenario=reply.scenario,
        main_question=reply.main_question,
        final_answer=_final(reply.final_answer, steps, plan),
        sub_questions=steps,
        knowledge=plan.tables,
        entities=tuple(sorted(in_tables | set(plan.names) | mentioned)),
        composition=plan.composition.signature,
        prompt_hash=prompt_hash,
    )


def _completed(answer: Answer, plan: QuestionPlan, number: int) -> Answer:
    """The answer of the plan's node ``number``, with what its relation says of it."""
    relation, literal = plan.composition.nodes[number].relation, plan.literals[number]
    details: dict[str, Any] = {
        "domain_size": domain_size(plan.source, relation, plan.composition),
        "ordered": relation.op not in UNORDERED,
    }
    if relation.op == "convert" and relation.extra == "unit":
        # The factors are not whole, so that a tool may or may not round as we do.
        details |= {"unit": str(literal), "tolerance": 0.01}
    elif relation.unit:
        details["unit"] = relation.unit
    return answer.model_copy(update=details)


def _final(answer: Answer, steps: tuple[SubQuestion, ...], plan: QuestionPlan) -> Answer:
    """Several answers come in the question's order; the only one keeps its own freedom."""
    if plan.composition.final == "outcome":
        return answer.model_copy(update={"domain_size": len(OUTCOMES["en"])})
    last = [step.answer for step in answering(steps)]
    sizes = [end.domain_size for end in last if end.domain_size is not None]
    size = prod(sizes) if len(sizes) == len(last) else None
    if len(last) == 1:
        kept = {"ordered": last[0].ordered, "unit": last[0].unit, "tolerance": last[0].tolerance}
    else:
        kept = {"ordered": True}
    return answer.model_copy(update={"domain_size": size, **kept})


ANSWERS_PER_KEY = AGGREGATES | BOUNDED | WRITE_OPS | {"list", "sort", "record"}
"""Operations that have about as many answers as there are things to ask them of."""


def domain_size(
    source: KnowledgeSource, relation: Relation, composition: Composition
) -> int | None:
    """How many answers the relation has in the whole source, where that can be counted."""
    if relation.op in ("greater", "less"):
        return len(composition.starts)
    if relation.op == "check":
        return 2
    if relation.op == "weekday":
        return len(WEEKDAYS)
    if not relation.table or relation.op == "convert":
        return None
    keys = source.column(relation.table, relation.key)
    if relation.op == "count":
        filters = [keys]
        if relation.extra:
            filters.append(source.column(relation.table, relation.extra))
        return len(set(Counter(zip(*filters, strict=True)).values()))
    if relation.op in ANSWERS_PER_KEY:
        return len(set(keys))
    return len(set(source.column(relation.table, relation.select.partition(":")[0])))
