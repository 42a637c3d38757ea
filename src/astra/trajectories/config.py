"""Parameters of stage ``trajectories``."""

from __future__ import annotations

from pydantic import Field

from astra.agent.episode import EpisodeLimits
from astra.llm.protocol import ModelConfig
from astra.settings import StageConfig


class ConversationsConfig(StageConfig):
    """Episodes with a simulated user who goes on after the agent's first final message."""

    share: float = Field(ge=0, le=1)
    """The share of episodes that become conversations, by a hash. An episode whose task offers
    neither a second goal nor a hidden value keeps its one user message."""
    max_user_turns: int = Field(ge=2)
    """The most user messages of one conversation, the question included."""


class TrajectoriesConfig(StageConfig):
    """Block ``trajectories``; conf/trajectories/base.yaml names each default's source."""

    agent: ModelConfig
    """Who acts. Backend offline: the scripted expert, which follows the task's plan."""
    emulator: ModelConfig
    """Who answers for servers that have documents only."""
    user: ModelConfig
    """Who plays the user in conversations."""
    conversations: ConversationsConfig
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
    """What one episode may use; of a conversation, in all."""
    episode_timeout_s: float = Field(gt=0)
    """The longest time of one episode, in seconds."""
    system_prompts: tuple[str, ...]
    """Further system prompts; each episode draws one of them or the standard one."""
    seed: int
