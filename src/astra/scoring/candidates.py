"""Scored trajectories that may become training samples, on disk until one is selected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

from astra.errors import AstraError
from astra.records.base import Frozen
from astra.records.score import Score
from astra.store.sqlite import scratch

Stratum = tuple[str, int, int, bool]
"""Domain, class of length, class of calls, and whether a failed call was recovered from; a capped
set keeps the share of each."""


class SelectionError(AstraError):
    """No usable training set can be selected."""


class Candidate(Frozen):
    """What selection needs to know of a scored trajectory."""

    id: str
    """The trajectory's id."""
    task_id: str
    mean: float
    """The mean of the dimensions that apply."""
    rank: float
    """The mean without ``tool_status``: the set is filled from the highest rank down, and what
    failed around an agent does not put it behind others."""
    stratum: Stratum
    text: str
    """User messages and calls, for the near-duplicate check."""
    scores: Mapping[str, Score]
    selection: Mapping[str, Score]
    follow_ups: tuple[str, ...] = ()
    """Ids of the further tasks of the same conversation."""
    prompt_hash: str = ""


class Candidates:
    """The candidates of one set, in a temporary database. Use it in ``with``."""

    def __init__(self) -> None:
        self._rows = scratch(
            "CREATE TABLE candidates (id TEXT PRIMARY KEY, rank REAL, candidate TEXT)",
            "CREATE INDEX best_first ON candidates (rank DESC, id)",
            "CREATE TABLE left_out (id TEXT PRIMARY KEY) WITHOUT ROWID",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._rows.close()

    def add(self, candidate: Candidate) -> None:
        """Put in one more; its id must be new."""
        row = (candidate.id, candidate.rank, candidate.model_dump_json())
        self._rows.execute("INSERT INTO candidates VALUES (?, ?, ?)", row)

    def leave_out(self, candidate: Candidate) -> None:
        """Take a candidate out; this is allowed while ``best_first`` is being read."""
        self._rows.execute("INSERT INTO left_out VALUES (?)", (candidate.id,))

    def best_first(self) -> Iterator[Candidate]:
        """The candidates not left out, the highest rank first, equal ones by id."""
        clauses = "WHERE id NOT IN (SELECT id FROM left_out) ORDER BY rank DESC, id"
        for (row,) in self._rows.execute(f"SELECT candidate FROM candidates {clauses}"):
            yield Candidate.model_validate_json(row)

    def of(self, trajectory_id: str) -> Candidate | None:
        """The candidate of a trajectory; None if there is none or it was left out."""
        clauses = "WHERE id = ? AND id NOT IN (SELECT id FROM left_out)"
        row = self._rows.execute(
            f"SELECT candidate FROM candidates {clauses}", (trajectory_id,)
        ).fetchone()
        return Candidate.model_validate_json(row[0]) if row else None
