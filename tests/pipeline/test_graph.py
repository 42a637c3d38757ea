"""The whole graph at scale test, through dvc, in a repository of its own."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from astra.records.score import Rejection
from astra.store.tables import read_records
from walls_here import live_servers

DATA_STAGES = (
    "tools graph chains tasks trajectories sft_set worlds goals conversations qa qa_valid "
    "envs envs_merged"
).split()
STAGES = [*DATA_STAGES, "sft", "rl", "bench"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * 900)]
TIMEOUT_S = 900
"""Of one command; the slowest, the build of the graph, takes two minutes."""


class Workspace:
    """A clone of the tracked files with its own git and dvc state."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        bins = str(Path(sys.executable).parent)
        self.env = {
            **os.environ,
            "PATH": f"{bins}{os.pathsep}{os.environ['PATH']}",
            "ASTRA_CACHE": os.environ.get("ASTRA_CACHE", str(root / ".astra")),
            "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t",
            "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@t",
        }  # fmt: skip
        for inherited in ("DVC_ROOT", "DVC_STAGE", "DVC_EXP_NAME", "MLFLOW_TRACKING_URI"):
            self.env.pop(inherited, None)

    def run(self, *command: str, fails: bool = False) -> str:
        try:
            done = subprocess.run(
                command, cwd=self.folder, env=self.env, text=True, check=False, timeout=TIMEOUT_S,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            printed = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout
            pytest.fail(f"{command}: not done in {TIMEOUT_S} s\n{(printed or '')[-6000:]}")
        output = done.stdout
        failed = bool(done.returncode)
        assert failed == fails, f"{command}: exit {done.returncode}\n{output[-6000:]}"
        return output

    def ran(self, output: str) -> list[str]:
        """Stages that dvc executed, in order."""
        return [
            line.split("'")[1] for line in output.splitlines() if line.startswith("Running stage")
        ]

    def lock(self) -> dict[str, dict[str, str]]:
        stages = yaml.safe_load((self.folder / "dvc.lock").read_text())["stages"]
        return {
            name: {out["path"]: out["md5"] for out in stage["outs"]}
            for name, stage in stages.items()
        }

    def runs(self) -> list[tuple[str, str]]:
        """(MLflow experiment, run name) of every run."""
        with sqlite3.connect(self.folder / "mlflow.db") as store:
            return store.execute(
                "SELECT experiments.name, runs.name FROM runs JOIN experiments"
                " USING (experiment_id)"
            ).fetchall()


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The graph at scale test, built once for the tests of this file (<= 4 minutes)."""
    folder = tmp_path_factory.mktemp("graph") / "repo"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        if (root / name).is_file() and not name.startswith(("metrics/", "plots/")):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target)
    for name in ("dvc.lock", "training.lock"):
        (folder / name).unlink(missing_ok=True)
    workspace = Workspace(folder, root)
    workspace.run("git", "init", "-q")
    # Experiments recompose params.yaml from conf/, so the scale is set where they read it.
    config = folder / "conf" / "config.yaml"
    config.write_text(config.read_text().replace("- scale: smoke", "- scale: test"))
    runtime = folder / "conf" / "runtime" / "default.yaml"
    caged = runtime.read_text().replace("live_servers: caged", f"live_servers: {live_servers()}")
    runtime.write_text(caged)
    workspace.run(sys.executable, "-m", "astra.devtools.params")
    workspace.run("git", "add", "-A")
    workspace.run("git", "commit", "-qm", "graph at scale test")
    workspace.run("dvc", "repro")
    workspace.run("git", "add", "-A")
    workspace.run("git", "commit", "-qm", "built")
    return workspace


def test_every_stage_wrote_its_table_and_metrics(built: Workspace) -> None:
    for stage in STAGES:
        metrics = json.loads((built.folder / "metrics" / f"{stage}.json").read_text())
        assert metrics, stage
    for stage in DATA_STAGES:
        assert pq.ParquetFile(built.folder / "data" / f"{stage}.parquet").metadata.num_rows > 0
    scores = json.loads((built.folder / "metrics" / "bench.json").read_text())
    assert {"base", "sft", "rl"} <= set(scores["checkpoints"])


@pytest.mark.parametrize("stage", DATA_STAGES)
def test_every_drop_that_metrics_count_is_a_row_with_its_reason(
    built: Workspace, stage: str
) -> None:
    metrics = json.loads((built.folder / "metrics" / f"{stage}.json").read_text())
    rows = read_records(built.folder / "data" / "rejected" / f"{stage}.parquet", Rejection)
    assert Counter(row.reason for row in rows if row.final) == metrics["dropped"]


def test_second_repro_does_nothing(built: Workspace) -> None:
    started = time.monotonic()
    output = built.run("dvc", "repro")
    assert built.ran(output) == []
    assert time.monotonic() - started < 20  # the measured bound is in docs/performance.md


def test_a_fresh_clone_needs_nothing_rebuilt(built: Workspace, tmp_path: Path) -> None:
    built.run("git", "clone", "-q", ".", str(tmp_path / "clone"))
    clone = Workspace(tmp_path / "clone", built.folder)
    assert clone.ran(clone.run("dvc", "repro", "--dry", "--allow-missing")) == []


def test_touching_a_module_reruns_its_stage_and_dependants_only(built: Workspace) -> None:
    module = built.folder / "stages" / "sft_set.py"
    text = module.read_text()
    module.write_text(text + "\n# touched\n")
    try:
        reached = built.ran(built.run("dvc", "repro", "--dry", "--force-downstream"))
        ran = built.ran(built.run("dvc", "repro"))
    finally:
        module.write_text(text)
        built.run("git", "checkout", "-q", "dvc.lock")
    assert reached == ["sft_set", "sft", "rl", "bench"]
    assert ran == ["sft_set"], "a comment changes no output, so dependants are not rebuilt"


def test_data_stages_are_byte_identical_across_runs_and_concurrency(built: Workspace) -> None:
    before = built.lock()
    params = built.folder / "params.yaml"
    text = params.read_text()
    params.write_text(text.replace("concurrency: 16", "concurrency: 3"))
    built.env["PYTHONHASHSEED"] = "12345"
    try:
        assert params.read_text() != text
        built.run(
            "dvc", "repro", "--force", "--no-run-cache", "sft_set", "conversations", "envs_merged"
        )
        after = built.lock()
    finally:
        params.write_text(text)
        built.run("git", "checkout", "-q", "dvc.lock")
        del built.env["PYTHONHASHSEED"]
    assert {name: after[name] for name in DATA_STAGES} == {
        name: before[name] for name in DATA_STAGES
    }


def test_the_record_of_training_fits_until_the_code_changes(built: Workspace) -> None:
    built.run("astra", "train", "trained")
    built.run("astra", "train", "same", "--check")
    module = built.folder / "src" / "astra" / "train" / "groups.py"  # of stage rl alone
    text = module.read_text()
    module.write_text(text + "\n# touched\n")
    try:
        said = built.run("astra", "train", "same", "--check", fails=True)
        refused = built.run("astra", "train", "trained", fails=True)
    finally:
        module.write_text(text)
        (built.folder / "training.lock").unlink()
    assert "rl: dvc.lock is not of the code here" in said
    assert "sft" not in said
    assert "dvc repro" in refused


def test_ablations_rerun_what_depends_on_them_only(built: Workspace) -> None:
    # The untrained policy earns nothing under any reward, so that alone would change no weight.
    ablation = ("-S", "rl.reward=recall", "-S", "rl.weight_decay=0.1")
    output = built.run("dvc", "exp", "run", "-n", "recall", *ablation)
    assert built.ran(output) == ["rl", "bench"]
    again = built.run("dvc", "exp", "run", "-n", "back", "-S", "rl.reward=f1")
    assert built.ran(again) == []
    assert built.run("git", "status", "--porcelain") == "", "back at what is committed"
    refused = built.run("dvc", "exp", "run", "-S", "rl.reward=f3", fails=True)
    assert "rl.reward" in refused
    assert "'f1', 'recall', 'precision', 'answer' or 'state' (got 'f3')" in refused
    assert built.ran(refused) == []


def test_a_temporary_experiment_runs_its_own_code_and_is_tracked(built: Workspace) -> None:
    module = built.folder / "src" / "astra" / "train" / "groups.py"  # of stage rl alone
    text = module.read_text()
    module.write_text(text + '\nprint(f"groups is {__file__}")\n')
    try:
        output = built.run("dvc", "exp", "run", "--temp", "-n", "aside", "-S", "rl.steps=1")
    finally:
        module.write_text(text)
        built.run("git", "checkout", "-q", "dvc.lock")
    assert "rl" in built.ran(output)
    assert f"groups is {built.folder}/.dvc/tmp/exps/" in output
    assert built.run("git", "status", "--porcelain") == "", "the workspace is left alone"
    assert "aside" in {name for _, name in built.runs()}


def test_training_runs_are_tracked(built: Workspace) -> None:
    assert {
        ("astra/sft", "workspace"),
        ("astra/rl", "workspace"),
        *(("astra/bench", f"workspace/{checkpoint}") for checkpoint in ("base", "sft", "rl")),
    } <= set(built.runs())
    recall = [experiment for experiment, name in built.runs() if name == "recall"]
    assert recall == ["astra/rl"], "a run carries the name of its DVC experiment"
    assert not built.run("git", "status", "--porcelain"), "mlflow.db and runs/ are ignored"


def test_plots_render(built: Workspace, tmp_path: Path) -> None:
    output = built.run("dvc", "plots", "show", "-o", str(tmp_path / "plots"))
    assert "fail" not in output.lower()
    page = (tmp_path / "plots" / "index.html").read_text()
    written = sorted(built.folder.glob("plots/*/*.csv"))
    assert {path.parent.name for path in written} == set(STAGES)
    titles = [str(path.relative_to(built.folder)) for path in written]
    titles += ["Loss of fine-tuning", "Reward of reinforcement learning"]
    missing = [title for title in titles if f'"text": "{title}"' not in page]
    assert not missing
