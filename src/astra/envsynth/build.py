"""Instances and environments to arenas: splits, merging, replay, self-check, distractors."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from astra.envsynth.config import EnvsMergedConfig
from astra.envsynth.merge import Plan, merge_all
from astra.envsynth.selfcheck import check_arenas
from astra.envsynth.splits import SplitGuard
from astra.envsynth.worlds import (
    Nodes,
    arena_state,
    expected_state,
    is_stateful,
    may_write,
    nodes_of,
)
from astra.llm.protocol import Teacher
from astra.records.base import canonical_json
from astra.records.environment import Arena, ArenaStep, ArenaTool, Environment
from astra.records.qa import QAInstance
from astra.records.score import Rejection
from astra.sandbox.protocol import Sandbox
from astra.stage import Progress


def group_environments(environments: Iterable[Environment]) -> dict[str, dict[int, Environment]]:
    """Environments by instance and sub-question."""
    grouped: dict[str, dict[int, Environment]] = {}
    for environment in environments:
        grouped.setdefault(environment.qa_id, {})[environment.sub_question_id] = environment
    return grouped


async def build_arenas(
    instances: Iterable[QAInstance],
    guard: SplitGuard,
    environments: Mapping[str, Mapping[int, Environment]],
    teacher: Teacher,
    sandbox: Sandbox,
    config: EnvsMergedConfig,
    concurrency: int,
    progress: Progress,
) -> tuple[list[Arena], list[Rejection], Counter[str]]:
    """Arenas without distractors yet, what was dropped, and counts of the merges.

    ``progress`` advances by instances, a batch at a time.
    """
    arenas: list[Arena] = []
    rejections: list[Rejection] = []
    counts: Counter[str] = Counter()
    source = iter(instances)
    while batch := list(itertools.islice(source, config.batch_instances)):
        plans: list[Plan] = []
        for instance in batch:
            planned = _plan(instance, guard, environments.get(instance.id, {}), config.nodes)
            if isinstance(planned, Plan):
                plans.append(planned)
            else:
                rejections.append(planned)
                progress.drop(planned.reason)
        counts += await merge_all(plans, teacher, sandbox, config, concurrency)
        built = [assemble(plan) for plan in plans]
        problems = check_arenas(built, sandbox)
        for arena, problem in zip(built, problems, strict=True):
            if problem is None:
                arenas.append(arena)
                progress.advance()
            else:
                progress.drop(problem[0])
                rejections.append(Rejection(item=arena.qa_id, reason=problem[0], detail=problem[1]))
    return arenas, rejections, counts


def _plan(
    instance: QAInstance,
    guard: SplitGuard,
    environments: Mapping[int, Environment],
    nodes: Nodes,
) -> Plan | Rejection:
    violation = guard.violation(instance)
    if violation is not None:
        return violation
    needed = {item.id for item in nodes_of(instance, nodes)}
    missing = sorted(needed - set(environments))
    if missing:
        detail = f"sub-questions {missing} have no environment"
        return Rejection(item=instance.id, reason="missing_environment", detail=detail)
    if not needed:
        return Rejection(item=instance.id, reason="no_tool_needed")
    return Plan(instance, {number: environments[number] for number in sorted(needed)})


def assemble(plan: Plan) -> Arena:
    """The arena of a plan whose tools are merged."""
    instance = plan.instance
    served = {number: made for made in plan.tools for number in made.calls}
    called = {one.id for one in instance.sub_questions if one.id in served and one.bar is None}
    state = _state(plan)
    steps = tuple(
        ArenaStep(
            id=question.id,
            hop_level=question.hop_level,
            question=question.question,
            answer=question.answer,
            dependencies=question.dependencies,
            tool_name=served[question.id].tool.name if question.id in called else None,
            arguments=served[question.id].calls[question.id] if question.id in called else {},
        )
        for question in instance.sub_questions
    )
    return Arena(
        qa_id=instance.id,
        split=instance.split,
        domain=instance.domain,
        language=instance.language,
        source=instance.source,
        kind=instance.kind,
        scenario=instance.scenario,
        hops=max(step.hop_level for step in steps),
        main_question=instance.main_question,
        final_answer=instance.final_answer,
        tools=tuple(ArenaTool(tool=made.tool, code=made.code) for made in plan.tools),
        steps=steps,
        state=state,
        expected_state=canonical_json(expected_state(instance)) if state else "",
        entities=instance.entities,
        composition=instance.composition,
        prompt_hash=plan.notes.prompt_hash,
    )


def _state(plan: Plan) -> str:
    """The arena's world as JSON; empty where no tool is stateful."""
    instance = plan.instance
    questions = {question.id: question for question in instance.sub_questions}
    writes: dict[str, set[str]] = {}
    for made in plan.tools:
        served = [questions[number] for number in made.calls]
        if any(is_stateful(instance, question) for question in served):
            writes[made.tool.name] = {table for one in served for table in may_write(one)}
    if not writes:
        return ""
    allowed = {name: sorted(tables) for name, tables in writes.items()}
    return canonical_json(arena_state(instance, allowed).model_dump(mode="json"))


def histograms(arenas: Sequence[Arena]) -> Iterator[tuple[str, Iterable[object]]]:
    """The distributions that the paper's appendix reports, by name."""
    yield "scenario", (arena.scenario.value for arena in arenas)
    yield "split", (arena.split.value for arena in arenas)
    yield "domain", (arena.domain for arena in arenas)
    yield "language", (arena.language for arena in arenas)
    yield "hops", (arena.hops for arena in arenas)
    yield "calls", (sum(s.tool_name is not None for s in arena.steps) for arena in arenas)
    yield "tools", (len(arena.tools) for arena in arenas)
    yield "sub_questions", (len(arena.steps) for arena in arenas)
    for band in ("high", "medium", "low"):
        yield (
            f"irrelevant_{band}",
            (sum(len(t) for b, t in arena.irrelevant.items() if b == band) for arena in arenas),
        )
