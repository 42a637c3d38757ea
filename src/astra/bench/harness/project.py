"""Suites played by the project's own code, in the project's own environment.

A module below ``suites/known`` holds ``SUITE = ProjectSuite(...)`` and two functions:
``entries(config: SuiteConfig) -> Listing`` and ``play(request: PlayRequest) -> Iterator[Played]``.
``python -m astra.bench.harness.project NAME`` is their driver.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from astra.bench.harness.protocol import (
    DriverProcess,
    DriverRequest,
    End,
    Job,
    Listing,
    ModelEndpoint,
    Played,
    SuiteConfig,
)
from astra.settings import StageConfig, validate


@dataclass(frozen=True)
class PlayRequest:
    config: SuiteConfig
    endpoints: Mapping[str, ModelEndpoint]
    """By role; ``model`` is the one under test. No key is needed."""
    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class ProjectSuite:
    """A suite whose driver is this module."""

    name: str
    score: str
    options: type[StageConfig]
    """What ``SuiteConfig.options`` may hold."""
    roles: tuple[str, ...] = ()

    def complete(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options with their defaults. Raises ParamsError for those it does not know."""
        return validate(f"bench.suites.{self.name}", options, self.options).model_dump(mode="json")

    def driver(self, config: SuiteConfig) -> DriverProcess:
        return DriverProcess(
            (sys.executable, "-m", "astra.bench.harness.project", self.name), caged=False
        )


def main(name: str) -> None:
    out, sys.stdout = sys.stdout, sys.stderr  # what a suite prints is no reply

    def say(reply: Listing | Played | End) -> None:
        print(reply.model_dump_json(), file=out, flush=True)

    module = importlib.import_module(f"astra.bench.suites.{name}")
    request = DriverRequest.model_validate_json(sys.stdin.read())
    config = SuiteConfig.model_validate(request.config)
    if request.task == "list":
        entries = cast("Callable[[SuiteConfig], Listing]", module.entries)
        say(entries(config))
    else:
        play = cast("Callable[[PlayRequest], Iterator[Played]]", module.play)
        roles = {role: ModelEndpoint.model_validate(one) for role, one in request.endpoints.items()}
        for played in play(PlayRequest(config, roles, request.jobs)):
            say(played)
    say(End())


if __name__ == "__main__":
    main(sys.argv[1])
