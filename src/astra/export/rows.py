"""The row that every export format shares: an arena with all that an episode of it needs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from astra.agent.episode import EpisodeLimits
from astra.arena.env import offered
from astra.arena.irrelevant import IrrelevantMode, draw
from astra.arena.prompt import initial_messages
from astra.arena.reward import FinalAnswer, RewardMode
from astra.errors import AstraError
from astra.records.base import Frozen, content_id
from astra.records.environment import Arena, ArenaTool
from astra.records.qa import Split
from astra.sandbox.limits import SandboxLimits

ROWS_FILE = "arenas.jsonl"
"""Where a package keeps its arenas."""
LIMITS = EpisodeLimits(max_turns=32, max_calls=64, max_parallel_calls=16, max_result_chars=8192)
"""The limits of stage ``rl``, as ``rollout/live.py`` has them. They stand here again because a
package carries all that this module imports."""


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
    """The row of an arena. Candidates for irrelevant tools that were not drawn stay behind."""
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


def draw_extra_tools(
    arena: Arena, mode: IrrelevantMode, per_band: int, seed: int
) -> tuple[ArenaTool, ...]:
    """The irrelevant tools of an exported arena; they depend on the seed and the arena alone."""
    return draw(arena, mode, per_band, random.Random(int(content_id([seed, arena.id]), 16)))


def row_line(row: ExportedArena) -> str:
    """The row as one line of ``arenas.jsonl``."""
    return json.dumps(row.model_dump(mode="json"), ensure_ascii=False, separators=(",", ":"))


def read_rows(path: Path) -> Iterator[ExportedArena]:
    """The rows of an ``arenas.jsonl``. Raises ExportError naming the line that is broken."""
    if not path.is_file():
        raise ExportError(f"{path} not found; write it with `astra arena export --format jsonl`")
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield ExportedArena.model_validate_json(line)
            except ValidationError as error:
                raise ExportError(f"{path} line {number} is no exported arena: {error}") from error
