"""Scored trajectories that may become training samples, on disk until one is selected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

from astra.errors import AstraError
from astra.records.base import Frozen
from astra.records.score import Score
from astra.store.sqlite import scratch

Stratum = tuple[str, int, int]


class SelectionError(AstraError):
    """No usable training set can be selected."""


class Candidate(Frozen):
    """What selection needs to know of a scored trajectory."""

    id: str
    task_id: str
    mean: float
    stratum: Stratum
    """Domain, class of length, class of calls."""
    text: str
    """User messages and calls, for the near-duplicate check."""
    scores: Mapping[str, Score]
    follow_ups: tuple[str, ...] = ()
    prompt_hash: str = ""


class Candidates:
    """The candidates of a set. Close it, or use it in ``with``."""

    def __init__(self) -> None:
        self._rows = scratch(
            "CREATE TABLE candidates (id TEXT PRIMARY KEY, mean REAL, candidate TEXT)",
            "CREATE INDEX best_first ON candidates (mean DESC, id)",
            "CREATE TABLE left_out (id TEXT PRIMARY KEY) WITHOUT ROWID",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._rows.close()

    def add(self, one: Candidate) -> None:
        row = (one.id, one.mean, one.model_dump_json())
        self._rows.execute("INSERT INTO candidates VALUES (?, ?, ?)", row)

    def leave_out(self, one: Candidate) -> None:
        """Take a candidate out; also while ``best_first`` goes on."""
        self._rows.execute("INSERT INTO left_out VALUES (?)", (one.id,))

    def best_first(self) -> Iterator[Candidate]:
        """Those not left out, the highest mean first, equal ones by id."""
        rest = "WHERE id NOT IN (SELECT id FROM left_out) ORDER BY mean DESC, id"
        for (row,) in self._rows.execute(f"SELECT candidate FROM candidates {rest}"):
            yield Candidate.model_validate_json(row)

    def of(self, trajectory_id: str) -> Candidate | None:
        """The candidate of a trajectory; None if there is none or it was left out."""
        rest = "WHERE id = ? AND id NOT IN (SELECT id FROM left_out)"
        found = self._rows.execute(
            f"SELECT candidate FROM candidates {rest}", (trajectory_id,)
        ).fetchone()
        return Candidate.model_validate_json(found[0]) if found else None
