"""Parameters of stages ``envs`` and ``envs_merged``."""

from __future__ import annotations

from pydantic import Field

from astra.embedding.protocol import EmbeddingConfig
from astra.envsynth.worlds import Nodes
from astra.llm.protocol import ModelConfig
from astra.sandbox.limits import SandboxLimits
from astra.settings import StageConfig


class EnvsConfig(StageConfig):
    teacher: ModelConfig
    nodes: Nodes = "needed"
    """Which sub-questions become executable: every one that needs a tool, or, as in the paper,
    only those that others depend on."""
    outer_attempts: int = Field(ge=1)
    """Fresh starts from a new tool document."""
    inner_attempts: int = Field(ge=1)
    """Tries of call and code per document, each told why the one before failed."""
    other_keys: int = Field(ge=1)
    """How many entities besides the one asked for a tool's data should hold."""
    batch_instances: int = Field(ge=1)
    """Instances whose environments are verified together; bounds memory."""
    sandbox: SandboxLimits


class EnvsMergedConfig(StageConfig):
    teacher: ModelConfig
    nodes: Nodes = "needed"
    """As in stage envs: which sub-questions must have an environment."""
    merge_attempts: int = Field(ge=1)
    """Tries of one merge, each told why the one before failed."""
    per_band: int = Field(ge=0)
    """Irrelevant-tool candidates kept per similarity band (K)."""
    embedding: EmbeddingConfig
    batch_instances: int = Field(ge=1)
    sandbox: SandboxLimits
