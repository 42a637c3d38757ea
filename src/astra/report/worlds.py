"""Persistent worlds for a person to read: what there is, and goals played through to a verdict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from astra.arena.changes import RowDiff, table_diffs
from astra.arena.world_runner import WorldRunner
from astra.arena.world_scripts import PlayedGoal, play_goal
from astra.arena.worlds import goal_of
from astra.errors import AstraError
from astra.records.environment import Arena
from astra.records.world import Enforced, EventKind, OutcomeKind, TraceEvent, World, WorldGoal
from astra.report.rollouts import EpisodeView, TaskView, TurnView, clean
from astra.report.workspace import Workspace
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.store.tables import read_records

WORLDS, GOALS = "data/worlds.parquet", "data/goals.parquet"
CELL = 120
"""The most characters of a cell that are shown."""


@dataclass(frozen=True)
class DomainRow:
    """What there is of one domain."""

    domain: str
    split: str
    worlds: int
    tables: str
    rows: str
    tools: str
    rules: str
    unenforced: str
    goals: int


@dataclass(frozen=True)
class CellView:
    """One cell that a goal changes."""

    table: str
    key: str
    column: str
    before: str
    after: str


@dataclass(frozen=True)
class GoalView:
    """A goal with the policy it is under, what it makes of the rows, and how it was played."""

    task: TaskView
    policy: str
    cells: tuple[CellView, ...]


@dataclass(frozen=True)
class WorldsView:
    """The section on worlds."""

    domains: tuple[DomainRow, ...]
    goals: tuple[GoalView, ...]


def worlds_view(workspace: Workspace) -> WorldsView | None:
    """The worlds and, of each kind of goal, the first by id; None where no world was made.

    The goals are played here, in the sandbox; what hinders that is noted as missing.
    """
    path, goals = workspace.root / WORLDS, workspace.root / GOALS
    if not path.is_file():
        return None
    try:
        worlds = {world.id: world for world in read_records(path, World)}
        arenas = list(read_records(goals, Arena)) if goals.is_file() else []
        known = [arena for arena in arenas if arena.world_id in worlds]
        if len(known) < len(arenas):
            workspace.lacks(f"{GOALS}: {len(arenas) - len(known)} goals are of other worlds")
        chosen = {arena.kind: arena for arena in reversed(known)}
        played = _goals([chosen[kind] for kind in sorted(chosen)], worlds)
        return WorldsView(tuple(_domains(worlds.values(), known)), tuple(played))
    except (AstraError, pa.ArrowException, OSError, ValueError) as error:
        workspace.lacks(f"{WORLDS} and {GOALS} cannot be shown: {error}")
        return None


def _domains(worlds: Any, arenas: Sequence[Arena]) -> Iterator[DomainRow]:
    goals = Counter(arena.domain for arena in arenas)
    by_domain: dict[str, list[World]] = {}
    for world in worlds:
        by_domain.setdefault(world.domain, []).append(world)
    for domain, members in sorted(by_domain.items()):
        yield DomainRow(
            clean(domain.replace("_", " ")),
            members[0].split.value,
            len(members),
            _range(len(one.tables) for one in members),
            _range(sum(map(len, one.rows.values())) for one in members),
            _range(len(one.tools) for one in members),
            _range(len(one.rules) for one in members),
            _range(sum(rule.enforced == Enforced.POLICY for rule in one.rules) for one in members),
            goals[domain],
        )


def _range(values: Iterator[int]) -> str:
    found = sorted(values)
    return f"{found[0]}" if found[0] == found[-1] else f"{found[0]}-{found[-1]}"


def _goals(arenas: Sequence[Arena], worlds: Mapping[str, World]) -> Iterator[GoalView]:
    with LocalSandbox(SandboxLimits()) as sandbox:
        for arena in arenas:
            world, goal = worlds[arena.world_id], goal_of(arena)
            with WorldRunner(world, sandbox) as runner:
                reached = play_goal(runner, goal, goal.trace)
                idle = play_goal(runner, goal, goal.trace[:1])
            yield GoalView(
                TaskView(
                    arena.id, clean(arena.main_question), _about(arena, goal),
                    (_episode("the goal's own trace", reached), _episode("doing nothing", idle)),
                ),
                clean(world.policy, 10_000),
                tuple(_cells(table_diffs(world, world.rows, reached.rows))),
            )  # fmt: skip


def _about(arena: Arena, goal: WorldGoal) -> str:
    ended = {
        OutcomeKind.DONE: "to be done", OutcomeKind.DECLINED: "to be declined",
        OutcomeKind.HANDED_OVER: "to be handed over",
    }[goal.outcome.kind]  # fmt: skip
    parts = [arena.kind.value, ", ".join(goal.traits), arena.domain, ended, goal.outcome.reason]
    parts += ["needs a user who talks"] if goal.needs_user else []
    return clean("; ".join(part for part in parts if part).replace("_", " "))


def _episode(name: str, played: PlayedGoal) -> EpisodeView:
    verdict = played.verdict
    reasons = ", ".join(verdict.reasons).replace("_", " ") or "nothing is wrong"
    outcome = "reached" if verdict.success else "not reached"
    turns = tuple(turn for event in played.trace for turn in _turns(event))
    return EpisodeView(name, outcome, verdict.success, (("verdict:", clean(reasons)),), turns)


def _turns(event: TraceEvent) -> Iterator[TurnView]:
    if event.kind != EventKind.CALL:
        act = f" ({event.act.value})" if event.act else ""
        brought = f"\n[brings {', '.join(event.adds_tools)}]" if event.adds_tools else ""
        yield TurnView(
            event.kind.value, f"{event.kind.value}{act}", clean(f"{event.text}{brought}"), ()
        )
        return
    arguments = json.dumps(event.arguments, ensure_ascii=False)
    yield TurnView("assistant", "assistant", "", ((clean(event.tool), clean(arguments)),))
    said = (
        f"error: {event.failed}" if event.failed else json.dumps(event.result, ensure_ascii=False)
    )
    yield TurnView("tool", f"tool {clean(event.tool)}", clean(said), ())


def _cells(diffs: Sequence[RowDiff]) -> Iterator[CellView]:
    for diff in diffs:
        for column, before, after in diff.cells:
            yield CellView(
                clean(diff.table, CELL), clean(diff.key, CELL), clean(column, CELL),
                "" if diff.before is None else _shown(before),
                "" if diff.after is None else _shown(after),
            )  # fmt: skip


def _shown(value: Any) -> str:
    return clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), CELL)
