"""Which scored trajectories pass: the mean, and floors that no mean makes up for.

The functions also read unfinished scoring: a dimension that was not asked counts as the best it
can become, so that a trajectory which cannot pass any more needs no further ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from astra.records.score import Score, Scored, Unscored
from astra.scoring.config import SFTSetConfig
from astra.scoring.rules import NOT_APPLICABLE

DIMENSIONS = (
    "query_understanding",
    "query_planning",
    "context_understanding",
    "context_planning",
    "tool_status",
    "conciseness",
    "final_answer",
)
"""The seven dimensions of ASTRA section 3.4; the mean of a sample is over these."""
SELECTION = ("correlation", "faithfulness", "closing", "own_tool_status")
"""What selection looks at besides: the halves of ``final_answer``, the lowest understanding of a
turn that speaks to the user and calls nothing, and ``tool_status`` without the calls that timed out
or found the tool unreachable."""
NOT_ASKED = "not_asked"
"""Reason of a dimension that was not judged, since the trajectory could not pass any more."""


@dataclass(frozen=True)
class JudgedTrajectory:
    """A trajectory's scores, and what the judge found on the way."""

    scores: Mapping[str, Score]
    """The seven, under the names of DIMENSIONS."""
    selection: Mapping[str, Score]
    """What selection looks at besides, under the names of SELECTION."""
    origins: tuple[str, ...] = ()
    """Where each suspect value comes from, in the judge's word."""
    fabricated: tuple[str, ...] = ()
    """The suspect values that somebody should have given, one line each."""
    needless_writes: tuple[str, ...] = ()
    """The calls that changed something nobody asked to change, one line each."""
    said: tuple[str, ...] = ()
    """The judge's or the rules' reasons, one line each."""
    faults: tuple[str, ...] = ()
    """Why a dimension has no score, one line each."""


def shortfall(judged: JudgedTrajectory, config: SFTSetConfig) -> tuple[str, str] | None:
    """Why a trajectory does not pass, whatever is still to be judged: a reason and its detail.

    None if it passes or still may. A missing score is no shortfall (``missing_score`` tells).
    """
    if judged.fabricated:
        return "fabricated_argument", "\n".join(judged.fabricated)
    floors = config.floors
    low = _below(judged.scores, "query_understanding", floors.query_understanding)
    misread = judged.scores["query_understanding"] == Scored(value=0.0)
    if judged.needless_writes and not misread:  # acting on the wrong thing is misreading
        return "needless_write", "\n".join(judged.needless_writes)
    if low:
        return "misunderstood", low
    if low := _below(judged.selection, "faithfulness", floors.faithfulness):
        return "not_faithful", low
    if low := _below(judged.selection, "correlation", floors.correlation):
        return "not_answered", low
    if low := _below(judged.selection, "closing", floors.closing):
        return "misread", low
    own = {**judged.scores, "tool_status": judged.selection["own_tool_status"]}
    mean = best_mean(own)
    if mean < config.min_score:
        return "below_min_score", f"mean {mean:.3f}: {_lowest(own, config.min_score)}"
    return None


def _below(scores: Mapping[str, Score], name: str, floor: float) -> str:
    score = scores[name]
    if isinstance(score, Scored) and score.value < floor:
        return f"{name} {score.value:.2f}, floor {floor:.2f}"
    return ""


def _lowest(scores: Mapping[str, Score], bound: float) -> str:
    """The dimensions under ``bound``, the lowest first."""
    low = sorted(
        (score.value, name)
        for name, score in scores.items()
        if isinstance(score, Scored) and score.value < bound
    )
    return ", ".join(f"{name} {value:.2f}" for value, name in low)


def missing_score(judged: JudgedTrajectory) -> str:
    """The reason of the first dimension whose measurement failed; empty if none did."""
    missing = [
        (score.reason == NOT_ASKED, f"{name}_{score.reason}")
        for name, score in judged.scores.items()
        if isinstance(score, Unscored) and score.reason != NOT_APPLICABLE
    ]
    # What was not asked follows from a failure, and says less.
    return min(missing, key=lambda one: one[0])[1] if missing else ""


def best_mean(scores: Mapping[str, Score]) -> float:
    """The highest mean that the dimensions can still reach; 0 where none applies.

    With all measured, it is their mean: what does not apply is left out.
    """
    values = [
        score.value if isinstance(score, Scored) else 1.0
        for score in scores.values()
        if isinstance(score, Scored) or score.reason != NOT_APPLICABLE
    ]
    return sum(values) / len(values) if values else 0.0
