"""How many goals would pay a wrong way if their checkers had a fault and nobody tried them?

    PYTHONPATH=src python benchmarks/checker_faults.py --goals data/goals.parquet [--count 200]

Takes goals of a table, makes the wrong ways M1 to M15 of each, as stage ``goals`` does, and asks
for the reasons of each verdict. A checker with a fault is one that gives not all of the reasons
(``FAULTS``): it pays every way to which nothing else is said. Counted are the goals of which at
least one wrong way would be paid: with the proof off, all of them would ship; with it, none. The
last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from astra.arena.verdict import judge
from astra.arena.world_table import read_arenas
from astra.arena.worlds import base_of, goal_of
from astra.records.base import content_id
from astra.records.environment import Arena
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.worlds.executions import Executions
from astra.worlds.mutants import Mutants
from astra.worlds.undoing import undoings
from astra.worlds.view import WorldView
from astra.worlds.wishes import draw_wishes

FAULTS: dict[str, tuple[str, ...]] = {
    "none": (),
    "rows that are too many do not count": ("state_extra",),
    "rows that are missing do not count": ("state_missing",),
    "rows are not looked at": ("state_extra", "state_missing", "table_missing", "table_unknown"),
    "outcomes are not looked at": ("outcome_missing", "outcome_wrong"),
    "what is said is not looked at": ("unsaid", "said_unread", "said_among_others"),
    "a value may be said before it is read": ("said_unread",),
    "a value may be said among others": ("said_among_others",),
    "reads are not asked for": ("unread", "said_unread"),
    "rules that no tool enforces do not count": ("rule",),
}
"""A fault by what it is, with the kinds of reasons that its checker never gives."""
DRAWS = 80
"""Calls of each tool that wishes are drawn from, as in conf/goals."""


def wrong_ways(arenas: Sequence[Arena]) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Goal, class and the kinds of reasons against each wrong way. A variant that ends as the
    goal does, and against which nothing is said, is none."""
    with LocalSandbox(SandboxLimits(cpu_s=600)) as sandbox:
        for _, group in groupby(arenas, key=lambda one: one.world_id):
            of_world = [*group]
            world = base_of(of_world[0]).world
            view = WorldView(world)
            rng = random.Random(int(content_id(["wishes", world.id, 0]), 16))
            with Executions(world, sandbox) as executions:
                pool = draw_wishes(view, executions, DRAWS, rng)
                undone = undoings(view, executions, pool)
                for arena in of_world:
                    goal = goal_of(arena)
                    mutants = Mutants(view, executions, pool, goal, undone)
                    for mutant in mutants.all():
                        run = executions.run(mutant.trace, goal.withheld)
                        rows = mutant.spoil(run.tables) if mutant.spoil else run.tables
                        said = judge(world, goal, run.trace, rows).reasons
                        if said:
                            kinds = frozenset(reason.partition(":")[0] for reason in said)
                            yield arena.id, mutant.name, kinds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--goals", type=Path, required=True)
    parser.add_argument("--count", type=int, default=200)
    arguments = parser.parse_args()
    drawn = sorted(read_arenas(arguments.goals), key=lambda one: content_id(["faults", one.id]))
    arenas = sorted(drawn[: arguments.count], key=lambda one: (one.world_id, one.id))
    ways = [*wrong_ways(arenas)]
    found: dict[str, dict[str, object]] = {}
    for fault, silent in FAULTS.items():
        paid: defaultdict[str, set[str]] = defaultdict(set)
        for arena, name, kinds in ways:
            if kinds <= {*silent}:
                paid[name].add(arena)
        classes = Counter({name: len(goals) for name, goals in paid.items()})
        found[fault] = {
            "goals_paying": len({arena for goals in paid.values() for arena in goals}),
            "goals_by_class": dict(sorted(classes.items(), key=lambda one: int(one[0][1:]))),
        }
    print(json.dumps({"goals": len(arenas), "ways": len(ways), "faults": found}))


if __name__ == "__main__":
    main()
