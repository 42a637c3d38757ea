"""Tool graphs and chains (stages ``graph`` and ``chains``; ASTRA section 3.1)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from astra.records.base import Frozen, Record


class Edge(Frozen):
    """``target`` may follow ``source``; ``weight`` is how often synthesis proposed the pair."""

    source: str
    target: str
    weight: int


class ToolGraph(Record):
    """The weighted graph of which of a server's tools may follow which."""

    identity: ClassVar[tuple[str, ...]] = ("server_id", "nodes", "edges")
    server_id: str
    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    proposals: int
    """How many proposed chains counted (verdict yes, every tool known)."""
    prompt_hash: str = ""
    """Hashes of the prompt templates whose answers it holds, joined by ``+``."""


class ArgumentOrigin(StrEnum):
    """Where a call's argument comes from."""

    TASK = "task"  # the user says it
    DEFAULT = "default"  # the schema's default or only value
    OUTPUT = "output"  # an earlier call's result


class ArgumentSource(Frozen):
    """The source of a call's argument.

    ``value`` holds it for TASK and DEFAULT; for OUTPUT, ``step`` is the index of the earlier
    step and ``path`` the keys into its JSON result (empty: the whole result).
    """

    origin: ArgumentOrigin
    value: Any = None
    step: int | None = None
    path: tuple[str | int, ...] = ()


class ChainStep(Frozen):
    """One call of a chain or plan, with the source of each argument."""

    tool: str
    arguments: dict[str, ArgumentSource]


class Chain(Record):
    """A tool chain whose every required argument has a source (ASTRA section 3.1, check i)."""

    identity: ClassVar[tuple[str, ...]] = ("server_id", "steps")
    server_id: str
    steps: tuple[ChainStep, ...]
    walk_weight: int
    votes_for: int
    votes_against: int
    task_sketch: str
    """The task that the first approving model wrote for the chain (ASTRA section 3.1, check ii)."""
    prompt_hash: str = ""
    """Hashes of the prompt templates whose answers it holds, joined by ``+``."""
