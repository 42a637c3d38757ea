"""``astra arena``: take arenas to other frameworks, or step through one by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from astra.arena.irrelevant import IrrelevantMode
from astra.arena.reward import FinalAnswer, RewardMode
from astra.arena.world_table import read_arenas
from astra.cli.play import Screen, play
from astra.export.episode import ArenaEpisode
from astra.export.rows import (
    EpisodeOptions,
    ExportedArena,
    ExportError,
    draw_extra_tools,
    export_row,
    lacks_user,
    read_rows,
)
from astra.export.write import ExportFormat, write_domains, write_export
from astra.records.environment import Arena
from astra.records.qa import Split
from astra.sandbox.limits import SandboxLimits

arena_app = typer.Typer(help="Arenas: play one, export many.", no_args_is_help=True)
Irrelevant = Annotated[
    IrrelevantMode, typer.Option("--irrelevant", help="Which irrelevant tools an episode offers.")
]
PerBand = Annotated[int, typer.Option(min=0, help="Irrelevant tools per similarity band.")]
Reward = Annotated[RewardMode, typer.Option(help="What an episode is paid.")]
Final = Annotated[FinalAnswer, typer.Option(help="Whether the final answer is a sub-task.")]
Timeout = Annotated[float, typer.Option(help="Seconds that one call may take.")]


@arena_app.command("export")
def export(
    out: Annotated[Path, typer.Option(help="Folder to write; a file for jsonl.")],
    target: Annotated[ExportFormat, typer.Option("--format", help="For which framework.")],
    table: Annotated[Path, typer.Option(help="Arenas, as stage envs_merged writes them.")] = Path(
        "data/envs_merged.parquet"
    ),
    split: Annotated[
        list[Split] | None, typer.Option(help="train, dev or heldout; repeatable; default: train.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most so many arenas; 0: all.")] = 0,
    irrelevant: Irrelevant = IrrelevantMode.BANDED,
    per_band: PerBand = 1,
    seed: Annotated[int, typer.Option(help="Of the draw of irrelevant tools.")] = 0,
    reward: Reward = RewardMode.F1,
    final_answer: Final = FinalAnswer.SUBTASK,
    call_timeout: Timeout = 2.0,
    name: Annotated[str, typer.Option(help="Of the Python package.")] = "astra_arenas",
) -> None:
    """Write arenas as a package or file that another framework loads and runs.

    The package carries the sandbox that runs its tools and the code of the reward.
    """
    options = _options(reward, final_answer, call_timeout)
    wanted = set(split or [Split.TRAIN])
    found = [arena for arena in read_arenas(table) if arena.split in wanted]
    if target == ExportFormat.TAU2:
        return _export_domains(found[: limit or None], out, name)
    chosen = [arena for arena in found if not lacks_user(arena)]
    rows = [
        export_row(arena, options, draw_extra_tools(arena, irrelevant, per_band, seed))
        for arena in itertools.islice(chosen, limit or None)
    ]
    if len(chosen) < len(found):
        typer.echo(
            f"{len(found) - len(chosen)} arenas left out: their goals need a user who talks, and "
            "have no script of one",
            err=True,
        )
    files = write_export(rows, target, out, name)
    typer.echo(f"{len(rows)} arenas, {len(files)} files: {out}")


def _export_domains(arenas: list[Arena], out: Path, name: str) -> None:
    files, domains = write_domains(arenas, out, name)
    for reason, count in sorted(domains.left_out.items()):
        typer.echo(f"{count} arenas left out: {reason}", err=True)
    typer.echo(f"{domains.count} tasks of {len(domains.tasks)} domains, {len(files)} files: {out}")


@arena_app.command("play")
def play_one(
    file: Annotated[Path, typer.Argument(help="A table of arenas, or an exported arenas.jsonl.")],
    identifier: Annotated[str, typer.Argument(metavar="ID", help="An arena's id, or its start.")],
    irrelevant: Irrelevant = IrrelevantMode.NONE,
    per_band: PerBand = 1,
    reward: Reward = RewardMode.F1,
    final_answer: Final = FinalAnswer.SUBTASK,
    call_timeout: Timeout = 2.0,
) -> None:
    """Step through one arena: call its tools, answer, and see the reward.

    An exported arenas.jsonl says itself how its episodes run: the options are for tables.
    """
    if file.suffix == ".jsonl":
        rows = read_rows(file)
    else:
        options = _options(reward, final_answer, call_timeout)
        rows = (
            export_row(arena, options, draw_extra_tools(arena, irrelevant, per_band, 0))
            for arena in read_arenas(file)
            if not lacks_user(arena) or _in_world(arena, identifier, file)
        )
    row = _find(rows, identifier, file)
    _in_world(row.arena, identifier, file)
    episode = ArenaEpisode(row)
    try:
        play(episode, Screen())
    finally:
        episode.close()


def _in_world(arena: Arena, identifier: str, file: Path) -> bool:
    """False for an arena that is not the one named. Raises ExportError where it is in a world."""
    if arena.world_id and arena.id.startswith(identifier):
        raise ExportError(
            f"arena {arena.id} plays in a world, where a verdict and not sub-tasks decide: step "
            f"through it with `astra world play {file} {arena.id}`"
        )
    return False


def _options(reward: RewardMode, final_answer: FinalAnswer, call_timeout: float) -> EpisodeOptions:
    sandbox = SandboxLimits(call_timeout_s=call_timeout)
    return EpisodeOptions(reward=reward, final_answer=final_answer, sandbox=sandbox)


def _find(rows: Iterator[ExportedArena], identifier: str, file: Path) -> ExportedArena:
    matches = [row for row in rows if row.id.startswith(identifier)]
    if len(matches) != 1:
        examples = ", ".join(row.id for row in matches[:5]) or "none"
        raise ExportError(
            f"{file}: {len(matches)} arenas have an id that starts with {identifier!r} "
            f"({examples}); ids are the field `id` of its rows"
        )
    return matches[0]
