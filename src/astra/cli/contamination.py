"""``astra contamination``: the hashed index of benchmark suites that training data is kept from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from astra.contamination.index import NGRAM, ContaminationIndex
from astra.contamination.suites import read_suites

contamination_app = typer.Typer(
    help="The index of benchmark suites that training data must not touch.", no_args_is_help=True
)
INDEX = Path("contamination/index.parquet")


@contamination_app.command("build")
def build(
    folder: Annotated[Path, typer.Argument(help="One subfolder per suite, with its JSON files.")],
    out: Annotated[Path, typer.Option(help="The index, a declared input of the stages.")] = INDEX,
    ngram: Annotated[int, typer.Option(min=6, help="Words of a gram.")] = NGRAM,
) -> None:
    """Write the index of the suites in FOLDER."""
    index = ContaminationIndex.of(read_suites(folder), ngram)
    index.save(out)
    _describe(index, out)


@contamination_app.command("show")
def show(path: Annotated[Path, typer.Argument(help="An index.")] = INDEX) -> None:
    """Say what an index holds."""
    _describe(ContaminationIndex.load(path), path)


def _describe(index: ContaminationIndex, path: Path) -> None:
    typer.echo(f"{path}: {len(index.suites)} suites, {index.ngram}-grams")
    for suite, counts in sorted(index.about.items()):
        typer.echo(f"  {suite}: " + ", ".join(f"{name} {n}" for name, n in counts.items()))
