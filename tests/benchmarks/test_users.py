"""Dialogues with agents at random end, leak nothing, and are not ended early."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from users import fuzz


def test_dialogues_at_random_end_without_a_leak() -> None:
    figures = fuzz(500, 1, ("tool_rental",), 12)
    assert figures["goals"] >= 18
    assert figures["answered"] >= 50
    assert figures["left"] >= 50
    wrong = {name: figures[name] for name in ("unended", "undue_disclosures", "premature_ends")}
    assert wrong == {"unended": 0, "undue_disclosures": 0, "premature_ends": 0}
