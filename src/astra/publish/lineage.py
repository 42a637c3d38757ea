"""Which published policy was trained on which published data set, told by hashes of dvc.lock."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astra.publish.evidence import BUILD, CardEvidence, CitedRow
from astra.publish.origins import ARENAS, CONVERSATIONS, SAMPLES
from astra.publish.record import LOCK

IDENTITY = "published.json"
TRAINED = {"models/sft": "sft", "models/rl": "rl"}
"""Checkpoints that the build scores -> the stage that trains them, in the order of training."""
READ = {"sft": (SAMPLES, CONVERSATIONS), "rl": (ARENAS,)}
"""Stages of training -> the data sets that each reads; the conversations only where it is told."""


@dataclass(frozen=True)
class LinkedOutput:
    """An output of the build, where a card names it."""

    row: CitedRow
    path: str
    md5: str


def identity(path: str, md5: str, commit: str) -> dict[str, Any]:
    """The content of ``build/published.json``: which output of which build a folder is."""
    return {"path": path, "md5": md5, "commit": commit}


def data_sets_of(evidence: CardEvidence, stage: str) -> list[LinkedOutput]:
    """The data sets that a policy of ``stage`` was trained on."""
    stages = list(TRAINED.values())
    found: list[LinkedOutput] = []
    for one in stages[: stages.index(stage) + 1]:
        for at, dep in _listed(evidence, one, "deps"):
            if dep["path"] in map(str, READ[one]):
                row = CitedRow((one, dep["path"]), str(LOCK), ("stages", one, "deps", at))
                found.append(LinkedOutput(row, dep["path"], dep["md5"]))
    return found


def policies_of(evidence: CardEvidence, path: str, md5: str) -> list[LinkedOutput]:
    """The policies of dvc.lock that were trained on these bytes, or go on from one that was."""
    reached, found = {path: md5}, list[LinkedOutput]()
    for checkpoint, stage in TRAINED.items():
        deps = (dep for _, dep in _listed(evidence, stage, "deps"))
        if not any(reached.get(dep["path"]) == dep["md5"] for dep in deps):
            continue
        for at, out in _listed(evidence, stage, "outs"):
            if out["path"] == checkpoint:
                reached[checkpoint] = out["md5"]
                row = CitedRow((stage, checkpoint), str(LOCK), ("stages", stage, "outs", at))
                found.append(LinkedOutput(row, checkpoint, out["md5"]))
    return found


def _listed(evidence: CardEvidence, stage: str, key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    keys = ("stages", stage, key)
    return enumerate(evidence.at(str(LOCK), *keys)) if evidence.has(str(LOCK), *keys) else iter(())


def table(evidence: CardEvidence, linked: list[LinkedOutput], what: str) -> str:
    """A card's table of what it is linked with."""
    return evidence.table(("stage", what), ("md5", "size"), (one.row for one in linked))


def beside(out: Path, linked: list[LinkedOutput]) -> Mapping[str, str]:
    """Path of each linked output that is published beside ``out`` -> the name of its folder."""
    names: dict[tuple[str, str], str] = {}
    for file in sorted(out.absolute().parent.glob(f"*/{BUILD}/{IDENTITY}")):
        said = json.loads(file.read_text(encoding="utf-8"))
        names[said["path"], said["md5"]] = file.parents[1].name
    return {one.path: names[one.path, one.md5] for one in linked if (one.path, one.md5) in names}
