"""Parameters of stage ``sft_set``."""

from __future__ import annotations

from pydantic import Field

from astra.contamination.index import ContaminationConfig
from astra.llm.protocol import ModelConfig
from astra.settings import StageConfig


class FloorsConfig(StageConfig):
    """The lowest value with which a trajectory is kept, whatever its mean."""

    query_understanding: float = Field(ge=0, le=1)
    correlation: float = Field(ge=0, le=1)
    faithfulness: float = Field(ge=0, le=1)
    closing: float = Field(ge=0, le=1)


class SFTSetConfig(StageConfig):
    """Block ``sft_set``; conf/sft_set/base.yaml names each default's source."""

    judge: ModelConfig
    min_score: float = Field(ge=0, le=1)
    """The mean from which on a trajectory is kept; calls that timed out or found the tool
    unreachable do not count in it."""
    floors: FloorsConfig
    near_duplicate: float | None = Field(ge=0.5, le=1)
    """The Jaccard similarity of two trajectories' requests and calls from which on the one with the
    lower score is dropped; null: none is."""
    contamination: ContaminationConfig | None
    """The index of benchmark suites that the set must not overlap with; null: not checked."""
    max_samples: int | None = Field(ge=1)
    """The largest size of the set; strata of domain, length, calls and recovery from a failed call
    keep their shares. null: no cap."""
    eval_share: float = Field(ge=0, lt=1)
    """The share of task families whose samples go to the eval split."""
    seed: int
