"""One MLflow run per training stage, one per checkpoint of the benchmark.

What may not enter ``metrics/*.json`` because it differs between machines goes here: wall
times, library versions, device, sandbox tier, and how metrics moved from step to step. The
default store is one SQLite file at the original repository root, also from inside temporary
and queued DVC workspaces, so that no run vanishes with its workspace.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
import subprocess
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel

from astra.records.message import CallStatus, ExecutedCall, Message, MessageRole
from astra.settings import RuntimeConfig
from astra.store.paths import repository_root
from astra.tracking.store import TrackingError, open_experiment, without_login

log = logging.getLogger(__name__)

EXPERIMENTS = "astra"
"""MLflow experiment of a stage: ``astra/<stage>``, apart from whatever else a server holds."""
PARENT = "mlflow.parentRunId"
OUTPUT = "output."
"""Tag of a run that made a checkpoint: ``output.<path>`` holds its SHA-256."""
UNNAMED = "workspace"
"""Name of a run outside a DVC experiment; DVC calls that state the workspace."""
LIBRARIES = ("torch", "transformers", "trl", "accelerate", "tokenizers", "datasets", "mlflow")
PARAM_LENGTH = 500
TEXT_LENGTH = 4000


def tracking_uri(runtime: RuntimeConfig) -> str:
    """``runtime.tracking_uri``, else MLFLOW_TRACKING_URI, else SQLite at the repository root."""
    configured = runtime.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    return configured or f"sqlite:///{repository_root() / 'mlflow.db'}"


def file_digest(path: Path) -> str:
    """SHA-256 of a file, or of a folder's relative names and contents. TrackingError if absent."""
    if not path.exists():
        raise TrackingError(f"input {path} not found; build it with `dvc repro` or `dvc pull`")
    total = hashlib.sha256()
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    for file in files:
        total.update(str(file.relative_to(path)).encode())
        with file.open("rb") as handle:
            total.update(hashlib.file_digest(handle, "sha256").digest())
    return total.hexdigest()


def digests(*paths: Path) -> dict[str, str]:
    """``inputs`` of ``track``: each path with its digest."""
    return {str(path): file_digest(path) for path in paths}


class Run:
    """An open MLflow run. On ranks other than 0 every method does nothing."""

    def __init__(self, client: Any, run_id: str, experiment_id: str) -> None:
        self._client = client
        self.id = run_id
        self._experiment_id = experiment_id

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Log finite numbers under ``step``; anything else in ``values`` is left out."""
        if self._client is None:
            return
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        chosen = [
            Metric(name, float(value), now, step)
            for name, value in values.items()
            if isinstance(value, int | float) and abs(value) < float("inf")
        ]
        if chosen:
            with _store_in_reach():
                self._client.log_batch(self.id, metrics=chosen)

    def tags(self, **values: object) -> None:
        """Facts about the machine or the run, for example ``sandbox_tier``."""
        if self._client is not None:
            with _store_in_reach():
                for name, value in values.items():
                    self._client.set_tag(self.id, name, str(value))

    def trace(
        self,
        name: str,
        messages: Sequence[Message],
        calls: Sequence[ExecutedCall],
        attributes: Mapping[str, Any],
    ) -> None:
        """Store one episode as a trace to read turn by turn.

        The root span holds the whole conversation; below it each assistant turn is a span with
        what was new to the model, followed by a span per executed call. ``attributes`` become
        tags too, by which traces are filtered. Spans have no durations of their own: an episode
        is stored after it has ended.
        """
        if self._client is None:
            return
        import mlflow

        turns = [at for at, message in enumerate(messages) if message.role == MessageRole.ASSISTANT]
        first = turns[0] if turns else len(messages)
        root = mlflow.start_span_no_context(
            name=name,
            span_type="AGENT",
            inputs={"messages": [_chat(message) for message in messages[:first]]},
            attributes={**attributes, "run_id": self.id},
            tags={key: str(value) for key, value in attributes.items() if value is not None},
            metadata={"mlflow.sourceRun": self.id},
            experiment_id=self._experiment_id,
        )
        seen = 0
        for turn, at in enumerate(turns):
            span = mlflow.start_span_no_context(
                name=f"turn {turn + 1}",
                span_type="CHAT_MODEL",
                parent_span=root,
                inputs={"messages": [_chat(message) for message in messages[seen:at]]},
            )
            span.end(outputs={"choices": [{"message": _chat(messages[at])}]})
            seen = at + 1
            for executed in calls:
                if executed.turn == turn:
                    _call_span(root, executed)
        root.end(outputs={"messages": [_chat(message) for message in messages[first:]]})

    def register(self, stage: str, folder: Path, inputs: Mapping[str, str]) -> None:
        """Say that this run made ``folder``: a run that reads the same bytes becomes its child.

        It is a new version of MLflow model ``astra-<stage>`` too: where the checkpoint is, its
        digest, the digests of what it was made from, and the run. Weights are not copied. Raises
        TrackingError where the store does not take it.
        """
        if self._client is None:
            return
        from mlflow.exceptions import MlflowException

        digest = file_digest(folder)
        self.tags(**{f"{OUTPUT}{folder}": digest})
        name = f"{EXPERIMENTS}-{stage}"
        tags = {"sha256": digest} | {f"input.{path}": value for path, value in inputs.items()}
        try:
            try:
                self._client.create_registered_model(name)
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            source = _place(folder, self._client.tracking_uri)
            self._client.create_model_version(name, source=source, run_id=self.id, tags=tags)
        except MlflowException as error:
            said = without_login(str(error))
            raise TrackingError(f"MLflow model {name} cannot be registered: {said}") from error


def _place(folder: Path, store: str) -> str:
    """Machine and path of a folder; a server refuses plain paths and schemes that it fetches."""
    uri = folder.absolute().as_uri()
    if urlsplit(store).scheme not in ("http", "https"):
        return uri
    return f"astra://{socket.gethostname()}{urlsplit(uri).path}"


def _call_span(root: Any, executed: ExecutedCall) -> None:
    import mlflow

    result = executed.result
    span = mlflow.start_span_no_context(
        name=executed.call.name or "unnamed",
        span_type="TOOL",
        parent_span=root,
        inputs={"arguments": executed.call.arguments[:TEXT_LENGTH]},
        attributes={"turn": str(executed.turn), "status": str(result.status)},
    )
    span.end(
        outputs={"content": result.content[:TEXT_LENGTH]},
        status="OK" if result.status == CallStatus.OK else "ERROR",
    )


def _chat(message: Message) -> dict[str, Any]:
    """The message as chat completions write it, so that MLflow shows it as a conversation."""
    document: dict[str, Any] = {
        "role": message.role.value,
        "content": message.content[:TEXT_LENGTH],
    }
    if message.tool_calls:
        document["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments[:TEXT_LENGTH]},
            }
            for call in message.tool_calls
        ]
    for key in ("tool_call_id", "name"):
        if value := getattr(message, key):
            document[key] = value
    return document


@contextmanager
def track(
    stage: str,
    config: BaseModel,
    inputs: Mapping[str, str],
    runtime: RuntimeConfig,
    part: str = "",
) -> Generator[Run]:
    """Open a run of MLflow experiment ``astra/<stage>``, and close it as FINISHED or FAILED.

    It is named after the DVC experiment, plus ``part`` where a stage makes several. ``inputs``
    maps a path to its SHA-256 (``digests``), kept as tags and, of tables, as MLflow data sets.
    The run is the child of the newest one that made one of them (``Run.register``). Raises
    TrackingError if the store cannot be opened: a run whose record would be lost does not start.
    """
    if int(os.environ.get("RANK", "0")) != 0:
        yield Run(None, "", "")
        return
    client, experiment_id = open_experiment(tracking_uri(runtime), f"{EXPERIMENTS}/{stage}")
    name = os.environ.get("DVC_EXP_NAME") or UNNAMED
    with _store_in_reach():
        created = client.create_run(experiment_id, run_name=f"{name}/{part}" if part else name)
    run = Run(client, created.info.run_id, experiment_id)
    started = time.monotonic()
    try:
        run.tags(
            stage=stage,
            dvc_exp_name=name,
            git_commit=_git_commit(),
            device=runtime.device,
            threads=runtime.threads,
            **{f"input.{path}": digest for path, digest in inputs.items()},
            **{f"lib.{library}": _version(library) for library in LIBRARIES},
        )
        with _store_in_reach():
            _log_params(client, run.id, config)
            _log_data(client, run.id, inputs)
            parent = _maker(client, inputs)
        if parent:
            run.tags(**{PARENT: parent})
        yield run
        run.metrics({"wall_s": time.monotonic() - started}, step=0)
    except BaseException:
        _close_failed(client, run.id)
        raise
    with _store_in_reach():
        client.set_terminated(run.id, "FINISHED")
    _flush_traces()


@contextmanager
def _store_in_reach() -> Generator[None]:
    """Turn what MLflow's client raises into a TrackingError.

    The client has tried again for minutes before it raises.
    """
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        said = without_login(str(error))
        raise TrackingError(
            f"the MLflow store no longer takes what the run has to say: {said}; see that it "
            "answers (`astra doctor`) and run the stage again, it goes on where it can"
        ) from error


def _close_failed(client: Any, run_id: str) -> None:
    """Mark the run; what made it fail is the error to raise, not that this cannot be stored."""
    from mlflow.exceptions import MlflowException

    try:
        client.set_terminated(run_id, "FAILED")
    except MlflowException as error:
        said = without_login(str(error))
        log.warning("run %s could not be marked as failed: %s", run_id, said)


def _maker(client: Any, inputs: Mapping[str, str]) -> str | None:
    """The newest run, of any of our experiments, whose output one of the inputs is."""
    ours = client.search_experiments(filter_string=f"name LIKE '{EXPERIMENTS}/%'")
    for path, digest in inputs.items():
        makers = client.search_runs(
            [experiment.experiment_id for experiment in ours],
            filter_string=f"tags.`{OUTPUT}{path}` = '{digest}'",
            order_by=["attributes.start_time DESC"],
            max_results=1,
        )
        if makers:
            return makers[0].info.run_id
    return None


def _log_data(client: Any, run_id: str, inputs: Mapping[str, str]) -> None:
    """Tables among the inputs as data sets; MLflow keeps 36 characters of a digest."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    tables = [
        DatasetInput(
            Dataset(path, digest[:16], "local", json.dumps({"uri": path})),
            [InputTag("mlflow.data.context", "input")],
        )
        for path, digest in inputs.items()
        if path.endswith(".parquet")
    ]
    if tables:
        client.log_inputs(run_id, tables)


def _log_params(client: Any, run_id: str, config: BaseModel) -> None:
    from mlflow.entities import Param

    flat = dict(_flatten(config.model_dump(mode="json")))
    params = [Param(key, str(value)[:PARAM_LENGTH]) for key, value in sorted(flat.items())]
    for start in range(0, len(params), 100):  # the store's limit on one batch
        client.log_batch(run_id, params=params[start : start + 100])


def _flatten(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "absent"


def _git_commit() -> str:
    """The commit the run starts from; of an experiment the one it was derived from."""
    baseline = os.environ.get("DVC_EXP_BASELINE_REV")
    if baseline:
        return baseline
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return head.stdout.strip() if head.returncode == 0 else "unknown"


def _flush_traces() -> None:
    import mlflow

    mlflow.flush_trace_async_logging()
