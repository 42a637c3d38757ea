"""A published policy as a version of its MLflow model, with a link to the run that trained it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from astra.publish.record import PublishError
from astra.report.provenance import check_store, without_login
from astra.tracking.mlflow import EXPERIMENTS, OUTPUT, file_digest

ALIAS = "published"


@dataclass(frozen=True)
class Version:
    """A version of a registered model."""

    model: str
    number: str
    run: str
    """The run that trained the checkpoint; empty where the store knows none."""
    store: str


def store_in_reach(uri: str) -> None:
    """Raise PublishError soon where no MLflow store answers at ``uri``."""
    from mlflow.exceptions import MlflowException

    try:
        check_store(uri)
    except FileNotFoundError:
        raise PublishError(
            f"--register: there is no MLflow store at {without_login(uri)}; training makes one, "
            "and runtime.tracking_uri or MLFLOW_TRACKING_URI names another"
        ) from None
    except (MlflowException, OSError) as error:
        said = without_login(str(error))
        raise PublishError(f"--register: MLflow store {without_login(uri)}: {said}") from None


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
        local = source.startswith("file:") and not uri.startswith("sqlite:")
        hint = "; it may take no folder of another machine: add --push" if local else ""
        raise PublishError(
            f"--register: {without_login(uri)} takes no version of {source}: {error}{hint}"
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
