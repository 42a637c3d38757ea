"""Records of planned questions: a plan in the words that a teacher gives it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from math import prod

from astra.qa.knowledge.operations import AGGREGATES, BOUNDED, UNORDERED, WEEKDAYS, WRITE_OPS
from astra.qa.knowledge.schema import KnowledgeSource
from astra.qa.questions.outcomes import OUTCOMES
from astra.qa.questions.plan import QuestionPlan, Stratum
from astra.qa.questions.shapes import Composition
from astra.qa.replies import Wording
from astra.qa.rules import answering
from astra.records.qa import Answer, AnswerType, QAInstance, SubQuestion


def build_instance(
    plan: QuestionPlan,
    reply: Wording,
    stratum: Stratum,
    names: Collection[str],
    prompt_hash: str,
) -> QAInstance:
    """The record: the plan in the reply's words, which has some for each of its steps.

    ``names`` are the entity names of the split.
    """
    words = {step.id: step.question for step in reply.sub_questions}
    steps = tuple(
        planned_step(plan, number, words[number + 1]) for number in range(len(plan.operations))
    )
    in_tables = plan.source.entities_in(plan.tables)
    mentioned = {literal for literal in plan.literals if literal in names}
    return QAInstance(
        split=stratum.split,
        domain=plan.composition.domain,
        language=stratum.language,
        source=plan.source.name,
        kind=plan.kind,
        scenario=plan.composition.scenario,
        main_question=reply.main_question,
        final_answer=planned_final(plan, steps, stratum.language),
        sub_questions=steps,
        knowledge=plan.tables,
        entities=tuple(sorted(in_tables | set(plan.names) | mentioned)),
        composition=plan.composition.signature,
        prompt_hash=prompt_hash,
    )


def planned_step(plan: QuestionPlan, number: int, question: str) -> SubQuestion:
    """The plan's node ``number``, counted from 0, in the words of ``question``."""
    node = plan.composition.nodes[number]
    return SubQuestion(
        id=number + 1,
        hop_level=plan.composition.levels[number],
        question=question,
        answer=_answer(plan, number),
        dependencies=node.dependencies,
        operation=plan.operations[number],
        writes=plan.writes[number],
        bar=node.bar,
    )


def _answer(plan: QuestionPlan, number: int) -> Answer:
    """The answer of the plan's node ``number``, with what its relation says of it."""
    relation, literal = plan.composition.nodes[number].relation, plan.literals[number]
    answer = Answer(
        type=relation.answer_type,
        value=plan.answers[number],
        unit=relation.unit,
        tolerance=0.01 if relation.op == "mean" else 0.0,
        ordered=relation.op not in UNORDERED,
        domain_size=domain_size(plan.source, plan.composition, number),
    )
    if relation.op == "convert" and relation.extra == "unit":
        # The factors are not whole, so that a tool may or may not round as we do.
        return answer.model_copy(update={"unit": str(literal), "tolerance": 0.01})
    return answer


def planned_final(plan: QuestionPlan, steps: tuple[SubQuestion, ...], language: str) -> Answer:
    """The outcome that the kind has; else the only last answer, or all of them in their order."""
    if plan.composition.final == "outcome":
        outcomes = OUTCOMES[language]
        return Answer(type=AnswerType.ENUM, value=outcomes[plan.kind], domain_size=len(outcomes))
    last = [step.answer for step in answering(steps)]
    if len(last) == 1:
        return last[0]
    sizes = [end.domain_size for end in last if end.domain_size is not None]
    return Answer(
        type=AnswerType.LIST,
        value=[end.value for end in last],
        domain_size=prod(sizes) if len(sizes) == len(last) else None,
    )


ANSWERS_PER_KEY = AGGREGATES | BOUNDED | WRITE_OPS | {"list", "sort", "record", "rows", "page"}
"""Operations that have about as many answers as there are things to ask them of."""


def domain_size(source: KnowledgeSource, composition: Composition, number: int) -> int | None:
    """How many answers node ``number`` could have in the whole source, where that can be counted.

    Nodes are counted from 0.
    """
    node = composition.nodes[number]
    relation = node.relation
    if relation.op == "pick" and node.choice:
        chosen_from = composition.nodes[node.parents[0] - 1].relation
        return len(set(source.column(chosen_from.table, node.choice.field)))
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
