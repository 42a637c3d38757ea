"""BFCL multi-turn hosted as worlds: our verdicts beside the official checker's, turn by turn.

    make bench-env
    PYTHONPATH=src python benchmarks/worlds_bfcl.py --json [--category base] [--count N]
        [--differences FILE]

Every entry's solution is played as it is, with its last call left out, made twice or followed by a
call that nobody asked for, with a call a turn late, in another order, and not at all. Our verdict
by turn and on the whole must be the official checker's, and so must the reason. Where the two
differ, the difference is written to FILE, one JSON line each. The last line is one JSON object;
exits 1 if a verdict differs or a call ended in a way that neither side means.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

from hosted_suites import conclude, options, suite_run

from astra.arena.delta import WorldBase
from astra.arena.verdict import judge
from astra.arena.world_runner import CallEnd, WorldRunner
from astra.bench.harness.bfcl_world import (
    DRIVER,
    MISSES,
    BfclCall,
    BfclEntry,
    Turns,
    against_documents,
    missed,
    replays,
    turn_goal,
    unasked_call,
    world_of,
)
from astra.bench.harness.hosted import HostedDesk
from astra.records.world import World, WorldGoal
from astra.sandbox.protocol import Sandbox

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")


@dataclass
class Tally:
    """What was compared so far, and every difference."""

    entries: Counter[str] = field(default_factory=Counter[str])
    verdicts: Counter[str] = field(default_factory=Counter[str])
    """Equal verdicts on the whole, as ``category/replay/what both say``."""
    turns: Counter[str] = field(default_factory=Counter[str])
    """Equal verdicts by turn, as ``right`` or the reason that both give."""
    differences: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    ends: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])
    against_documents: list[str] = field(default_factory=list[str])


@dataclass
class Hosted:
    """An entry with its world and the runner in which it is played."""

    entry: BfclEntry
    world: World
    goals: tuple[WorldGoal | None, ...]
    runner: WorldRunner
    desk: HostedDesk
    tally: Tally


def hosted(desk: HostedDesk, entry_id: str, tally: Tally) -> Hosted:
    entry = BfclEntry.of(entry_id, desk.ask("start", entry=entry_id))
    tally.against_documents += against_documents(entry)
    base = WorldBase(world_of(entry))
    goals = tuple(turn_goal(entry, at) for at in range(len(entry.turns)))
    runner = WorldRunner(base, cast("Sandbox", desk))  # of a sandbox, a runner wants sessions alone
    return Hosted(entry, base.world, goals, runner, desk, tally)


def compare(one: Hosted) -> None:
    """Every replay of an entry, by our verdict and by theirs."""
    tool, arguments = unasked_call(one.entry)
    text = one.desk.ask("written", tool=tool, arguments=arguments)
    for name, turns in replays(one.entry, BfclCall(tool, arguments, text)):
        ours = first_miss(one, name, turns)
        told = one.desk.ask("verdict", turns=[[call.text for call in calls] for calls in turns])
        theirs = None if told["valid"] else (told["turn"], told["why"])
        count(one, name, ours, theirs)
    one.runner.close()


def first_miss(one: Hosted, name: str, turns: Turns) -> tuple[int, str] | None:
    """Play a replay; the first turn that our verdict does not accept, and why. As the official
    checker does, what comes after it is not played."""
    one.runner.reset()
    one.desk.ask("reset")
    for at, calls in enumerate(turns):
        one.desk.ask("turn", at=at)
        for call in calls:
            made = one.runner.call(call.tool, call.arguments)
            one.tally.ends[made.end] += 1
            if made.end != CallEnd.DONE:
                why = f"{one.entry.id} {name}: {call.text} {made.end}: {made.event.failed}"
                one.tally.faults.append(why)
        goal = one.goals[at]
        if goal is not None:
            why = missed(judge(one.world, goal, one.runner.trace, one.runner.tables))
            if why:
                return at, MISSES[why[0]]
    return None


def count(
    one: Hosted, name: str, ours: tuple[int, str] | None, theirs: tuple[int, str] | None
) -> None:
    if ours != theirs:
        found = {"entry": one.entry.id, "replay": name, "bfcl": theirs, "ours": ours}
        one.tally.differences.append(found)
        return
    what = "right" if ours is None else "wrong"
    one.tally.verdicts[f"{one.entry.category}/{name}/{what}"] += 1
    until = len(one.goals) if ours is None else ours[0]
    one.tally.turns["right"] += sum(goal is not None for goal in one.goals[:until])
    one.tally.turns["not looked at"] += sum(goal is None for goal in one.goals[:until])
    if ours is not None:
        one.tally.turns[ours[1].removeprefix("multi_turn:")] += 1


def summary(tally: Tally, cpu: float, seconds: float) -> dict[str, Any]:
    equal = sum(tally.verdicts.values())
    both = [many for name, many in tally.verdicts.items() if name.split("/")[1] in
            ("gold", "dropped")]  # fmt: skip
    return {
        "entries": dict(tally.entries),
        "verdicts": equal + len(tally.differences),
        "equal": equal,
        "gold_and_dropped_equal": sum(both),
        "by_replay": dict(sorted(tally.verdicts.items())),
        "turns": dict(tally.turns),
        "differences": len(tally.differences),
        "calls": dict(tally.ends),
        "faults": tally.faults,
        "against_documents": tally.against_documents,
        "cpu_seconds": round(cpu, 1),
        "seconds": round(seconds, 1),
    }


def main() -> None:
    wanted = options(__doc__, "category", CATEGORIES)
    tally = Tally()
    with suite_run(DRIVER, tally.faults) as run:
        ids: list[str] = run.desk.ask("entry_ids")
        for category in wanted.category or CATEGORIES:
            chosen = [one for one in ids if one.startswith(f"multi_turn_{category}_")]
            for entry_id in chosen[: wanted.count]:
                compare(hosted(run.desk, entry_id, tally))
                tally.entries[category] += 1
                verdicts, differ = sum(tally.verdicts.values()), len(tally.differences)
                run.progress(category, tally.entries[category], verdicts, differ)
    figures = summary(tally, run.cpu_s, run.seconds)
    conclude(figures, ("differences", "faults"), tally.differences, wanted.differences)


if __name__ == "__main__":
    main()
