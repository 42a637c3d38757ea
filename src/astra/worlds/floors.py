"""What agents reach that do not read what the user wants: the floors beside every score of goals.

They are played as traces: whoever never speaks or calls, declines or hands over everything with the
code that is right most often, or takes the first row that the words fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from astra.arena.verdict import judge
from astra.records.world import EventKind, GoalTrait, OutcomeKind, TraceEvent, World, WorldGoal
from astra.worlds.executions import Executions
from astra.worlds.variants import call_of, with_arguments
from astra.worlds.view import WorldView


class Floor(NamedTuple):
    """How many of some goals a policy reached."""

    reached: int
    goals: int

    @property
    def share(self) -> float:
        return self.reached / self.goals if self.goals else 0.0


def best_codes(goals: Iterable[WorldGoal]) -> dict[OutcomeKind, str]:
    """The code that most declined, and most handed over, goals end with."""
    counts: dict[OutcomeKind, Counter[str]] = {}
    for goal in goals:
        counts.setdefault(goal.outcome.kind, Counter())[goal.outcome.reason] += 1
    return {kind: min(one, key=lambda code: (-one[code], code)) for kind, one in counts.items()}


def mute(goal: WorldGoal) -> tuple[TraceEvent, ...]:
    """The user alone."""
    return tuple(event for event in goal.trace if event.kind == EventKind.USER)


def declining(view: WorldView, goal: WorldGoal, code: str) -> tuple[TraceEvent, ...]:
    """Declines with one code at once."""
    return (*mute(goal)[:1], call_of(view.decline.tool.name, {"reason": code}))


def handing_over(view: WorldView, goal: WorldGoal, code: str) -> tuple[TraceEvent, ...]:
    """Hands over with one code at once."""
    names = view.required(view.hand_over.tool.name)
    return (*mute(goal)[:1], call_of(view.hand_over.tool.name, dict.fromkeys(names, code)))


def first_candidate(view: WorldView, goal: WorldGoal) -> tuple[TraceEvent, ...]:
    """The goal's own program, with the first of the rows that the words fit in place of the one
    that is meant."""
    if not goal.candidates:
        return goal.trace
    meant = goal.candidates[0]
    table = next(one for one in view.tables.values()
                 if any(r.table == one.name and r.key == meant.get(one.key)
                        for r in goal.references))  # fmt: skip
    first = min(row[table.key] for row in goal.candidates)
    return tuple(
        with_arguments(event, {name: first if value == meant[table.key] else value
                               for name, value in event.arguments.items()})
        if event.kind == EventKind.CALL else event
        for event in goal.trace
    )  # fmt: skip


def world_floors(
    world: World, goals: Sequence[WorldGoal], executions: Executions, codes: dict[OutcomeKind, str]
) -> dict[str, Floor]:
    """The floors over one world's goals; ``first_candidate`` over those that leave a choice."""
    view, reached, tried = WorldView(world), Counter[str](), Counter[str]()
    for goal in goals:
        played = {
            "mute": mute(goal),
            "always_decline": declining(view, goal, codes.get(OutcomeKind.DECLINED, "not_found")),
            "always_hand_over": handing_over(
                view, goal, codes.get(OutcomeKind.HANDED_OVER, "complaint")
            ),
        }
        if GoalTrait.CHOICE in goal.traits:
            played["first_candidate"] = first_candidate(view, goal)
        for name, trace in played.items():
            run = executions.run(trace, goal.withheld)
            tried[name] += 1
            reached[name] += judge(world, goal, run.trace, run.tables).success
    return {name: Floor(reached[name], tried[name]) for name in tried}
