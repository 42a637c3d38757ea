"""Scores of the checkpoints on our arenas and on external suites, as tables and charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from markupsafe import Markup

from astra.bench.statistics import Estimate, estimate
from astra.errors import AstraError
from astra.records.bench import SuiteEpisode, SuiteOutcome, SuiteRun
from astra.records.score import Scored
from astra.report.charts import Charts, Interval
from astra.report.rollouts import Task, suite_tasks
from astra.report.workspace import Workspace
from astra.store.tables import read_records

TITLES = {
    "f1": "F1, final answer counts",
    "f1_plain": "F1 of the paper",
    "precision": "precision",
    "recall": "recall",
    "success": "success",
    "answer": "final answer",
    "malformed": "malformed calls",
    "calls": "calls per episode",
    "turns": "turns per episode",
}
CHARTED = {"f1": "F1", "precision": "precision", "recall": "recall", "success": "success"}
LOOKS = {"base": 0, "sft": 1, "rl": 2}
RESAMPLES, CONFIDENCE = 2000, 0.95
SUITES = Path("data/suites")


def look(name: str) -> int:
    """The colour of a checkpoint; others than ours share the next one."""
    return LOOKS.get(name, 3)


def arenas(workspace: Workspace, charts: Charts) -> dict[str, Any]:
    """The section on our held-out arenas; empty if ``bench`` has not run."""
    document = workspace.metrics("bench")
    if not document:
        return {}
    try:
        return _arenas(document, charts)
    except (KeyError, TypeError, AttributeError) as error:
        workspace.lacks(f"metrics/bench.json is not of this version ({error!r}); rebuild bench")
        return {}


def _arenas(document: Mapping[str, Any], charts: Charts) -> dict[str, Any]:
    checkpoints: dict[str, Any] = document["checkpoints"]
    references: dict[str, Any] = document["references"]
    estimates = {name: block["scores"] for name, block in checkpoints.items()}
    shown = [score for score in TITLES if any(score in found for found in estimates.values())]
    intervals = {
        title: [
            Interval(
                name, found[score]["mean"], found[score]["low"], found[score]["high"], look(name)
            )
            for name, found in estimates.items()
            if score in found
        ]
        for score, title in CHARTED.items()
    }
    outcomes: dict[str, dict[str, int]] = {n: b["outcomes"] for n, b in checkpoints.items()}
    kinds = sorted({kind for found in outcomes.values() for kind in found})
    return {
        "about": f"{document['arenas']} {document['suite']}, greedy decoding, one run, "
        f"{document['sampling']['confidence']:.0%} bootstrap intervals over arenas",
        "checkpoints": list(checkpoints),
        "headline": {name: found.get("f1") for name, found in estimates.items()},
        "references": list(references),
        "differences": [name.replace("-", " − ") for name in document["differences"]],
        "rows": [
            {
                "title": TITLES[score],
                "scores": [found.get(score) for found in estimates.values()],
                "references": [block.get(score) for block in references.values()],
                "differences": [block.get(score) for block in document["differences"].values()],
            }
            for score in shown
        ],
        "charts": [
            charts.intervals("Scores with intervals", intervals),
            _breakdown(charts, "F1 by number of hops", checkpoints, "by_hops"),
            _breakdown(charts, "F1 by scenario", checkpoints, "by_scenario"),
            _breakdown(charts, "F1 by domain", checkpoints, "by_domain"),
        ],
        "outcomes": {
            kind.replace("_", " "): [found.get(kind, 0) for found in outcomes.values()]
            for kind in kinds
        },
        "excluded": sum(block["excluded_infra"] for block in checkpoints.values()),
    }


def _breakdown(charts: Charts, title: str, checkpoints: Mapping[str, Any], part: str) -> Markup:
    labels = sorted({label for block in checkpoints.values() for label in block[part]})
    groups = {
        label.replace("_", " "): [
            (name, float(block[part][label]["f1"]), look(name))
            for name, block in checkpoints.items()
            if "f1" in block[part].get(label, {})
        ]
        for label in labels
    }
    return charts.grouped(title, {label: group for label, group in groups.items() if group})


def suites(workspace: Workspace, examples: int) -> list[dict[str, Any]]:
    """One entry per suite that was played, with a row per checkpoint."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((workspace.root / SUITES).glob("*/*.json")):
        try:
            run = SuiteRun.model_validate_json(path.read_text(encoding="utf-8"))
            row = _suite_row(run, path.with_suffix(".parquet"))
        except (AstraError, pa.ArrowException, OSError, ValueError) as error:
            workspace.lacks(f"{path.relative_to(workspace.root)} gives no score: {error}")
            continue
        tasks = suite_tasks(workspace, path.with_suffix(".parquet"), run.score, examples)
        found.setdefault(run.suite, []).append({**row, "tasks": tasks})
    if not found:
        workspace.lacks(
            "data/suites: no external suite (BFCL, τ²-Bench, ACEBench, AIME) was played here; "
            "bench.suites names them"
        )
    return [
        {"suite": suite, "runs": sorted(rows, key=lambda row: _order(row["run"].checkpoint))}
        for suite, rows in sorted(found.items())
    ]


def _order(checkpoint: str) -> tuple[int, str]:
    places = {"floor": -1, **LOOKS}
    return places.get(checkpoint, len(places)), checkpoint


def _suite_row(run: SuiteRun, table: Path) -> dict[str, Any]:
    """The score is the mean over entries of the mean over their tries; lost tries do not count."""
    by_entry: dict[str, list[float]] = {}
    by_category: dict[str, dict[str, list[float]]] = {}
    scored: list[SuiteEpisode] = []
    for episode in read_records(table, SuiteEpisode):
        score = episode.scores.get(run.score)
        if episode.outcome == SuiteOutcome.INFRA or not isinstance(score, Scored):
            continue
        scored.append(episode)
        by_entry.setdefault(episode.entry_id, []).append(score.value)
        entries = by_category.setdefault(episode.category, {})
        entries.setdefault(episode.entry_id, []).append(score.value)
    if not scored:
        raise ValueError("no try was scored")
    steps = sum(episode.steps for episode in scored)
    tokens = sum(episode.completion_tokens for episode in scored)
    return {
        "run": run,
        "score": _estimate(by_entry.values()),
        "categories": {name: _mean(found.values()) for name, found in sorted(by_category.items())},
        "steps": steps / len(scored),
        "tokens_per_step": tokens / steps if steps else None,
    }


def _estimate(entries: Iterable[Sequence[float]]) -> Estimate:
    return estimate([sum(one) / len(one) for one in entries], RESAMPLES, CONFIDENCE, 0)


def _mean(entries: Iterable[Sequence[float]]) -> float:
    means = [sum(one) / len(one) for one in entries]
    return sum(means) / len(means)


def suite_examples(found: Sequence[Mapping[str, Any]]) -> list[Task]:
    """The example episodes of all suites, in the order shown."""
    return [task for suite in found for row in suite["runs"] for task in row["tasks"]]
