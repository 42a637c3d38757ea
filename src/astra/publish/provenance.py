"""The commit, the stages and the files of the repository that a card's numbers come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from astra.publish.evidence import CardEvidence
from astra.publish.record import LOCK, BuildRecord, PublishError
from astra.report.provenance import commit
from astra.report.workspace import Workspace

METRICS = Path("metrics")


@dataclass(frozen=True)
class BuildProvenance:
    """The build that something is published from."""

    commit: str
    """The git commit whose files hold the record."""
    stages: tuple[str, ...]
    """The stages that it comes from, in the order of dvc.yaml."""
    files: tuple[Path, ...]
    """The record: lock files and metrics."""

    @classmethod
    def of(cls, record: BuildRecord, *more: Path) -> Self:
        """The record's stages with their metrics, dvc.lock and ``more``.

        Raises PublishError where the checked out commit does not hold these files as they are: a
        card that names it would send its readers to others.
        """
        files = (LOCK, *more, *(METRICS / f"{stage}.json" for stage in record.stages))
        found = commit(Workspace(Path.cwd()))
        if not found:
            raise PublishError("a card names the git commit of its build, and there is none here")
        unsaved = [str(file) for file in files if str(file) in found["changed"]]
        if unsaved:
            raise PublishError(
                f"{', '.join(unsaved)}: not as in commit {found['revision'][:12]}, which the card "
                "would name; commit them first"
            )
        return cls(found["revision"], tuple(record.stages), files)

    def take(self, evidence: CardEvidence) -> None:
        """Copy the files of the record into a published folder."""
        for file in self.files:
            evidence.take(file)
