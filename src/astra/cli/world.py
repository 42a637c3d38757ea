"""``astra world``: step through a persistent world as its agent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from astra.arena.world_runner import WorldRunner
from astra.arena.world_table import read_arenas
from astra.arena.worlds import base_of, goal_of
from astra.cli.play import Screen
from astra.cli.world_play import WorldPlay
from astra.errors import AstraError
from astra.records.environment import Arena
from astra.records.world import World, WorldGoal
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.store.tables import read_records, record_name

world_app = typer.Typer(help="Persistent worlds: play one, watch one.", no_args_is_help=True)
GOALS = Path("data/goals.parquet")
SESSION = SandboxLimits(cpu_s=120)
"""A person thinks for long, and a session that ends is replaced without a trace."""


class WorldPlayError(AstraError):
    """There is no such world or goal to play."""


@world_app.callback()
def worlds() -> None:
    """Persistent worlds: play one, watch one."""


@world_app.command("play")
def play(
    file: Annotated[
        Path, typer.Argument(help="A table of arenas with goals, or of worlds (no verdict then).")
    ],
    identifier: Annotated[str, typer.Argument(metavar="ID", help="An id, or its start.")],
) -> None:
    """Step through a world as the agent: its tools, rows, what changed, and the verdict.

    The user's turns are the goal's; commands may come from a file (`< script.txt`).
    """
    world, goal = _chosen(file, identifier)
    with LocalSandbox(SESSION) as sandbox, WorldRunner(world, sandbox) as runner:
        WorldPlay(runner, goal, Screen()).play()


@world_app.command("watch")
def watch(
    file: Annotated[Path, typer.Argument(help="A table of arenas with goals.")] = GOALS,
    identifier: Annotated[
        str, typer.Argument(metavar="ID", help="An id, or its start; the first that needs a user.")
    ] = "",
) -> None:
    """Show a conversation: the goal's scripted agent (rules, no model) talks with the goal's user.

    Each call is shown with what it changed; what became of the rows and the verdict come last.
    """
    world, goal = _chosen(file, identifier or _talking(file))
    if goal is None or goal.script is None:
        raise WorldPlayError(f"{file} {identifier}: nobody talks there; take a goal with a user")
    with LocalSandbox(SESSION) as sandbox, WorldRunner(world, sandbox) as runner:
        WorldPlay(runner, goal, Screen()).watch()


def _talking(file: Path) -> str:
    """The first goal of a table, by id, that can only be reached by talking with its user."""
    found = (one.id for one in _arenas(file) if goal_of(one).script and goal_of(one).needs_user)
    if (first := min(found, default=None)) is None:
        raise WorldPlayError(f"{file}: no goal there needs a user; `astra show {file}` lists them")
    return first


def _chosen(file: Path, identifier: str) -> tuple[World, WorldGoal | None]:
    if file.is_file() and record_name(file) == World.__name__:
        found = [(one, None) for one in read_records(file, World) if one.id.startswith(identifier)]
        ids = [world.id for world, _ in found]
    else:
        arenas = [one for one in _arenas(file) if one.id.startswith(identifier)]
        found = [(base_of(one).world, goal_of(one)) for one in arenas]
        ids = [arena.id for arena in arenas]
    if len(found) != 1:
        raise WorldPlayError(
            f"{file}: {len(ids)} worlds or arenas in worlds have an id that starts with "
            f"{identifier!r} ({', '.join(ids[:5]) or 'none'}); `astra show {file} --fields id` "
            "lists them"
        )
    return found[0]


def _arenas(file: Path) -> list[Arena]:
    """The arenas in worlds of a table."""
    if not file.is_file():
        raise WorldPlayError(f"{file} not found; `dvc repro goals` makes data/goals.parquet")
    return [one for one in read_arenas(file) if one.world_id]
