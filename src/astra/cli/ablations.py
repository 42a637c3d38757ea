"""``astra train ablations``: one DVC experiment per variant and seed of a grid, and one table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

import typer
import yaml

from astra.devtools.programs import run_program
from astra.errors import AstraError

ablations_app = typer.Typer(help="The paper's ablations, queued.", no_args_is_help=True)
GRID = Path("conf/experiments/ablations.yaml")
COLUMNS = {"f1": "F1", "f1_plain": "F1 (paper)", "precision": "precision", "recall": "recall",
           "success": "success", "calls": "calls"}  # fmt: skip


@dataclass(frozen=True)
class Experiment:
    """One variant with one seed."""

    variant: str
    """``default`` or ``<factor>-<option>``."""
    changes: tuple[str, ...]
    """Overrides that tell the variant from the default."""
    seed: int
    seed_parameter: str

    @property
    def name(self) -> str:
        return f"ablation-{self.variant}-s{self.seed}"

    @property
    def overrides(self) -> tuple[str, ...]:
        return (*self.changes, f"{self.seed_parameter}={self.seed}")

    @property
    def command(self) -> list[str]:
        settings = [part for override in self.overrides for part in ("-S", override)]
        return ["dvc", "exp", "run", "--queue", "--name", self.name, *settings]


def experiments(grid: Mapping[str, Any]) -> Iterator[Experiment]:
    """The default, then every variant of every factor, each once per seed."""
    variants: list[tuple[str, list[str]]] = [("default", [])]
    for factor, options in grid["factors"].items():
        variants += [(f"{factor}-{option}", list(values)) for option, values in options.items()]
    for variant, changes in variants:
        for seed in grid["seeds"]:
            yield Experiment(variant, tuple(changes), seed, grid["seed_parameter"])


def read_grid(path: Path) -> Mapping[str, Any]:
    """Raises AstraError unless the file is a grid."""
    try:
        grid = yaml.safe_load(path.read_text(encoding="utf-8"))
        list(experiments(grid))
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise AstraError(f"{path} is no grid of ablations: {error!r}") from None
    return grid


@ablations_app.command("queue")
def queue(
    grid: Annotated[Path, typer.Option(help="The factors, their variants and the seeds.")] = GRID,
    dry: Annotated[bool, typer.Option("--dry", help="Print the commands only.")] = False,
) -> None:
    """Queue every experiment; `dvc queue start` then runs them one after the other."""
    for experiment in experiments(read_grid(grid)):
        typer.echo(" ".join(experiment.command))
        if not dry:
            run_program(*experiment.command)
    if not dry:
        typer.echo("queued; `dvc queue start` runs them, `astra train ablations table` compares")


@ablations_app.command("table")
def table(
    grid: Annotated[Path, typer.Option(help="The grid that was queued.")] = GRID,
    show: Annotated[
        Path | None, typer.Option(help="Saved `dvc exp show --json`; default: ask dvc.")
    ] = None,
) -> None:
    """A Markdown table of what has finished: mean and spread over seeds of the RL policy."""
    planned = list(experiments(read_grid(grid)))
    text = show.read_text(encoding="utf-8") if show else run_program("dvc", "exp", "show", "--json")
    scores = finished(json.loads(text))
    for line in rows(planned, scores):
        typer.echo(line)


def finished(document: Any) -> dict[str, dict[str, float]]:
    """Scores of the RL checkpoint by experiment name, wherever dvc nests them."""
    scores_by_name: dict[str, dict[str, float]] = {}

    def visit(node: Any) -> None:
        if isinstance(node, dict):
            name, data = node.get("name"), node.get("data")
            if isinstance(name, str) and isinstance(data, dict) and data.get("metrics"):
                scores = _bench(data["metrics"])
                if scores:
                    scores_by_name[name] = scores
            for value in node.values():
                visit(value)
        elif isinstance(node, list):
            for value in node:
                visit(value)

    visit(document)
    return scores_by_name


def _bench(metrics: Mapping[str, Any]) -> dict[str, float]:
    document = (metrics.get("metrics/bench.json") or {}).get("data") or {}
    scores = ((document.get("checkpoints") or {}).get("rl") or {}).get("scores") or {}
    return {name: scores[name]["mean"] for name in COLUMNS if name in scores}


def rows(planned: list[Experiment], scores: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    yield from heading("variant", COLUMNS.values())
    for variant in dict.fromkeys(experiment.variant for experiment in planned):
        names = [experiment.name for experiment in planned if experiment.variant == variant]
        ended = [scores[name] for name in names if name in scores]
        yield row(variant, f"{len(ended)}/{len(names)}", ended, COLUMNS)


def heading(first: str, titles: Iterable[str]) -> list[str]:
    """The lines above the ``row``s of a table; ``first`` says what they are."""
    names = [first, "seeds", *titles]
    return [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]


def row(
    name: str, seeds: str, scores: Sequence[Mapping[str, float]], columns: Iterable[str]
) -> str:
    """Mean and spread of every column over ``scores``, one mapping per seed."""
    cells = [_cell([seed[column] for seed in scores if column in seed]) for column in columns]
    return f"| {' | '.join([name, seeds, *cells])} |"


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "–"
    spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
    return f"{mean(values):.3f}{spread}"
