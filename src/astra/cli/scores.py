"""``astra scores``: the table of scores, and where to look next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.table import Table

from astra.bench.figure import draw_scores
from astra.errors import AstraError
from astra.settings import PARAMS, RuntimeConfig, load
from astra.tracking.mlflow import tracking_uri
from astra.tracking.store import without_login

TITLES = {
    "f1": "F1 (answer counts)",
    "f1_plain": "F1 (paper)",
    "precision": "precision",
    "recall": "recall",
    "success": "success",
    "answer": "final answer",
    "calls": "calls",
    "turns": "turns",
    "malformed": "malformed calls",
}


class ScoresError(AstraError):
    """There are no scores to show."""


def score_tables(path: Path) -> list[Table]:
    """Scores per checkpoint with intervals, then paired differences, from metrics/bench.json; where
    it has goals in worlds, these apart."""
    if not path.is_file():
        raise ScoresError(f"{path} not found; make it with `dvc repro bench` (or `make demo`)")
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        worlds = [_worlds(document["worlds"])] if document.get("worlds") else []
        return [_scores(document), _differences(document), *worlds]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ScoresError(
            f"{path} cannot be read, or is not of this version ({error}); run `dvc repro bench`"
        ) from None


def draw_figure(path: Path, out: Path) -> None:
    """The picture of bench/figure.py. Raises ScoresError saying what is wrong with path or out."""
    if not path.is_file():
        raise ScoresError(f"{path} not found; make it with `dvc repro bench` (or `make demo`)")
    try:
        draw_scores(path, out)
    except (OSError, ValueError, KeyError) as error:
        raise ScoresError(f"cannot draw {path} to {out}: {error}") from error


def _scores(document: dict[str, Any]) -> Table:
    confidence = document["sampling"]["confidence"]
    table = Table(
        title=f"{document['arenas']} {document['suite']}, greedy, {confidence:.0%} intervals"
    )
    checkpoints: dict[str, Any] = document["checkpoints"]
    references: dict[str, Any] = document["references"]
    table.add_column("score")
    for name in [*checkpoints, *references]:
        table.add_column(name, justify="right")
    for score, title in TITLES.items():
        cells = [_estimate(block["scores"].get(score)) for block in checkpoints.values()]
        cells += [_number(block.get(score)) for block in references.values()]
        table.add_row(title, *cells)
    return table


def _differences(document: dict[str, Any]) -> Table:
    table = Table(title="Paired differences on the same arenas (* interval excludes 0)")
    differences: dict[str, Any] = document["differences"]
    table.add_column("score")
    for name in differences:
        table.add_column(name.replace("-", " - "), justify="right")
    for score, title in TITLES.items():
        table.add_row(title, *(_change(block.get(score)) for block in differences.values()))
    return table


def _worlds(document: dict[str, Any]) -> Table:
    blocks: dict[str, Any] = {**document["checkpoints"], **document["floors"]}
    table = Table(title="Success on goals in worlds, with the floors")
    table.add_column("goals")
    for name in blocks:
        table.add_column(name.replace("_", " "), justify="right")
    table.add_row("all", *(_estimate(block.get("success")) for block in blocks.values()))
    for part in ("by_kind", "by_trait", "by_domain"):
        for label in sorted({label for block in blocks.values() for label in block[part]}):
            found = [block[part].get(label, {}).get("success") for block in blocks.values()]
            table.add_row(f"{part[3:]} {label.replace('_', ' ')}", *map(_number, found))
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _estimate(estimate: dict[str, float] | None) -> str:
    if estimate is None:
        return "-"
    return f"{estimate['mean']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}]"


def _change(difference: dict[str, float] | None) -> str:
    if difference is None:
        return "-"
    clear = " *" if difference["low"] > 0 or difference["high"] < 0 else ""
    return f"{difference['mean']:+.3f} [{difference['low']:+.3f}, {difference['high']:+.3f}]{clear}"


def where_next() -> list[str]:
    """Commands and paths, one per line; only what exists here."""
    runtime = load("runtime", RuntimeConfig) if PARAMS.is_file() else RuntimeConfig()
    lines = ["Where next:"]
    if Path("runs/bench/examples.md").is_file():
        lines.append("  example episodes   runs/bench/examples.md")
    if Path("data/bench.parquet").is_file():
        lines.append("  every episode      astra show data/bench.parquet --where checkpoint=rl")
    lines.append("  all on one page    astra report   (runs/report.html)")
    lines.append("  by scenario, hops  dvc plots show   (plots/bench/)")
    store = without_login(tracking_uri(runtime))
    lines.append(f"  training curves    mlflow ui --backend-store-uri {store}")
    lines.append("  compare runs       make experiments")
    return lines
