from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import Sandbox

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with LocalSandbox() as opened:
        yield opened


@pytest.fixture(scope="session")
def framework_python() -> Callable[[str], Path]:
    """The interpreter of a framework's own environment; skips, saying how to build it."""

    def find(name: str) -> Path:
        prefix = os.environ.get("ASTRA_FRAMEWORKS", f"{ROOT}/.venv-")
        python = Path(f"{prefix}{name}/bin/python")
        if not python.is_file():
            pytest.skip(
                f"NOT TESTED: {name} has no environment at {python}; `make frameworks` builds it "
                "(ASTRA_FRAMEWORKS=/path/prefix- names another place)"
            )
        return python

    return find
