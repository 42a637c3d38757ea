"""A published policy as a version of its MLflow model, with a link to the run that trained it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from astra.publish.record import PublishError
from astra.tracking.mlflow import EXPERIMENTS, OUTPUT, file_digest
from astra.tracking.store import check_store, without_login

ALIAS = "published"


@dataclass(frozen=True)
class Version:
    """A version of a registered model."""

    model: str
    number: str
    run: str
    """The run that trained the checkpoint; empty where the store knows none."""
    store: str


def store_in_reach(uri: str, pushed: bool) -> None:
    """Raise PublishError soon where ``uri`` is no MLflow store that takes a version.

    A server takes no folder of this machine, so what goes there has to be ``pushed``.
    """
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    shown = without_login(uri)
    try:
        check_store(uri)
        if uri.startswith(("http://", "https://")):
            if not pushed:
                raise PublishError(
                    f"--register: the MLflow server {shown} takes no folder of this machine as the "
                    "files of a version: add --push, and it gets the address in the bucket"
                )
        else:
            MlflowClient(tracking_uri=uri).search_registered_models(max_results=1)
    except FileNotFoundError:
        raise PublishError(
            f"--register: there is no MLflow store at {shown}; training makes one, "
            "and runtime.tracking_uri or MLFLOW_TRACKING_URI names another"
        ) from None
    except (MlflowException, OSError, sqlite3.Error) as error:
        hint = "; a folder is no store for models: name sqlite:///mlflow.db or a server" * (
            "://" not in uri or uri.startswith("file:")
        )
        said = without_login(str(error))
        raise PublishError(f"--register: MLflow store {shown}: {said}{hint}") from None


def register(
    stage: str, checkpoint: Path, source: str, tags: Mapping[str, str], uri: str
) -> Version:
    """Add a version of model ``astra-<stage>`` whose files are at ``source``; alias ``published``.

    The run is the newest one that made the checkpoint's bytes. Raises PublishError where the store
    refuses the version.
    """
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    client = MlflowClient(tracking_uri=uri)
    name, digest = f"{EXPERIMENTS}-{stage}", file_digest(checkpoint)
    try:
        run = _maker(client, checkpoint, digest)
        try:
            client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        made = client.create_model_version(
            name, source=source, run_id=run or None, tags={"sha256": digest, **tags}
        )
        client.set_registered_model_alias(name, ALIAS, str(made.version))
    except MlflowException as error:
        said = without_login(str(error))
        raise PublishError(
            f"--register: {without_login(uri)} takes no version of {source}: {said}; what was "
            "written stays, and the same command tries again"
        ) from None
    return Version(name, str(made.version), run, without_login(uri))


def _maker(client: object, checkpoint: Path, digest: str) -> str:
    """The newest run whose output the checkpoint is; empty where there is none."""
    from mlflow import MlflowClient

    assert isinstance(client, MlflowClient)
    ours = client.search_experiments(filter_string=f"name LIKE '{EXPERIMENTS}/%'")
    found = client.search_runs(
        [experiment.experiment_id for experiment in ours],
        filter_string=f"tags.`{OUTPUT}{checkpoint}` = '{digest}'",
        order_by=["attributes.start_time DESC"],
        max_results=1,
    )
    return found[0].info.run_id if found else ""
