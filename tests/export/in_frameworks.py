"""Running an exported package in a framework's own environment."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from scripted import Script

from astra.export.rows import ExportedArena
from astra.export.write import ExportFormat, write_export

DRIVERS = Path(__file__).with_name("drivers")
ROOT = Path(__file__).parents[2]
Played = dict[str, dict[str, Script]]
"""Script name -> arena id -> script."""


def drive(
    framework: str,
    python: Path,
    rows: list[ExportedArena],
    played: Played,
    folder: Path,
    *more: str,
) -> Any:
    """Export, run the framework's driver in its own environment, and return what it found."""
    exported = folder / "export"
    write_export(rows, ExportFormat(framework), exported)
    (folder / "scripts.json").write_text(json.dumps(played))
    found = folder / "found.json"
    # Nothing of this project is importable there: the package stands alone.
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [python, DRIVERS / f"{framework}_driver.py", exported, folder / "scripts.json", found]
    done = subprocess.run(
        [*map(str, command), *more],
        capture_output=True, text=True, timeout=900, check=False, cwd=folder,
        env={**kept, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(found.read_text())
