"""Goals of worlds that are looked for by what they do, and how tests spoil them."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any

from goal_samples import CONFIG, Shelf, changed_event, other, place
from small_worlds import changed
from test_second_strangers_worlds import base

from astra.arena.effects import net_writes
from astra.records.qa import QuestionKind
from astra.records.state import Row
from astra.records.world import GoalTrait, World, WorldGoal
from astra.sandbox.protocol import Sandbox
from astra.worlds.executions import Executions
from astra.worlds.goals import GoalMaker, GoalPlan
from astra.worlds.mutants import Mutants
from astra.worlds.mutation import MutantCounts, mutant_fault
from astra.worlds.program import NoProgram
from astra.worlds.undoing import undoings
from astra.worlds.view import WorldView
from astra.worlds.wishes import draw_wishes

Q, T = QuestionKind, GoalTrait
Right = Callable[[WorldGoal], bool]


Spoil = Callable[["Bench", WorldGoal], WorldGoal]


class Bench(Shelf):
    """A world, what executes in it, and goals that are looked for as they are needed."""

    def __init__(self, world: World, executions: Executions) -> None:
        self.world, self.executions = world, executions
        self.view = WorldView(world)
        self.pool = draw_wishes(self.view, executions, CONFIG.draws, random.Random(1))
        self.maker = GoalMaker(self.view, executions, self.pool)
        self.undone = undoings(self.view, executions, self.pool)

    def find(self, kind: QuestionKind, *traits: GoalTrait, wishes: int = 1, right: Right = bool,
             proved: bool = True, spoil: Spoil | None = None) -> WorldGoal:  # fmt: skip
        """The first goal of a sort that is right and, where asked for, can be spoilt so."""
        for seed in range(300):
            try:
                plan = GoalPlan(kind, frozenset(traits), False, wishes)
                goal = self.maker.make(plan, random.Random(seed))
                if right(goal) and not (proved and self.rejected(goal)):
                    return spoil(self, goal) if spoil else goal
            except (NoProgram, StopIteration):
                continue
        raise AssertionError(f"no {kind} with {traits}")

    def rejected(self, goal: WorldGoal) -> str:
        """Why a goal is dropped: a fault of its proof, or a mutant that is judged wrongly."""
        if fault := self._proof(goal).fault():
            return fault.reason
        mutants = Mutants(self.view, self.executions, self.pool, goal, self.undone)
        return mutant_fault(mutants, MutantCounts())

    def effect(self, *writes: tuple[str, Row]) -> Any:
        return net_writes(self.view.world, writes)


Benches = Callable[[str], Bench]
Spoilt = Callable[[Benches], tuple[Bench, WorldGoal]]


@contextmanager
def benches(sandbox: Sandbox) -> Generator[Benches]:
    """Worlds by name, each made when it is first asked for."""
    made: dict[str, Bench] = {}
    with ExitStack() as stack:

        def of(name: str) -> Bench:
            if name not in made:
                world = WORLDS.get(name, lambda: base(name))()
                made[name] = Bench(world, stack.enter_context(Executions(world, sandbox)))
            return made[name]

        yield of


def alias(governed: bool) -> World:
    """The library with a second tool that withdraws loans, by the same rules or by none of them
    but those on who asks."""
    world = base("library")
    tool = next(one for one in world.tools if one.tool.name == "withdraw_loan")
    schema = tool.tool.parameters
    twin = tool.model_copy(update={
        "code": tool.code.replace("def withdraw_loan(world, loan_id, reason)",
                                  "def drop_loan(world, loan_id)"),
        "tool": tool.tool.model_copy(update={
            "name": "drop_loan", "description": "Take a loan off the books.",
            "parameters": {**schema, "required": ["loan_id"],
                           "properties": {"loan_id": schema["properties"]["loan_id"]}}}),
    })  # fmt: skip
    rules = tuple(
        rule.model_copy(update={"tools": (*rule.tools, "drop_loan")})
        if "withdraw_loan" in rule.tools and (governed or rule.id != "cancel_window") else rule
        for rule in world.rules
    )  # fmt: skip
    return changed(world, tools=(*world.tools, twin), rules=rules)


WORLDS: dict[str, Callable[[], World]] = {
    "alias": lambda: alias(False),
    "governed alias": lambda: alias(True),
}


def calls(goal: WorldGoal, name: str) -> bool:
    return any(event.tool == name for event in goal.trace)


def call(goal: WorldGoal, name: str) -> int:
    return place(goal, lambda event: event.tool == name)


def with_arguments(goal: WorldGoal, name: str, **new: Any) -> WorldGoal:
    at = call(goal, name)
    return changed_event(goal, at, arguments={**goal.trace[at].arguments, **new})


def reworded(goal: WorldGoal, old: str, new: str, *, meant: Row | None = None,
             **facts: Any) -> WorldGoal:  # fmt: skip
    """The goal in whose turns of the user, and in what these ask for, a piece of text is another.
    ``meant`` are arguments that the words amount to now."""
    assert any(old in event.text for event in goal.trace), goal.trace
    trace = tuple(
        event.model_copy(update={"text": event.text.replace(old, new),
                                 "facts": {**event.facts, **facts} if at == 0 else event.facts})
        if event.kind == "user" else event for at, event in enumerate(goal.trace)
    )  # fmt: skip
    asks = tuple(
        ask.model_copy(update={"text": ask.text.replace(old, new),
                               "arguments": {**ask.arguments, **(meant or {})}})
        for ask in goal.asks
    )  # fmt: skip
    return other(goal, trace=trace, asks=asks)


def on(
    name: str, kind: QuestionKind, spoil: Spoil, *traits: GoalTrait, judged: str = "", **sort: Any
) -> Spoilt:
    """The first goal of a sort that can be spoilt so."""

    def spoilt(bench: Benches) -> tuple[Bench, WorldGoal]:
        goal = bench(name).find(kind, *traits, spoil=spoil, **sort)
        return bench(judged or name), goal

    return spoilt


def uses(name: str) -> Right:
    return lambda goal: calls(goal, name)


def wishes_for(name: str) -> Right:
    return lambda goal: any(event.tool == name for event in goal.wish)


def party(here: Bench, goal: WorldGoal, table: str, key: str) -> list[Row]:
    """The rows of a table that belong to the party of the row with this key."""
    rows = here.world.rows[table]
    column = next(name for name in rows[0] if name.endswith("_id") and name != next(iter(rows[0])))
    owner = next(row[column] for row in rows if key in row.values())
    return [row for row in rows if row[column] == owner]
