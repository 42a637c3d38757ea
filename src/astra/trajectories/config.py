"""Parameters of stage ``trajectories``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from astra.agent.episode import EpisodeLimits
from astra.llm.protocol import ModelConfig
from astra.settings import StageConfig


class ConversationsConfig(StageConfig):
    """Episodes with a simulated user who goes on after the agent's first final message."""

    share: float = Field(ge=0, le=1)
    """The share of tasks whose episodes become conversations, by a hash. A task that offers neither
    a second goal nor a hidden value keeps its one user message."""
    max_user_turns: int = Field(ge=2)
    """The most user messages of one conversation, the question included."""


class TrajectoriesConfig(StageConfig):
    """Block ``trajectories``; conf/trajectories/base.yaml names each default's source."""

    agent: ModelConfig
    """Who acts. Backend offline: the scripted expert, which follows the task's plan."""
    emulator: ModelConfig
    """Who answers for servers that have documents only."""
    allow_rule_emulator: bool
    """Let a model act on services that rules make up. Their results mean nothing: a tool without
    a schema of results returns any word, and a truthful answer then repeats it."""
    user: ModelConfig
    """Who plays the user in conversations."""
    conversations: ConversationsConfig
    reasoning: Literal["keep", "drop"]
    """Whether the thoughts of a thinking agent stand in the trajectories, and so in the SFT set."""
    samples: int = Field(ge=1)
    """How many episodes are played per task."""
    failure_rate: float = Field(ge=0, lt=1)
    """The share of emulated calls that the host lets fail (timeout or unreachable)."""
    max_tools: int | None = Field(ge=1)
    """The most tools shown to the agent; those of the plan are always among them. null: all."""
    deterministic_only: bool
    """Leave out servers whose results differ from run to run."""
    reset_in_place: tuple[str, ...]
    """Environments whose servers keep nothing in memory between calls: one process serves many
    episodes, its directory restored between them. Others start afresh for each."""
    limits: EpisodeLimits
    """What one episode may use; of a conversation, in all. Emulated results are written to fit
    ``max_result_chars``."""
    episode_timeout_s: float = Field(gt=0)
    """The longest served time between a user message and the agent's final one, in seconds: how
    long models and servers were at work, without waits for a place, a rate limit or a process."""
    system_prompts: tuple[str, ...] = Field(min_length=1)
    """Each episode draws one of them; ``standard`` stands for the standard one."""
    seed: int
