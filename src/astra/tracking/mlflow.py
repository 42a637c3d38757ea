"""One MLflow run per training stage, one per checkpoint of the benchmark.

What may not enter ``metrics/*.json`` because it differs between machines goes here: wall
times, library versions, device, sandbox tier, and how metrics moved from step to step. The
default store is one SQLite file at the original repository root, also from inside temporary
and queued DVC workspaces, so that no run vanishes with its workspace.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import BaseModel

from astra.errors import AstraError
from astra.records.message import ExecutedCall, Message, MessageRole
from astra.settings import RuntimeConfig
from astra.store.paths import repository_root

# MLflow must not report usage to anybody; it reads this when it is first imported.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

EXPERIMENTS = "astra"
"""MLflow experiment of a stage: ``astra/<stage>``, apart from whatever else a server holds."""
UNNAMED = "workspace"
"""Name of a run outside a DVC experiment; DVC calls that state the workspace."""
LIBRARIES = ("torch", "transformers", "trl", "accelerate", "tokenizers", "datasets", "mlflow")
PARAM_LENGTH = 500
TEXT_LENGTH = 4000
LOCK_TIMEOUT_S = 300


class TrackingError(AstraError):
    """The MLflow store cannot be opened."""


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
            self._client.log_batch(self.id, metrics=chosen)

    def tags(self, **values: object) -> None:
        """Facts about the machine or the run, for example ``sandbox_tier``."""
        if self._client is not None:
            for name, value in values.items():
                self._client.set_tag(self.id, name, str(value))

    def trace(
        self,
        name: str,
        messages: Sequence[Message],
        calls: Sequence[ExecutedCall],
        attributes: Mapping[str, Any],
    ) -> None:
        """Store one episode as a trace to be read turn by turn.

        A root span, below it one span per assistant turn (what it read since the last, what it
        said), and below that one per call the turn made.
        """
        if self._client is None:
            return
        import mlflow

        plain = [_plain(message) for message in messages]
        spoken = [at for at, one in enumerate(messages) if one.role == MessageRole.ASSISTANT]
        root = mlflow.start_span_no_context(
            name=name,
            span_type="AGENT",
            inputs={"messages": [one for one in plain if one["role"] in ("system", "user")]},
            attributes={**attributes, "run_id": self.id},
            metadata={"mlflow.sourceRun": self.id},
            experiment_id=self._experiment_id,
        )
        for number, at in enumerate(spoken):
            read = plain[spoken[number - 1] + 1 if number else 0 : at]
            turn = mlflow.start_span_no_context(
                name=f"turn {number + 1}",
                span_type="CHAT_MODEL",
                parent_span=root,
                inputs={"messages": read},
            )
            for executed in calls:
                if executed.turn == number:
                    _trace_call(turn, executed)
            turn.end(outputs={"message": plain[at]})
        root.end(outputs={"messages": plain[2:]})

    def register(self, stage: str, folder: Path, inputs: Mapping[str, str]) -> None:
        """A new version of MLflow model ``astra-<stage>``: where the checkpoint is, its digest,
        the digests of what it was made from, and the run that made it. Weights are not copied.
        """
        if self._client is None:
            return
        from mlflow.exceptions import MlflowException

        name = f"{EXPERIMENTS}-{stage}"
        try:
            self._client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise TrackingError(f"MLflow model {name} cannot be registered: {error}") from error
        tags = {"sha256": file_digest(folder)}
        tags |= {f"input.{path}": digest for path, digest in inputs.items()}
        source = folder.absolute().as_uri()
        self._client.create_model_version(name, source=source, run_id=self.id, tags=tags)


def _trace_call(turn: Any, executed: ExecutedCall) -> None:
    import mlflow

    span = mlflow.start_span_no_context(
        name=executed.call.name or "unnamed",
        span_type="TOOL",
        parent_span=turn,
        inputs={"arguments": executed.call.arguments[:TEXT_LENGTH]},
        attributes={"turn": str(executed.turn), "status": str(executed.result.status)},
    )
    span.end(outputs={"content": executed.result.content[:TEXT_LENGTH]})


def _plain(message: Message) -> dict[str, Any]:
    document = message.model_dump(mode="json", exclude_defaults=True)
    document["content"] = message.content[:TEXT_LENGTH]
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
    maps a path to its SHA-256 (``digests``), kept as tags. Raises TrackingError if the store
    cannot be opened: a run whose record would be lost does not start.
    """
    if int(os.environ.get("RANK", "0")) != 0:
        yield Run(None, "", "")
        return
    client, experiment_id = _open(tracking_uri(runtime), f"{EXPERIMENTS}/{stage}")
    name = os.environ.get("DVC_EXP_NAME") or UNNAMED
    created = client.create_run(experiment_id, run_name=f"{name}/{part}" if part else name)
    run = Run(client, created.info.run_id, experiment_id)
    run.tags(
        stage=stage,
        dvc_exp_name=name,
        git_commit=_git_commit(),
        device=runtime.device,
        threads=runtime.threads,
        **{f"input.{path}": digest for path, digest in inputs.items()},
        **{f"lib.{library}": _version(library) for library in LIBRARIES},
    )
    _log_params(client, run.id, config)
    started = time.monotonic()
    try:
        yield run
    except BaseException:
        client.set_terminated(run.id, "FAILED")
        raise
    run.metrics({"wall_s": time.monotonic() - started}, step=0)
    client.set_terminated(run.id, "FINISHED")
    _flush_traces()


def _open(uri: str, experiment: str) -> tuple[Any, str]:
    """A client of the store and the experiment's id, created once whoever comes first."""
    import mlflow
    from mlflow.exceptions import MlflowException

    try:
        mlflow.set_tracking_uri(uri)
        if not uri.startswith("sqlite:///"):
            return _client_and_experiment(uri, experiment, None)
        database = Path(uri.removeprefix("sqlite:///"))
        database.parent.mkdir(parents=True, exist_ok=True)
        artifacts = (database.parent / "runs" / "mlflow").absolute().as_uri()
        # Concurrent first starts would run the schema migration twice, which breaks it.
        with FileLock(f"{database}.lock", timeout=LOCK_TIMEOUT_S):
            return _client_and_experiment(uri, experiment, artifacts)
    except (MlflowException, OSError) as error:
        raise TrackingError(
            f"MLflow store {uri} cannot be opened: {error}; check runtime.tracking_uri or "
            "MLFLOW_TRACKING_URI"
        ) from error


def _client_and_experiment(uri: str, experiment: str, artifacts: str | None) -> tuple[Any, str]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    found = client.get_experiment_by_name(experiment)
    if found is not None:
        return client, found.experiment_id
    return client, client.create_experiment(experiment, artifact_location=artifacts)


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
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() if found.returncode == 0 else "unknown"


def _flush_traces() -> None:
    import mlflow

    mlflow.flush_trace_async_logging()
