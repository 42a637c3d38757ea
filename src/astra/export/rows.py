"""The row that every export format shares: an arena with all that an episode of it needs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from astra.agent.episode import EpisodeLimits
from astra.arena.env import offered
from astra.arena.irrelevant import IrrelevantMode, draw
from astra.arena.prompt import initial_messages
from astra.arena.reward import FinalAnswer, RewardMode
from astra.arena.worlds import goal_of, resolve, world_texts
from astra.errors import AstraError
from astra.records.base import Frozen, content_id
from astra.records.environment import Arena, ArenaTool
from astra.records.qa import Split
from astra.records.world import World
from astra.sandbox.limits import SandboxLimits

ROWS_FILE = "arenas.jsonl"
"""Where a package keeps its arenas."""
LIMITS = EpisodeLimits(max_turns=32, max_calls=64, max_parallel_calls=16, max_result_chars=8192)
"""The limits of stage ``rl``, as ``rollout/live.py`` has them. They stand here again because a
package carries all that this module imports."""


_Model = TypeVar("_Model", bound=Frozen)


class ExportError(AstraError):
    """Arenas cannot be exported, or exported ones not be read."""


class EpisodeOptions(Frozen):
    """How an episode is bounded and rewarded; the defaults are those of stage ``rl``."""

    reward: RewardMode = RewardMode.F1
    final_answer: FinalAnswer = FinalAnswer.SUBTASK
    limits: EpisodeLimits = LIMITS
    sandbox: SandboxLimits = SandboxLimits()


class ExportedArena(Frozen):
    """One line of ``arenas.jsonl``.

    ``prompt`` and ``tools`` follow from the rest; they are there for readers that know nothing
    of arenas. ``arena`` holds the gold answers and the tools' code: never show it to a policy.
    """

    id: str
    split: Split
    prompt: tuple[dict[str, str], ...]
    """System and user message, as chat APIs take them."""
    tools: tuple[dict[str, Any], ...]
    """Function schemas of every tool on offer, by name."""
    arena: Arena
    extra_tools: tuple[ArenaTool, ...] = ()
    """Irrelevant tools that this episode offers besides the arena's own."""
    options: EpisodeOptions = EpisodeOptions()


def export_row(
    arena: Arena, options: EpisodeOptions, extra_tools: tuple[ArenaTool, ...] = ()
) -> ExportedArena:
    """The row of an arena. Candidates for irrelevant tools that were not drawn stay behind.

    Raises ExportError for a goal that needs a user and has no script of one.
    """
    if lacks_user(arena):
        raise ExportError(
            f"arena {arena.id}: its goal is reached only by talking with the user on the way, and "
            "it has no script of a user: build it again with `dvc repro envs_merged`"
        )
    return ExportedArena(
        id=arena.id,
        split=arena.split,
        prompt=tuple(
            {"role": message.role.value, "content": message.content}
            for message in initial_messages(arena)
        ),
        tools=tuple(offer.tool.openai() for offer in offered(arena, extra_tools)),
        arena=arena.model_copy(update={"irrelevant": {}}),
        extra_tools=extra_tools,
        options=options,
    )


def has_user(arena: Arena) -> bool:
    """Whether somebody answers what an agent says in an arena."""
    return bool(arena.world_id) and goal_of(arena).script is not None


def lacks_user(arena: Arena) -> bool:
    """Whether an arena's goal cannot be reached: it takes turns of a user whom no script plays."""
    return bool(arena.world_id) and goal_of(arena).needs_user and not has_user(arena)


def draw_extra_tools(
    arena: Arena, mode: IrrelevantMode, per_band: int, seed: int
) -> tuple[ArenaTool, ...]:
    """The irrelevant tools of an exported arena; they depend on the seed and the arena alone."""
    return draw(arena, mode, per_band, random.Random(int(content_id([seed, arena.id]), 16)))


def row_line(row: ExportedArena) -> str:
    """The row as one line of ``arenas.jsonl``; of a world it names the id alone."""
    document = row.model_dump(mode="json")
    if row.arena.world_id:
        document["arena"] |= {"tools": [], "state": ""}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def worlds_file(path: Path) -> Path:
    """Where the worlds of the arenas in ``path`` lie, one a line."""
    return path.with_name(f"{path.stem}.worlds{path.suffix}")


def write_rows(rows: Iterable[ExportedArena], path: Path) -> None:
    """Write rows one a line, and each of their worlds once beside them."""
    worlds: dict[str, str] = {}
    with path.open("w", encoding="utf-8") as lines:
        for row in rows:
            lines.write(row_line(row) + "\n")
            if row.arena.world_id:
                worlds[row.arena.world_id] = row.arena.state
    if worlds:
        text = "".join(f"{worlds[id]}\n" for id in sorted(worlds))
        worlds_file(path).write_text(text, encoding="utf-8")


def read_rows(path: Path) -> Iterator[ExportedArena]:
    """The rows of an ``arenas.jsonl``, each with its world where it plays in one.

    Raises ExportError naming the line that is broken, UnknownWorld where a world is missing.
    """
    if not path.is_file():
        raise ExportError(f"{path} not found; write it with `astra arena export --format jsonl`")
    worlds: dict[str, str] | None = None
    for number, row in enumerate(_lines(path, ExportedArena), 1):
        if not row.arena.world_id:
            yield row
            continue
        worlds = worlds if worlds is not None else _read_worlds(worlds_file(path))
        if row.arena.world_id not in worlds:
            raise ExportError(
                f"{path} line {number}: its world {row.arena.world_id} is not in "
                f"{worlds_file(path)}; export both again"
            )
        yield row.model_copy(update={"arena": resolve(row.arena, worlds)})


def _read_worlds(path: Path) -> dict[str, str]:
    return world_texts(_lines(path, World)) if path.is_file() else {}


def _lines(path: Path, model: type[_Model]) -> Iterator[_Model]:
    what = "world" if model is World else "exported arena"
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield model.model_validate_json(line)
            except ValidationError as error:
                raise ExportError(f"{path} line {number} is no {what}: {error}") from error
