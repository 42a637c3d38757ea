"""Suites that another project's harness plays, caged in the bench environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from astra.bench.harness.protocol import DriverProcess, SuiteConfig
from astra.settings import StageConfig, validate


@dataclass(frozen=True)
class HarnessSuite:
    name: str
    score: str
    roles: tuple[str, ...]
    options: type[StageConfig]
    start: Callable[[], DriverProcess]

    def complete(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options with their defaults. Raises ParamsError for those it does not know."""
        return validate(f"bench.suites.{self.name}", options, self.options).model_dump(mode="json")

    def driver(self, config: SuiteConfig) -> DriverProcess:
        return self.start()
