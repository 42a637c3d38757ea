"""The tables of small models' scores say what docs/suites.json, the run's own summary, says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

COLUMNS = ("floor", "base", "sft", "rl", "small")
ROWS = {
    "docs/benchmarks.md": {
        "`arenas`": "arenas", "`arenas_plain`": "arenas_plain", "`bfcl`": "bfcl",
        "`acebench`": "acebench", "`tau2`": "tau2",
    },
    "README.md": {
        "BFCL v3 multi-turn": "bfcl", "τ²-Bench": "tau2", "ACEBench agent": "acebench",
        "our held-out arenas": "arenas",
    },
}  # fmt: skip


def cell(block: dict[str, Any]) -> str:
    mean = block["scores"][block["score"]]["mean"]
    return f"{mean:.3f}" + (f" ({block['overflows']})" if block["overflows"] else "")


@pytest.mark.parametrize("page", ROWS)
def test_the_table_is_the_summary(root: Path, page: str) -> None:
    summary = json.loads((root / "docs/suites.json").read_text(encoding="utf-8"))
    text = (root / page).read_text(encoding="utf-8").partition("| does nothing |")[2]
    for label, suite in ROWS[page].items():
        row = re.search(rf"^\| {re.escape(label)}[^|]*\|(.*)\|$", text, re.MULTILINE)
        assert row, label
        blocks = summary[suite]["checkpoints"]
        assert [one.strip() for one in row[1].split("|")] == [cell(blocks[n]) for n in COLUMNS]
        assert all(blocks[name]["lost"] == 0 for name in COLUMNS)
        assert all(blocks[name]["sample"]["entries"] == 10 for name in COLUMNS)
        for fact in ("options", "decoding", "versions"):
            assert all(blocks[name][fact] == blocks["rl"][fact] for name in COLUMNS)
