"""A suite of made-up entries, played by suite_driver.py; ``behaviour`` is the driver's."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astra.bench.harness.protocol import DriverProcess, SuiteConfig
from astra.settings import StageConfig, validate

DRIVER = Path(__file__).with_name("suite_driver.py")


@dataclass(frozen=True)
class MadeUp:
    behaviour: str = "good"
    name: str = "made_up"
    score: str = "accuracy"
    roles: tuple[str, ...] = ()

    def complete(self, options: dict[str, Any]) -> dict[str, Any]:
        return validate("bench.suites.made_up", options, StageConfig).model_dump()

    def driver(self, config: SuiteConfig) -> DriverProcess:
        return DriverProcess((sys.executable, str(DRIVER), self.behaviour), caged=False)
