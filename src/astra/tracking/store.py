"""The MLflow store: its address as it may be shown, whether it answers, an experiment opened."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from filelock import FileLock

from astra.errors import AstraError

# MLflow must not report usage to anybody; it reads this when it is first imported.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

SQLITE = "sqlite:///"
LOCK_TIMEOUT_S = 300
REACH_TIMEOUT_S = 10
BUSY_TIMEOUT_S = 20
"""How long a file may be written by others, as MLflow itself waits."""
_LOGIN = re.compile(r"//(?:[^/@\s]*:\S*|[^/\s]*)@")
"""``//user:password@``, whatever characters the password has, or ``//user@``."""


class TrackingError(AstraError):
    """The MLflow store cannot be opened, or is lost on the way."""


def without_login(text: str) -> str:
    """An address, or a text that holds some, without user name and password: it is sent around."""
    return _LOGIN.sub("//", text)


def open_experiment(uri: str, experiment: str) -> tuple[Any, str]:
    """A client of the store and the experiment's id, created once whoever comes first.

    Raises TrackingError saying what was tried and how to repair it.
    """
    import mlflow

    try:
        mlflow.set_tracking_uri(uri)
        if uri.startswith(("http://", "https://")):
            reach_server(uri)
        if not uri.startswith(SQLITE):
            return _client_and_experiment(uri, experiment, None)
        database = Path(uri.removeprefix(SQLITE))
        database.parent.mkdir(parents=True, exist_ok=True)
        artifacts = (database.parent / "runs" / "mlflow").absolute().as_uri()
        # Concurrent first starts would run the schema migration twice, which breaks it.
        with FileLock(f"{database}.lock", timeout=LOCK_TIMEOUT_S):
            if database.is_file():  # it may hold no tables yet, but it must be a database
                _read(database, "sqlite_master")
            return _client_and_experiment(uri, experiment, artifacts)
    except Exception as error:  # stores raise what their drivers raise; all of it is said
        raise TrackingError(
            f"MLflow store {without_login(uri)} cannot be opened: {without_login(str(error))}; "
            f"{_repair(error)}"
        ) from error


def _repair(error: Exception) -> str:
    named = "check runtime.tracking_uri or MLFLOW_TRACKING_URI"
    if isinstance(error, ImportError):
        return f"install the driver of its database, or {named}"
    # Its subclasses are of files that are locked or cannot be opened; SQLAlchemy wraps all.
    if type(getattr(error, "orig", error)) is sqlite3.DatabaseError:
        return (
            f"put a copy in place of the file or move it away (a run makes a new one), or {named}"
        )
    return f"see that it answers (`astra doctor`), and {named}"


def check_store(uri: str) -> None:
    """Raise soon if no store answers. MLflow itself would try for minutes, or make an empty one.

    Raises FileNotFoundError for an SQLite file that is not there yet.
    """
    if uri.startswith(("http://", "https://")):
        reach_server(uri)
    elif uri.startswith(SQLITE):
        path = Path(uri.removeprefix(SQLITE))
        if not path.is_file():
            raise FileNotFoundError(path)
        _read(path, "experiments")


def _read(database: Path, table: str) -> None:
    address = f"file:{quote(str(database))}?mode=ro"
    with closing(sqlite3.connect(address, BUSY_TIMEOUT_S, uri=True)) as store:
        store.execute(f"SELECT name FROM {table} LIMIT 1")


def reach_server(uri: str) -> None:
    """Raise MlflowException soon where no server answers; MLflow's client tries for minutes."""
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    http_request(
        get_default_host_creds(uri), "/health", "GET",
        timeout=REACH_TIMEOUT_S, max_retries=0, raise_on_status=False,
    )  # fmt: skip


def _client_and_experiment(uri: str, experiment: str, artifacts: str | None) -> tuple[Any, str]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    existing = client.get_experiment_by_name(experiment)
    if existing is not None:
        return client, existing.experiment_id
    return client, client.create_experiment(experiment, artifact_location=artifacts)
