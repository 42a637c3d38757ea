"""Tool graphs and chains (stages ``graph`` and ``chains``; ASTRA section 3.1)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from astra.records.base import Frozen, Record, Sparse


class Edge(Frozen):
    """``target`` may follow ``source``; ``weight`` is how often synthesis proposed the pair."""

    source: str
    target: str
    weight: int


class ArgumentOrigin(StrEnum):
    """Where a call's argument comes from."""

    TASK = "task"  # the user says it
    DEFAULT = "default"  # the schema's default or only value
    OUTPUT = "output"  # an earlier call's result
    CHOSEN = "chosen"  # the agent picks it: required, and nothing that the user cares about


class ArgumentSource(Sparse):
    """The source of a call's argument.

    ``value`` holds it for TASK and DEFAULT, and for CHOSEN one that would do; for OUTPUT, ``step``
    is the index of the earlier step and ``path`` the keys into its JSON result (empty: the whole
    result).
    """

    sparse: ClassVar[tuple[str, ...]] = ("said",)
    origin: ArgumentOrigin
    value: Any = None
    step: int | None = None
    path: tuple[str | int, ...] = ()
    said: str = ""
    """The user's words for a TASK value that they do not state as the call takes it ("Missoula"
    for its coordinates, "next Friday" for a date); empty where the value itself is said."""


class ChainStep(Frozen):
    """One call of a chain or plan, with the source of each argument."""

    tool: str
    arguments: dict[str, ArgumentSource]


class ProposedChain(Frozen):
    """A chain as synthesis proposed it, with the sources of arguments that it stated and that hold.

    An argument without a stated source, or with one that a rule refused, is missing.
    """

    steps: tuple[ChainStep, ...]
    task: str
    """The request that the first of the proposals sketched."""
    weight: int
    """How many proposals had exactly these steps."""


class ToolGraph(Record):
    """The weighted graph of which of a server's tools may follow which."""

    identity: ClassVar[tuple[str, ...]] = ("server_id", "nodes", "edges")
    sparse: ClassVar[tuple[str, ...]] = ("proposed",)
    server_id: str
    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    proposals: int
    """How many proposed chains counted (verdict yes, every tool known)."""
    proposed: tuple[ProposedChain, ...] = ()
    """The chains that counted, equal ones once, in the order in which they were proposed."""
    prompt_hash: str = ""
    """Hashes of the prompt templates whose answers it holds, joined by ``+``."""


class Chain(Record):
    """A tool chain whose every required argument has a source (ASTRA section 3.1, check i)."""

    identity: ClassVar[tuple[str, ...]] = ("server_id", "steps")
    sparse: ClassVar[tuple[str, ...]] = ("dependencies",)
    server_id: str
    steps: tuple[ChainStep, ...]
    walk_weight: int
    votes_for: int
    votes_against: int
    task_sketch: str
    """The task that the first approving model wrote for the chain (ASTRA section 3.1, check ii);
    where no model was asked, the one of the proposal."""
    dependencies: int = 0
    """How many arguments come from an earlier result that the user could not have stated as well,
    by most of the approving votes; where nobody voted, how many come from an earlier result."""
    prompt_hash: str = ""
    """Hashes of the prompt templates whose answers it holds, joined by ``+``."""
