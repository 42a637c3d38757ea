"""``astra experiments``: what each DVC experiment changed, and the scores that it made itself.

``dvc exp show`` prints ``metrics/bench.json`` as it lies in an experiment. Where ``bench`` did not
run, that file is the one the experiment started from. Here such a score is left out.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from astra.devtools.nested import leaves
from astra.devtools.programs import ProgramFailed, run_program
from astra.errors import AstraError
from astra.settings import PARAMS

SCORES = ("f1", "precision", "recall", "success", "calls")
"""The columns of scores, means over the held-out arenas, of the policy after RL."""
LOCK = Path("dvc.lock")
MISSING = "–"
WORKSPACE = "workspace"


@dataclass(frozen=True)
class ExperimentRow:
    """One experiment, a commit, or the workspace."""

    name: str
    created: str
    state: str
    scores: Mapping[str, float]
    """Empty unless ``bench`` ran on what this experiment made."""
    parameters: Mapping[str, str]
    """The stages' parameters by dotted name, for example ``rl.seed``."""


def experiments_command(
    markdown: Annotated[bool, typer.Option("--md", help="Print a Markdown table.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values.")] = False,
    sort_by: Annotated[str, typer.Option(help="Sort by this column, for example rl.seed.")] = "",
    commits: Annotated[
        int, typer.Option("--num", "-n", min=1, help="Experiments of this many last commits.")
    ] = 1,
) -> None:
    """What each DVC experiment changed, and the scores of its RL policy.

    A score is shown only where `bench` ran on what the experiment made; elsewhere it is a dash.
    """
    head, *cells = table(listed(commits), sort_by)
    if as_csv:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([head, *cells])
        typer.echo(text.getvalue(), nl=False)
    elif markdown:
        for line in (head, ["---"] * len(head), *cells):
            typer.echo(f"| {' | '.join(line)} |")
    else:
        widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
        for line in (head, *cells):
            padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            typer.echo("  ".join(padded).rstrip())


def listed(commits: int) -> list[ExperimentRow]:
    """The workspace, the last commits, and the experiments that start from these.

    Raises AstraError outside the repository root.
    """
    if not Path("dvc.yaml").is_file():
        raise AstraError(f"no dvc.yaml in {Path.cwd()}; run it in the repository root")
    stages = yaml.safe_load(Path("dvc.yaml").read_text(encoding="utf-8"))["stages"]
    document = json.loads(run_program("dvc", "exp", "show", "--json", "--num", str(commits)))
    return [row(state, executor, frozenset(stages)) for state, executor in states(document)]


def states(document: Any) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Each entry of ``dvc exp show --json`` with its executor's state, empty if it has none."""
    for baseline in document:
        yield baseline, ""
        for experiment in baseline.get("experiments") or []:
            executor = experiment.get("executor") or {}
            for state in (experiment.get("revs") or [])[:1]:
                yield state, executor.get("state", "")


def row(state: Mapping[str, Any], executor: str, stages: frozenset[str]) -> ExperimentRow:
    """One entry of ``dvc exp show --json`` as a row."""
    revision = state["rev"]
    data = state.get("data") or {}
    params = _read(PARAMS, revision)
    own = whole(_read(LOCK, revision), params, "bench")
    created = data.get("timestamp") or ""
    return ExperimentRow(
        name=state.get("name") or (revision if revision == WORKSPACE else revision[:7]),
        created=datetime.fromisoformat(created).strftime("%Y-%m-%d %H:%M") if created else "",
        state="Failed" if state.get("error") else executor,
        scores=_means(data) if own else {},
        parameters=shown({block: params[block] for block in sorted(stages & params.keys())}),
    )


def _means(data: Mapping[str, Any]) -> dict[str, float]:
    """The scores in what dvc read of an experiment; empty where it could not read them."""
    try:
        scores = data["metrics"]["metrics/bench.json"]["data"]["checkpoints"]["rl"]["scores"]
        return {name: scores[name]["mean"] for name in SCORES}
    except (KeyError, TypeError):
        return {}


def whole(lock: Mapping[str, Any], params: Mapping[str, Any], stage: str) -> bool:
    """Whether a lock file's ``stage`` was made with ``params`` from what the lock file holds.

    The same has to hold for each stage that it follows from. It does not where an experiment ran
    an earlier stage alone (``dvc exp run -s rl``), or stopped before this one.
    """
    stages = lock.get("stages") or {}
    makers = {
        out["path"]: (name, out.get("md5"))
        for name, entry in stages.items()
        for out in entry.get("outs", [])
    }
    open_stages, seen = [stage], {stage}
    while open_stages:
        entry = stages.get(open_stages.pop())
        if entry is None:
            return False
        used = (entry.get("params") or {}).get(str(PARAMS)) or {}
        if any(params.get(block) != values for block, values in used.items()):
            return False
        for dependency in entry.get("deps", []):
            maker, digest = makers.get(dependency["path"], ("", None))
            if maker and dependency.get("md5") != digest:
                return False
            if maker and maker not in seen:
                seen.add(maker)
                open_stages.append(maker)
    return True


def shown(params: Mapping[str, Any]) -> dict[str, str]:
    """Parameters by dotted name, each as JSON; a string as it stands."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in leaves(params).items()
    }


def table(rows: Sequence[ExperimentRow], sort_by: str) -> list[list[str]]:
    """The head and the cells: scores that any row has, then parameters in which rows differ.

    Raises AstraError if ``sort_by`` names no column.
    """
    scores = [name for name in SCORES if any(name in one.scores for one in rows)]
    names = dict.fromkeys(name for one in rows for name in one.parameters)
    differing = [name for name in names if len({one.parameters.get(name) for one in rows}) > 1]
    head = ["Experiment", "Created", "State", *scores, *differing]
    cells = [
        [one.name, one.created, one.state,
         *(f"{one.scores[name]:.3f}" if name in one.scores else MISSING for name in scores),
         *(one.parameters.get(name, MISSING) for name in differing)]
        for one in rows
    ]  # fmt: skip
    if sort_by:
        if sort_by not in head:
            raise AstraError(f"no column {sort_by}; there are: {', '.join(head)}")
        column = head.index(sort_by)
        cells.sort(key=lambda line: _ordered(line[column]))
    return [head, *cells]


def _ordered(cell: str) -> tuple[int, float, str]:
    """Numbers come first, by value; then text."""
    try:
        return 0, float(cell), ""
    except ValueError:
        return 1, 0.0, cell


def _read(path: Path, revision: str) -> dict[str, Any]:
    """A YAML file of a revision; empty where there is none."""
    from dvc.utils.serialize import parse_yaml  # slow to import

    try:
        text = (
            path.read_text(encoding="utf-8")
            if revision == WORKSPACE
            else run_program("git", "show", f"{revision}:{path}")
        )
    except (OSError, ProgramFailed):
        return {}
    # dvc writes YAML 1.2, in which `off` is a string and `1e-06` a number; PyYAML reads 1.1.
    return parse_yaml(text, str(path))
