"""Parameters of stage ``bench``."""

from __future__ import annotations

from pydantic import Field, field_validator

from astra.arena.irrelevant import IrrelevantMode
from astra.bench.harness.protocol import ModelEndpoint, SuiteConfig
from astra.contamination.index import ContaminationConfig
from astra.llm.protocol import ModelConfig
from astra.rollout.chat import PolicyConfig
from astra.rollout.driver import RolloutLimits
from astra.sandbox.limits import SandboxLimits
from astra.serving.main import ServingOptions
from astra.settings import StageConfig


class BenchConfig(StageConfig):
    policy: PolicyConfig
    """The base checkpoint; models/sft and models/rl are read with the same dtype."""
    limits: RolloutLimits
    arenas: int | None = Field(ge=1)
    """How many held-out arenas, drawn by id; None: all."""
    irrelevant_tools: IrrelevantMode
    irrelevant_per_band: int = Field(ge=0)
    engine_rows: int = Field(ge=1)
    """Arena episodes side by side."""
    resamples: int = Field(ge=100)
    """Bootstrap resamples of an interval."""
    confidence: float = Field(gt=0.5, lt=1.0)
    max_infra_share: float = Field(ge=0.0, le=1.0)
    """More episodes than this lost to our own machinery: the stage fails."""
    examples: int = Field(ge=0)
    """Episodes shown per class in runs/bench/examples.md."""
    suites: tuple[SuiteConfig, ...]
    """External suites, played after the arenas by a model that does nothing and each checkpoint."""
    serving: ServingOptions
    """How checkpoints are served to suites; with engine ``vllm``, which shards what one device does
    not hold, to the arenas as well. With ``local`` the stage itself loads them for the arenas."""
    user: ModelConfig | None
    """A model that finds words for what the automaton of a goal's script decides (``llm_user.py``),
    at an endpoint of block ``runtime``; None: the automaton has the script's words."""
    endpoints: dict[str, ModelEndpoint]
    """Servers that run already, by checkpoint, for arenas and suites; further names are baselines,
    for suites alone."""
    contamination: ContaminationConfig | None
    """Which suites the arenas are compared with, and when tools count as shared; null: none."""
    sandbox: SandboxLimits
    seed: int

    @field_validator("user")
    @classmethod
    def _is_a_model(cls, user: ModelConfig | None) -> ModelConfig | None:
        if user is not None and user.backend != "openai":
            raise ValueError("a user without a model is null; a model needs backend openai")
        return user
