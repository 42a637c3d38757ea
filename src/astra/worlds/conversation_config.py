"""Parameters of stage ``conversations``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from astra.agent.episode import EpisodeLimits
from astra.llm.protocol import ModelConfig
from astra.sandbox.limits import SandboxLimits
from astra.settings import StageConfig


class PlayedGoalsConfig(StageConfig):
    """Block ``conversations``: who plays the goals of worlds, and which conversations are kept."""

    teacher: ModelConfig
    """Who acts. Backend offline: the scripted agent, which follows the goal's trace in words that
    are drawn for each conversation."""
    samples: int = Field(ge=0)
    """How many conversations are played of each goal."""
    reasoning: Literal["keep", "drop"]
    """Whether the thoughts of a thinking agent stand in the conversations."""
    limits: EpisodeLimits
    """What one conversation may use; those that reach a limit are dropped."""
    episode_timeout_s: float = Field(gt=0)
    """The longest served time of one conversation, in seconds: how long models and tools were at
    work, without waits for a place or a rate limit."""
    sandbox: SandboxLimits
    """Limits of a session; one makes the calls of a conversation."""
    seed: int
    """Draws the scripted agent's words."""
