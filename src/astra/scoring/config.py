"""Parameters of stage ``sft_set``."""

from __future__ import annotations

from pydantic import Field

from astra.contamination.index import ContaminationConfig
from astra.llm.protocol import ModelConfig
from astra.settings import StageConfig


class SFTSetConfig(StageConfig):
    """Block ``sft_set``; conf/sft_set/base.yaml names each default's source."""

    judge: ModelConfig
    min_score: float = Field(ge=0, le=1)
    """Mean score from which a trajectory is kept."""
    near_duplicate: float | None = Field(ge=0.5, le=1)
    """Jaccard similarity of question and calls from which the lower-scored one is dropped;
    null: none is."""
    contamination: ContaminationConfig | None
    """Which benchmark suites the set must not touch; null: not checked."""
    max_samples: int | None = Field(ge=1)
    """Largest set; strata of domain, length and calls keep their shares. null: no cap."""
    eval_share: float = Field(ge=0, lt=1)
    """Share of task families whose samples go to the eval split."""
    seed: int
