"""A suite of made-up entries, played by suite_driver.py, for as long as a test wants it known."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from astra.bench import suites
from astra.bench.harness.protocol import DriverProcess, Suite
from astra.settings import StageConfig

DRIVER = Path(__file__).with_name("suite_driver.py")
NAME = "made_up"


def made_up(behaviour: str = "good", **fields: Any) -> Suite:
    """The suite; ``behaviour`` is the driver's."""

    def driver(options: StageConfig) -> DriverProcess:
        return DriverProcess((sys.executable, str(DRIVER), behaviour), caged=False)

    return Suite(name=NAME, score="accuracy", driver=driver, **fields)


def add(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    suite: Suite,
    options: type[StageConfig] = StageConfig,
) -> None:
    """Put a file of that suite into a ``folder`` that the package of suites searches too."""
    (folder / f"{NAME}.py").touch()
    module = ModuleType(f"{suites.__name__}.{NAME}")
    vars(module).update(SUITE=suite, Options=options)
    monkeypatch.setattr(suites, "__path__", [*suites.__path__, str(folder)])
    monkeypatch.setitem(sys.modules, module.__name__, module)
