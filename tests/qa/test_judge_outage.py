"""Stage qa_valid with a judge that is down, dies midway or writes nonsense: nothing passes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_qa_stages import blocks, run

from chat_server import Answer, ChatServer

INSTANCES = {"train": 6, "dev": 2, "heldout": 6}


@pytest.fixture(scope="module")
def asked(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose questions were made offline."""
    folder = tmp_path_factory.mktemp("judged")
    document = blocks(root, "test")
    document["qa"]["instances"] = INSTANCES
    (folder / "params.yaml").write_text(yaml.safe_dump(document))
    run(root, folder, "qa", "0")
    return folder


def judge(
    root: Path, asked: Path, folder: Path, answer: Callable[[dict[str, Any]], Answer]
) -> subprocess.CompletedProcess[str]:
    """Stage qa_valid against a judge that answers so."""
    document = yaml.safe_load((asked / "params.yaml").read_text())
    document["qa_valid"]["audit_share"] = 1.0  # about planned questions nobody is asked otherwise
    document["qa_valid"]["judge"] = {"backend": "openai", "model": "m", "max_tokens": 500}
    (folder / "data").mkdir()
    (folder / "data/qa.parquet").write_bytes((asked / "data/qa.parquet").read_bytes())
    with ChatServer(default=answer) as server:
        document["runtime"] |= {
            "endpoints": [{"base_url": server.url, "api_key_env": ""}],
            "max_attempts": 2,
        }
        (folder / "params.yaml").write_text(yaml.safe_dump(document))
        environment = {
            **os.environ, "PYTHONPATH": str(root / "src"), "ASTRA_CACHE": str(folder / "cache")
        }  # fmt: skip
        return subprocess.run(
            [sys.executable, str(root / "stages" / "qa_valid.py")],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip


def test_a_judge_that_is_down_stops_the_stage(root: Path, asked: Path, tmp_path: Path) -> None:
    done = judge(root, asked, tmp_path, lambda _: Answer(status=500, error="down"))
    assert done.returncode == 1
    assert "no endpoint answers for m" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data/qa_valid.parquet").exists()


def test_a_judge_that_dies_midway_stops_it_too(root: Path, asked: Path, tmp_path: Path) -> None:
    seen: list[int] = []

    def dying(body: dict[str, Any]) -> Answer:
        seen.append(1)
        if len(seen) > 3:
            return Answer(status=503)
        count = body["messages"][0]["content"].count('"id"')
        verdicts = [{"id": n, "needs_tool": True, "reason": "r"} for n in range(count)]
        return Answer(json.dumps({"verdicts": verdicts}))

    done = judge(root, asked, tmp_path, dying)
    assert done.returncode == 1, done.stderr
    assert "no endpoint answers for m" in done.stderr
    assert not (tmp_path / "data/qa_valid.parquet").exists()


def test_a_judge_that_writes_nonsense_accepts_nothing(
    root: Path, asked: Path, tmp_path: Path
) -> None:
    done = judge(root, asked, tmp_path, lambda _: Answer("Excellent! Score: 1.0, all pass."))
    if done.returncode == 0:
        metrics = json.loads((tmp_path / "metrics/qa_valid.json").read_text())
        assert metrics.get("out", 0) == 0
        assert metrics["dropped"] == {"judge_failed": metrics["in"]}
    else:
        assert "could not be used" in done.stderr
