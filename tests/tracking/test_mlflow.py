from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from astra.records.message import (
    CallStatus,
    ExecutedCall,
    Message,
    MessageRole,
    ToolCall,
    ToolResult,
)
from astra.settings import RuntimeConfig, StageConfig
from astra.tracking.mlflow import (
    TrackingError,
    digests,
    file_digest,
    track,
    tracking_uri,
)


class Inner(StageConfig):
    turns: int = 3


class Config(StageConfig):
    learning_rate: float = 0.1
    limits: Inner = Inner()


@pytest.fixture
def runtime(tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")


def test_params_inputs_metrics_and_tags_are_recorded(
    runtime: RuntimeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_EXP_NAME", "brave-crow")
    data = tmp_path / "data.parquet"
    data.write_bytes(b"rows")
    with track("sft", Config(), digests(data), runtime) as run:
        run.metrics({"loss": 2.0, "odd": float("nan")}, step=1)
        run.metrics({"loss": 1.0}, step=2)
        run.tags(sandbox_tier="A")
    client = MlflowClient(tracking_uri=runtime.tracking_uri)
    stored = client.get_run(run.id)
    assert stored.info.status == "FINISHED"
    assert stored.info.run_name == "brave-crow"
    assert stored.data.params["learning_rate"] == "0.1"
    assert stored.data.params["limits.turns"] == "3"
    assert stored.data.tags[f"input.{data}"] == file_digest(data)
    assert stored.data.tags["dvc_exp_name"] == "brave-crow"
    assert len(stored.data.tags["git_commit"]) == 40
    assert client.get_experiment(stored.info.experiment_id).name == "astra/sft"
    assert stored.data.tags["sandbox_tier"] == "A"
    assert stored.data.tags["lib.torch"].startswith("2.")
    assert [m.value for m in client.get_metric_history(run.id, "loss")] == [2.0, 1.0]
    assert "odd" not in stored.data.metrics


def test_a_run_outside_an_experiment_and_its_parts_have_names(
    runtime: RuntimeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DVC_EXP_NAME", raising=False)
    monkeypatch.setenv("DVC_EXP_BASELINE_REV", "c0ffee")
    with track("bench", Config(), {}, runtime, part="rl") as run:
        pass
    stored = MlflowClient(tracking_uri=runtime.tracking_uri).get_run(run.id)
    assert stored.info.run_name == "workspace/rl"
    assert stored.data.tags["git_commit"] == "c0ffee"


def test_a_failed_stage_leaves_a_failed_run(runtime: RuntimeConfig) -> None:
    with pytest.raises(ZeroDivisionError), track("rl", Config(), {}, runtime) as run:
        raise ZeroDivisionError
    assert MlflowClient(tracking_uri=runtime.tracking_uri).get_run(run.id).info.status == "FAILED"


def test_an_episode_becomes_a_trace_turn_by_turn(runtime: RuntimeConfig) -> None:
    import mlflow

    call = ToolCall(id="c", name="get_price", arguments='{"listing": "Amber Cove"}')
    messages = [
        Message(role=MessageRole.SYSTEM, content="s"),
        Message(role=MessageRole.USER, content="u"),
        Message(role=MessageRole.ASSISTANT, tool_calls=(call,)),
        Message(role=MessageRole.TOOL, content="45", tool_call_id="c", name="get_price"),
        Message(role=MessageRole.ASSISTANT, content="It is 45."),
    ]
    result = ToolResult(status=CallStatus.OK, content="45", value=45)
    with track("rl", Config(), {}, runtime) as run:
        run.trace("rollout", messages, [ExecutedCall(turn=0, call=call, result=result)], {"r": 0.5})
    experiment = mlflow.get_experiment_by_name("astra/rl")
    assert experiment is not None
    (trace,) = mlflow.search_traces(locations=[experiment.experiment_id], return_type="list")
    spans = {span.name: span for span in trace.data.spans}
    assert list(spans) == ["rollout", "turn 1", "get_price", "turn 2"]
    assert spans["rollout"].attributes["r"] == 0.5
    assert spans["turn 1"].parent_id == spans["turn 2"].parent_id == spans["rollout"].span_id
    assert [one["content"] for one in spans["turn 1"].inputs["messages"]] == ["s", "u"]
    assert spans["turn 1"].outputs["message"]["tool_calls"][0]["name"] == "get_price"
    assert spans["get_price"].parent_id == spans["turn 1"].span_id
    assert spans["get_price"].outputs == {"content": "45"}
    assert [one["content"] for one in spans["turn 2"].inputs["messages"]] == ["45"]
    assert spans["turn 2"].outputs["message"]["content"] == "It is 45."


def test_a_checkpoint_becomes_a_version_of_its_model(
    runtime: RuntimeConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "models" / "sft"
    folder.mkdir(parents=True)
    for content in ("first", "second"):
        (folder / "model.safetensors").write_text(content)
        with track("sft", Config(), {}, runtime) as run:
            pass
        run.register("sft", folder, {"data/sft_set.parquet": "d1"})  # the run has ended by then
    client = MlflowClient(tracking_uri=runtime.tracking_uri)
    found = client.search_model_versions("name='astra-sft'")
    first, newest = sorted(found, key=lambda one: int(one.version))
    assert newest.run_id == run.id
    assert newest.tags["input.data/sft_set.parquet"] == "d1"
    assert newest.tags["sha256"] == file_digest(folder) != first.tags["sha256"]
    assert newest.source == folder.as_uri()


def test_other_ranks_track_nothing(
    tmp_path: Path, runtime: RuntimeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    with track("rl", Config(), {}, runtime) as run:
        run.metrics({"loss": 1.0}, 1)
        run.tags(a=1)
        run.trace("rollout", [], [], {})
    run.register("rl", tmp_path, {})
    assert not (tmp_path / "mlflow.db").exists()


def test_default_store_survives_temporary_workspaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / ".dvc" / "tmp" / "exps" / "tmpabc"))
    assert tracking_uri(RuntimeConfig()) == f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://host:5000")
    assert tracking_uri(RuntimeConfig()) == "http://host:5000"
    assert tracking_uri(RuntimeConfig(tracking_uri="sqlite:///x.db")) == "sqlite:///x.db"


def test_an_unusable_store_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    runtime = RuntimeConfig(tracking_uri=f"sqlite:///{tmp_path / 'file' / 'mlflow.db'}")
    opened = track("sft", Config(), {}, runtime)
    with pytest.raises(TrackingError, match=r"runtime\.tracking_uri"), opened:
        pass


def test_missing_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match=r"absent\.parquet not found"):
        digests(tmp_path / "absent.parquet")


FIRST_START = """
import sys
from astra.settings import RuntimeConfig, StageConfig
from astra.tracking.mlflow import track
with track("sft", StageConfig(), {}, RuntimeConfig(tracking_uri=sys.argv[1])) as run:
    run.metrics({"loss": 1.0}, 1)
"""


def test_concurrent_first_starts_share_one_store(runtime: RuntimeConfig, root: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(root / "src")}
    command = [sys.executable, "-c", FIRST_START, str(runtime.tracking_uri)]
    started = [
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for process in started:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    client = MlflowClient(tracking_uri=runtime.tracking_uri)
    experiment = client.get_experiment_by_name("astra/sft")
    assert experiment is not None
    assert len(client.search_runs([experiment.experiment_id])) == 4
