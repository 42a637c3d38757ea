"""``astra report``: everything about a build on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from astra.errors import AstraError
from astra.report.page import write_report

REPORT = Path("runs/report.html")


class ReportError(AstraError):
    """The page cannot be written."""


def report(
    out: Annotated[Path, typer.Option(help="The page to write.")] = REPORT,
    examples: Annotated[
        int, typer.Option(min=0, help="Arenas shown per pattern of successes and failures.")
    ] = 2,
) -> None:
    """Write one HTML page on the build in this folder: scores, curves, data, cost, rollouts."""
    try:
        missing = write_report(Path.cwd(), out, examples)
    except OSError as error:
        raise ReportError(f"cannot write {out}: {error}") from error
    for line in missing:
        typer.echo(f"not in the report: {line}", err=True)
    typer.echo(f"{out} ({out.stat().st_size / 1000:.0f} kB); open it in a browser")
