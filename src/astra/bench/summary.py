"""The scores of external suites in one document: checkpoints, their differences, losses.

Attempts lost to harness or endpoint (outcome ``infra``) enter no score; their number is given.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from astra.bench.names import BASE, BASE_NATIVE, FLOOR
from astra.bench.statistics import (
    Estimate,
    efficiency,
    estimate,
    mean_by_entry,
    overall,
    paired_difference,
    pass_hat_k,
    sign_flip_p,
)
from astra.bench.suite_tables import PlayedRun
from astra.records.bench import SuiteEpisode, SuiteOutcome, SuiteRun
from astra.records.score import Scored

PAIRS = (
    ("sft", BASE), ("rl", "sft"), ("rl", BASE),
    (BASE, BASE_NATIVE), ("sft", BASE_NATIVE), ("rl", BASE_NATIVE),
)  # fmt: skip
WITHOUT = {"tau2": ("airline",)}
"""The categories of a suite that the paper leaves out of its overall."""
BALANCED = {"bfcl_single": ("simple_python", "irrelevance")}
"""Two categories of a suite whose mean neither always calling nor never calling brings above one
half: what is right in one is wrong in the other."""
PASS_SCORES = {"arenas": "success"}
"""The score that pass^k counts for a suite, where it is not the headline score."""
DIGITS = 6
_REFUSED = re.compile(r"[^\w./: -]")


def suites_document(
    runs: Sequence[PlayedRun], resamples: int, confidence: float, seed: int
) -> dict[str, Any]:
    """Every checkpoint's scores by suite, then the paired differences between them."""
    by_suite: dict[str, dict[str, PlayedRun]] = {}
    for run, episodes in runs:
        by_suite.setdefault(run.suite, {})[run.checkpoint] = run, episodes
    document: dict[str, Any] = {}
    for suite, played in sorted(by_suite.items()):
        pairs = [(checkpoint, FLOOR) for checkpoint in played if checkpoint != FLOOR] + list(PAIRS)
        document[suite] = {
            "checkpoints": {
                name: _checkpoint(*run, resamples, confidence, seed) for name, run in played.items()
            },
            "differences": {
                f"{after}-{before}": _difference(
                    played[after], played[before], resamples, confidence, seed
                )
                for after, before in pairs
                if after in played and before in played
            },
        }
    return document


def values_of(episodes: Sequence[SuiteEpisode], score: str) -> dict[tuple[str, int], float]:
    """What was measured, by entry and attempt."""
    return {
        (episode.entry_id, episode.attempt): measured.value
        for episode in episodes
        if episode.outcome != SuiteOutcome.INFRA
        and isinstance(measured := episode.scores.get(score), Scored)
    }


def by_category(episodes: Sequence[SuiteEpisode], score: str) -> dict[str, float]:
    """Mean over entries, each the mean over its tries."""
    groups: dict[str, list[SuiteEpisode]] = {}
    for episode in episodes:
        groups.setdefault(episode.category, []).append(episode)
    means: dict[str, float] = {}
    for category, members in sorted(groups.items()):
        entries = mean_by_entry(values_of(members, score))
        if entries:
            means[category] = sum(entries.values()) / len(entries)
    return means


def run_metrics(run: SuiteRun, episodes: Sequence[SuiteEpisode]) -> dict[str, float]:
    """The figures of one run as MLflow takes them: flat, ``<suite>.<figure>``.

    Means over entries of every score, of the headline score by category too. A character that
    MLflow refuses in a name is an underscore.
    """
    figures = {name: fmean(values) for name, values in _scores(episodes).items()}
    for category, mean in by_category(episodes, run.score).items():
        figures[f"by_category.{category}"] = mean
    for outcome in SuiteOutcome:
        figures[f"outcome.{outcome}"] = sum(episode.outcome == outcome for episode in episodes)
    figures |= {name: used for name, used in _efficiency(episodes).items() if used is not None}
    return {_REFUSED.sub("_", f"{run.suite}.{name}"): float(v) for name, v in figures.items()}


def _scores(episodes: Sequence[SuiteEpisode]) -> dict[str, list[float]]:
    """Each entry's mean over its tries, by score, for every score that was measured."""
    names = sorted({name for episode in episodes for name in episode.scores})
    means = {name: list(mean_by_entry(values_of(episodes, name)).values()) for name in names}
    return {name: values for name, values in means.items() if values}


def _checkpoint(
    run: SuiteRun, episodes: Sequence[SuiteEpisode], resamples: int, confidence: float, seed: int
) -> dict[str, Any]:
    outcomes = Counter(str(episode.outcome) for episode in episodes)
    kept = [episode for episode in episodes if episode.outcome != SuiteOutcome.INFRA]
    scores = {
        name: _rounded(estimate(values, resamples, confidence, seed))
        for name, values in _scores(kept).items()
    }
    columns = by_category(kept, run.score)
    document: dict[str, Any] = {
        "score": run.score,
        "scores": scores,
        "by_category": {name: round(value, DIGITS) for name, value in columns.items()},
        "overall": _number(overall(columns)),
        "pass_hat_k": _pass_hat(run, kept),
        "outcomes": dict(sorted(outcomes.items())),
        "lost": outcomes[SuiteOutcome.INFRA],
        "overflows": outcomes[SuiteOutcome.OVERFLOW],
        "sample": {"entries": run.sample_count, "of": run.sample_of, "seed": run.sample_seed},
        "tries": run.tries,
        "decoding": run.decoding,
        "versions": run.versions,
        "options": run.options,
        "prompting": {
            "template": run.template, "hash": run.template_hash, "thoughts": run.thoughts,
        },
    }  # fmt: skip
    for category in WITHOUT.get(run.harness, ()):
        document[f"overall_without_{category}"] = _number(overall(columns, (category,)))
    if run.harness in BALANCED:
        pair = {name: columns[name] for name in BALANCED[run.harness] if name in columns}
        document["balance"] = _number(overall(pair)) if len(pair) == 2 else None
    document |= {name: _number(used) for name, used in _efficiency(kept).items()}
    return document


def _efficiency(episodes: Sequence[SuiteEpisode]) -> dict[str, float | None]:
    kept = [episode for episode in episodes if episode.outcome != SuiteOutcome.INFRA]
    steps = [episode.steps for episode in kept]
    return asdict(efficiency(steps, [one.completion_tokens for one in kept])) if kept else {}


def _pass_hat(run: SuiteRun, episodes: Sequence[SuiteEpisode]) -> dict[str, float]:
    """pass^k for k up to the tries: of a score that is 1 on success."""
    values = values_of(episodes, PASS_SCORES.get(run.harness, run.score))
    chances = {str(k): pass_hat_k(values, k) for k in range(1, run.tries + 1)}
    return {k: round(chance, DIGITS) for k, chance in chances.items() if chance is not None}


def _difference(
    after: PlayedRun, before: PlayedRun, resamples: int, confidence: float, seed: int
) -> dict[str, Any]:
    """The mean difference of the headline score over the entries that both were scored on."""
    score = after[0].score
    ours = mean_by_entry(values_of(after[1], score))
    theirs = mean_by_entry(values_of(before[1], score))
    shared = sorted(ours.keys() & theirs.keys())
    if not shared:
        return {"n": 0}
    pairs = [ours[entry] for entry in shared], [theirs[entry] for entry in shared]
    mean = paired_difference(*pairs, resamples, confidence, seed)
    differences = [one - other for one, other in zip(*pairs, strict=True)]
    return {**_rounded(mean), "p": round(sign_flip_p(differences, resamples, seed), DIGITS)}


def _rounded(value: Estimate) -> Mapping[str, float | int]:
    return {name: round(number, DIGITS) for name, number in asdict(value).items()}


def _number(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)
