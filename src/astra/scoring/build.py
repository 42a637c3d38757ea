"""Trajectories to the SFT set: score all, select, write the selected (ASTRA section 3.4)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator

from astra.contamination.index import load_index
from astra.llm.notes import PromptNotes
from astra.llm.pool import map_bounded
from astra.llm.protocol import Teacher
from astra.prompting import joined_hashes
from astra.records.score import Rejection, Score, Scored
from astra.records.trajectory import SFTSample, Trajectory
from astra.scoring.config import SFTSetConfig
from astra.scoring.judge import DIMENSIONS, score
from astra.scoring.select import (
    Candidate,
    Families,
    SelectionError,
    candidate,
    contaminated,
    select,
)
from astra.store.metrics import StageMetrics


async def scored(
    trajectories: Iterable[Trajectory], judge: Teacher, concurrency: int
) -> AsyncIterator[tuple[Trajectory, dict[str, Score]]]:
    """Every trajectory with its seven scores, in order; its ``prompt_hash`` covers the judge's."""

    async def work(trajectory: Trajectory) -> tuple[Trajectory, dict[str, Score]]:
        notes = PromptNotes()
        scores = await score(trajectory, notes.of(judge))
        behind = joined_hashes(trajectory.prompt_hash, notes.prompt_hash)
        return trajectory.model_copy(update={"prompt_hash": behind}), scores

    try:
        async for pair in map_bounded(trajectories, work, concurrency):
            yield pair
    finally:
        await judge.close()


def shortlist(
    pairs: Iterable[tuple[Trajectory, dict[str, Score]]],
    config: SFTSetConfig,
    metrics: StageMetrics,
) -> dict[str, Candidate]:
    """The selected candidates by trajectory id; counts every drop and every score."""
    index = load_index(config.contamination)
    sums: defaultdict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    candidates: list[Candidate] = []
    for trajectory, scores in pairs:
        metrics.count("trajectories")
        for name in DIMENSIONS:
            one = scores[name]
            if isinstance(one, Scored):
                sums[name] += one.value
                counts[name] += 1
        judged = candidate(trajectory, scores, config.min_score)
        if index is not None and config.contamination is not None:
            metrics.count("checked_for_contamination")
            judged = contaminated(trajectory, index, config.contamination) or judged
        if isinstance(judged, Rejection):
            metrics.reject(judged)
        else:
            candidates.append(judged)
    metrics.value("mean_by_dimension", {n: round(sums[n] / counts[n], 4) for n in sorted(counts)})
    metrics.value("scored_by_dimension", dict(sorted(counts.items())))
    if index is not None:
        metrics.value("contamination_suites", index.about)
    chosen, rejections = select(candidates, config)
    for rejection in rejections:
        metrics.reject(rejection)
    return {one.id: one for one in chosen}


def samples(
    trajectories: Iterable[Trajectory],
    chosen: dict[str, Candidate],
    families: Families,
    config: SFTSetConfig,
) -> Iterator[SFTSample]:
    """The selected trajectories as training samples."""
    for one in chosen.values():
        if one.follow_ups:
            families.join([one.task_id, *one.follow_ups])
    for trajectory in trajectories:
        one = chosen.get(trajectory.id)
        if one is None:
            continue
        yield SFTSample(
            trajectory_id=trajectory.id,
            split=families.split(trajectory.task_id, config.eval_share, config.seed),
            language=trajectory.language,
            domain=trajectory.domain,
            tools=trajectory.tools,
            messages=trajectory.messages,
            scores=dict(one.scores),
            mean_score=one.mean,
            prompt_hash=one.prompt_hash,
        )


class Statistics:
    """The data statistics of the paper's appendix, over the written samples."""

    def __init__(self, metrics: StageMetrics) -> None:
        self._metrics = metrics
        self._functions: set[tuple[str, str]] = set()
        self._samples = self._messages = self._calls = self._few = 0
        self._roles: Counter[str] = Counter()

    def watch(self, written: Iterable[SFTSample]) -> Iterator[SFTSample]:
        for sample in written:
            self._add(sample)
            yield sample

    def _add(self, sample: SFTSample) -> None:
        metrics = self._metrics
        calls = [call.name for message in sample.messages for call in message.tool_calls]
        roles = [message.role for message in sample.messages]
        self._samples += 1
        self._messages += len(roles)
        self._calls += len(calls)
        self._few += 1 <= len(calls) <= 5
        self._functions.update((sample.domain, name) for name in calls)
        self._roles.update(roles)
        metrics.count(f"samples_{sample.split}")
        metrics.distribution("messages_per_sample", [len(roles)])
        metrics.distribution("calls_per_sample", [len(calls)])
        metrics.distribution("domain", [sample.domain])
        metrics.distribution("language", [sample.language])
        metrics.distribution("role", roles)
        metrics.distribution("mean_score", [f"{sample.mean_score:.2f}"])

    def finish(self) -> None:
        """Write the totals. Raises SelectionError if there is no sample at all."""
        metrics, total = self._metrics, self._samples
        metrics.value("samples", total)
        metrics.value("messages", self._messages)
        metrics.value("functions_covered", len(self._functions))
        if not total:
            metrics.write()
            reasons = ", ".join(f"{r} {n}" for r, n in metrics.dropped.most_common(5)) or "none"
            raise SelectionError(
                f"no trajectory was selected (dropped: {reasons}); see metrics/sft_set.json. If "
                "the judge was unavailable, repair its endpoint and run the stage again"
            )
        metrics.value("messages_per_sample", round(self._messages / total, 4))
        metrics.value("calls_per_sample", round(self._calls / total, 4))
        metrics.value("share_1_to_5_calls", round(self._few / total, 4))
        shares = {role: round(n / self._messages, 4) for role, n in sorted(self._roles.items())}
        metrics.value("role_shares", shares)
