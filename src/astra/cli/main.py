"""The ``astra`` command: look at records, scores and the machine; export and describe data.

No command changes what the stages make. Text is coloured and paged on a terminal, plain off it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from astra.cli import doctor as diagnosis
from astra.cli import examples
from astra.cli.arena import arena_app
from astra.cli.cache import cache_app
from astra.cli.contamination import contamination_app
from astra.cli.display import show_table, table_names, table_path
from astra.cli.experiments import experiments_command
from astra.cli.prompts import prompts_app
from astra.cli.publish import publish_app
from astra.cli.remote import remote_app
from astra.cli.report import report
from astra.cli.scores import draw_figure, score_tables, where_next
from astra.cli.serve import serve_command
from astra.cli.sft import sft_app
from astra.cli.sources import sources_app
from astra.cli.teacher import teacher_app
from astra.cli.train import train_app
from astra.cli.world import world_app
from astra.errors import AstraError
from astra.sandbox.probe import probe
from astra.settings import RuntimeConfig, load

commands = typer.Typer(
    help="Look at what the pipeline made, and at the machine it runs on.",
    epilog=examples.EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
)
COLOURS = {"ok": None, "warning": "yellow", "error": "red"}
sandbox_app = typer.Typer(help="The sandbox that runs generated tools.", no_args_is_help=True)
commands.add_typer(sandbox_app, name="sandbox")
commands.add_typer(arena_app, name="arena")
commands.add_typer(cache_app, name="cache")
commands.add_typer(contamination_app, name="contamination")
commands.add_typer(prompts_app, name="prompts")
commands.add_typer(publish_app, name="publish")
commands.add_typer(remote_app, name="remote")
commands.add_typer(sft_app, name="sft")
commands.add_typer(sources_app, name="sources")
commands.add_typer(teacher_app, name="teacher")
commands.add_typer(train_app, name="train")
commands.add_typer(world_app, name="world")
commands.command("experiments")(experiments_command)
commands.command("report")(report)
commands.command("serve")(serve_command)


def app() -> None:
    """Run the command; an error that is the user's to read ends it with its message, exit 1."""
    try:
        commands(prog_name="astra")
    except AstraError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def complete_stage(incomplete: str) -> list[str]:
    """Tables in data/, for shell completion."""
    return [name for name in table_names() if name.startswith(incomplete)]


def _console() -> Console:
    """Plain text off a terminal: no colour, no wrapping, so that output can be piped."""
    if sys.stdout.isatty():
        return Console()
    return Console(width=10_000, no_color=True, highlight=False)


@commands.command()
def show(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="A parquet table, or its name in data/: tasks is data/tasks.parquet, "
            "rejected/tasks what stage tasks dropped.",
            autocompletion=complete_stage,
        ),
    ],
    identifier: Annotated[
        str, typer.Option("--id", help="Only records whose id starts with this.")
    ] = "",
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="Only records with FIELD=VALUE; also != ~ (contains) < <= > >=. Repeatable."
        ),
    ] = None,
    server: Annotated[
        str, typer.Option(help="Only records of the server with this name or id.")
    ] = "",
    fields: Annotated[str, typer.Option(help="Show only these fields, by comma.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="At most so many records; 0: all.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Print the records of any parquet table so that a person can read them."""
    console = _console()
    chosen = [field.strip() for field in fields.split(",") if field.strip()]
    table = table_path(path)
    pages = show_table(table, identifier, where or [], limit, as_json, chosen, server)
    if console.is_terminal and not as_json:
        with console.pager(styles=True):
            for page in pages:
                console.print(page)
        return
    for page in pages:
        typer.echo(page if isinstance(page, str) else page.plain)


@commands.command()
def scores(
    metrics: Annotated[Path, typer.Option(help="The stage's metrics.")] = Path(
        "metrics/bench.json"
    ),
    figure: Annotated[
        Path | None, typer.Option(help="Also draw them to this file (.svg, .png or .pdf).")
    ] = None,
) -> None:
    """The scores of base, SFT and RL with their intervals, and where to look next."""
    console = _console()
    if figure is not None:
        draw_figure(metrics, figure)
    for table in score_tables(metrics):
        _print_table(console, table)
    for line in where_next():
        typer.echo(line)


def _print_table(console: Console, table: Table) -> None:
    if console.is_terminal:
        console.print(table)
        return
    typer.echo(table.title or "")
    cells = [[str(column.header) for column in table.columns]]
    cells += [list(row) for row in zip(*(map(str, c.cells) for c in table.columns), strict=True)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]
    for row in cells:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(padded).rstrip())
    typer.echo("")


@commands.command()
def doctor() -> None:
    """Check Python, GPU, disk, sandbox, endpoints, MLflow, git and remote; say how to repair."""
    findings = diagnosis.examine()
    for finding in findings:
        typer.secho(finding.line(), fg=COLOURS[finding.level])
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)


@sandbox_app.command("probe")
def sandbox_probe() -> None:
    """Start and attack the sandbox; exit 1 below runtime.sandbox_min_tier."""
    wanted = load("runtime", RuntimeConfig).sandbox_min_tier
    report = probe()
    typer.echo(f"tier: {report.tier} (runtime.sandbox_min_tier: {wanted})")
    for name, outcome in report.findings.items():
        typer.echo(f"  {name}: {outcome}")
    if report.remedy:
        typer.echo(f"for a stronger tier: {report.remedy}")
    if not report.meets(wanted):
        raise typer.Exit(1)


examples.attach(commands)


if __name__ == "__main__":
    app()
