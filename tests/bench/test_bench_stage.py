"""Stage ``bench`` whole, at scale test, with external suites: from params.yaml to the report."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient
from test_bench_arenas import ARENAS

from astra.bench.harness.environment import bench_environment
from astra.bench.harness.oracle_acebench import offline_user
from astra.bench.harness.protocol import SuiteError
from astra.bench.harness.scripted import ScriptedServer
from astra.devtools import params
from astra.records.bench import BenchEpisode, SuiteEpisode, SuiteOutcome
from astra.records.environment import Arena
from astra.report.page import render
from astra.report.workspace import Workspace
from astra.rollout.chat import LoadedPolicy
from astra.store.tables import read_records, write_records

pytestmark = pytest.mark.timeout(900)  # the stage below may take 400 s on a busy machine

PLAYED = ARENAS[:5]
LONG = [
    Arena.model_validate(
        arena.model_dump() | {"id": "", "main_question": arena.main_question + " Please." * 3000}
    )
    for arena in PLAYED
]
"""The same arenas asked in more words than any of the checkpoints can read."""
CHECKPOINTS = ["floor", "base", "sft", "rl"]


def acebench_is_here() -> bool:
    """Its data and the harnesses' environment."""
    try:
        bench_environment()
    except SuiteError:
        return False
    corpora = os.environ.get("ASTRA_CORPORA")
    return bool(corpora) and (Path(str(corpora)) / "benchmarks/acebench/possible_answer").is_dir()


@pytest.fixture(scope="module")
def build(root: Path, policy: LoadedPolicy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace where the stage has run: sft as untaught as base, rl taught four arenas."""
    folder = tmp_path_factory.mktemp("stage")
    write_records(folder / "data/envs_merged.parquet", PLAYED, Arena)
    write_records(folder / "data/long.parquet", LONG, Arena)
    shutil.copytree(root / "policies/tiny", folder / "models/sft")
    shutil.copytree(root / "policies/tiny", folder / "models/rl")
    model: Any = policy.model
    model.save_pretrained(folder / "models/rl")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        params.compose(folder / "params.yaml", ["scale=test"])
    with ScriptedServer(offline_user(), model="rule") as user:
        configure(folder, root, user.endpoint.model_dump())
        ran = subprocess.run(
            [sys.executable, root / "stages/bench.py"], cwd=folder, capture_output=True, text=True,
            timeout=400, check=False, env=environment(folder, root),
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return folder


def environment(folder: Path, root: Path) -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if name != "DVC_ROOT"}
    return known | {
        "PYTHONPATH": str(root / "src"),
        "ASTRA_CACHE": str(folder / "cache"),
        "ASTRA_BENCH_ENV": os.environ.get("ASTRA_BENCH_ENV", str(root / ".venv-bench")),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
    }


def configure(folder: Path, root: Path, user: Mapping[str, Any]) -> None:
    """The composed parameters with suites in them."""
    path = folder / "params.yaml"
    document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    block = document["bench"]
    block["policy"]["path"] = str(root / "policies/tiny")
    block["contamination"]["index"] = str(root / block["contamination"]["index"])
    block["resamples"] = 100
    sample = {"count": 3, "seed": 0}
    limits = block["limits"]
    decoding = {"temperature": 0.0, "max_tokens": limits["max_turn_tokens"]}
    block["suites"] = [
        {"name": "arenas", "decoding": decoding, "options": {"limits": limits}},
        {"name": "arenas", "label": "long", "sample": sample, "decoding": decoding,
         "options": {"limits": limits, "table": "data/long.parquet"}},
    ]  # fmt: skip
    if acebench_is_here():
        block["suites"].append(
            {"name": "acebench", "sample": sample, "decoding": decoding,
             "options": {"mode": "fc"}, "endpoints": {"user": user}}
        )  # fmt: skip
    path.write_text(yaml.safe_dump(document), encoding="utf-8")


def suites(build: Path) -> dict[str, Any]:
    return json.loads((build / "metrics/bench.json").read_text(encoding="utf-8"))["suites"]


def test_checkpoints_have_the_same_arena_scores_in_process_and_as_a_suite(build: Path) -> None:
    found = suites(build)["arenas"]
    assert sorted(found["checkpoints"]) == sorted(CHECKPOINTS)
    in_process = list(read_records(build / "data/bench.parquet", BenchEpisode))
    for name in ("base", "sft", "rl"):
        played = read_records(build / f"data/suites/arenas/{name}.parquet", SuiteEpisode)
        scores = {one.entry_id: one.scores for one in played}
        ours = {one.arena_id: one.scores for one in in_process if one.checkpoint == name}
        assert scores.keys() == ours.keys() == {arena.id for arena in PLAYED}
        for arena, theirs in scores.items():
            for score, here in (("f1", "f1_plain"), ("success", "success")):
                assert theirs[score] == ours[arena][here]
    assert found["checkpoints"]["rl"]["scores"]["f1"]["mean"] > 0.2
    assert found["checkpoints"]["floor"]["scores"]["f1"]["mean"] == 0
    assert found["differences"]["rl-sft"]["mean"] > 0.2


def test_what_outgrows_a_checkpoints_context_is_counted(build: Path) -> None:
    assert overflows_of(build, "long", len(LONG)) == {"floor": 0, "base": 3, "sft": 3, "rl": 3}
    for name in CHECKPOINTS:
        assert suites(build)["long"]["checkpoints"][name]["scores"]["f1"]["mean"] == 0


def test_scores_of_suites_are_drawn_and_logged_by_checkpoint(build: Path) -> None:
    found = suites(build)
    expected = {
        (suite, name): found[suite]["checkpoints"][name]["scores"]["f1"]["mean"]
        for suite in ("arenas", "long")
        for name in CHECKPOINTS
    }
    with (build / "plots/bench/suites.csv").open(encoding="utf-8") as file:
        drawn = {tuple(row["label"].split()): float(row["mean"]) for row in csv.DictReader(file)}
    assert drawn.items() >= expected.items()
    assert [name for suite, name in drawn if suite == "long"] == CHECKPOINTS

    client = MlflowClient(f"sqlite:///{build / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("astra/bench")
    assert experiment is not None
    logged = {
        str(run.info.run_name).split("/", 1)[1]: run
        for run in client.search_runs([experiment.experiment_id])
    }
    assert {f"{name}/suites" for name in CHECKPOINTS} < logged.keys()
    for (suite, name), mean in expected.items():
        run = logged[f"{name}/suites"]
        assert run.info.status == "FINISHED"
        assert run.data.metrics[f"{suite}.f1"] == pytest.approx(mean, abs=1e-6)
    assert logged["rl/suites"].data.metrics["long.outcome.overflow"] == 3
    assert logged["rl/suites"].data.tags["input.models/rl"]


def test_an_external_harness_is_played_by_the_stage(
    build: Path, bench_env: Path, corpora: Path
) -> None:
    if not acebench_is_here():
        pytest.skip(f"ASTRA_CORPORA has no data of ACEBench: {corpora}")
    found = overflows_of(build, "acebench", 50)
    assert found["floor"] == 0 < found["rl"]


def overflows_of(build: Path, suite: str, entries: int) -> dict[str, int]:
    """By checkpoint, from the metrics; every one of the three drawn is accounted for."""
    found = suites(build)[suite]["checkpoints"]
    assert sorted(found) == sorted(CHECKPOINTS)
    for name, block in found.items():
        assert block["sample"] == {"entries": 3, "of": entries, "seed": 0}
        assert block["lost"] == 0
        assert sum(block["outcomes"].values()) == 3
        episodes = read_records(build / f"data/suites/{suite}/{name}.parquet", SuiteEpisode)
        grown = sum(one.outcome == SuiteOutcome.OVERFLOW for one in episodes)
        assert block["overflows"] == grown
    return {name: block["overflows"] for name, block in found.items()}


def test_the_report_shows_what_was_played(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(build)
    page = render(Workspace(build), 1)
    assert f"3 of {len(LONG)}" in page
    f1 = suites(build)["arenas"]["checkpoints"]["rl"]["scores"]["f1"]["mean"]
    assert f"{f1:.3f}" in page
    if acebench_is_here():
        assert "3 of 50" in page
        assert "this build, RL (samples)" in page, "beside published scores"
