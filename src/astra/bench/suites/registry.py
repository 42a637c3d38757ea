"""The suites by name: every module below ``suites/known`` that holds a ``SUITE``."""

from __future__ import annotations

import importlib
import pkgutil

from astra.bench.suites import known
from astra.bench.suites.protocol import Suite, SuiteError


def names() -> list[str]:
    return sorted(info.name for info in pkgutil.iter_modules(known.__path__) if not info.ispkg)


def find(name: str) -> Suite:
    """Raises SuiteError listing the known ones."""
    if name not in names():
        raise SuiteError(
            f"bench.suites names {name!r}, which is no suite; known: {', '.join(names())}"
        )
    suite: Suite = importlib.import_module(f"{known.__name__}.{name}").SUITE
    return suite
