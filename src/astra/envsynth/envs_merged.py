"""Instances and environments to arenas: splits, merging, replay, self-check, irrelevant tools.

Each instance goes its own way:

1. ``splits`` refuses it where its entities or its composition belong to another split.
2. ``merge`` has the teacher group its tools, and replays the gold calls on merged ones by way of
   ``verify``: the same proof as in stage ``envs``. An instance that keeps two tools for one
   operation is dropped.
3. ``assemble`` puts the arena together; ``selfcheck`` plays its reference and mutants of it, and
   the arena ships only if the reward tells them apart.

Finished arenas wait on disk. ``interpreter`` adds code-interpreter arenas, which need neither
teacher nor irrelevant tools. When the last arena is done, ``bands`` measures how similar the tools
of all arenas and servers are (high, medium or low: the bands) and draws each arena's irrelevant
tools from every band. An episode draws from those again (``arena/irrelevant.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from astra.arena.worlds import goal_of
from astra.embedding.protocol import Embedder
from astra.envsynth.bands import ToolPool, with_irrelevant
from astra.envsynth.batching import Batcher, drawn_in_thread
from astra.envsynth.candidates import CandidateTool
from astra.envsynth.envs_merged_config import EnvsMergedConfig, GoalsPassed
from astra.envsynth.interpreter.arenas import code_arenas
from astra.envsynth.merge import ArenaDraft, merge_tools, twin_tools
from astra.envsynth.proof import Proof
from astra.envsynth.selfcheck import check_arenas
from astra.envsynth.splits import SplitGuard
from astra.envsynth.static import Problem
from astra.envsynth.traits import traits_of
from astra.envsynth.verify import verify
from astra.envsynth.worlds import (
    Nodes,
    arena_state,
    expected_state,
    is_stateful,
    may_write,
    needing_tool,
)
from astra.llm.pool import sharded_flow
from astra.llm.protocol import Teacher
from astra.records.base import compact_json
from astra.records.environment import Arena, ArenaStep, ArenaTool, Band, Environment
from astra.records.qa import QAInstance, QuestionKind
from astra.records.score import Rejection
from astra.records.tool import ToolServer
from astra.sandbox.protocol import Sandbox
from astra.store.metrics import StageMetrics
from astra.store.shelf import Shelf

Outcome = Arena | Rejection
Check = Callable[[Arena], Awaitable[Problem | None]]


@dataclass(frozen=True)
class Inputs:
    """What arenas are made of; instances are read several times."""

    instances: Callable[[], Iterable[QAInstance]]
    environments: Callable[[str], Iterable[Environment]]
    """The environments of an instance, by its id."""
    servers: Callable[[], Iterable[ToolServer]]


async def arenas(
    inputs: Inputs,
    teacher: Teacher,
    embedder: Embedder,
    sandbox: Sandbox,
    config: EnvsMergedConfig,
    open_items: int,
    metrics: StageMetrics,
) -> AsyncGenerator[Outcome, None]:
    """An arena with its irrelevant tools or a rejection per instance, and code-interpreter arenas.

    Irrelevant tools come from all arenas, so arenas wait on disk until the last one is proved.
    """
    with Shelf(Arena, lambda arena: arena.id) as proved:
        outcomes = proved_arenas(inputs, teacher, sandbox, config, open_items, metrics)
        async with aclosing(outcomes):
            async for outcome in outcomes:
                if isinstance(outcome, Arena):
                    proved.add(outcome)
                else:
                    yield outcome
        interpreted = code_arenas(inputs.instances, config.code, sandbox, open_items, metrics)
        async with aclosing(interpreted):
            async for outcome in interpreted:
                yield outcome
        finished = drawn_in_thread(_finished(proved, inputs.servers(), embedder, config.per_band))
        async with aclosing(finished):
            async for arena in finished:
                yield arena


async def with_goals(
    outcomes: AsyncGenerator[Outcome, None], goals: Iterable[Arena], passed: GoalsPassed
) -> AsyncGenerator[Outcome, None]:
    """The outcomes, and then the arenas in worlds: all with their users, or those without that
    need none, or none."""
    async with aclosing(outcomes):
        async for outcome in outcomes:
            yield outcome
    if passed == GoalsPassed.NONE:
        return
    for arena in goals:
        if passed == GoalsPassed.TALKING:
            yield arena
        elif not goal_of(arena).needs_user:
            yield _alone(arena)


def _alone(arena: Arena) -> Arena:
    """An arena in a world without its user, of another id."""
    goal = goal_of(arena).model_copy(update={"script": None})
    fields: dict[str, Any] = {
        **dict(arena),
        "id": "",
        "goal": compact_json(goal.model_dump(mode="json")),
    }
    return Arena(**fields)


def _finished(
    proved: Shelf[Arena], servers: Iterable[ToolServer], embedder: Embedder, per_band: int
) -> Generator[Arena]:
    with ToolPool(proved, servers) as pool:
        yield from with_irrelevant(proved, pool, embedder, per_band)


async def proved_arenas(
    inputs: Inputs,
    teacher: Teacher,
    sandbox: Sandbox,
    config: EnvsMergedConfig,
    open_items: int,
    metrics: StageMetrics,
) -> AsyncGenerator[Outcome, None]:
    """The outcomes of each instance, in their order: failed merges, then its arena without
    irrelevant tools or the reason why there is none. Counts ``instances`` as they are done, and
    what became of groups.
    """
    guard = SplitGuard(inputs.instances())

    def proofs(candidates: Sequence[CandidateTool]) -> list[Proof]:
        return verify(candidates, sandbox, config.sandbox)

    def problems(assembled: Sequence[Arena]) -> list[Problem | None]:
        return check_arenas(assembled, sandbox)

    async def work(instance: QAInstance) -> list[Outcome]:
        environments = {
            environment.sub_question_id: environment
            for environment in inputs.environments(instance.id)
        }
        draft = _draft(instance, guard, environments, config.nodes)
        if isinstance(draft, Rejection):
            outcomes: list[Outcome] = [draft]
        else:
            await merge_tools(draft, teacher, verifier.do, config, metrics)
            outcomes = [*draft.tries, await _checked(draft, checker.do)]
        metrics.count("instances")
        return outcomes

    turn = asyncio.Lock()  # the sandbox serves one batch at a time
    async with (
        Batcher(proofs, config.verify_batch, turn) as verifier,
        Batcher(problems, config.verify_batch, turn) as checker,
        aclosing(sharded_flow(inputs.instances(), work, open_items)) as outcomes,
    ):
        async for outcome in outcomes:
            yield outcome


async def _checked(draft: ArenaDraft, check: Check) -> Outcome:
    problem = twin_tools(draft)
    if problem is None:
        arena = assemble(draft)
        problem = await check(arena)
        if problem is None:
            return arena
    return Rejection(item=draft.instance.id, reason=problem[0], detail=problem[1])


def _draft(
    instance: QAInstance,
    guard: SplitGuard,
    environments: Mapping[int, Environment],
    nodes: Nodes,
) -> ArenaDraft | Rejection:
    """The instance with its environments, or why no arena can come of it."""
    violation = guard.violation(instance)
    if violation is not None:
        return violation
    needed = {question.id for question in needing_tool(instance, nodes)}
    missing = sorted(needed - set(environments))
    if missing:
        detail = f"sub-questions {missing} have no environment"
        return Rejection(item=instance.id, reason="missing_environment", detail=detail)
    if not needed:
        return Rejection(item=instance.id, reason="no_tool_needed")
    return ArenaDraft(instance, {number: environments[number] for number in sorted(needed)})


def assemble(draft: ArenaDraft) -> Arena:
    """The arena of a draft whose tools are merged."""
    instance = draft.instance
    served = {number: merged for merged in draft.tools for number in merged.calls}
    # A barred step has a tool, but no reference calls it.
    called = {
        question.id
        for question in instance.sub_questions
        if question.id in served and question.bar is None
    }
    state = _state(draft)
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
    arena = Arena(
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
        tools=tuple(ArenaTool(tool=merged.tool, code=merged.code) for merged in draft.tools),
        steps=steps,
        state=state,
        expected_state=compact_json(expected_state(instance)) if state else "",
        entities=instance.entities,
        composition=instance.composition,
        prompt_hash=draft.notes.prompt_hash,
    )
    return arena.model_copy(update={"traits": traits_of(arena)})


def _state(draft: ArenaDraft) -> str:
    """The arena's world as JSON; empty where no tool is stateful."""
    instance = draft.instance
    questions = {question.id: question for question in instance.sub_questions}
    writes: dict[str, set[str]] = {}
    for merged in draft.tools:
        served = [questions[number] for number in merged.calls]
        if any(is_stateful(instance, question) for question in served):
            writes[merged.tool.name] = {
                table for question in served for table in may_write(question)
            }
    if not writes:
        return ""
    allowed = {name: sorted(tables) for name, tables in writes.items()}
    return compact_json(arena_state(instance, allowed).model_dump(mode="json"))


def measure(metrics: StageMetrics, arena: Arena) -> None:
    """Add one arena to the stage's counts and to the distributions of the paper's appendix."""
    if arena.kind == QuestionKind.CODE:
        metrics.count("code_arenas")
        metrics.distribution("code_composition", [arena.composition])
        metrics.distribution("code_split", [arena.split.value])
        return
    if arena.world_id:
        metrics.count("goal_arenas")
        return
    metrics.count("arenas")
    metrics.count("hard", int(arena.is_hard))
    for name, value in _figures(arena):
        metrics.distribution(name, [value])


def summarise(metrics: StageMetrics, embedder: Embedder) -> None:
    """Add the yield (arenas over instances), the share of hard arenas, and which embedder measured
    similarity."""
    for name in ("instances", "arenas", "hard"):
        metrics.count(name, 0)
    instances, made = metrics.counts["instances"], metrics.counts["arenas"]
    metrics.value("yield", round(made / instances, 4) if instances else 0.0)
    metrics.value("hard_share", round(metrics.counts["hard"] / made, 4) if made else 0.0)
    metrics.value("embedder", embedder.name)


def _figures(arena: Arena) -> Iterator[tuple[str, object]]:
    yield "scenario", arena.scenario.value
    yield "split", arena.split.value
    yield "domain", arena.domain
    yield "language", arena.language
    yield "hops", arena.hops
    yield "calls", len([step for step in arena.steps if step.tool_name is not None])
    yield "tools", len(arena.tools)
    yield "sub_questions", len(arena.steps)
    for trait in arena.traits or ("none",):
        yield f"traits_{arena.split}", trait
    for band in Band:
        yield f"irrelevant_{band}", len(arena.irrelevant.get(band, ()))
