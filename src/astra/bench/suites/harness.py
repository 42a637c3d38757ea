"""Suites that another project's harness plays, caged in the bench environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from astra.bench.suites.protocol import Driver, SuiteConfig
from astra.settings import StageConfig, validate


@dataclass(frozen=True)
class HarnessSuite:
    name: str
    score: str
    roles: tuple[str, ...]
    options: type[StageConfig]
    start: Callable[[], Driver]

    def complete(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options with their defaults. Raises ParamsError for those it does not know."""
        return validate(f"bench.suites.{self.name}", options, self.options).model_dump(mode="json")

    def driver(self, config: SuiteConfig) -> Driver:
        return self.start()
