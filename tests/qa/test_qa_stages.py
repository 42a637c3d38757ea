"""Stages qa and qa_valid as DVC runs them, at every scale's parameters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from astra.prompting import template_hash
from astra.qa.config import QAConfig, QAValidConfig
from astra.records.qa import QAInstance, Scenario, Split
from astra.records.score import Scored
from astra.store.tables import read_records

OFFLINE = {"backend": "offline", "model": "rules-1"}


def blocks(root: Path, scale: str) -> dict[str, Any]:
    """Both blocks, composed as Hydra does: base, then what the scale changes."""
    parameters: dict[str, Any] = {"runtime": {"concurrency": 4}}
    for name in ("qa", "qa_valid"):
        parts = [OmegaConf.load(root / "conf" / name / f"{part}.yaml") for part in ("base", scale)]
        merged = OmegaConf.merge(*parts, {"teacher": OFFLINE} if name == "qa" else {})
        if name == "qa_valid":
            merged = OmegaConf.merge(merged, {"judge": OFFLINE, "contamination": None})
        parameters[name] = OmegaConf.to_container(merged, resolve=True)
        parameters[name].pop("defaults")
    return parameters


@pytest.mark.parametrize("scale", ["test", "smoke", "small", "full"])
def test_parameters_of_every_scale_are_valid(root: Path, scale: str) -> None:
    parameters = blocks(root, scale)
    QAConfig.model_validate(parameters["qa"])
    QAValidConfig.model_validate(parameters["qa_valid"])


def run(root: Path, folder: Path, stage: str, hash_seed: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, str(root / "stages" / f"{stage}.py")],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_both_stages_at_scale_test(root: Path, tmp_path: Path) -> None:
    outputs: list[list[bytes]] = []
    for hash_seed in ("1", "2"):
        folder = tmp_path / hash_seed
        folder.mkdir()
        (folder / "params.yaml").write_text(yaml.safe_dump(blocks(root, "test")))
        run(root, folder, "qa", hash_seed)
        run(root, folder, "qa_valid", hash_seed)
        tables = [folder / "data" / f"{stage}.parquet" for stage in ("qa", "qa_valid")]
        outputs.append([table.read_bytes() for table in tables])
    assert outputs[0] == outputs[1]
    instances = list(read_records(tmp_path / "1" / "data" / "qa_valid.parquet", QAInstance))
    assert {i.split for i in instances} == set(Split)
    assert {i.scenario for i in instances} == set(Scenario)
    assert all(s.tool_necessity is not None for i in instances for s in i.sub_questions)
    judged = {template_hash(f"qa/{n}") for n in ("necessity", "atomicity", "completeness")}
    written = template_hash("qa/decompose")
    asked = [set(instance.prompt_hash.split("+")) - {written} for instance in instances]
    assert all(not hashes or judged <= hashes for hashes in asked)
    marks = [instance.scores["atomicity"] for instance in instances]
    proven = [isinstance(mark, Scored) and mark.by_construction for mark in marks]
    assert [not hashes for hashes in asked] == proven
    metrics = json.loads((tmp_path / "1" / "metrics" / "qa_valid.json").read_text())
    assert metrics["in"] == metrics["out"] + sum(metrics["dropped"].values())
    assert metrics["out"] == len(instances) >= 70
    assert metrics["audited"] >= proven.count(False)
    assert metrics["asks_saved"] >= 4 * proven.count(True) > 0
    assert metrics["shapes"]["heldout"]["count"] > 10
    assert (tmp_path / "1" / "plots" / "qa" / "hops.csv").is_file()
