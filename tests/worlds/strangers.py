"""Worlds and goals of several sorts, drawn when they are asked for, to be spoiled by tests."""

from __future__ import annotations

import random
from contextlib import ExitStack
from functools import cache
from typing import Any

from goal_samples import CONFIG, SORTS, Shelf

from astra.records.qa import QuestionKind
from astra.records.state import WriteAction
from astra.records.world import GoalTrait, World, WorldGoal, WorldShape
from astra.sandbox.protocol import Sandbox
from astra.worlds.domain import load_domains
from astra.worlds.executions import Executions
from astra.worlds.generator import generate
from astra.worlds.goal_proofs import GoalProof
from astra.worlds.goals import GoalMaker
from astra.worlds.mutants import Mutants
from astra.worlds.mutation import MutantCounts, mutant_fault
from astra.worlds.undoing import undoings
from astra.worlds.view import WorldView
from astra.worlds.wishes import draw_wishes

Q = QuestionKind
MORE = {
    "paid": (Q.WRITE, frozenset[GoalTrait](), lambda g: any(
        w.table == "receipts" and w.action is WriteAction.INSERT for w in g.effect)),
    "told": (Q.MIXED, frozenset[GoalTrait](), lambda g: bool(g.say) and any(
        s.read[0].column in w.values for s in g.say for w in g.effect
        if w.action is WriteAction.UPDATE)),
    "long": (Q.FORBIDDEN, frozenset[GoalTrait](), lambda g: g.violates == "extend_length"),
    # A reason is stored nowhere, so another one changes nothing.
    "other_reason": (Q.WRITE, frozenset({GoalTrait.CHANGES_MIND}), lambda g: "reason" in
                     g.wish[0].arguments),
}  # fmt: skip


class Drawer(Shelf):
    """A shelf that draws a goal when it is asked for."""

    def __init__(self, world: World, executions: Executions) -> None:
        self.world, self.executions, self.view = world, executions, WorldView(world)
        self.pool = draw_wishes(self.view, executions, CONFIG.draws, random.Random(1))
        self.undone = undoings(self.view, executions, self.pool)
        self.maker = GoalMaker(self.view, executions, self.pool)
        self.goals: dict[str, WorldGoal] = {}

    def goal(self, sort: str) -> WorldGoal:
        if sort not in self.goals:
            self.goals[sort] = self._first(*{**SORTS, **MORE}[sort])
        return self.goals[sort]

    def fault(self, goal: WorldGoal) -> str:
        """Why a goal is dropped."""
        found = GoalProof(self.view, self.executions, goal, CONFIG).fault()
        if found is not None:
            return found.reason
        mutants = Mutants(self.view, self.executions, self.pool, goal, self.undone)
        return mutant_fault(mutants, MutantCounts())


def drawer(world: World, sandbox: Sandbox, stack: ExitStack) -> Drawer:
    return Drawer(world, stack.enter_context(Executions(world, sandbox)))


LIBRARY = ("library_loans", WorldShape.FULL)
MUSEUM = ("museum_ticketing", WorldShape.FULL)
PERMITS = ("municipal_permits", WorldShape.SMALL)
GYM = ("gym_classes", WorldShape.FULL)
Base = tuple[str, WorldShape]


@cache
def base(of: Base) -> World:
    return generate(load_domains()[of[0]], 0, of[1], 0)


def owner(world: World, goal: WorldGoal) -> str:
    return next(e.arguments["member_id"] for e in goal.trace if "member_id" in e.arguments)


def loan(world: World, goal: WorldGoal, **cells: Any) -> str:
    """A loan of the goal's party, with these cells."""
    wanted = {"member_id": owner(world, goal), **cells}
    return next(row["loan_id"] for row in world.rows["loans"]
                if all(row[key] == value for key, value in wanted.items()))  # fmt: skip
