"""Which arenas a phase of RL trained in, and how often each was drawn (stage ``rl``)."""

from __future__ import annotations

from typing import ClassVar

from astra.records.base import Record


class CurriculumArena(Record):
    """What a band or a refresh made of one training arena before a phase."""

    identity: ClassVar[tuple[str, ...]] = (
        "phase", "arena_id", "solver", "rollouts", "passes", "weight",
    )  # fmt: skip
    phase: int
    """Phases count from 0."""
    arena_id: str
    solver: str
    """The policy whose rollouts tell how hard it is: ``step N`` of this training, from 0 on."""
    rollouts: int
    """Those that count, for a band; 0 without one."""
    passes: int
    """How many of them reached the goal."""
    weight: int
    """How often an epoch holds the arena; 0: it is left out."""
