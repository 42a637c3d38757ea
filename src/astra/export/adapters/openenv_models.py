# pyright: basic, reportMissingImports=false, reportGeneralTypeIssues=false
"""What an agent sends to an arena and what it gets back."""

from typing import Any

from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class ArenaAction(Action):
    """One assistant message. Without tool calls it is said to the user, who answers; where the
    arena has none it is the final answer and ends the episode."""

    content: str = Field(default="", description="Text; a final answer goes in <answer></answer>")
    tool_calls: list[dict[str, Any]] = Field(
        default_factory=list,
        description="Calls as {name, arguments}; arguments are an object or JSON text",
    )


class ArenaObservation(Observation):
    """``messages`` are new since the last step: the prompt after reset, then tool messages or the
    user's words."""

    messages: list[dict[str, Any]] = Field(default_factory=list, description="Chat messages")
    tools: list[dict[str, Any]] = Field(
        default_factory=list,
        description="Function schemas of the tools on offer: after reset, and where they change",
    )


class ArenaState(State):
    """Where an episode stands."""

    arena_id: str = ""
    calls: int = 0
    stop_reason: str = ""
