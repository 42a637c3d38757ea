"""One good goal of each sort in a world of a library, to be spoiled by tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from astra.llm.protocol import ModelConfig
from astra.records.qa import QuestionKind, Split
from astra.records.world import (
    GoalOutcome,
    GoalTrait,
    OutcomeKind,
    TraceEvent,
    World,
    WorldGoal,
    WorldShape,
)
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.protocol import Sandbox
from astra.worlds.domain import load_domains
from astra.worlds.executions import Executions
from astra.worlds.generator import generate
from astra.worlds.goal_config import GoalsConfig, WordingsBy
from astra.worlds.goal_proofs import GoalProof
from astra.worlds.goals import GoalMaker, GoalPlan
from astra.worlds.program import NoProgram
from astra.worlds.view import WorldView
from astra.worlds.wishes import draw_wishes

Q, T = QuestionKind, GoalTrait
DECLINED = OutcomeKind.DECLINED
CONFIG = GoalsConfig(
    seed=0, instances={Split.TRAIN: 40}, agreed=0.5, successive=0.5, wishes=3, draws=60, attempts=8,
    kinds={Q.WRITE: 0.4, Q.MIXED: 0.15, Q.READ_ONLY: 0.1, Q.FORBIDDEN: 0.12, Q.INFEASIBLE: 0.05,
           Q.ALREADY_SATISFIED: 0.03, Q.MISSING_PARAMETER: 0.07, Q.MISSING_TOOL: 0.08},
    traits={T.IMPLICIT: 0.5, T.CHOICE: 0.2, T.CHANGES_MIND: 0.15, T.MULTI: 0.35, T.LATE_TOOL: 0.5},
    wordings=WordingsBy.RULES, teacher=ModelConfig(backend="offline", model="rules"),
    search_depth=2, search_calls=10, sandbox=SandboxLimits(cpu_s=60),
)  # fmt: skip
Sorts = dict[str, tuple[QuestionKind, frozenset[GoalTrait], Callable[[WorldGoal], bool]]]


def _has(event: str) -> Callable[[WorldGoal], bool]:
    return lambda goal: any(one.act == event for one in goal.trace)


def _gives_values_twice(goal: WorldGoal) -> bool:
    """Whether a further wish discloses something, and the first one a value that is no key."""
    further = any(event.act == "request" and event.facts for event in goal.trace)
    return further and any(not name.endswith("_id") for name in goal.asks[0].arguments)


SORTS: Sorts = {
    "write": (Q.WRITE, frozenset({T.IMPLICIT}), lambda g: bool(g.references) and _has("confirm")(g)
              and g.trace[0].act == "opening"),
    "mixed": (Q.MIXED, frozenset(), lambda g: bool(g.say)),
    "read": (Q.READ_ONLY, frozenset(), lambda g: len(g.say) == 1),
    "forbidden": (Q.FORBIDDEN, frozenset(), lambda g: True),
    "refused": (Q.INFEASIBLE, frozenset(), lambda g: g.outcome.reason == "not_found"),
    "topic": (Q.INFEASIBLE, frozenset(), lambda g: g.outcome.kind == "handed_over"),
    "satisfied": (Q.ALREADY_SATISFIED, frozenset(), lambda g: True),
    "missing": (Q.MISSING_PARAMETER, frozenset(), lambda g: True),
    "choice": (Q.WRITE, frozenset({T.CHOICE}), lambda g: bool(g.candidates)),
    "changes": (Q.WRITE, frozenset({T.CHANGES_MIND}), lambda g: T.CHANGES_MIND in g.traits),
    "late": (Q.MISSING_TOOL, frozenset({T.LATE_TOOL}), lambda g: T.LATE_TOOL in g.traits),
    "not_offered": (Q.MISSING_TOOL, frozenset(), lambda g: True),
    "successive": (Q.WRITE, frozenset({T.MULTI}), _gives_values_twice),
    "questions": (Q.READ_ONLY, frozenset({T.MULTI}), _has("request")),
}  # fmt: skip


class Shelf:
    """A world, what executes in it, and goals by sort."""

    def __init__(self, world: World, executions: Executions) -> None:
        self.world, self.executions = world, executions
        self.view = WorldView(world)
        self.pool = draw_wishes(self.view, executions, CONFIG.draws, random.Random(1))
        self.maker = GoalMaker(self.view, executions, self.pool)
        self.goals = {name: self._first(*sort) for name, sort in SORTS.items()}

    def reasons(self, goal: WorldGoal) -> list[str]:
        return [fault.reason for fault in self._proof(goal).faults()]

    def _proof(self, goal: WorldGoal) -> GoalProof:
        return GoalProof(self.view, self.executions, goal, CONFIG)

    def _first(
        self, kind: QuestionKind, traits: frozenset[GoalTrait], right: Callable[[WorldGoal], bool]
    ) -> WorldGoal:
        for seed in range(400):
            try:
                several = T.MULTI in traits
                plan = GoalPlan(kind, traits, False, 1 + several, successive=several)
                goal = self.maker.make(plan, random.Random(seed))
            except NoProgram:
                continue
            if right(goal) and self._proof(goal).fault() is None:
                return goal
        raise AssertionError(f"no {kind} with {traits}")


def library() -> World:
    return generate(load_domains()["library_loans"], 0, WorldShape.FULL, 0)


@contextmanager
def shelf_of(world: World, sandbox: Sandbox) -> Generator[Shelf]:
    with Executions(world, sandbox) as executions:
        yield Shelf(world, executions)


def changed_event(goal: WorldGoal, at: int, **fields: Any) -> WorldGoal:
    """The goal with an event that has other fields."""
    event = goal.trace[at].model_copy(update=fields)
    return other(goal, trace=(*goal.trace[:at], event, *goal.trace[at + 1 :]))


def other(goal: WorldGoal, **fields: Any) -> WorldGoal:
    return goal.model_copy(update=fields)


def place(goal: WorldGoal, right: Callable[[TraceEvent], bool]) -> int:
    """The last event that is so."""
    return max(at for at, event in enumerate(goal.trace) if right(event))


def with_argument(goal: WorldGoal, at: int, **arguments: Any) -> WorldGoal:
    return changed_event(goal, at, arguments={**goal.trace[at].arguments, **arguments})


def ends(goal: WorldGoal, kind: OutcomeKind, reason: str = "") -> WorldGoal:
    return other(goal, outcome=GoalOutcome(kind=kind, reason=reason))


def answer(goal: WorldGoal, value: Any) -> WorldGoal:
    say = goal.say[0]
    told = say.answer.model_copy(update={"value": value})
    return other(goal, say=(say.model_copy(update={"answer": told}), *goal.say[1:]))


def opening_adds(goal: WorldGoal, text: str) -> WorldGoal:
    return changed_event(goal, 0, text=f"{goal.trace[0].text} {text}")


def unknown_wish(goal: WorldGoal) -> WorldGoal:
    call = goal.wish[0]
    given = {name: "LN0000" if name == "loan_id" else value
             for name, value in call.arguments.items()}  # fmt: skip
    return other(goal, wish=(call.model_copy(update={"arguments": given}),))
