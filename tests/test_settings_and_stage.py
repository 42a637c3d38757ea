from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Literal

import pytest

from astra import stage as progressing
from astra.errors import AstraError
from astra.records.score import Rejection
from astra.settings import ParamsError, RuntimeConfig, StageConfig, load, validate
from astra.stage import Progress, Reporter, follow, open_stage, run_stage
from astra.store.metrics import StageMetrics


class Demo(StageConfig):
    mode: Literal["fast", "slow"]
    count: int = 1


def write(folder: Path, text: str) -> Path:
    path = folder / "params.yaml"
    path.write_text(text)
    return path


def test_a_block_is_read_and_frozen(tmp_path: Path) -> None:
    demo = load("demo", Demo, write(tmp_path, "demo: {mode: fast, count: 2}\nother: 1\n"))
    assert (demo.mode, demo.count) == ("fast", 2)
    with pytest.raises(ValueError, match="frozen"):
        demo.count = 3


def test_every_bad_parameter_is_named_with_the_allowed_values(tmp_path: Path) -> None:
    path = write(tmp_path, "demo: {mode: f3, count: many, colour: red}\n")
    with pytest.raises(ParamsError) as caught:
        load("demo", Demo, path)
    message = str(caught.value)
    assert "demo.mode: Input should be 'fast' or 'slow' (got 'f3')" in message
    assert "demo.count" in message
    assert "demo.colour" in message
    assert "make params" in message
    with pytest.raises(ParamsError, match=r"demo\.mode: Field required"):
        validate("demo", {}, Demo)


@pytest.mark.parametrize("text", ["", "- 1\n", "other: {}\n"])
def test_a_missing_block_names_the_repair(tmp_path: Path, text: str) -> None:
    with pytest.raises(ParamsError, match="make params"):
        load("demo", Demo, write(tmp_path, text))


def test_a_missing_or_torn_file_names_the_repair(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="make params"):
        load("demo", Demo, tmp_path / "params.yaml")
    with pytest.raises(ParamsError, match="make params"):
        load("demo", Demo, write(tmp_path, "demo: {mode: [\n<<<<<<< HEAD\n"))


def test_the_shipped_runtime_block_is_valid(root: Path) -> None:
    from omegaconf import OmegaConf

    block = OmegaConf.load(root / "conf/runtime/default.yaml")
    assert validate("runtime", OmegaConf.to_container(block, resolve=True), RuntimeConfig)


def stage_process(root: Path, body: str) -> subprocess.CompletedProcess[str]:
    code = f"from astra.stage import run_stage\nfrom astra.errors import AstraError\n{body}"
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )


def test_an_error_for_the_user_is_its_message_alone(root: Path) -> None:
    body = "def main(): raise AstraError('data/x.parquet not found; run y')\nrun_stage('x', main)"
    ended = stage_process(root, body)
    assert ended.returncode == 1
    assert ended.stderr.strip() == "[x] data/x.parquet not found; run y"


def test_a_bug_keeps_its_traceback_and_an_interrupt_says_resume(root: Path) -> None:
    ended = stage_process(root, "def main(): raise KeyError('k')\nrun_stage('x', main)")
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr
    ended = stage_process(root, "def main(): raise KeyboardInterrupt\nrun_stage('x', main)")
    assert ended.returncode == 130
    assert "resume" in ended.stderr


def test_errors_raised_together_in_tasks_are_messages_too(root: Path) -> None:
    body = (
        "def main(): raise ExceptionGroup('tasks', [AstraError('one'), "
        "ExceptionGroup('inner', [AstraError('two')])])\nrun_stage('x', main)"
    )
    ended = stage_process(root, body)
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == ["[x] one", "[x] two"]
    body = "def main(): raise ExceptionGroup('t', [AstraError('one'), KeyError('k')])\n"
    assert "Traceback" in stage_process(root, body + "run_stage('x', main)").stderr


def test_progress_reports_count_rate_and_drops(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progressing, "REPORT_EVERY_S", 0.0)
    caplog.set_level(logging.INFO, "astra")
    drops = Counter[str]()
    progress = Progress("episodes", 3, drops)
    progress.advance()
    drops["timeout"] += 1
    progress.advance()
    progress.close()
    assert "episodes 2/3" in caplog.messages[-1]
    assert "dropped 1: timeout 1" in caplog.messages[-1]
    said = len(caplog.messages)
    progress.close()
    assert len(caplog.messages) == said


def test_only_the_last_line_tells_what_was_kept_and_every_reason_for_a_drop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "astra")
    drops = Counter({reason: 10 - n for n, reason in enumerate("abcdef")})
    progress = Progress("tasks", 60, drops)
    progress.reach(30)
    progress.report()
    assert caplog.messages[-1].endswith("dropped 45: a 10, b 9, c 8, d 7")
    progress.reach(60)
    progress.close("15 rows in data/tasks.parquet")
    assert caplog.messages[-1].startswith("tasks 60/60 -> 15 rows in data/tasks.parquet, ")
    assert caplog.messages[-1].endswith("dropped 45: a 10, b 9, c 8, d 7, e 6, f 5")


def test_the_time_left_is_told_from_a_hundredth_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "astra")
    progress = Progress("episodes", 400)
    for done, told in ((0, False), (3, False), (4, True), (400, False)):
        progress.reach(done)
        progress.report()
        assert (" left" in caplog.messages[-1]) == told
    progress.close()


def test_progress_follows_what_a_stage_counts_and_lines_come_from_below_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progressing, "REPORT_EVERY_S", 0.0)
    reporter = Reporter()
    reporter.notes += [lambda: "7 tokens/s, cost 0.10", lambda: ""]
    caplog.set_level(logging.INFO, "astra")
    reporter.tick()
    assert caplog.messages == ["7 tokens/s, cost 0.10"]
    metrics = StageMetrics("graph")
    progress = follow(metrics, "servers", 4, reporter)
    metrics.count("servers")
    metrics.reject(Rejection(item="x", reason="ask_failed"))
    reporter.tick()  # what a teacher's answer does, in the middle of an item
    line = caplog.messages[-1]
    assert line.startswith("servers 1/4, ")
    assert line.endswith(" left, 7 tokens/s, cost 0.10, dropped 1: ask_failed 1")
    metrics.count("servers", 3)
    progress.close()
    assert caplog.messages[-1].startswith("servers 4/4, ")
    assert "left" not in caplog.messages[-1]
    reporter.tick()
    assert caplog.messages[-1] == "7 tokens/s, cost 0.10"  # a closed one says nothing more


def test_progress_of_two_stages_in_one_process_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progressing, "REPORT_EVERY_S", 0.0)
    caplog.set_level(logging.INFO, "astra")
    first, second = Reporter(), Reporter()
    first.notes.append(lambda: "cost 1.00")
    Progress("graphs", 3, reporter=first)  # left open
    Progress("chains", 3, reporter=second).advance()
    assert [line.split(",")[0] for line in caplog.messages] == ["chains 1/3"]
    assert "cost" not in caplog.text


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "demo: {mode: fast}\nruntime: {}\n")
    return tmp_path


@contextmanager
def entered(name: str, order: list[str]) -> Iterator[str]:
    order.append(f"{name} opened")
    try:
        yield name
    finally:
        order.append(f"{name} closed, {Path('metrics/demo.json').exists()}")


def test_a_stage_writes_its_metrics_then_leaves_what_it_entered_the_last_first(
    workspace: Path,
) -> None:
    order: list[str] = []
    with open_stage("demo", Demo) as stage:
        assert stage.config.mode == "fast"
        assert [stage.enter(entered(name, order)) for name in "ab"] == ["a", "b"]
        stage.metrics.count("steps", 3)
        stage.metrics.plot("loss", ["step", "loss"], [(1, 0.5), (2, 0.25)])
    assert order == ["a opened", "b opened", "b closed, True", "a closed, True"]
    assert json.loads((workspace / "metrics/demo.json").read_text()) == {"steps": 3, "dropped": {}}
    assert (workspace / "plots/demo/loss.csv").read_text() == "step,loss\n1,0.5\n2,0.25\n"


@pytest.mark.parametrize("fault", [AstraError("no"), KeyError("k"), KeyboardInterrupt()])
def test_a_stage_that_fails_leaves_what_it_entered_and_writes_no_metrics(
    workspace: Path, fault: BaseException
) -> None:
    order: list[str] = []

    def build() -> None:
        with open_stage("demo", Demo) as stage:
            stage.enter(entered("a", order))
            stage.metrics.count("steps")
            raise fault

    with pytest.raises(type(fault)):
        build()
    assert order == ["a opened", "a closed, False"]
    assert not (workspace / "metrics").exists()


def test_of_several_ranks_the_first_writes_the_metrics(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in ("1", "0"):
        monkeypatch.setenv("RANK", rank)
        with open_stage("demo", Demo) as stage:
            stage.metrics.count("rank", int(rank) + 1)
        assert (workspace / "metrics/demo.json").exists() == (rank == "0")
    assert json.loads((workspace / "metrics/demo.json").read_text())["rank"] == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_tracked_stage_closes_its_run(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    import mlflow

    store = f"sqlite:///{workspace}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    ended = pytest.raises(AstraError) if fails else nullcontext()
    with ended, open_stage("demo", Demo) as stage:
        run = stage.track({"data/x.parquet": "ab" * 32})
        run.tags(world_size=1)
        if fails:
            raise AstraError("no")
    found = mlflow.MlflowClient(store).get_run(run.id)
    assert found.info.status == ("FAILED" if fails else "FINISHED")
    assert found.data.tags["input.data/x.parquet"] == "ab" * 32
    assert found.data.tags["world_size"] == "1"
    assert found.data.params["mode"] == "fast"


def test_run_stage_returns_after_success() -> None:
    ran: list[int] = []
    run_stage("x", lambda: ran.append(1))
    assert ran == [1]
    with pytest.raises(SystemExit):
        run_stage("x", lambda: (_ for _ in ()).throw(AstraError("no")))
