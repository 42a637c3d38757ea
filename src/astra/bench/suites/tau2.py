"""tau2-Bench: retail 114, telecom 114 and airline 50 tasks of the base splits (v0.2.0's data).

``endpoints.user`` is the user simulator; scores depend on it, so its model is recorded with them.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from astra.bench.harness.environment import caged_driver
from astra.bench.harness.harness import HarnessSuite
from astra.settings import StageConfig

Domain = Literal["retail", "telecom", "airline"]
DOMAINS: tuple[Domain, ...] = ("retail", "telecom", "airline")


class Tau2Options(StageConfig):
    domains: tuple[Domain, ...] = Field(default=DOMAINS, min_length=1)
    max_steps: int = Field(default=200, ge=1)
    """Messages of both sides and tool results; tau2's default."""
    max_errors: int = Field(default=10, ge=1)
    """Failed tool calls that end a conversation; tau2's default."""
    user_decoding: dict[str, Any] = Field(default_factory=lambda: {"temperature": 0.0})
    """How the user simulator samples; tau2's default."""


SUITE = HarnessSuite("tau2", "reward", ("user",), Tau2Options, lambda: caged_driver("tau2"))
