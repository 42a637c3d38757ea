"""Stage ``qa``: plans -> asks -> decomposed questions that pass the rule checks.

Counted drops: ``no_plan`` (no question could be made), ``teacher`` (no answer), ``off_outline``
(the reply answers another question than the one asked), and every reason of rules.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import lru_cache
from math import prod
from typing import Any

from astra.llm.pool import map_bounded
from astra.llm.protocol import Ask, ParseError, ProviderError, Teacher
from astra.prompting import template_hash
from astra.qa.config import QAConfig, SourceName
from astra.qa.plan import Plan, Planner
from astra.qa.replies import Decomposition
from astra.qa.rules import check
from astra.qa.schema import Relation, Source
from astra.qa.shapes import Composition
from astra.qa.sources import build_sources, shared_entities
from astra.records.qa import (
    Answer,
    QAInstance,
    QuestionKind,
    Scenario,
    Split,
    SubQuestion,
)
from astra.records.score import Rejection

TEMPLATE = "qa/decompose"
Outcome = QAInstance | Rejection


class Generator:
    """All splits of a configuration. Building it loads the knowledge and enumerates shapes."""

    def __init__(self, config: QAConfig) -> None:
        self._config = config
        sources: dict[Split, dict[SourceName, tuple[Source, ...]]] = {
            split: build_sources(config, split)
            for split in Split
            if config.instances.get(split, 0) > 0
        }
        shared = shared_entities(sources)
        if shared:
            raise AssertionError(f"splits share entity names: {sorted(shared)[:5]}")
        self._planners = {split: Planner(config, split, found) for split, found in sources.items()}
        self._names = {
            split: frozenset().union(
                *(
                    source.entities_in(tuple(source.tables.values()))
                    for variants in found.values()
                    for source in variants
                )
            )
            for split, found in sources.items()
        }

    def composition_counts(self) -> dict[str, int]:
        """Compositions that each split owns within the hop budget."""
        return {split.value: p.composition_count() for split, p in self._planners.items()}

    def total(self) -> int:
        return sum(sum(planner.quota().values()) for planner in self._planners.values())

    async def run(self, teacher: Teacher, concurrency: int) -> AsyncIterator[Outcome]:
        """One outcome per wanted instance, in a fixed order."""

        async def work(item: tuple[Split, Plan | Scenario]) -> Outcome:
            split, plan = item
            if isinstance(plan, Scenario):
                return Rejection(item=f"{split}/{plan}", reason="no_plan")
            return await self._decompose(split, plan, teacher)

        async for outcome in map_bounded(self._plans(), work, concurrency):
            yield outcome

    def _plans(self) -> Iterator[tuple[Split, Plan | Scenario]]:
        for split, planner in self._planners.items():
            for plan in planner.plans():
                yield split, plan

    async def _decompose(self, split: Split, plan: Plan, teacher: Teacher) -> Outcome:
        item = f"{split}/{plan.composition.signature}/{', '.join(plan.names)}"
        ask = Ask(TEMPLATE, ask_variables(plan, self._config.languages[0]), Decomposition)
        try:
            reply = await teacher.ask(ask)
        except (ProviderError, ParseError) as error:
            return Rejection(item=item, reason="teacher", detail=str(error))
        stated = tuple(step.operation for step in reply.sub_questions)
        if stated != plan.operations or reply.scenario is not plan.composition.scenario:
            return Rejection(
                item=item, reason="off_outline", detail=f"asked {plan.operations}, got {stated}"
            )
        instance = build_instance(plan, reply, split, self._config.languages[0])
        allowed = {hops for hops, weight in self._config.hops.items() if weight > 0}
        problem = check(instance, allowed, self._names[split])
        if problem is not None:
            return Rejection(item=item, reason=problem[0], detail=problem[1])
        return instance


def ask_variables(plan: Plan, language: str) -> dict[str, Any]:
    """What the teacher is told: the outline's steps, the names, and the knowledge excerpt."""
    made = plan.composition
    steps: list[dict[str, Any]] = []
    for number, node in enumerate(made.nodes, start=1):
        operation, relation = plan.operations[number - 1], node.relation
        steps.append(
            {
                "id": number,
                "hop_level": made.levels[number - 1],
                "parents": list(node.parents),
                "start": node.start,
                "phrase": relation.phrase,
                "literal": plan.literals[number - 1],
                "answer_type": relation.answer_type.value,
                **operation.model_dump(mode="json"),
            }
        )
    return {
        "domain": made.domain,
        "language": language,
        "scenario": made.scenario.value,
        "hops": made.hops,
        "form": made.form,
        "final": made.final,
        "names": list(plan.names),
        "steps": steps,
        "tables": [table.model_dump(mode="json") for table in plan.tables],
    }


def build_instance(plan: Plan, reply: Decomposition, split: Split, language: str) -> QAInstance:
    """The record: what the reply says, with what only the source knows (domains, entities)."""
    made = plan.composition
    steps = tuple(
        step.model_copy(
            update={
                "answer": _completed(
                    step.answer,
                    domain_size(plan.source, node.relation, made),
                    ordered=node.relation.op != "list",
                )
            }
        )
        for step, node in zip(reply.sub_questions, made.nodes, strict=True)
    )
    return QAInstance(
        split=split,
        domain=made.domain,
        language=language,
        source=plan.source.name,
        kind=QuestionKind.READ_ONLY,
        scenario=reply.scenario,
        main_question=reply.main_question,
        final_answer=_final(reply.final_answer, steps),
        sub_questions=steps,
        knowledge=plan.tables,
        entities=tuple(sorted(plan.source.entities_in(plan.tables) | set(plan.names))),
        composition=made.signature,
        prompt_hash=template_hash(TEMPLATE),
    )


def _completed(answer: Answer, size: int | None, ordered: bool) -> Answer:
    return answer.model_copy(update={"domain_size": size, "ordered": ordered})


def _final(answer: Answer, steps: tuple[SubQuestion, ...]) -> Answer:
    """Several answers come in the question's order; the only one keeps its own freedom."""
    used = {dependency for step in steps for dependency in step.dependencies}
    last = [step.answer for step in steps if step.id not in used]
    known = [end.domain_size for end in last if end.domain_size is not None]
    size = prod(known) if len(known) == len(last) else None
    return _completed(answer, size, ordered=len(last) > 1 or last[0].ordered)


def domain_size(source: Source, relation: Relation, made: Composition) -> int | None:
    """How many answers the relation has in the whole source, where that can be counted."""
    if relation.op in ("greater", "less"):
        return len(made.starts)
    if not relation.table or relation.op == "convert":
        return None
    return _distinct(_Key(source, relation))


class _Key:
    """A source and relation as a cache key: by the source's identity, tables being large."""

    def __init__(self, source: Source, relation: Relation) -> None:
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
    if relation.op == "list":
        return len(set(keys))
    if relation.op in ("sum", "mean", "max", "min"):
        return len(set(keys))
    return len(set(source.column(relation.table, relation.select.partition(":")[0])))


def describe(instance: QAInstance) -> Mapping[str, object]:
    """What the stages plot."""
    return {
        "split": instance.split,
        "scenario": instance.scenario,
        "hops": max(step.hop_level for step in instance.sub_questions),
        "sub_questions": len(instance.sub_questions),
        "domain": instance.domain,
        "source": instance.source,
        "language": instance.language,
        "final_answer_type": instance.final_answer.type,
    }
