"""What lies in a workspace, read without trust: anything absent or broken becomes a sentence."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DATA_STAGES = (
    "tools", "graph", "chains", "tasks", "trajectories", "sft_set",
    "worlds", "goals", "conversations", "qa", "qa_valid", "envs", "envs_merged",
)  # fmt: skip
STAGES = (*DATA_STAGES, "sft", "rl", "bench")


@dataclass
class Workspace:
    """A folder that holds a build, and what was not found in it while a page was made."""

    root: Path
    missing: list[str] = field(default_factory=list[str])

    def lacks(self, what: str) -> str:
        """Note a sentence on something absent, once; returns it for the place it belongs to."""
        if what not in self.missing:
            self.missing.append(what)
        return what

    def metrics(self, stage: str) -> dict[str, Any]:
        """``metrics/<stage>.json``; empty if there is none."""
        name = f"metrics/{stage}.json"
        if not (self.root / name).is_file():
            self.lacks(f"{name}: stage {stage} has not run here")
        return self.document(name)

    def document(self, name: str) -> dict[str, Any]:
        """A file that holds a JSON object; empty if there is none."""
        path = self.root / name
        if not path.is_file():
            return {}
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            self.lacks(f"{name} cannot be read: {error}")
            return {}
        if not isinstance(document, dict):
            self.lacks(f"{name} is no JSON object")
            return {}
        return document

    def curve(self, stage: str, name: str) -> list[tuple[float, float]]:
        """``plots/<stage>/<name>.csv`` as (step, value); empty if there is none."""
        return [
            (float(row["step"]), float(row[name]))
            for row in self._rows(self.root / "plots" / stage / f"{name}.csv", ("step", name))
        ]

    def histograms(self, stage: str) -> dict[str, list[tuple[str, float]]]:
        """The distributions of a data stage by name, most frequent values first."""
        found: dict[str, list[tuple[str, float]]] = {}
        for path in sorted((self.root / "plots" / stage).glob("*.csv")):
            rows = [
                (row["value"], float(row["count"]))
                for row in self._rows(path, ("count",), plain=("value",))
            ]
            if rows and not all(_is_number(label) for label, _ in rows):
                rows.sort(key=lambda row: -row[1])
            if rows:
                found[path.stem] = rows
        return found

    def _rows(
        self, path: Path, numbers: tuple[str, ...], plain: tuple[str, ...] = ()
    ) -> list[dict[str, str]]:
        """Rows whose ``numbers`` are finite; a file of other columns is noted and left out."""
        if not path.is_file():
            return []
        shown = path.relative_to(self.root)
        try:
            with path.open(newline="", encoding="utf-8") as handle:
                rows = list(csv.DictReader(handle))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            self.lacks(f"{shown} cannot be read: {error}")
            return []
        if rows and not {*numbers, *plain} <= set(rows[0]):
            self.lacks(f"{shown} has no columns {', '.join((*numbers, *plain))}")
            return []
        kept = [row for row in rows if all(_is_number(row[name]) for name in numbers)]
        if len(kept) < len(rows):
            self.lacks(f"{shown}: {len(rows) - len(kept)} rows without a number")
        return kept

    def json_lines(self, path: str) -> Iterator[dict[str, Any]]:
        """The objects of a JSON-lines file; broken lines are counted as missing."""
        file = self.root / path
        if not file.is_file():
            return
        broken = 0
        with file.open(encoding="utf-8", errors="replace") as handle:
            for line in handle:
                try:
                    document = json.loads(line)
                except ValueError:
                    document = None
                if isinstance(document, dict):
                    yield document
                elif line.strip():
                    broken += 1
        if broken:
            self.lacks(f"{path}: {broken} lines are no JSON objects")


def _is_number(text: Any) -> bool:
    try:
        return math.isfinite(float(text))
    except (TypeError, ValueError):
        return False
