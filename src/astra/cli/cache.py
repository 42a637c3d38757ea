"""``astra cache``: what teachers answered, counted, shipped and cleared.

An exported cache goes with a data set, for example through the DVC remote: who imports it
rebuilds the data without asking, and without paying, again.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from astra.errors import AstraError
from astra.llm.cache import AnswerCache, CachedReply, cache_path
from astra.records.base import compact_json
from astra.store.replacing import replacing

cache_app = typer.Typer(help="The cache of teacher answers.", no_args_is_help=True)
KEY = re.compile(r"[0-9a-f]{64}")
Model = Annotated[str, typer.Option(help="Only answers of this model, as `cache stats` names it.")]


class CacheFileError(AstraError):
    """A file cannot be imported or exported; of one that is imported it names the line."""


@cache_app.command("stats")
def stats() -> None:
    """How many answers are kept per model, how large the file is, and what was spent."""
    path = cache_path()
    if not path.is_file():
        typer.echo(f"{path}: no answers yet")
        return
    cache = AnswerCache()
    content, ledger = cache.stats(), cache.ledger()
    cache.close()
    typer.echo(f"{content.path}: {content.file_bytes / 1e6:.1f} MB")
    for model, (count, size) in content.models.items():
        typer.echo(f"  {model}: {count} answers, {size / 1e6:.1f} MB of text")
    for budget, stage, model, spent in ledger:
        money = f", cost {spent.money:.4f}" if spent.money else ""
        typer.echo(
            f"  spent under {budget!r}, stage {stage}, {model}: {spent.requests} requests, "
            f"{spent.tokens} tokens{money}"
        )


@cache_app.command("export")
def export(
    path: Annotated[Path, typer.Argument(help="The file to write, for example answers.jsonl.gz.")],
    model: Model = "",
) -> None:
    """Write the answers to one compressed file; the same answers give the same bytes.

    Exit code 1 if there are none; an earlier file is then left as it was.
    """
    if path.is_dir():
        raise CacheFileError(
            f"{path} is a folder; name a file, such as {path / 'answers.jsonl.gz'}"
        )
    with closing(AnswerCache()) as cache:
        models = cache.stats().models
        if not models or (model and model not in models):
            raise CacheFileError(
                f"{path} was not written: {cache.path} has no answers of {model or 'any model'}; "
                f"it has those of: {', '.join(models) or 'none'}"
            )
        count = _write(path, cache.replies(model or None))
    typer.echo(f"{count} answers written to {path} ({path.stat().st_size / 1e6:.1f} MB)")


@cache_app.command("import")
def import_(
    path: Annotated[Path, typer.Argument(help="A file that `astra cache export` wrote.")],
) -> None:
    """Add a file's answers, all or none; an answer that is here already stays as it is."""
    cache = AnswerCache()
    try:
        read = list[int]()
        added = cache.add(_counted(_answers(path), read))
    finally:
        cache.close()
    typer.echo(f"{added} answers added, {len(read) - added} were here already")


@cache_app.command("prune")
def prune(
    model: Model = "",
    older_than_days: Annotated[
        float | None, typer.Option(min=0, help="Only answers committed longer ago than this.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask back.")] = False,
) -> None:
    """Delete answers for good, by model or age. They may have cost money: export them first."""
    if not model and older_than_days is None:
        raise AstraError("say what to delete: --model NAME, --older-than-days N, or both")
    if not yes:
        typer.confirm("Delete these answers for good?", abort=True)
    cache = AnswerCache()
    age = None if older_than_days is None else older_than_days * 86_400
    deleted = cache.prune(model or None, age)
    cache.close()
    typer.echo(f"{deleted} answers deleted")


def _write(path: Path, replies: Iterator[CachedReply]) -> int:
    """Write replies to a file, which is replaced once all are written; returns how many."""
    count = 0
    # No name and no time in the header: `dvc add` then sees the content alone.
    with (
        replacing(path) as partial,
        partial.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as handle,
    ):
        for reply in replies:
            line = {"key": reply.key, "model": reply.model, "value": reply.value}
            handle.write(f"{compact_json(line)}\n".encode())
            count += 1
    return count


def _counted(answers: Iterator[CachedReply], read: list[int]) -> Iterator[CachedReply]:
    for answer in answers:
        read.append(1)
        yield answer


def _answers(path: Path) -> Iterator[CachedReply]:
    """The answers of a file. Raises CacheFileError at the first line that is none."""
    if not path.is_file():
        raise CacheFileError(f"{path} not found; write one with `astra cache export`")
    number = 1
    try:
        with gzip.open(path, "rt", encoding="utf-8") as handle:
            for line in handle:
                document = json.loads(line)
                answer = CachedReply(document["key"], document["model"], document["value"])
                if not KEY.fullmatch(answer.key) or not isinstance(answer.value, dict):
                    raise ValueError("no answer key or no JSON object")
                yield answer
                number += 1
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise CacheFileError(
            f"{path} line {number}: {error!r}; nothing was imported. Fetch or export it again"
        ) from error
