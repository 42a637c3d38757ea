"""Why things were dropped: how many by stage and reason, and a few of them in full."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from astra.errors import AstraError
from astra.records.score import Rejection
from astra.report.rollouts import clean
from astra.report.workspace import DATA_STAGES, Workspace
from astra.store.tables import read_records

FOLDER = "data/rejected"
EXAMPLES = 3
"""How many rejections of each reason are quoted: the first by id, so that nobody picked them."""
CHARACTERS = 800
"""The most characters of one quoted field."""


@dataclass(frozen=True)
class Example:
    """One rejection as shown; empty fields are left out by the page."""

    item: str
    part: str
    detail: str
    said: str
    attempt: int


@dataclass(frozen=True)
class Reason:
    """What was dropped for one reason, or tried in vain and then tried again (``tries``)."""

    reason: str
    tries: bool
    count: int
    examples: tuple[Example, ...]
    command: str


@dataclass(frozen=True)
class Rejected:
    """One stage's rejections, drops before tries, the most frequent first."""

    stage: str
    dropped: int
    tried: int
    reasons: tuple[Reason, ...]


def rejected(workspace: Workspace) -> list[Rejected]:
    """The rejections of every data stage that has some. Unreadable tables are noted as missing."""
    return [found for stage in DATA_STAGES if (found := _of(workspace, stage)) is not None]


def reasons(document: Mapping[str, Any], key: str) -> dict[str, int]:
    """Counts by reason under ``dropped`` or ``tries`` of a stage's metrics, the most frequent
    first."""
    counted = document.get(key)
    counts = {
        str(reason): count
        for reason, count in (counted.items() if isinstance(counted, Mapping) else ())
        if isinstance(count, int)
    }
    return dict(sorted(counts.items(), key=lambda one: -one[1]))


def _of(workspace: Workspace, stage: str) -> Rejected | None:
    name = f"{FOLDER}/{stage}.parquet"
    path = workspace.root / name
    # Read from the file: that a stage has not run is said where its counts are shown.
    document = workspace.document(f"metrics/{stage}.json")
    counted = sum(reasons(document, "dropped").values())
    if not path.is_file():
        if counted:
            workspace.lacks(f"{name}: not here, so what stage {stage} dropped cannot be quoted")
        return None
    try:
        found = _read(stage, read_records(path, Rejection))
    except (AstraError, pa.ArrowException, OSError) as error:
        workspace.lacks(f"{name} cannot be read: {error}")
        return None
    if document and found.dropped != counted:
        workspace.lacks(
            f"{name} holds {found.dropped} drops and metrics/{stage}.json counts {counted}: "
            "they are of different builds"
        )
    return found if found.reasons else None


def _read(stage: str, rejections: Iterable[Rejection]) -> Rejected:
    """The counts and the quoted rejections of a table, which may be too large to hold."""
    counts = Counter[tuple[bool, str]]()
    quoted: dict[tuple[bool, str], list[Example]] = {}
    for one in rejections:
        key = not one.final, one.reason
        counts[key] += 1
        if counts[key] <= EXAMPLES:
            quoted.setdefault(key, []).append(_example(one))
    order = sorted(counts, key=lambda key: (key[0], -counts[key], key[1]))
    return Rejected(
        stage,
        sum(count for (tried, _), count in counts.items() if not tried),
        sum(count for (tried, _), count in counts.items() if tried),
        tuple(
            Reason(
                clean(reason, CHARACTERS),
                tried,
                counts[tried, reason],
                tuple(quoted[tried, reason]),
                _command(stage, reason, counts[not tried, reason] > 0 or tried, not tried),
            )
            for tried, reason in order
        ),
    )


def _example(one: Rejection) -> Example:
    return Example(
        clean(one.item, CHARACTERS),
        clean(one.part, CHARACTERS),
        clean(one.detail, CHARACTERS),
        clean(one.said, CHARACTERS),
        one.attempt,
    )


def _command(stage: str, reason: str, parted: bool, final: bool) -> str:
    """The command that lists all of them; ``parted`` tells drops and tries apart."""
    condition = shlex.quote(clean(f"reason={reason}", CHARACTERS))
    only = f" --where final={str(final).lower()}" if parted else ""
    return f"astra show rejected/{stage} --where {condition}{only}"
