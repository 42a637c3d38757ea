"""The rejection that docs/how-to.md shows is one: its id is the hash of what is shown of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))
from pages import blocks

from astra.cli.main import commands
from astra.records.score import Rejection
from astra.report.workspace import DATA_STAGES
from astra.store.tables import write_records


def test_the_shown_rejection_is_what_the_command_prints(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = root / "docs/how-to.md"
    shown = next(one.text for one in blocks(page) if one.text.startswith("$ astra show rejected/"))
    command, *lines = shown.splitlines()
    title, *rows = lines[: lines.index("")]
    fields = dict(row.strip().split(": ", 1) for row in rows)
    rejection = Rejection.model_validate(fields)
    assert title == f"Rejection {rejection.id}"
    monkeypatch.chdir(tmp_path)
    write_records(Path("data/rejected/tasks.parquet"), [rejection], Rejection)
    printed = CliRunner().invoke(commands, command.split()[2:]).output.splitlines()
    assert printed[: len(rows) + 2] == lines[: len(rows) + 2]


def test_every_data_stage_says_what_its_items_are(root: Path) -> None:
    text = (root / "docs/how-to.md").read_text("utf-8").partition("## Why was it dropped?")[2]
    table = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| `")]
    assert table == [f"`{stage}`" for stage in DATA_STAGES]
