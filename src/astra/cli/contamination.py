"""``astra contamination``: the hashed index of benchmark suites that training data is kept from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from astra.bench.harness.protocol import SuiteError
from astra.bench.overlap import arena_items, overlap, prompts_of, sft_items, write_overlap
from astra.bench.suite_tables import read_runs
from astra.contamination.index import NGRAM, ContaminationIndex
from astra.contamination.suites import read_suites

contamination_app = typer.Typer(
    help="The index of benchmark suites that training data must not touch.", no_args_is_help=True
)
INDEX = Path("contamination/index.parquet")
OVERLAP = Path("metrics/suite_overlap.json")


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


@contamination_app.command("overlap")
def overlap_command(
    suites: Annotated[Path, typer.Argument(help="Runs of suites.")] = Path("data/suites"),
    out: Annotated[Path, typer.Option(help="The counts, for the report.")] = OVERLAP,
    ngram: Annotated[int, typer.Option(min=6, help="Words of a gram.")] = NGRAM,
    sft: Annotated[Path, typer.Option(help="What SFT trains on.")] = Path("data/sft_set.parquet"),
    arenas: Annotated[Path, typer.Option(help="What RL trains on.")] = Path(
        "data/envs_merged.parquet"
    ),
) -> None:
    """Count n-grams that training data share with the prompts of the suites that were played."""
    runs = read_runs(suites)
    if not runs:
        raise SuiteError(
            f"{suites} holds no run of a suite, so there is nothing to compare with; let stage "
            "bench play some (bench.suites in conf, then `dvc repro bench`)"
        )
    prompts = prompts_of(runs)
    tables = {"sft_set": sft_items(sft), "envs_merged": arena_items(arenas)}
    document = overlap(prompts, tables, ngram)
    write_overlap(document, out)
    for suite, overlaps in document.items():
        for table, counts in overlaps["tables"].items():
            typer.echo(
                f"{suite}: {counts['items_overlapping']} of {counts['items']} items of {table} "
                f"share a {ngram}-gram with {counts['prompts_overlapping']} of "
                f"{overlaps['prompts']} prompts"
            )


def _describe(index: ContaminationIndex, path: Path) -> None:
    typer.echo(f"{path}: {len(index.suites)} suites, {index.ngram}-grams")
    for suite, counts in sorted(index.about.items()):
        typer.echo(f"  {suite}: " + ", ".join(f"{name} {n}" for name, n in counts.items()))
