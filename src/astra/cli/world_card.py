"""The data card of the worlds: ``docs/data-cards/worlds.md``, written from the tables.

    python -m astra.cli.world_card [--goals data/goals.parquet] [--output FILE]

Every goal is played: its own trace must reach it, doing nothing must not, or no card is written.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from astra.arena.user import ScriptedUser
from astra.arena.user_expert import converse_by_script
from astra.arena.world_runner import WorldRunner
from astra.arena.world_scripts import WorldScript, best_codes, goal_script, play_goal
from astra.arena.world_table import WORLDS, read_arenas
from astra.arena.worlds import base_of, goal_of
from astra.cli.arena_card import CardError
from astra.records.environment import Arena
from astra.records.qa import Split
from astra.records.world import Enforced, TraceEvent, World, WorldGoal
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import Sandbox
from astra.stage import run_stage
from astra.store.tables import read_records

GOALS, CARD = Path("data/goals.parquet"), Path("docs/data-cards/worlds.md")
NOTES = {
    WorldScript.REFERENCE: "the goal's own trace",
    WorldScript.MUTE: "neither speaks nor calls",
    WorldScript.DECLINE: "declines at once, with the code that is right most often in training",
    WorldScript.HAND_OVER: "hands over at once, likewise",
    WorldScript.FIRST_CANDIDATE: "takes the first row it sees, where one has to be found",
    WorldScript.NEVER_ASKS: "takes the first row or value there is, where one has to be asked for",
}
Reached = dict[tuple[Split, WorldScript], list[bool]]


def reached_goals(arenas: Sequence[Arena], sandbox: Sandbox) -> Reached:
    """Whether each script reaches each goal to which it applies. Raises CardError for a goal that
    its own trace does not reach, or doing nothing does."""
    training = [goal_of(arena) for arena in arenas if arena.split == Split.TRAIN]
    codes = best_codes(training or [goal_of(arena) for arena in arenas])
    by_world: dict[str, list[Arena]] = {}
    for arena in arenas:
        by_world.setdefault(arena.world_id, []).append(arena)
    reached: Reached = {}
    for members in by_world.values():
        with WorldRunner(base_of(members[0]), sandbox) as runner:
            for arena in members:
                goal = goal_of(arena)
                for script in WorldScript:
                    events = goal_script(script, runner, goal, codes)
                    if events is None:
                        continue
                    success, reasons = _played(runner, goal, events)
                    reached.setdefault((arena.split, script), []).append(success)
                    _check(arena, script, success, reasons)
    return reached


def _played(
    runner: WorldRunner, goal: WorldGoal, events: Sequence[TraceEvent]
) -> tuple[bool, Sequence[str]]:
    """Whether events reach a goal, in a conversation where its user talks, and what is wrong."""
    if goal.script is None:
        verdict = play_goal(runner, goal, events).verdict
        return verdict.success, verdict.reasons
    played = converse_by_script(runner, goal, ScriptedUser(runner.base.world, goal), events)
    return played.verdict.success, played.verdict.reasons


def _check(arena: Arena, script: WorldScript, success: bool, reasons: Sequence[str]) -> None:
    wanted = {WorldScript.REFERENCE: True, WorldScript.MUTE: False}.get(script, success)
    if success is not wanted:
        why = ", ".join(reasons) or "it is reached"
        raise CardError(f"arena {arena.id}: {NOTES[script]}: {why}; rebuild with `dvc repro goals`")


def world_card(worlds: Sequence[World], arenas: Sequence[Arena], reached: Reached) -> str:
    """The card as Markdown."""
    lines = [
        "# Worlds",
        "",
        "Made by `python -m astra.cli.world_card`; do not edit. Rows of `data/worlds.parquet` are",
        "worlds: tables, tools, rules, policy. Rows of `data/goals.parquet` are goals in them.",
        "[Worlds](../worlds.md) says what they are and how they are proved.",
        "",
        *_table(("domain", "split", "worlds", "tables", "rows", "tools", "rules",
                 "of them unenforced", "words of policy", "goals"), _domains(worlds, arenas)),
        "",
        "No domain is in two splits.",
        "",
        "## Goals",
        "",
        "Shares of the goals of a split. `envs_merged.goals=alone` leaves out those that need a",
        "user who talks.",
        "",
        *_table(("", *Split), _goals(arenas)),
        "",
        "## Policies without a model",
        "",
        "Goals reached in a conversation with the user, of those to which the policy applies. The",
        "goal's own calls and messages reach every single one, and doing nothing none.",
        "",
        *_table(("policy", "what it does", *Split), [
            (script.value.replace("_", " "), NOTES[script],
             *(_share(reached.get((split, script), [])) for split in Split))
            for script in WorldScript
        ]),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _domains(worlds: Sequence[World], arenas: Sequence[Arena]) -> Iterator[tuple[str, ...]]:
    goals = Counter(arena.domain for arena in arenas)
    by_domain: dict[str, list[World]] = {}
    for world in worlds:
        by_domain.setdefault(world.domain, []).append(world)
    for domain, members in sorted(by_domain.items()):
        sizes: Sequence[Iterable[int]] = (
            [len(one.tables) for one in members],
            [sum(map(len, one.rows.values())) for one in members],
            [len(one.tools) for one in members],
            [len(one.rules) for one in members],
            [sum(rule.enforced == Enforced.POLICY for rule in one.rules) for one in members],
            [len(one.policy.split()) for one in members],
        )
        yield (
            domain.replace("_", " "), members[0].split.value, f"{len(members)}",
            *(f"{min(of)} to {max(of)}" if min(of) < max(of) else f"{min(of)}" for of in sizes),
            f"{goals[domain]:,}",
        )  # fmt: skip


def _goals(arenas: Sequence[Arena]) -> Iterator[tuple[str, ...]]:
    mine: Mapping[Split, list[Arena]] = {
        split: [arena for arena in arenas if arena.split == split] for split in Split
    }
    yield "goals", *(f"{len(of):,}" for of in mine.values())
    kinds = sorted({arena.kind for arena in arenas})
    traits = sorted({trait for arena in arenas for trait in goal_of(arena).traits})
    for kind in kinds:
        yield (f"kind: {kind.replace('_', ' ')}",
               *(_share([one.kind == kind for one in of]) for of in mine.values()))  # fmt: skip
    for trait in traits:
        yield (f"trait: {trait.replace('_', ' ')}",
               *(_share([trait in goal_of(one).traits for one in of])
                 for of in mine.values()))  # fmt: skip
    yield ("need a user who talks",
           *(_share([goal_of(one).needs_user for one in of]) for of in mine.values()))  # fmt: skip


def _share(held: Sequence[bool]) -> str:
    return f"{100 * sum(held) / len(held):.1f} % of {len(held):,}" if held else "-"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the data card of the worlds.")
    parser.add_argument("--goals", type=Path, default=GOALS)
    parser.add_argument("--output", type=Path, default=CARD)
    options = parser.parse_args()
    worlds = list(read_records(options.goals.with_name(WORLDS), World))
    arenas = [arena for arena in read_arenas(options.goals) if arena.world_id]
    if not arenas:
        raise CardError(f"{options.goals} holds no goal; see metrics/goals.json")
    with LocalSandbox(SandboxLimits(cpu_s=600)) as sandbox:
        text = world_card(worlds, arenas, reached_goals(arenas, sandbox))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    run_stage("world_card", main)
