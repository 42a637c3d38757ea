"""Parameters of stage ``envs``."""

from __future__ import annotations

from pydantic import Field

from astra.envsynth.worlds import Nodes
from astra.llm.protocol import ModelConfig
from astra.sandbox.limits import SandboxLimits
from astra.settings import StageConfig


class EnvsConfig(StageConfig):
    teacher: ModelConfig
    nodes: Nodes
    """Which sub-questions become executable: every one that needs a tool, or, as in the paper,
    only those that others depend on."""
    outer_attempts: int = Field(ge=1)
    """Fresh starts from a new tool document."""
    inner_attempts: int = Field(ge=1)
    """Tries of call and code per document: of the part at fault, told what was wrong with it."""
    unlike_names: float = Field(ge=0.0, le=1.0)
    """The share of tools, those of plain look-ups aside, whose name must share no content word with
    the question."""
    formats: float = Field(ge=0.0, le=1.0)
    """The share of tools that should want a value in another form than the question has it."""
    other_keys: int = Field(ge=1)
    """How many entities besides the one asked for a tool's data should hold, where it takes a part
    of a table."""
    max_asks: int = Field(ge=1)
    """Asks that one sub-question may cost in all, whatever the attempts would still allow."""
    verify_batch: int = Field(ge=1)
    """Tools verified together at most; bounds the open sessions."""
    sandbox: SandboxLimits
