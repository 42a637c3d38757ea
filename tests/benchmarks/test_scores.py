"""What the training benchmarks read and average, and where a run of theirs lies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import learning
import staged
from scores import joined, paired, pooled


def test_items_are_paired_and_averaged_over_the_seeds_that_have_them() -> None:
    first = paired({"a": 3.0, "b": 1.0, "c": 9.0}, {"a": 1.0, "b": 1.0, "d": 5.0})
    assert first == {"a": 2.0, "b": 0.0}
    found = pooled([first, {"a": 0.0}])
    assert (found.mean, found.n) == (0.5, 2)
    with pytest.raises(ValueError, match="0 values"):
        pooled([])


def test_a_difference_of_checkpoints_is_over_arenas() -> None:
    values = {"sft": {"f1": {"a": 0.2, "b": 0.4}}, "rl": {"f1": {"a": 0.3, "b": 0.5}}}
    found = learning.difference([{"values": values}] * 2, "rl", "sft", "f1")
    assert found == {"mean": 0.1, "low": 0.1, "high": 0.1, "n": 2}


def test_rows_of_policies_that_were_played_before_stay() -> None:
    def arenas(rows: dict[str, int]) -> int | None:
        return rows.get("arenas")

    found = {"sft": 3, "arenas": 300}
    assert joined({}, found, arenas) == found
    kept = {"base": 1, "sft": 2, "arenas": 300}
    assert joined(kept, found, arenas) == {"base": 1, "sft": 3, "arenas": 300}
    assert joined(kept | {"arenas": 100}, found, arenas) == found


def test_other_facts_are_another_folder(tmp_path: Path) -> None:
    folder = staged.keyed(tmp_path, "default-s0", {"steps": 40}, ["digest"])
    assert folder.name == "default-s0-165023ff1a"
    assert folder == staged.keyed(tmp_path, "default-s0", {"steps": 40}, ["digest"])
    assert folder != staged.keyed(tmp_path, "default-s0", {"steps": 41}, ["digest"])
    assert folder != staged.keyed(tmp_path, "default-s0", {"steps": 40}, ["another"])


def test_what_a_failed_attempt_used_counts(tmp_path: Path) -> None:
    """The first attempt spins and fails, the second spins and leaves its product."""
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages/any.py").write_text(
        "import pathlib, sys, time\n"
        "while time.process_time() < 0.5: pass\n"
        "begun = pathlib.Path('begun')\n"
        "if not begun.exists():\n"
        "    begun.touch()\n"
        "    sys.exit(3)\n"
        "pathlib.Path('product').touch()\n"
    )
    with pytest.raises(subprocess.CalledProcessError, match="exit status 3"):
        staged.run(tmp_path, "any", Path("product"))
    assert not (tmp_path / "any.seconds.json").exists()
    found = staged.run(tmp_path, "any", Path("product"))
    assert found["cpu_s"] >= 1.0
    assert staged.run(tmp_path, "any", Path("product")) == found
