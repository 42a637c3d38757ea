"""``astra sources``: live servers installed and asked, public corpora fetched and checked."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from astra.agent.server_environments import ServerEnvironments
from astra.errors import AstraError
from astra.records.base import content_id
from astra.sandbox.servers import build_walls
from astra.settings import RuntimeConfig, load
from astra.store.paths import cache_root
from astra.toolbank.connectors import Connectors
from astra.toolbank.corpora import (
    CorpusError,
    corpora_folder,
    count_documents,
    fetch,
    package_file,
)
from astra.toolbank.sources import CorpusSource, LiveSource, SourceList, load_sources

sources_app = typer.Typer(help="Source lists of stage tools.", no_args_is_help=True)


class CheckError(AstraError):
    """Servers of a list did not answer."""


class FetchError(AstraError):
    """Corpora of a list could not be fetched, or are not what the list says."""


class ServerAnswer(BaseModel):
    """What came of one server; ``reason`` is empty where it listed its tools."""

    key: str
    name: str
    licence: str
    tools: int = 0
    reason: str = ""
    seconds: float


@sources_app.command("check")
def check(
    path: Annotated[Path, typer.Argument(help="The source list, for example sources/public.yaml.")],
) -> None:
    """Install every live server of a list, start it and ask for its tools.

    Answers are kept: a check that was interrupted goes on, and only servers that failed or whose
    entry or pins changed are asked again. Exit code 1 if any did not answer.
    """
    live = load_sources(path).live
    kept = cache_root() / "sources.jsonl"
    known = {one.key: one for one in _read(kept) if not one.reason}
    environments, runtime = ServerEnvironments(), load("runtime", RuntimeConfig)
    connectors = Connectors(runtime, build_walls(runtime), environments)
    answers: list[ServerAnswer] = []
    for number, source in enumerate(live, start=1):
        key = _key(source, environments)
        answer = known.get(key)
        if answer is None:
            answer = asyncio.run(_ask(source, key, connectors))
            kept.parent.mkdir(parents=True, exist_ok=True)
            with kept.open("a", encoding="utf-8") as file:
                file.write(answer.model_dump_json() + "\n")
        answers.append(answer)
        came = answer.reason or f"{answer.tools} tools"
        typer.echo(f"[{number}/{len(live)}] {source.name}: {came}, {answer.seconds:.1f} s")
    _sum_up(answers, cache_root() / "servers")


@sources_app.command("fetch")
def fetch_corpora(
    path: Annotated[
        Path, typer.Argument(help="The source list, for example sources/corpora.yaml.")
    ],
) -> None:
    """Fetch the corpora that a list names, and check their versions and hashes.

    A package that is there is checked and not fetched again, so an interrupted fetch goes on with
    the next one. Exit code 1 if any could not be fetched or has another hash.
    """
    listed = load_sources(path)
    failed: list[str] = []
    kept: list[CorpusSource] = []
    documents, start = 0, time.monotonic()
    for number, corpus in enumerate(listed.corpora, start=1):
        typer.echo(f"[{number}/{len(listed.corpora)}] {corpus.package} ({corpus.licence})")
        began = time.monotonic()
        try:
            done = "fetched" if fetch(corpus) else "there already"
            count = count_documents(corpus)
        except CorpusError as error:
            typer.echo(f"  {error}")
            failed.append(corpus.package)
            continue
        kept.append(corpus)
        documents += count
        size = package_file(corpus).stat().st_size
        typer.echo(
            f"  {done}, hash as listed, {count} documents, {size / 1e6:.1f} MB, "
            f"{time.monotonic() - began:.1f} s"
        )
    size = sum(package_file(corpus).stat().st_size for corpus in kept)
    typer.echo(
        f"{len(kept)} of {len(listed.corpora)} corpora with {documents} documents, "
        f"{size / 1e6:.0f} MB in {corpora_folder()}, {time.monotonic() - start:.0f} s"
    )
    for one in listed.unfetched:
        use = "a benchmark, never trained on" if one.benchmark else one.licence
        typer.echo(f"not fetched by this command: {one.name} {one.version} ({use}): {one.reason}")
    if failed:
        raise FetchError(f"not fetched: {', '.join(failed)}; the lines above say why")


async def _ask(source: LiveSource, key: str, connectors: Connectors) -> ServerAnswer:
    """The server's answer; also what kept it from one."""
    start, tools, reason = time.monotonic(), 0, ""
    async for page in connectors.read(SourceList(live=(source,))):
        tools += sum(len(server.tools) for server in page.servers)
        reason = "; ".join(f"{one.reason} ({one.detail})" for one in page.rejections)
    seconds = time.monotonic() - start
    return ServerAnswer(
        key=key, name=source.name, licence=source.licence, tools=tools, reason=reason,
        seconds=seconds,
    )  # fmt: skip


def _key(source: LiveSource, environments: ServerEnvironments) -> str:
    """What an answer depends on: the entry and its pins. Raises ServerError if it has none."""
    pins = environments.requirements(source.launch.environment) if source.launch.command else ()
    described: Any = source.model_dump(mode="json")
    return content_id([described, list(pins)])


def _read(path: Path) -> Iterator[ServerAnswer]:
    """The kept answers; a line that a killed run left unfinished is passed over."""
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            yield ServerAnswer.model_validate(json.loads(line))
        except ValueError:
            continue


def _sum_up(answers: list[ServerAnswer], folder: Path) -> None:
    """Print the counts. Raises CheckError if a server did not answer."""
    good = [one for one in answers if not one.reason]
    licences = Counter(one.licence for one in good)
    size = sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())
    typer.echo(
        f"{len(good)} of {len(answers)} servers with {sum(one.tools for one in good)} tools, "
        f"{sum(one.seconds for one in answers):.0f} s when they were asked; "
        f"all environments in {folder} hold {size / 1e6:.0f} MB"
    )
    typer.echo("licences: " + ", ".join(f"{name} {n}" for name, n in licences.most_common()))
    if len(good) < len(answers):
        failed = ", ".join(one.name for one in answers if one.reason)
        raise CheckError(
            f"{len(answers) - len(good)} servers did not answer: {failed}; the lines above say why"
        )
