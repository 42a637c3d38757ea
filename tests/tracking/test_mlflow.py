from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from sqlalchemy.exc import OperationalError

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
    Run,
    TrackingError,
    digests,
    file_digest,
    track,
    tracking_uri,
)
from astra.tracking.store import without_login


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


def test_an_episode_becomes_a_trace_to_read_turn_by_turn(runtime: RuntimeConfig) -> None:
    import mlflow

    calls = [
        ToolCall(id="c", name="get_price", arguments='{"listing": "Amber Cove"}'),
        ToolCall(id="d", name="find_agent", arguments='{"listing": "Amber Cov"}'),
    ]
    results = [
        ToolResult(status=CallStatus.OK, content="45", value=45),
        ToolResult(status=CallStatus.ERROR, content="error: no listing named Amber Cov"),
    ]
    messages = [
        Message(role=MessageRole.SYSTEM, content="s"),
        Message(role=MessageRole.USER, content="u"),
        Message(role=MessageRole.ASSISTANT, tool_calls=(calls[0],)),
        Message(role=MessageRole.TOOL, content="45", name="get_price", tool_call_id="c"),
        Message(role=MessageRole.ASSISTANT, tool_calls=(calls[1],)),
        Message(role=MessageRole.TOOL, content=results[1].content, name="find_agent"),
        Message(role=MessageRole.ASSISTANT, content="<answer>45</answer>"),
    ]
    executed = [ExecutedCall(turn=n, call=calls[n], result=results[n]) for n in range(2)]
    with track("rl", Config(), {}, runtime) as run:
        run.trace("rollout", messages, executed, {"reward": 0.5, "success": None})
    experiment = mlflow.get_experiment_by_name("astra/rl")
    assert experiment is not None
    (trace,) = mlflow.search_traces(locations=[experiment.experiment_id], return_type="list")
    root, *spans = trace.data.spans
    assert [span.name for span in spans] == [
        "turn 1",
        "get_price",
        "turn 2",
        "find_agent",
        "turn 3",
    ]
    assert root.attributes["reward"] == 0.5
    assert [message["role"] for message in root.inputs["messages"]] == ["system", "user"]
    assert root.outputs["messages"][-1]["content"] == "<answer>45</answer>"
    # Each turn shows what was new to the model, as chat completions write it.
    assert [message["content"] for message in spans[2].inputs["messages"]] == ["45"]
    (choice,) = spans[0].outputs["choices"]
    function = choice["message"]["tool_calls"][0]["function"]
    assert function == {"name": "get_price", "arguments": '{"listing": "Amber Cove"}'}
    assert spans[1].outputs == {"content": "45"}
    assert [str(span.status.status_code.value) for span in (spans[1], spans[3])] == ["OK", "ERROR"]
    assert trace.info.tags["reward"] == "0.5"
    assert "success" not in trace.info.tags
    assert trace.info.trace_metadata["mlflow.sourceRun"] == run.id


def test_a_run_is_the_child_of_the_one_that_made_its_checkpoint(
    runtime: RuntimeConfig, tmp_path: Path
) -> None:
    data, sft, rl = tmp_path / "sft_set.parquet", tmp_path / "sft", tmp_path / "rl"
    data.write_bytes(b"rows")
    for folder in (sft, rl):
        folder.mkdir()
        (folder / "weights").write_text(folder.name)
    runs: dict[str, Run] = {}
    for stage, read, made in (
        ("sft", (data,), sft),
        ("rl", (data, sft), rl),
        ("bench", (data, rl), None),
    ):
        with track(stage, Config(), digests(*read), runtime) as runs[stage]:
            if made is not None:
                runs[stage].register(stage, made, {})
    (rl / "weights").write_text("other weights")
    with track("bench", Config(), digests(data, rl), runtime) as runs["orphan"]:
        pass
    client = MlflowClient(tracking_uri=runtime.tracking_uri)
    stored = {name: client.get_run(run.id) for name, run in runs.items()}
    parents = {name: one.data.tags.get("mlflow.parentRunId") for name, one in stored.items()}
    assert parents == {"sft": None, "rl": runs["sft"].id, "bench": runs["rl"].id, "orphan": None}
    (used,) = stored["bench"].inputs.dataset_inputs
    assert used.dataset.name == str(data)
    assert used.dataset.digest == file_digest(data)[:16]


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


def test_a_damaged_store_is_said_at_once_with_its_repair(tmp_path: Path) -> None:
    store = tmp_path / "mlflow.db"
    store.write_bytes(b"no database at all, certainly not one of SQLite" * 50)
    opened = track("sft", Config(), {}, RuntimeConfig(tracking_uri=f"sqlite:///{store}"))
    started = time.monotonic()
    with pytest.raises(TrackingError, match=r"mlflow\.db cannot be opened.*move it away"), opened:
        pass
    assert time.monotonic() - started < 20  # not the minutes for which MLflow would try


def test_what_a_database_driver_raises_is_a_clear_error_without_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri = "postgresql://astra:se/cr@et@127.0.0.1:9/runs"
    said = OperationalError(None, None, Exception(f"connection to {uri} failed"))

    def failing(**given: Any) -> None:
        raise said

    monkeypatch.setattr("mlflow.MlflowClient", failing)
    opened = track("sft", Config(), {}, RuntimeConfig(tracking_uri=uri))
    with pytest.raises(TrackingError, match=r"postgresql://127\.0\.0\.1:9/runs") as raised, opened:
        pass
    assert "connection to postgresql://127.0.0.1:9/runs failed" in str(raised.value)
    assert "runtime.tracking_uri" in str(raised.value)
    assert "astra" not in str(raised.value).replace("`astra doctor`", "")
    assert "et@" not in str(raised.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://u:secret@host:5000", "http://host:5000"),
        ("postgresql://u:p@ss/w@host/db", "postgresql://host/db"),
        ("https://token@host/a", "https://host/a"),
        ("failed at http://u:s@h/a, then http://v:t@h/b", "failed at http://h/a, then http://h/b"),
        ("http://host:5000/a/b", "http://host:5000/a/b"),
        ("sqlite:////home/me@work/mlflow.db", "sqlite:////home/me@work/mlflow.db"),
    ],
)
def test_addresses_are_shown_without_their_login(address: str, shown: str) -> None:
    assert without_login(address) == shown


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A tracking server as `mlflow server` starts it, with its own store and artifacts."""
    port = free_port()
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
        "--workers", "1", "--backend-store-uri", f"sqlite:///{tmp_path / 'server.db'}",
        "--artifacts-destination", str(tmp_path / "artifacts"),
    ]  # fmt: skip
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        # Its own process group: the server's worker must end with it.
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        uri, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 300
        while True:
            try:
                urllib.request.urlopen(f"{uri}/health", timeout=5).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"mlflow server did not start:\n{log.read_text()}")
                time.sleep(0.2)
        yield uri, process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)


def test_a_remote_server_takes_runs_and_traces_and_its_death_is_a_clear_error(
    server: tuple[str, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    uri, process = server
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")  # it is not coming back
    runtime = RuntimeConfig(tracking_uri=uri)
    message = Message(role=MessageRole.USER, content="what is the price?")
    answer = Message(role=MessageRole.ASSISTANT, content="<answer>45</answer>")
    with track("rl", Config(), {}, runtime) as run:
        run.metrics({"rollout/reward": 0.25}, step=1)
        run.trace("rollout", [message, answer], [], {"reward": 1.0})
    stored = MlflowClient(tracking_uri=uri).get_run(run.id)
    assert stored.info.status == "FINISHED"
    assert stored.data.metrics["rollout/reward"] == 0.25
    (trace,) = mlflow.search_traces(
        locations=[stored.info.experiment_id], return_type="list", include_spans=True
    )
    assert [span.name for span in trace.data.spans] == ["rollout", "turn 1"]
    with contextlib.ExitStack() as stack:
        run = stack.enter_context(track("rl", Config(), {}, runtime))
        stop(process)
        with pytest.raises(TrackingError, match="no longer takes"):
            run.metrics({"rollout/reward": 0.5}, step=2)
        with pytest.raises(TrackingError, match="no longer takes"):
            stack.close()
    started = time.monotonic()
    with (
        pytest.raises(TrackingError, match=r"runtime\.tracking_uri"),
        track("rl", Config(), {}, runtime),
    ):
        pass
    assert time.monotonic() - started < 60  # not the minutes for which the client would try


def test_a_remote_server_takes_a_checkpoint_of_this_machine(
    server: tuple[str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    uri, _ = server
    folder = tmp_path / "models" / "sft"
    folder.mkdir(parents=True)
    with track("sft", Config(), {}, RuntimeConfig(tracking_uri=uri)) as run:
        pass
    run.register("sft", folder, {})
    (version,) = MlflowClient(tracking_uri=uri).search_model_versions("name='astra-sft'")
    assert version.source == f"astra://{socket.gethostname()}{folder}"
    assert version.run_id == run.id


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
