"""User tasks (stage ``tasks``; ASTRA section 3.2)."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from astra.records.base import Record
from astra.records.graph import ChainStep
from astra.records.score import Score


class TaskKind(StrEnum):
    CHAIN = "chain"  # conditioned on a verified chain
    SERVER = "server"  # conditioned on the server alone
    MISSING_FUNCTION = "missing_function"  # the tool it needs is not offered
    MISSING_PARAMETER = "missing_parameter"  # a required value is not given
    IRRELEVANT = "irrelevant"  # no tool applies


class Task(Record):
    """A user's request to a server's tools, with the plan that solves it."""

    identity: ClassVar[tuple[str, ...]] = ("server_id", "kind", "question", "plan", "augmentation")
    sparse: ClassVar[tuple[str, ...]] = ("now",)
    server_id: str
    chain_id: str | None
    kind: TaskKind
    language: str
    question: str
    plan: tuple[ChainStep, ...]
    """The steps a solution takes, where the teacher states them; empty if it does not.

    Values are bound: the question states a TASK value or gives reason for it, in the words of its
    ``said`` where there are some. Kind missing_parameter keeps the step that cannot be made, with
    value None for what the user left out; missing_function and irrelevant have no plan."""
    augmentation: str = "none"
    """How the question was varied: none | diverse | complicate | persona."""
    parent_id: str | None = None
    """The task it was augmented from."""
    withheld_tools: tuple[str, ...] = ()
    """Tools removed from the agent's view (kind missing_function)."""
    now: str = ""
    """When the user asks, as ``2026-03-10 14:05``; agent, user and emulated service share it.
    Empty: nobody is told a date."""
    scores: dict[str, Score] = {}
    prompt_hash: str = ""
    """Hashes of the prompt templates whose answers it holds, joined by ``+``."""
