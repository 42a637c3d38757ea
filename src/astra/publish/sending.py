"""A published folder into the DVC remote, with what the build behind it made."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astra.publish.record import PublishError


@dataclass(frozen=True)
class Sent:
    """What lies in the remote now."""

    remote: str
    """Its name and address."""
    objects: int
    """Objects that were not there before."""
    md5: str
    """The folder's hash, as its ``.dvc`` file has it."""
    url: str
    """The object of the remote that lists the folder's files."""


def refuse_place(out: Path) -> None:
    """Raise PublishError where DVC cannot track a folder: outside of the repository, or ignored."""
    if not out.absolute().is_relative_to(Path.cwd()):
        raise PublishError(f"--push: DVC tracks folders of the repository, and {out} lies outside")
    ignored = subprocess.run(["git", "check-ignore", "-q", str(out)], check=False)
    if ignored.returncode == 0:
        raise PublishError(
            f"--push: git ignores {out}, and so would its .dvc file be; name another --out, for "
            f"example published/{out.name}"
        )


def send(out: Path, outputs: Sequence[str]) -> Sent:
    """Track ``out`` with DVC and push it and the build's ``outputs`` to the default remote.

    Raises PublishError where something is not in the remote afterwards.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    # One call each: of a .dvc file and paths together, dvc 3.67 pushes the first alone.
    parts = ([f"{out}.dvc"], list(outputs))
    try:
        untracked: Any = Repo()
        with untracked as repo:
            tracked = repo.add(str(out))
            md5 = str(tracked[0].outs[0].hash_info.value)
        again: Any = Repo()  # another one, which knows of the folder
        with again as repo:
            remote = repo.cloud.get_remote()
            objects = sum(repo.push(targets=targets) for targets in parts)
            lacking: dict[str, str] = {}
            for targets in parts:  # dvc warns of what it lacks, and goes on
                lacking |= repo.status(targets=targets, cloud=True)
    except DvcException as error:
        raise PublishError(f"dvc push: {' '.join(str(error).split())}") from error
    if lacking:
        first, state = next(iter(lacking.items()))
        raise PublishError(
            f"dvc push: {remote.name} lacks {len(lacking)} objects, the first {first} ({state}); "
            "bring what is missing by `dvc pull` or `dvc repro`"
        )
    place = remote.fs.unstrip_protocol(remote.odb.oid_to_path(md5))
    address = f"{remote.name} ({remote.fs.unstrip_protocol(remote.path)})"
    return Sent(address, objects, md5, place)
