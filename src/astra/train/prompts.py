"""How long the prompts of arenas are: each encoded once, by one of the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from astra.arena.prompt import initial_messages
from astra.records.base import content_id
from astra.records.environment import Arena
from astra.rollout.chat import ChatCodec
from astra.stage import Progress
from astra.train.shared_work import shared_work

PROMPTS_AT_ONCE = 128
"""Prompts per file of the shared folder (ours): about a second's work."""


def prompt_lengths(
    arenas: Sequence[Arena], codec: ChatCodec, folder: Path, patience_s: float
) -> list[int]:
    """Tokens of each arena's longest prompt: the one that offers every irrelevant tool at once.

    ``folder`` is shared by all ranks and belongs to this policy, since lengths found there are not
    computed again. Raises TrainingError where another rank leaves its share open for
    ``patience_s`` seconds.
    """
    blocks = [arenas[at : at + PROMPTS_AT_ONCE] for at in range(0, len(arenas), PROMPTS_AT_ONCE)]
    lengths = shared_work(
        [(content_id([arena.id for arena in block]), block) for block in blocks],
        lambda block: [_length(arena, codec) for arena in block],
        folder,
        patience_s,
        Progress(f"blocks of {PROMPTS_AT_ONCE} prompts", len(blocks)),
    )
    return [length for block in lengths for length in block]


def _length(arena: Arena, codec: ChatCodec) -> int:
    extra = [tool for band in arena.irrelevant.values() for tool in band]
    tools = [offer.tool for offer in (*arena.tools, *extra)]
    return len(codec.encode_prompt(initial_messages(arena), tools))
