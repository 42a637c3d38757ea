"""The flow of stage ``goals``: each world's goals are drawn, proved, mutated, and become arenas.

Rejections name a goal by split and number: those of the proofs (``goal_proofs.py``), of draws that
lead to no program (``goals.py``), those of the user's script (``script_proofs.py``),
``not_solvable_with_user``, ``mutant_<id>``, ``right_<id>``, ``idle_write`` and ``duplicate_goal``.
A wording of a teacher that does not pass names the goal's arena and the turn (``wording_<fault>``).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import NamedTuple

from astra.arena.user import ScriptedUser
from astra.arena.user_expert import converse
from astra.llm.pool import flow
from astra.llm.protocol import Teacher
from astra.records.base import canonical_json, compact_json, content_id
from astra.records.environment import Arena
from astra.records.qa import Answer, AnswerType, Scenario
from astra.records.score import Rejection
from astra.records.state import Tables
from astra.records.world import EventKind, GoalTrait, TraceEvent, World, WorldGoal, WorldShape
from astra.sandbox.protocol import Sandbox
from astra.store.metrics import StageMetrics
from astra.worlds.executions import Executions
from astra.worlds.goal_config import GoalsConfig, WordingsBy
from astra.worlds.goal_plans import WorldPlan
from astra.worlds.goal_proofs import GoalProof
from astra.worlds.goals import GoalMaker, GoalPlan
from astra.worlds.mutants import Mutants
from astra.worlds.mutation import MutantCounts, mutant_fault
from astra.worlds.program import NoProgram
from astra.worlds.script_proofs import script_faults
from astra.worlds.undoing import undoings
from astra.worlds.view import WorldView
from astra.worlds.wishes import draw_wishes
from astra.worlds.wordings import with_taught_words


class MadeGoals(NamedTuple):
    """What came of one world's goals."""

    outcomes: list[Arena | Rejection]
    counts: MutantCounts
    calls: int
    """Calls that were made in the sandbox."""


async def goal_arenas(
    planned: list[WorldPlan], teacher: Teacher, sandbox: Sandbox, config: GoalsConfig,
    open_items: int, metrics: StageMetrics,
) -> AsyncGenerator[Arena | Rejection, None]:  # fmt: skip
    """What comes of each planned goal, in the plans' order. Counts every class of mutants, and the
    turns of users that a teacher worded or that keep the words of rules."""

    async def work(plan: WorldPlan) -> list[MadeGoals]:
        made = await asyncio.to_thread(make_goals, plan, sandbox, config)
        if config.wordings is not WordingsBy.TEACHER:
            return [made]
        view = WorldView(plan.world)
        told = [_worded(view, one, teacher, metrics) for one in made.outcomes]
        outcomes = [one for several in await asyncio.gather(*told) for one in several]
        return [made._replace(outcomes=outcomes)]

    async for made in flow(planned, work, open_items):
        metrics.count("executed_calls", made.calls)
        for name in ("rejected", "accepted", "idle"):
            for mutant, number in sorted(getattr(made.counts, name).items()):
                metrics.count(f"mutants_{name}", number)
                metrics.count(f"mutants_{name}_{mutant}", number)
        for name in ("right", "wrong"):
            for way, number in sorted(getattr(made.counts, name).items()):
                metrics.count(f"ways_{name}_{way}", number)
        for outcome in made.outcomes:
            if isinstance(outcome, Arena) or outcome.final:
                metrics.count("in")
            yield outcome


async def _worded(
    view: WorldView, outcome: Arena | Rejection, teacher: Teacher, metrics: StageMetrics
) -> list[Arena | Rejection]:
    """An arena whose user has the words of a teacher, after those words that were refused."""
    if not isinstance(outcome, Arena):
        return [outcome]
    told = await with_taught_words(view, WorldGoal.model_validate_json(outcome.goal), teacher)
    metrics.count("wordings_taught", told.taught)
    metrics.count("wordings_kept_rules", told.kept)
    arena = arena_of(view.world, told.goal, told.prompt_hash)
    refused = [
        Rejection(item=arena.id, part=one.turn, reason=one.reason, detail=one.text, final=False)
        for one in told.refused
    ]
    return [*refused, arena]


def make_goals(plan: WorldPlan, sandbox: Sandbox, config: GoalsConfig) -> MadeGoals:
    """The goals of one world. Raises SandboxError where no session is to be had."""
    if not plan.goals:
        return MadeGoals([], MutantCounts(), 0)
    with Executions(plan.world, sandbox) as executions:
        workshop = _Workshop(plan.world, executions, config)
        outcomes = [one for number, asked in plan.goals for one in workshop.made(number, asked)]
        return MadeGoals(outcomes, workshop.counts, executions.executed)


class _Workshop:
    """What all goals of a world share."""

    def __init__(self, world: World, executions: Executions, config: GoalsConfig) -> None:
        self._world, self._executions, self._config = world, executions, config
        self._view = WorldView(world)
        rng = random.Random(int(content_id(["wishes", world.id, config.seed]), 16))
        self._pool = draw_wishes(self._view, executions, config.draws, rng)
        self._undone = undoings(self._view, executions, self._pool)
        self._maker = GoalMaker(self._view, executions, self._pool)
        self._known: set[str] = set()
        self.counts = MutantCounts()

    def made(self, number: int, plan: GoalPlan) -> Iterator[Arena | Rejection]:
        """The first draw that passes, after a rejection for each that did not."""
        for attempt in range(self._config.attempts):
            last = attempt == self._config.attempts - 1
            outcome = self._drawn(number, plan, attempt)
            if isinstance(outcome, Arena):
                yield outcome
                return
            reason, detail = outcome
            yield Rejection(
                item=f"{self._world.split}/{number}", part=f"{self._world.id} {plan.kind}",
                reason=reason, detail=detail, attempt=attempt, final=last,
            )  # fmt: skip

    def _drawn(self, number: int, plan: GoalPlan, attempt: int) -> Arena | tuple[str, str]:
        draw = ["goal", self._world.id, number, attempt, self._config.seed]
        try:
            goal = self._maker.make(plan, random.Random(int(content_id(draw), 16)))
        except NoProgram as error:
            return str(error), plan.kind.value
        said = goal.trace[0].text
        lacking = (plan.traits & _KEPT) - {*goal.traits}
        if lacking:
            return "trait_missing", f"{sorted(lacking)}: {said}"
        if fault := GoalProof(self._view, self._executions, goal, self._config).fault():
            return fault.reason, f"{fault.detail}: {said}"
        if fault := next(script_faults(self._view, goal), None):
            return fault.reason, f"{fault.detail}: {said}"
        if why := unsolved(self._world, goal, self._executions):
            return "not_solvable_with_user", f"{why}: {said}"
        counts = MutantCounts()
        mutants = Mutants(self._view, self._executions, self._pool, goal, self._undone)
        if wrong := mutant_fault(mutants, counts):
            return wrong, said
        fields = {"kind", "outcome", "effect", "say", "withheld"}
        told = goal.model_dump(mode="json", include=fields)
        meaning = canonical_json([told, [[call.tool, call.arguments] for call in goal.wish]])
        if meaning in self._known:
            return "duplicate_goal", said
        self._known.add(meaning)
        self.counts.add(counts)
        return arena_of(self._world, goal)


def unsolved(world: World, goal: WorldGoal, executions: Executions) -> str:
    """What keeps the goal's own trace from reaching it with its user; empty if nothing does."""

    def execute(events: Sequence[TraceEvent]) -> tuple[Sequence[TraceEvent], Tables]:
        return executions.run(events, goal.withheld)

    played = converse(world, goal, goal.trace, ScriptedUser(world, goal), execute)
    if played.success:
        return ""
    acts = [event.act for event in played.trace if event.kind == EventKind.USER]
    return f"{played.ends} after {[*map(str, acts)]}, {played.verdict.reasons}"


_KEPT = frozenset({GoalTrait.CHOICE, GoalTrait.CHANGES_MIND, GoalTrait.LATE_TOOL})


def arena_of(world: World, goal: WorldGoal, prompt_hash: str = "") -> Arena:
    """The arena of a goal: the world by its id, no tools and no rows."""
    text = compact_json(goal.model_dump(mode="json"))
    calls = [event.tool for event in goal.trace if event.kind == EventKind.CALL]
    several = GoalTrait.MULTI in goal.traits
    return Arena(
        qa_id=content_id([world.id, text]),
        split=world.split,
        domain=world.domain,
        language=world.language,
        source=f"{'service' if world.shape is WorldShape.SERVICE else 'worlds'}:{world.domain}",
        kind=goal.kind,
        scenario=Scenario.PARALLEL_MULTI_HOP if several else Scenario.MULTI_HOP,
        hops=max(1, len(dict.fromkeys(calls))),
        main_question=goal.trace[0].text,
        final_answer=Answer(type=AnswerType.ENUM, value=goal.outcome.kind.value),
        tools=(),
        steps=(),
        entities=(),
        composition=":".join(["goal", world.domain, goal.kind.value, *sorted(set(calls))]),
        world_id=world.id,
        goal=text,
        prompt_hash=prompt_hash,
    )


def measure(metrics: StageMetrics, arena: Arena) -> None:
    """Add one goal that leaves the stage."""
    goal = WorldGoal.model_validate_json(arena.goal)
    metrics.count("out")
    metrics.count(f"out_{arena.split}")
    metrics.count("needs_user", int(goal.needs_user))
    metrics.distribution("kind", [goal.kind])
    metrics.distribution("trait", goal.traits)
    metrics.distribution("outcome", [goal.outcome.reason or goal.outcome.kind])
    metrics.distribution("domain", [arena.domain])
    metrics.distribution("calls", [sum(e.kind == EventKind.CALL for e in goal.trace)])
    metrics.distribution("user_turns", [sum(e.kind == EventKind.USER for e in goal.trace)])
