"""Multi-turn executions of tasks (stage ``trajectories``; ASTRA section 3.3)."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from astra.records.base import Record
from astra.records.message import ExecutedCall, Message
from astra.records.score import Score
from astra.records.tool import Execution, Tool


class StopReason(StrEnum):
    """Why an episode ended, in the order the limits are checked (agent/episode.py)."""

    ANSWERED = "answered"  # an assistant turn without a tool call; a user who talks is content
    USER_LEFT = "user_left"  # a user who talks gave up
    MAX_TURNS = "max_turns"
    MAX_CALLS = "max_calls"
    MAX_TOKENS = "max_tokens"  # the policy's own budget of generated or context tokens
    TIMEOUT = "timeout"
    INFRA = "infra"


class Trajectory(Record):
    """One episode of a task: what was said and called, and why it ended."""

    identity: ClassVar[tuple[str, ...]] = ("task_id", "sample", "policy", "messages")
    sparse: ClassVar[tuple[str, ...]] = ("follow_ups", "prompt_hash")
    task_id: str
    server_id: str
    sample: int
    """Which episode of the task it is, counted from 0."""
    policy: str
    """Backend and model that acted, for example ``offline:expert``."""
    execution: Execution
    language: str
    domain: str
    tools: tuple[Tool, ...]
    """The tools that the agent saw."""
    messages: tuple[Message, ...]
    calls: tuple[ExecutedCall, ...]
    stop_reason: StopReason
    follow_ups: tuple[str, ...] = ()
    """The ids of the further tasks that the user of a conversation asked for."""
    prompt_hash: str = ""
    """Hashes of the prompt templates whose answers it holds, joined by ``+``."""


class SFTSample(Record):
    """A selected trajectory with its seven scores (ASTRA section 3.4)."""

    identity: ClassVar[tuple[str, ...]] = ("trajectory_id", "split")
    sparse: ClassVar[tuple[str, ...]] = ("selection", "prompt_hash")
    trajectory_id: str
    """A conversation in a world has the arena of its goal here, and which of the goal's it is."""
    split: str
    """train | eval"""
    language: str
    domain: str
    tools: tuple[Tool, ...]
    messages: tuple[Message, ...]
    scores: dict[str, Score]
    mean_score: float
    """The mean of ``scores``, of those that apply."""
    selection: dict[str, Score] = {}
    """What selection looked at besides: ``correlation``, ``faithfulness``, ``closing`` (the lowest
    understanding of a turn that speaks to the user) and ``own_tool_status``, which leaves out calls
    that timed out or found the tool unreachable."""
    prompt_hash: str = ""
    """Hashes of the prompt templates whose answers it holds, joined by ``+``."""
