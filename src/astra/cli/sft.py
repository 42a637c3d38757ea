"""``astra sft``: the SFT set for other trainers, and its data card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from astra.errors import AstraError
from astra.records.task import Task
from astra.records.tool import ToolServer
from astra.records.trajectory import SFTSample, Trajectory
from astra.scoring.card import data_card
from astra.scoring.export import write_openai
from astra.settings import PARAMS
from astra.store.tables import read_records

sft_app = typer.Typer(help="The SFT set: export and data card.", no_args_is_help=True)
SET = Path("data/sft_set.parquet")
CARD = Path("docs/data-cards/sft_set.md")


@sft_app.command("export")
def export(
    out: Annotated[Path, typer.Option(help="Folder for train.parquet and eval.parquet.")],
    source: Annotated[Path, typer.Option(help="The table of samples.")] = SET,
) -> None:
    """Write OpenAI messages and tools that `datasets` and TRL's SFTTrainer load as they are."""
    for split, rows in sorted(write_openai(read_records(source, SFTSample), out).items()):
        typer.echo(f"{out / split}.parquet: {rows} conversations")


@sft_app.command("card")
def card(
    out: Annotated[Path, typer.Option(help="The Markdown file.")] = CARD,
    check: Annotated[
        bool, typer.Option("--check", help="Only compare: exit 1 if it differs.")
    ] = False,
) -> None:
    """Write the data card of data/sft_set.parquet, the paper's statistics beside ours."""
    metrics: dict[str, Any] = json.loads(_text(Path("metrics/sft_set.json")))
    params: dict[str, Any] = yaml.safe_load(_text(PARAMS))
    text = data_card(
        read_records(SET, SFTSample),
        read_records(Path("data/trajectories.parquet"), Trajectory),
        read_records(Path("data/tasks.parquet"), Task),
        list(read_records(Path("data/tools.parquet"), ToolServer)),
        metrics,
        str(params.get("scale", "unknown")),
    )
    if not check:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
        typer.echo(f"{out} written")
    elif not out.is_file() or out.read_text(encoding="utf-8") != text:
        raise AstraError(f"{out} is not the card of the present data; run `astra sft card`")


def _text(path: Path) -> str:
    if not path.is_file():
        raise AstraError(f"{path} not found in {Path.cwd()}; run `dvc repro sft_set`")
    return path.read_text(encoding="utf-8")
