"""Scores of the checkpoints on our arenas and on external suites, as tables and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from markupsafe import Markup

from astra.bench.names import FLOOR as SUITE_FLOOR
from astra.bench.suite_tables import read_runs
from astra.bench.summary import suites_document
from astra.errors import AstraError
from astra.records.bench import SuiteRun
from astra.report.charts import Charts, Interval, named
from astra.report.published import COLUMNS, HARNESSES, Column, caveats
from astra.report.rollouts import TaskView, suite_tasks
from astra.report.workspace import Workspace

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
SCORES = "Scores with intervals"
BREAKDOWNS = {
    "by_hops": "F1 by number of hops",
    "by_scenario": "F1 by scenario",
    "by_domain": "F1 by domain",
}
RESAMPLES, CONFIDENCE = 2000, 0.95
SUITES = Path("data/suites")


def look(name: str) -> int:
    """The colour of a checkpoint; all that are not ours share one."""
    return LOOKS.get(name, 3)


def arenas(workspace: Workspace, charts: Charts) -> dict[str, Any]:
    """The section on our held-out arenas; empty if ``bench`` has not run."""
    document = workspace.metrics("bench")
    if not document:
        return {}
    try:
        return _arenas(document, charts)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
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
                named(name),
                found[score]["mean"],
                found[score]["low"],
                found[score]["high"],
                look(name),
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
            {"title": SCORES, "svg": charts.intervals(SCORES, intervals)},
            *(
                {"title": title, "svg": _breakdown(charts, title, checkpoints, part)}
                for part, title in BREAKDOWNS.items()
            ),
        ],
        "outcomes": {
            kind.replace("_", " "): [found.get(kind, 0) for found in outcomes.values()]
            for kind in kinds
        },
        "excluded": sum(block["excluded_infra"] for block in checkpoints.values()),
        "worlds": _worlds(document.get("worlds", {})),
    }


def _worlds(document: Mapping[str, Any]) -> dict[str, Any]:
    """Success on goals in worlds, by kind, trait and domain, with the floors; empty for none."""
    blocks: dict[str, Any] = {**document.get("checkpoints", {}), **document.get("floors", {})}
    parts: dict[str, set[str]] = {"kind": set(), "trait": set(), "domain": set()}
    for block in blocks.values():
        for name, labels in parts.items():
            labels.update(block[f"by_{name}"])
    rows = [
        {
            "title": f"{name}: {label}".replace("_", " "),
            "cells": [
                block[f"by_{name}"].get(label, {}).get("success") for block in blocks.values()
            ],
        }
        for name, labels in parts.items()
        for label in sorted(labels)
    ]
    scores = [block.get("success") for block in blocks.values()]
    return {"names": list(blocks), "scores": scores, "rows": rows} if blocks else {}


def _breakdown(charts: Charts, title: str, checkpoints: Mapping[str, Any], part: str) -> Markup:
    labels = sorted({label for block in checkpoints.values() for label in block[part]})
    groups = {
        label.replace("_", " "): [
            (named(name), float(block[part][label]["f1"]), look(name))
            for name, block in checkpoints.items()
            if "f1" in block[part].get(label, {})
        ]
        for label in labels
    }
    return charts.grouped(title, {label: group for label, group in groups.items() if group})


def suites(workspace: Workspace, examples: int) -> list[dict[str, Any]]:
    """One entry per suite that was played: its summary, how it was measured, episodes to read."""
    folder = workspace.root / SUITES
    try:
        runs = read_runs(folder)
        document = suites_document(runs, RESAMPLES, CONFIDENCE, 0)
    except (AstraError, pa.ArrowException, OSError, ValueError) as error:
        workspace.lacks(f"{SUITES} cannot be read: {error}")
        return []
    if not runs:
        workspace.lacks(
            f"{SUITES}: no external suite (BFCL, τ²-Bench, ACEBench, AIME, GPQA) was played here; "
            "bench.suites names them"
        )
    found: dict[str, list[SuiteRun]] = {}
    for run, _ in runs:
        found.setdefault(run.suite, []).append(run)
    return [
        {
            "suite": suite,
            "differences": document[suite]["differences"],
            "runs": [
                {
                    "run": run,
                    **document[suite]["checkpoints"][run.checkpoint],
                    "tasks": suite_tasks(
                        workspace, folder / suite / f"{run.checkpoint}.parquet", run.score, examples
                    ),
                }
                for run in sorted(members, key=lambda run: _order(run.checkpoint))
            ],
        }
        for suite, members in sorted(found.items())
    ]


def _order(checkpoint: str) -> tuple[int, str]:
    places = {SUITE_FLOOR: -1, **LOOKS}
    return places.get(checkpoint, len(places)), checkpoint


def beside_published(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows for the paper's table, one per checkpoint, in percent; None where nothing was played.

    ``caveats`` holds for each suite of the row what its figures compare with only so far.
    ``partial`` says that some figure of the row is of a sample and not of the whole suite. A
    further setting of a suite that the row holds already has a row of its own, named by
    ``setting``.
    """
    rows = {(name, ""): _row(name) for name in LOOKS}
    for suite in found:
        for one in suite["runs"]:
            run: SuiteRun = one["run"]
            if run.checkpoint == SUITE_FLOOR or run.harness not in HARNESSES:
                continue
            row = rows.setdefault((run.checkpoint, ""), _row(run.checkpoint))
            if run.harness in row["harnesses"]:
                row = rows[run.checkpoint, run.suite] = _row(run.checkpoint, run.suite)
            row["harnesses"].add(run.harness)
            row["caveats"].append((HARNESSES[run.harness], caveats(run)))
            row["partial"] |= run.sample_count < run.sample_of
            for at, column in enumerate(COLUMNS):
                if column.suite == HARNESSES[run.harness]:
                    value = _of_column(one, column)
                    row["figures"][at] = None if value is None else 100 * value
    return list(rows.values())


def _row(checkpoint: str, setting: str = "") -> dict[str, Any]:
    return {
        "checkpoint": checkpoint, "setting": setting, "harnesses": set[str](), "partial": False,
        "figures": [None] * len(COLUMNS), "caveats": list[tuple[str, list[str]]](),
    }  # fmt: skip


def _of_column(summary: Mapping[str, Any], column: Column) -> float | None:
    """A run's figure in one column. An overall is the mean of its suite's parts, all played."""
    played: Mapping[str, float] = summary["by_category"]
    if column.part != "overall":
        return played.get(column.category)
    parts = [one.category for one in COLUMNS if one.suite == column.suite and one.category]
    return sum(played[one] for one in parts) / len(parts) if played.keys() >= set(parts) else None


def suite_examples(found: Sequence[Mapping[str, Any]]) -> list[TaskView]:
    """The example episodes of all suites, in the order shown."""
    return [task for suite in found for row in suite["runs"] for task in row["tasks"]]
