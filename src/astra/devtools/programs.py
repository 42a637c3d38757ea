"""Runs git, dvc and other programs, and says what they said where they fail."""

from __future__ import annotations

import subprocess

from astra.errors import AstraError


def run_program(*command: str) -> str:
    """Run a program and return what it prints.

    Raises AstraError with the command and the program's own words if it fails.
    """
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise AstraError(f"{' '.join(command)}: {(ended.stderr or ended.stdout).strip()}")
    return ended.stdout
