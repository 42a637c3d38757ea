"""The hand-made test set of good and faulty trajectories (tests/fixtures/selection)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from astra.records.trajectory import Trajectory

FOLDER = Path(__file__).parents[1] / "fixtures" / "selection"
KINDS = (
    "contradicted_fact",
    "fabricated_argument",
    "failure_as_success",
    "invented_url",
    "needless_write",
    "wrong_entity",
)


@dataclass(frozen=True)
class Fault:
    """The one thing that a faulty trajectory does otherwise than its parent."""

    kind: str
    where: str
    what: str


@dataclass(frozen=True)
class Case:
    """A trajectory of the set; of a faulty one, ``parent`` names the good one it copies."""

    name: str
    trajectory: Trajectory
    natural: tuple[str, ...]
    parent: str = ""
    fault: Fault | None = None


def good() -> dict[str, Case]:
    """Trajectories that deserve to be selected, by name."""
    return _cases("good.jsonl")


def faulty() -> dict[str, Case]:
    """Copies of good ones with one planted fault each, by name."""
    return _cases("faulty.jsonl")


def _cases(file: str) -> dict[str, Case]:
    lines = (FOLDER / file).read_text(encoding="utf-8").splitlines()
    cases = [_case(line) for line in lines]
    named = {case.name: case for case in cases}
    if len(named) != len(cases):
        raise ValueError(f"{file}: a name stands twice")
    return named


def _case(line: str) -> Case:
    row = json.loads(line)
    return Case(
        name=row["name"],
        trajectory=Trajectory.model_validate(row["trajectory"]),
        natural=tuple(row["natural"]),
        parent=row.get("parent", ""),
        fault=Fault(**row["fault"]) if "fault" in row else None,
    )
