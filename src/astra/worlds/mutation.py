"""Whether a goal's checker rejects every wrong way and accepts every right one.

A variant that is accepted and ends where the goal does, in the same words and with the same reads,
is no mutant: of M2 it shows an idle write, of M8 a change of mind that changes nothing, of the
others it is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from astra.arena.cells import cells_seen
from astra.arena.state import row_line
from astra.arena.verdict import judge
from astra.records.base import canonical_json
from astra.records.state import Tables
from astra.records.world import OUTCOMES, EventKind, TraceEvent
from astra.worlds.executions import Executed
from astra.worlds.mutants import Mutants
from astra.worlds.right_ways import RightWays
from astra.worlds.variants import ExecutedGoal, Variant

_IDLE = {"M2": "idle_write", "M8": "idle_change"}
"""Classes of which every variant has to be a mutant, with the reason for dropping the goal."""


@dataclass
class MutantCounts:
    """What came of the variants of some goals, by class."""

    rejected: Counter[str] = field(default_factory=Counter[str])
    accepted: Counter[str] = field(default_factory=Counter[str])
    """Mutants that the checker took for right."""
    idle: Counter[str] = field(default_factory=Counter[str])
    """Variants that are none."""
    right: Counter[str] = field(default_factory=Counter[str])
    """Right ways that were accepted."""
    wrong: Counter[str] = field(default_factory=Counter[str])
    """Right ways that were rejected."""

    def add(self, other: MutantCounts) -> None:
        """Add what came of other goals."""
        for name in ("rejected", "accepted", "idle", "right", "wrong"):
            getattr(self, name).update(getattr(other, name))


def mutant_fault(mutants: Mutants, counts: MutantCounts) -> str:
    """The code of the first mutant that is accepted or right way that is rejected; empty where
    there is none. Adds what came of all of them to ``counts``."""
    found = ""
    for mutant in mutants.all():
        run, tables, success = _judged(mutants, mutant)
        if (success or mutant.name in _IDLE) and _same(mutants, run, tables):
            counts.idle[mutant.name] += 1
            found = found or _IDLE.get(mutant.name, "")
        elif success:
            counts.accepted[mutant.name] += 1
            found = found or f"mutant_{mutant.name}"
        else:
            counts.rejected[mutant.name] += 1
    ways = RightWays(mutants.view, mutants.executions, mutants.pool, mutants.goal)
    for way in ways.all():
        success = _judged(ways, way)[2]
        (counts.right if success else counts.wrong)[way.name] += 1
        found = found or ("" if success else f"right_{way.name}")
    return found


def _judged(goal: ExecutedGoal, variant: Variant) -> tuple[Executed, Tables, bool]:
    """A variant executed, the rows that are judged, and whether it succeeds."""
    run = goal.executions.run(variant.trace, goal.goal.withheld)
    tables = variant.spoil(run.tables) if variant.spoil else run.tables
    return run, tables, judge(goal.view.world, goal.goal, run.trace, tables).success


def _same(goal: ExecutedGoal, run: Executed, tables: Tables) -> bool:
    seen = {*cells_seen(goal.view.world, goal.run.trace)}
    return (
        _lines(tables) == _lines(goal.run.tables)
        and _said(run.trace) == _said(goal.run.trace)
        and seen <= {*cells_seen(goal.view.world, run.trace)}
    )


def _lines(tables: Tables) -> dict[str, Counter[str]]:
    return {
        name: Counter(row_line(row, {}) for row in rows)
        for name, rows in tables.items() if name != OUTCOMES
    } | {OUTCOMES: Counter(canonical_json(
        [row.get("outcome"), row.get("reason")]) for row in tables.get(OUTCOMES, ()))}  # fmt: skip


def _said(trace: Sequence[TraceEvent]) -> list[str]:
    return [event.text for event in trace if event.kind == EventKind.ASSISTANT]
