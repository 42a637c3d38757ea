"""The report of stage ``bench``: metrics/bench.json, plots, and episodes for a person to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from astra.bench.config import BenchConfig
from astra.bench.episodes import examples
from astra.bench.names import BASE, BASE_NATIVE, FLOOR, REFERENCES, WORLD_FLOORS
from astra.bench.statistics import Estimate, estimate, paired_difference
from astra.bench.world_report import world_document
from astra.records.bench import BenchEpisode, EpisodeClass
from astra.records.message import Message, MessageRole
from astra.records.score import Scored
from astra.store.metrics import StageMetrics

SCORES = (
    "f1", "f1_plain", "precision", "recall", "success", "answer", "calls", "turns", "malformed",
)  # fmt: skip
SCORES_BY_PART = ("f1", "success", "answer")
BREAKDOWNS: Mapping[str, Callable[[BenchEpisode], str]] = {
    "scenario": lambda episode: episode.scenario.value,
    "hops": lambda episode: str(episode.hops),
    "domain": lambda episode: episode.domain,
    "kind": lambda episode: episode.kind.value,
    "difficulty": lambda episode: (
        "world" if episode.world_id else "hard" if episode.hard else "lookup"
    ),
}
PAIRS = (
    ("sft", BASE), ("rl", "sft"),
    (BASE, BASE_NATIVE), ("sft", BASE_NATIVE), ("rl", BASE_NATIVE),
)  # fmt: skip
EXAMPLES = Path("runs/bench/examples.md")
DIGITS = 6


def report_bench(
    metrics: StageMetrics,
    episodes: Sequence[BenchEpisode],
    config: BenchConfig,
    shared: Mapping[str, Any] | None = None,
    suites: Mapping[str, Any] | None = None,
    users: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """Put scores and plots into the stage's metrics, and write the git-ignored examples.

    ``shared``: what the arenas have in common with external suites (arena_overlap.py);
    ``suites``: what playing those said (``summary.suites_document``); ``users``: how users that a
    model plays did, by checkpoint (``llm_user.LlmUsers.rates``).
    """
    played: dict[str, list[BenchEpisode]] = {}
    for episode in episodes:
        played.setdefault(episode.checkpoint, []).append(episode)
    document = build_document(played, config, users or {})
    for name, value in document.items():
        metrics.value(name, value)
    if shared:
        metrics.value("contamination", shared)
    if suites:
        metrics.value("suites", suites)
    plot_scores(metrics, document, suites or {})
    write_examples(EXAMPLES, played, config.examples)


def build_document(
    played: Mapping[str, Sequence[BenchEpisode]],
    config: BenchConfig,
    users: Mapping[str, Mapping[str, float]] | None = None,
) -> dict[str, Any]:
    """The content of metrics/bench.json. Intervals are percentile bootstraps over arenas."""
    scripted = (*REFERENCES, *WORLD_FLOORS)
    models = {name: rows for name, rows in played.items() if name not in scripted}
    worlds = world_document(played, config, users or {})
    return {
        "suite": "held-out arenas",
        "arenas": max(len(rows) for rows in played.values()),
        "sampling": {"temperature": 0.0, "runs": 1, "confidence": config.confidence},
        "checkpoints": {name: _checkpoint(rows, config) for name, rows in models.items()},
        "differences": {
            f"{after}-{before}": _differences(models[after], models[before], config)
            for after, before in PAIRS
            if after in models and before in models
        },
        "references": {name: _means(played[name]) for name in REFERENCES if name in played},
        **({"worlds": worlds} if worlds else {}),
    }


def _checkpoint(episodes: Sequence[BenchEpisode], config: BenchConfig) -> dict[str, Any]:
    by: dict[str, Any] = {}
    for name, key in BREAKDOWNS.items():
        groups: dict[str, list[BenchEpisode]] = {}
        for episode in episodes:
            groups.setdefault(key(episode), []).append(episode)
        by[f"by_{name}"] = {label: _means(groups[label]) for label in sorted(groups)}
    outcomes = Counter(str(episode.outcome) for episode in episodes)
    return {
        "scores": _estimates(episodes, config),
        "outcomes": dict(sorted(outcomes.items())),
        "excluded_infra": outcomes[EpisodeClass.INFRA],
        **by,
    }


def _estimates(episodes: Sequence[BenchEpisode], config: BenchConfig) -> dict[str, Any]:
    rounded: dict[str, Any] = {}
    for name in SCORES:
        values = list(_values(episodes, name).values())
        if values:
            rounded[name] = _rounded(
                estimate(values, config.resamples, config.confidence, config.seed)
            )
    return rounded


def _differences(
    after: Sequence[BenchEpisode], before: Sequence[BenchEpisode], config: BenchConfig
) -> dict[str, Any]:
    """Only arenas that both checkpoints were scored on count."""
    rounded: dict[str, Any] = {}
    for name in SCORES:
        ours, theirs = _values(after, name), _values(before, name)
        shared = sorted(ours.keys() & theirs.keys())
        if shared:
            difference = paired_difference(
                [ours[arena] for arena in shared],
                [theirs[arena] for arena in shared],
                config.resamples, config.confidence, config.seed,
            )  # fmt: skip
            rounded[name] = _rounded(difference)
    return rounded


def _means(episodes: Sequence[BenchEpisode]) -> dict[str, float | int]:
    """``n`` is the number of episodes; each mean is over those where the score was measured."""
    means: dict[str, float | int] = {"n": len(episodes)}
    for name in SCORES:
        values = _values(episodes, name).values()
        if values:
            means[name] = round(sum(values) / len(values), DIGITS)
    return means


def _values(episodes: Iterable[BenchEpisode], name: str) -> dict[str, float]:
    return {
        episode.arena_id: score.value
        for episode in episodes
        if isinstance(score := episode.scores.get(name), Scored)
    }


def _rounded(value: Estimate) -> dict[str, float | int]:
    return {name: round(number, DIGITS) for name, number in asdict(value).items()}


def plot_scores(
    metrics: StageMetrics, document: Mapping[str, Any], suites: Mapping[str, Any]
) -> None:
    """``<score>.csv``, for some scores ``<score>_by_scenario.csv`` and ``<score>_by_hops.csv``,
    and ``suites.csv`` with the headline scores of external suites, where some were played.

    One bar per row: columns ``label`` (checkpoint, preceded by the part) and ``mean``.
    """
    checkpoints: Mapping[str, Any] = document["checkpoints"]
    bars: dict[str, dict[str, float]] = {}
    for checkpoint, block in checkpoints.items():
        for score, value in block["scores"].items():
            bars.setdefault(score, {})[checkpoint] = value["mean"]
        for breakdown in ("scenario", "hops"):
            for part, means in block[f"by_{breakdown}"].items():
                for score in SCORES_BY_PART:
                    if score in means:
                        name = f"{score}_by_{breakdown}"
                        bars.setdefault(name, {})[f"{part} {checkpoint}"] = means[score]
    for suite, scores in suites.items():
        played: Mapping[str, Any] = scores["checkpoints"]
        for checkpoint in sorted(played, key=_trained):
            block = played[checkpoint]
            if head := block["scores"].get(block["score"]):
                bars.setdefault("suites", {})[f"{suite} {checkpoint}"] = head["mean"]
    for name, means in bars.items():
        # Parts together, checkpoints in the order they were trained in.
        rows = means.items() if name in SCORES else sorted(means.items(), key=_part)
        metrics.plot(name, ["label", "mean"], rows)


def _trained(checkpoint: str) -> tuple[int, str]:
    """Doing nothing, then the order of training, then whatever else was served."""
    order = (FLOOR, BASE_NATIVE, BASE, "sft", "rl")
    return order.index(checkpoint) if checkpoint in order else len(order), checkpoint


def _part(row: tuple[str, float]) -> str:
    return row[0].rsplit(" ", 1)[0]


def write_examples(
    path: Path, played: Mapping[str, Sequence[BenchEpisode]], per_class: int
) -> None:
    """Markdown for a person: how each checkpoint succeeds and fails, class by class."""
    lines = ["# Benchmark episodes", ""]
    for checkpoint, episodes in played.items():
        if checkpoint in (*REFERENCES, *WORLD_FLOORS):
            continue
        order = list(EpisodeClass)
        for episode in sorted(examples(episodes, per_class), key=lambda e: order.index(e.outcome)):
            lines += [f"## {checkpoint}: {episode.outcome} ({episode.scenario})", ""]
            lines += [f"arena {episode.arena_id}, ended: {episode.stop_reason}", "", "```"]
            lines += [_line(message) for message in episode.messages if message.role != "system"]
            lines += ["```", ""]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), encoding="utf-8")


def _line(message: Message) -> str:
    calls = [f"-> {call.name}({call.arguments})" for call in message.tool_calls]
    label = message.name if message.role == MessageRole.TOOL else message.role.value
    return "\n".join([f"{label}: {message.content}".rstrip(), *calls]).replace("```", "'''")
