"""``astra publish``: a policy or a data set of the build as a folder that others load."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from astra.cli.remote import check as check_remote
from astra.devtools.train_same import refuse_unrecorded
from astra.devtools.training_lock import LockedStages
from astra.errors import AstraError
from astra.publish.data_sets import (
    ARENA_SET,
    CONVERSATION_SET,
    SFT_SET,
    DataSet,
    publish_data_set,
)
from astra.publish.evidence import FILES, sha256
from astra.publish.policies import publish_policy
from astra.publish.registry import ALIAS, register, store_in_reach
from astra.publish.sending import Sent, refuse_place, send
from astra.settings import RuntimeConfig, load
from astra.tracking.mlflow import tracking_uri

publish_app = typer.Typer(
    help="Write a policy or a data set as a folder that others load, with its card.",
    no_args_is_help=True,
)
Out = Annotated[Path, typer.Option(help="The folder; one that was published before is replaced.")]
Push = Annotated[
    bool, typer.Option("--push", help="Then track it with DVC and push it and its build.")
]


@publish_app.command("policy")
def policy(
    out: Out,
    checkpoint: Annotated[
        Path, typer.Argument(help="models/rl or models/sft, which the build has scores of.")
    ] = Path("models/rl"),
    push: Push = False,
    registered: Annotated[
        bool,
        typer.Option(
            "--register",
            help=f"Then make it an MLflow model version, alias {ALIAS}. It takes a store that is "
            "there: an SQLite file or another database, or, with --push, an MLflow server.",
        ),
    ] = False,
) -> None:
    """Write CHECKPOINT with its model card, and load and serve it in processes of their own.

    Refused where training.lock, dvc.lock and what lies here do not agree.
    """
    uri = tracking_uri(load("runtime", RuntimeConfig))
    if registered:
        store_in_reach(uri, push)
    _refuse_push(out, push)
    with LockedStages() as stages:
        refuse_unrecorded(stages)
    made = publish_policy(checkpoint, out, typer.echo)
    sent = _sent(out, made.outputs) if push else None
    if not registered:
        return
    tags = {"git_commit": made.commit, "published.sha256": sha256(out / FILES)}
    if sent is not None:
        tags |= {"dvc.remote": sent.remote, "dvc.md5": sent.md5}
    source = sent.url if sent is not None else out.absolute().as_uri()
    version = register(made.stage, checkpoint, source, tags, uri)
    linked = f"made by run {version.run}" if version.run else (
        "without a link to a run, since none of that store made this checkpoint"
    )  # fmt: skip
    typer.echo(
        f"MLflow: version {version.number} of model {version.model}, alias {ALIAS}, {linked}; "
        f"store {version.store}, files at {source}"
    )


@publish_app.command("sft-set")
def sft_set(out: Out, push: Push = False) -> None:
    """Write data/sft_set.parquet with its card, and load it in a process of its own."""
    _data_set(SFT_SET, out, push)


@publish_app.command("conversations")
def conversations(out: Out, push: Push = False) -> None:
    """Write data/conversations.parquet with its card, and load it in a process of its own."""
    _data_set(CONVERSATION_SET, out, push)


@publish_app.command("arenas")
def arenas(out: Out, push: Push = False) -> None:
    """Write data/envs_merged.parquet with its card, and load it in a process of its own."""
    _data_set(ARENA_SET, out, push)


def _data_set(made: DataSet, out: Path, push: bool) -> None:
    _refuse_push(out, push)
    published = publish_data_set(made, out, typer.echo)
    if push:
        _sent(out, published.outputs)


def _refuse_push(out: Path, push: bool) -> None:
    """Raise an error where the folder could not be pushed, so that no work is done in vain."""
    if push:
        refuse_place(out)
        check_remote()


def _sent(out: Path, outputs: tuple[str, ...]) -> Sent:
    try:
        sent = send(out, outputs)
    except AstraError as error:
        raise AstraError(f"{out} is written, and not pushed: {error}") from error
    typer.echo(
        f"dvc push: {sent.objects} objects sent to {sent.remote}, which holds {out} ({sent.md5}) "
        f"and what its build made; commit {out}.dvc and {out.parent / '.gitignore'}"
    )
    return sent
