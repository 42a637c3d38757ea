"""Stage ``sft_set``: score all trajectories, select, write the selected (ASTRA section 3.4)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing

from astra.contamination.index import load_index
from astra.llm.notes import PromptNotes
from astra.llm.pool import sharded
from astra.llm.protocol import Teacher
from astra.prompting import joined_hashes
from astra.records.score import Rejection, Scored
from astra.records.trajectory import SFTSample, Trajectory
from astra.scoring.candidates import Candidate, Candidates, SelectionError
from astra.scoring.config import SFTSetConfig
from astra.scoring.families import Families
from astra.scoring.floors import JudgedTrajectory
from astra.scoring.judge import score
from astra.scoring.select import select, shortlisted, unfit
from astra.store.metrics import StageMetrics


async def sft_set(
    trajectories: Callable[[], Iterable[Trajectory]],
    judge: Teacher,
    families: Families,
    config: SFTSetConfig,
    open_items: int,
    metrics: StageMetrics,
) -> AsyncGenerator[SFTSample | Rejection, None]:
    """The selected trajectories as samples, and a rejection for each of the others.

    ``trajectories`` is read twice: selection needs the scores of all before any is chosen.
    """
    with Candidates() as candidates:
        rejected = _shortlist(trajectories(), judge, candidates, config, open_items, metrics)
        async with aclosing(rejected):
            async for rejection in rejected:
                yield rejection
        for rejection in select(candidates, config):
            yield rejection
        for sample in _samples(trajectories(), candidates, families, config):
            yield sample


async def _shortlist(
    trajectories: Iterable[Trajectory],
    judge: Teacher,
    candidates: Candidates,
    config: SFTSetConfig,
    open_items: int,
    metrics: StageMetrics,
) -> AsyncGenerator[Rejection, None]:
    """Judge every trajectory and put those that are good by themselves in ``candidates``.

    Yields the others as rejections; what is unfit from the start is not judged. Counts
    ``trajectories`` and the dimensions' means.
    """
    index = load_index(config.contamination)
    averages = _Averages()

    async def work(trajectory: Trajectory) -> tuple[JudgedTrajectory | None, Candidate | Rejection]:
        if rejection := unfit(trajectory, index, config):
            return None, rejection
        notes = PromptNotes()
        judged = await score(trajectory, notes.of(judge), config)
        prompt_hash = joined_hashes(trajectory.prompt_hash, notes.prompt_hash)
        noted = trajectory.model_copy(update={"prompt_hash": prompt_hash})
        return judged, shortlisted(noted, judged, config)

    async with aclosing(sharded(trajectories, work, open_items)) as outcomes:
        async for judged, outcome in outcomes:
            metrics.count("trajectories")
            if index is not None:
                metrics.count("checked_for_contamination")
            if judged is not None:
                averages.add(judged)
            if isinstance(outcome, Rejection):
                yield outcome
            else:
                candidates.add(outcome)
    averages.report(metrics)
    if index is not None:
        metrics.value("contamination_suites", index.about)


class _Averages:
    """What judging found: each dimension's mean where it was scored, and origins of suspects."""

    def __init__(self) -> None:
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._counts: Counter[str] = Counter()
        self._origins: Counter[str] = Counter()

    def add(self, judged: JudgedTrajectory) -> None:
        for name, measured in {**judged.scores, **judged.selection}.items():
            if isinstance(measured, Scored):
                self._sums[name] += measured.value
                self._counts[name] += 1
        self._origins.update(judged.origins)

    def report(self, metrics: StageMetrics) -> None:
        counts = dict(sorted(self._counts.items()))
        means = {name: round(self._sums[name] / n, 4) for name, n in counts.items()}
        metrics.value("mean_by_dimension", means)
        metrics.value("scored_by_dimension", counts)
        metrics.value("suspects_by_origin", dict(sorted(self._origins.items())))


def _samples(
    trajectories: Iterable[Trajectory],
    candidates: Candidates,
    families: Families,
    config: SFTSetConfig,
) -> Iterator[SFTSample]:
    """The trajectories whose candidates are left, as training samples."""
    # Before any split is drawn: a later conversation may join two families.
    for candidate in candidates.best_first():
        if candidate.follow_ups:
            families.join([candidate.task_id, *candidate.follow_ups])
    for trajectory in trajectories:
        selected = candidates.of(trajectory.id)
        if selected is None:
            continue
        yield SFTSample(
            trajectory_id=trajectory.id,
            split=families.split(trajectory.task_id, config.eval_share, config.seed),
            language=trajectory.language,
            domain=trajectory.domain,
            tools=trajectory.tools,
            messages=trajectory.messages,
            scores=dict(selected.scores),
            mean_score=selected.mean,
            selection=dict(selected.selection),
            prompt_hash=selected.prompt_hash,
        )


class Statistics:
    """The data statistics of the paper's appendix, over the written samples."""

    def __init__(self) -> None:
        self._functions: set[tuple[str, str]] = set()
        self._samples = self._messages = self._calls = self._few = 0
        self._roles: Counter[str] = Counter()

    def measure(self, metrics: StageMetrics, sample: SFTSample) -> None:
        """Add one sample to the stage's counts and distributions."""
        calls = [call.name for message in sample.messages for call in message.tool_calls]
        roles = [message.role for message in sample.messages]
        self._samples += 1
        self._messages += len(roles)
        self._calls += len(calls)
        if 1 <= len(calls) <= 5:
            self._few += 1
        self._functions.update((sample.domain, name) for name in calls)
        self._roles.update(roles)
        metrics.count(f"samples_{sample.split}")
        metrics.distribution("messages_per_sample", [len(roles)])
        metrics.distribution("calls_per_sample", [len(calls)])
        metrics.distribution("domain", [sample.domain])
        metrics.distribution("language", [sample.language])
        metrics.distribution("role", roles)
        metrics.distribution("mean_score", [f"{sample.mean_score:.2f}"])

    def finish(self, metrics: StageMetrics) -> None:
        """Record the totals.

        Raises SelectionError if there is no sample at all; the metrics are written before, so
        that they tell why.
        """
        total = self._samples
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
