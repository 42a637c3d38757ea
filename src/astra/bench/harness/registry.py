"""The suites by name: every module below ``suites/known`` that holds a ``SUITE``."""

from __future__ import annotations

import importlib
import pkgutil

from astra.bench import suites
from astra.bench.harness.protocol import Suite, SuiteError


def names() -> list[str]:
    return sorted(info.name for info in pkgutil.iter_modules(suites.__path__) if not info.ispkg)


def find(name: str) -> Suite:
    """Raises SuiteError listing the known ones."""
    if name not in names():
        raise SuiteError(
            f"bench.suites names {name!r}, which is no suite; known: {', '.join(names())}"
        )
    suite: Suite = importlib.import_module(f"{suites.__name__}.{name}").SUITE
    return suite
