"""A rebuild that differs from the committed lock is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml


@pytest.fixture
def repository(tmp_path: Path, root: Path) -> Path:
    """A git repository that holds the project's own lock file."""
    (tmp_path / "dvc.lock").write_bytes((root / "dvc.lock").read_bytes())
    for command in (["init", "-q"], ["add", "dvc.lock"], ["commit", "-qm", "lock"]):
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@t", *command], cwd=tmp_path, check=True
        )
    return tmp_path


def compare(repository: Path, root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "astra.devtools.reproduced"],
        cwd=repository,
        env=os.environ | {"PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


def tamper(repository: Path, stage: str) -> str:
    path = repository / "dvc.lock"
    lock = yaml.safe_load(path.read_text())
    out = lock["stages"][stage]["outs"][0]
    out["md5"] = "0" * 32
    path.write_text(yaml.safe_dump(lock))
    return out["path"]


def test_the_committed_hashes_pass(repository: Path, root: Path) -> None:
    done = compare(repository, root)
    assert done.returncode == 0, done.stderr
    assert "reproduced to the byte" in done.stderr


def test_another_hash_of_a_data_stage_is_refused_by_name(repository: Path, root: Path) -> None:
    path = tamper(repository, "tasks")
    done = compare(repository, root)
    assert done.returncode == 1
    assert path in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_committed_lock_nothing_passes(repository: Path, root: Path) -> None:
    subprocess.run(["git", "update-ref", "-d", "HEAD"], cwd=repository, check=True)
    done = compare(repository, root)
    assert done.returncode == 1
    assert "no committed dvc.lock" in done.stderr
