"""Runs git, dvc and other programs, and says what they said where they fail."""

from __future__ import annotations

import subprocess

from astra.errors import AstraError


class ProgramFailed(AstraError):
    """A program ran and failed; it has the command and the program's own words."""


def run_program(*command: str) -> str:
    """Run a program and return what it prints.

    Raises ProgramFailed if it fails, and AstraError where it is not on PATH.
    """
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise AstraError(
            f"{' '.join(command)}: {command[0]} is not on PATH; activate the environment "
            "(`. .venv/bin/activate`), or install it"
        ) from None
    if ended.returncode:
        raise ProgramFailed(f"{' '.join(command)}: {(ended.stderr or ended.stdout).strip()}")
    return ended.stdout
