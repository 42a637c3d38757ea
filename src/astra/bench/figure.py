"""The scores as one picture: bars with intervals, then F1 by scenario and by hops."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SHOWN = {
    "f1": "F1",
    "precision": "precision",
    "recall": "recall",
    "success": "success",
    "answer": "final\nanswer",
}
COLOURS = ("#9aa0a6", "#4285b4", "#d9822b", "#6a4c93")


def draw_scores(metrics: Path, out: Path) -> None:
    """Draw metrics/bench.json to ``out`` (svg, png or pdf by its ending). Same bytes every time.

    Raises OSError or ValueError (an unknown ending, not JSON) and KeyError on an older document.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    document: dict[str, Any] = json.loads(metrics.read_text(encoding="utf-8"))
    checkpoints: dict[str, Any] = document["checkpoints"]
    with mpl.rc_context({"svg.hashsalt": "astra", "font.size": 9}):
        figure = Figure(figsize=(11, 3.2), layout="constrained")
        overall, scenario, hops = figure.subplots(1, 3, width_ratios=[5, 4, 4])
        _bars(
            overall,
            list(SHOWN.values()),
            {name: [block["scores"][s] for s in SHOWN] for name, block in checkpoints.items()},
        )
        for axes, part in ((scenario, "scenario"), (hops, "hops")):
            labels = sorted({one for block in checkpoints.values() for one in block[f"by_{part}"]})
            scores = {
                name: [{"mean": block[f"by_{part}"][label]["f1"]} for label in labels]
                for name, block in checkpoints.items()
            }
            _bars(axes, [label.replace("_", "\n") for label in labels], scores)
            axes.set_title(f"F1 by {part}")
        overall.set_title(f"{document['arenas']} {document['suite']}, greedy")
        overall.legend(frameon=False)
        figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)


def _bars(axes: Any, labels: Sequence[str], bars: Mapping[str, Sequence[Any]]) -> None:
    """One group per label, one bar per checkpoint; whiskers where a value has an interval."""
    width = 0.8 / len(bars)
    for index, (name, values) in enumerate(bars.items()):
        places = [at + (index - (len(bars) - 1) / 2) * width for at in range(len(labels))]
        means = [value["mean"] for value in values]
        spans = None
        if all("low" in value for value in values):
            spans = [
                [value["mean"] - value["low"] for value in values],
                [value["high"] - value["mean"] for value in values],
            ]
        axes.bar(places, means, width, label=name, color=COLOURS[index], yerr=spans, capsize=2)
    axes.set_xticks(range(len(labels)), labels)
    axes.set_ylim(0, 1)
    axes.spines[["top", "right"]].set_visible(False)
