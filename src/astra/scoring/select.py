"""From scored trajectories to a training set: cut-off, benchmark suites, near-duplicates, cap.

Every step is a pure function of the candidates as a set: order of arrival changes nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

from astra.contamination.index import ContaminationConfig, ContaminationIndex
from astra.records.base import canonical_json
from astra.records.message import MessageRole
from astra.records.score import Rejection, Score, Scored, Unscored
from astra.records.trajectory import StopReason, Trajectory
from astra.scoring.candidates import Candidate, Candidates, Stratum
from astra.scoring.config import SFTSetConfig
from astra.scoring.judge import JudgedTrajectory, mean_score
from astra.text.similarity import NearDuplicates

LENGTH_STEP = 4
"""Messages per length class of the strata."""
MOST_CALLS = 6
"""Trajectories with more calls share one class."""
SHOWN_CHARS = 500
"""Of a near-duplicate's text, in its rejection."""


def candidate(
    trajectory: Trajectory, judged: JudgedTrajectory, min_score: float
) -> Candidate | Rejection:
    """Judge one scored trajectory by itself: unfinished, unscored and low ones are rejected."""

    def rejected(reason: str, detail: str = "") -> Rejection:
        said = "\n".join(judged.said)
        return Rejection(item=trajectory.id, reason=reason, detail=detail, said=said)

    if trajectory.stop_reason != StopReason.ANSWERED:
        return rejected(f"stopped_{trajectory.stop_reason}")
    mean = mean_score(judged.scores)
    if isinstance(mean, Unscored):
        return rejected(f"unscored_{mean.reason}", "\n".join(judged.faults))
    if mean.value < min_score:
        low = _lowest(judged.scores, min_score)
        return rejected("below_min_score", f"mean {mean.value:.3f}: {low}")
    asked = [m.content for m in trajectory.messages if m.role == MessageRole.USER]
    calls = [[call.call.name, call.call.arguments] for call in trajectory.calls]
    return Candidate(
        id=trajectory.id,
        task_id=trajectory.task_id,
        mean=mean.value,
        stratum=(
            trajectory.domain,
            len(trajectory.messages) // LENGTH_STEP,
            min(len(trajectory.calls), MOST_CALLS),
        ),
        text="\n".join([*asked, canonical_json(calls)]),
        scores=judged.scores,
        follow_ups=trajectory.follow_ups,
        prompt_hash=trajectory.prompt_hash,
    )


def _lowest(scores: Mapping[str, Score], bound: float) -> str:
    """The dimensions under ``bound``, the lowest first."""
    low = sorted(
        (score.value, name)
        for name, score in scores.items()
        if isinstance(score, Scored) and score.value < bound
    )
    return ", ".join(f"{name} {value:.2f}" for value, name in low)


def contaminated(
    trajectory: Trajectory, index: ContaminationIndex, config: ContaminationConfig
) -> Rejection | None:
    """Why a trajectory is too close to a benchmark suite: in its user's words or its tools."""
    asked = [m.content for m in trajectory.messages if m.role == MessageRole.USER]
    tools = [(tool.original_name or tool.name, tool.parameters) for tool in trajectory.tools]
    overlap = index.shared_text(asked) or index.shared_tools(tools, config)
    if overlap is None:
        return None
    detail = f"{overlap.suite}, {overlap.share:.2f}"
    return Rejection(item=trajectory.id, reason=f"contaminated_{overlap.kind}", detail=detail)


def select(candidates: Candidates, config: SFTSetConfig) -> Iterator[Rejection]:
    """Leave out near-duplicates and what is over the cap, and say so of each."""
    if config.near_duplicate is not None:
        with NearDuplicates(config.near_duplicate) as index:
            for one in candidates.best_first():
                if not index.add(one.text):
                    candidates.leave_out(one)
                    shown = one.text[:SHOWN_CHARS]
                    yield Rejection(item=one.id, reason="near_duplicate", detail=shown)
    if config.max_samples is not None:
        yield from _cap(candidates, config.max_samples)


def _cap(candidates: Candidates, total: int) -> Iterator[Rejection]:
    sizes = Counter(one.stratum for one in candidates.best_first())
    if sizes.total() <= total:
        return
    quota = _quotas(sizes, total)
    for one in candidates.best_first():
        if quota[one.stratum] > 0:
            quota[one.stratum] -= 1
            continue
        candidates.leave_out(one)
        domain, length, calls = one.stratum
        detail = f"mean {one.mean:.3f}; {domain}, length {length}, calls {calls}"
        yield Rejection(item=one.id, reason="over_cap", detail=detail)


def _quotas(sizes: Mapping[Stratum, int], total: int) -> dict[Stratum, int]:
    """Shares of the strata kept, by largest remainder; the sum is ``total``."""
    whole = sum(sizes.values())
    exact = {stratum: total * size / whole for stratum, size in sizes.items()}
    quota = {stratum: math.floor(share) for stratum, share in exact.items()}
    by_remainder = sorted(exact, key=lambda stratum: (quota[stratum] - exact[stratum], stratum))
    for stratum in by_remainder[: total - sum(quota.values())]:
        quota[stratum] += 1
    return quota
