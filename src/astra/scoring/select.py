"""From scored trajectories to a training set: cut-off, near-duplicates, cap, split.

Works on light candidates; the trajectories themselves are read again when they are written.
Every step is a pure function of the candidates as a set: order of arrival changes nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from astra.contamination.index import ContaminationConfig, ContaminationIndex
from astra.errors import AstraError
from astra.records.base import canonical_json, content_id
from astra.records.message import MessageRole
from astra.records.score import Rejection, Score, Unscored
from astra.records.task import Task
from astra.records.trajectory import StopReason, Trajectory
from astra.scoring.config import SFTSetConfig
from astra.scoring.judge import mean_score
from astra.text.similarity import NearDuplicates

TRAIN, EVAL = "train", "eval"
LENGTH_STEP = 4
"""Messages per length class of the strata."""
MOST_CALLS = 6
"""Trajectories with more calls share one class."""
Stratum = tuple[str, int, int]


class SelectionError(AstraError):
    """No usable training set can be selected."""


@dataclass(frozen=True)
class Candidate:
    """What selection needs to know of a scored trajectory."""

    id: str
    task_id: str
    mean: float
    stratum: Stratum
    text: str
    """User messages and calls, for the near-duplicate check."""
    scores: Mapping[str, Score]
    follow_ups: tuple[str, ...] = ()
    prompt_hash: str = ""


def candidate(
    trajectory: Trajectory, scores: dict[str, Score], min_score: float
) -> Candidate | Rejection:
    """Judge one scored trajectory by itself: unfinished, unscored and low ones are rejected."""
    if trajectory.stop_reason != StopReason.ANSWERED:
        return Rejection(item=trajectory.id, reason=f"stopped_{trajectory.stop_reason}")
    mean = mean_score(scores)
    if isinstance(mean, Unscored):
        return Rejection(item=trajectory.id, reason=f"unscored_{mean.reason}")
    if mean.value < min_score:
        return Rejection(item=trajectory.id, reason="below_min_score", detail=f"{mean.value:.3f}")
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
        scores=scores,
        follow_ups=trajectory.follow_ups,
        prompt_hash=trajectory.prompt_hash,
    )


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


def select(
    candidates: Iterable[Candidate], config: SFTSetConfig
) -> tuple[list[Candidate], list[Rejection]]:
    """The selected candidates, best first, and why the others are not."""
    ordered = sorted(candidates, key=lambda one: (-one.mean, one.id))
    rejections: list[Rejection] = []
    if config.near_duplicate is not None:
        index = NearDuplicates(config.near_duplicate)
        fresh: list[Candidate] = []
        for one in ordered:
            if index.add(one.text):
                fresh.append(one)
            else:
                rejections.append(Rejection(item=one.id, reason="near_duplicate"))
        ordered = fresh
    if config.max_samples is not None and len(ordered) > config.max_samples:
        quota = _quotas(ordered, config.max_samples)
        chosen: list[Candidate] = []
        for one in ordered:
            if quota[one.stratum] > 0:
                quota[one.stratum] -= 1
                chosen.append(one)
            else:
                rejections.append(Rejection(item=one.id, reason="over_cap"))
        ordered = chosen
    return ordered, rejections


def _quotas(candidates: Sequence[Candidate], total: int) -> dict[Stratum, int]:
    """Shares of the strata kept, by largest remainder; the sum is ``total``."""
    sizes: defaultdict[Stratum, int] = defaultdict(int)
    for one in candidates:
        sizes[one.stratum] += 1
    exact = {stratum: total * size / len(candidates) for stratum, size in sizes.items()}
    quota = {stratum: math.floor(share) for stratum, share in exact.items()}
    by_remainder = sorted(exact, key=lambda stratum: (quota[stratum] - exact[stratum], stratum))
    for stratum in by_remainder[: total - sum(quota.values())]:
        quota[stratum] += 1
    return quota


class Families:
    """Tasks and the tasks augmented from them; a family is never split."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._parents = {task.id: task.parent_id for task in tasks}
        self._merged: dict[str, str] = {}

    def join(self, task_ids: Sequence[str]) -> None:
        """Make one family of those of these tasks, since one conversation holds them all."""
        first, *others = sorted({self._family(one) for one in task_ids})
        self._merged.update(dict.fromkeys(others, first))

    def _family(self, task_id: str) -> str:
        """The root, or that of the first family that was joined to it."""
        family = self.root(task_id)
        while family in self._merged:
            family = self._merged[family]
        return family

    def root(self, task_id: str) -> str:
        """The first ancestor. A parent that was filtered out still names the family."""
        if task_id not in self._parents:
            raise SelectionError(
                f"task {task_id} of a trajectory is not in the task table; rebuild with "
                "`dvc repro trajectories`"
            )
        seen = {task_id}
        while parent := self._parents.get(task_id):
            if parent in seen:
                raise SelectionError(f"task {parent} is its own ancestor")
            seen.add(parent)
            task_id = parent
        return task_id

    def split(self, task_id: str, eval_share: float, seed: int) -> str:
        """train or eval, by a hash of the family."""
        ticket = int(content_id(["split", seed, self._family(task_id)]), 16) / 16**16
        return EVAL if ticket < eval_share else TRAIN
