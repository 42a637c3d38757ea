"""A goal once more in a copy of its world under other names, proved to be reached there.

The key of a row that a call makes is drawn from the names of its table and columns, so the copy's
own key takes its place wherever the goal says the old one.
"""

from __future__ import annotations

from collections.abc import Sequence

from astra.arena.worlds import goal_of
from astra.records.base import compact_json
from astra.records.environment import Arena
from astra.records.world import RowChange, TraceEvent, World, WorldGoal
from astra.sandbox.protocol import Sandbox
from astra.worlds.executions import Executed, Executions
from astra.worlds.goal_stage import arena_of, unsolved
from astra.worlds.renaming import renamed_goal


def goal_copy(
    arena: Arena, world: World, copy: int, sandbox: Sandbox, words: Sequence[str] = ()
) -> tuple[Arena, World] | None:
    """The arena of the copied goal, and its world; None where the goal's trace does not reach it.

    That happens where a column of the copy is called as something that the tools' code calls.
    Raises SandboxError.
    """
    goal = goal_of(arena)
    renamed, other = renamed_goal(goal, world, copy, words)
    with Executions(world, sandbox) as executions:
        before = executions.run(goal.trace, goal.withheld)
    with Executions(other, sandbox) as executions:
        for _ in range(_made(before)):
            renamed = _with_own_keys(renamed, before, executions)
        if unsolved(other, renamed, executions):
            return None
    return arena_of(other, renamed, arena.prompt_hash), other


def _made(executed: Executed) -> int:
    return sum(bool(event.changes) for event in executed.trace)


def _with_own_keys(goal: WorldGoal, before: Executed, executions: Executions) -> WorldGoal:
    """The goal with the keys that its calls make in the copy; a later call may need an earlier's
    key, so that each pass may get one call further."""
    text = compact_json(goal.model_dump(mode="json"))
    after = executions.run(goal.trace, goal.withheld)
    for old, new in zip(before.trace, after.trace, strict=True):
        for was, now in zip(_new_rows(old), _new_rows(new), strict=False):
            told = f"{now.table}{was.key.removeprefix(was.table)}"
            text = text.replace(f'"{told}"', f'"{now.key}"')
    return WorldGoal.model_validate_json(text)


def _new_rows(event: TraceEvent) -> list[RowChange]:
    """Rows that a call made: their keys say so, those of rows that were there do not."""
    return [one for one in event.changes if one.key.startswith(f"{one.table}-")]
