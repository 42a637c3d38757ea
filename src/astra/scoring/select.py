"""Selection of the training set: benchmark suites, floors, near-duplicates, cap.

Every step depends on the candidates as a set only: the order in which they come changes nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

from astra.contamination.index import ContaminationConfig, ContaminationIndex
from astra.records.base import canonical_json
from astra.records.message import MessageRole
from astra.records.score import Rejection
from astra.records.trajectory import StopReason, Trajectory
from astra.scoring.candidates import Candidate, Candidates, Stratum
from astra.scoring.config import SFTSetConfig
from astra.scoring.floors import JudgedTrajectory, best_mean, missing_score, shortfall
from astra.scoring.rules import recovered
from astra.scoring.view import view_of
from astra.text.similarity import NearDuplicates

LENGTH_STEP = 4
"""Messages per length class of the strata."""
MOST_CALLS = 6
"""Trajectories with more calls share one class."""
SHOWN_CHARS = 500
"""How much of a near-duplicate's text its rejection shows."""


def unfit(
    trajectory: Trajectory, index: ContaminationIndex | None, config: SFTSetConfig
) -> Rejection | None:
    """Why a trajectory is not even judged: it touches a benchmark suite, or it did not end."""
    if index is not None and config.contamination is not None:
        overlap = contaminated(trajectory, index, config.contamination)
        if overlap is not None:
            return overlap
    if trajectory.stop_reason != StopReason.ANSWERED:
        return Rejection(item=trajectory.id, reason=f"stopped_{trajectory.stop_reason}")
    return None


def shortlisted(
    trajectory: Trajectory, judged: JudgedTrajectory, config: SFTSetConfig
) -> Candidate | Rejection:
    """The candidate of a judged trajectory, or its rejection: too low somewhere, or unscored."""
    failing = shortfall(judged, config)
    missing = missing_score(judged)
    if failing is None and missing:
        failing = (f"unscored_{missing}", "\n".join(judged.faults))
    if failing is not None:
        reason, detail = failing
        words = "\n".join(judged.said)
        return Rejection(item=trajectory.id, reason=reason, detail=detail, said=words)
    requests = [m.content for m in trajectory.messages if m.role == MessageRole.USER]
    calls = [[call.call.name, call.call.arguments] for call in trajectory.calls]
    ranked = {name: score for name, score in judged.scores.items() if name != "tool_status"}
    return Candidate(
        id=trajectory.id,
        task_id=trajectory.task_id,
        mean=best_mean(judged.scores),
        rank=best_mean(ranked),
        stratum=(
            trajectory.domain,
            len(trajectory.messages) // LENGTH_STEP,
            min(len(trajectory.calls), MOST_CALLS),
            recovered(view_of(trajectory)),
        ),
        text="\n".join([*requests, canonical_json(calls)]),
        scores=judged.scores,
        selection=judged.selection,
        follow_ups=trajectory.follow_ups,
        prompt_hash=trajectory.prompt_hash,
    )


def contaminated(
    trajectory: Trajectory, index: ContaminationIndex, config: ContaminationConfig
) -> Rejection | None:
    """Why a trajectory is too close to a benchmark suite: in its user's words or its tools."""
    requests = [m.content for m in trajectory.messages if m.role == MessageRole.USER]
    tools = [(tool.original_name or tool.name, tool.parameters) for tool in trajectory.tools]
    overlap = index.shared_text(requests) or index.shared_tools(tools, config)
    if overlap is None:
        return None
    detail = f"{overlap.suite}, {overlap.share:.2f}"
    return Rejection(item=trajectory.id, reason=f"contaminated_{overlap.kind}", detail=detail)


def select(candidates: Candidates, config: SFTSetConfig) -> Iterator[Rejection]:
    """Leave out near-duplicates, then what is over the cap; yields a rejection for each."""
    if config.near_duplicate is not None:
        with NearDuplicates(config.near_duplicate) as index:
            for candidate in candidates.best_first():
                if not index.add(candidate.text):
                    candidates.leave_out(candidate)
                    detail = candidate.text[:SHOWN_CHARS]
                    yield Rejection(item=candidate.id, reason="near_duplicate", detail=detail)
    if config.max_samples is not None:
        yield from _cap(candidates, config.max_samples)


def _cap(candidates: Candidates, total: int) -> Iterator[Rejection]:
    """Keep the best of each stratum, as many as its quota; leave the others out."""
    sizes = Counter(candidate.stratum for candidate in candidates.best_first())
    if sizes.total() <= total:
        return
    quota = _quotas(sizes, total)
    for candidate in candidates.best_first():
        if quota[candidate.stratum] > 0:
            quota[candidate.stratum] -= 1
            continue
        candidates.leave_out(candidate)
        domain, length, calls, recovery = candidate.stratum
        kind = f"{domain}, length {length}, calls {calls}, {'' if recovery else 'no '}recovery"
        detail = f"mean {candidate.mean:.3f}; {kind}"
        yield Rejection(item=candidate.id, reason="over_cap", detail=detail)


def _quotas(sizes: Mapping[Stratum, int], total: int) -> dict[Stratum, int]:
    """How many each stratum may keep, so that the shares stay and the sum is ``total``.

    Largest remainder: each stratum gets the whole part of its exact share, and what is left goes
    to the strata that lost the largest fraction.
    """
    whole = sum(sizes.values())
    exact = {stratum: total * size / whole for stratum, size in sizes.items()}
    quota = {stratum: math.floor(share) for stratum, share in exact.items()}
    by_remainder = sorted(exact, key=lambda stratum: (quota[stratum] - exact[stratum], stratum))
    for stratum in by_remainder[: total - sum(quota.values())]:
        quota[stratum] += 1
    return quota
