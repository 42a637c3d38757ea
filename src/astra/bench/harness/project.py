"""The driver of suites that the project's own code plays, in the project's own environment.

Such a suite's file holds two functions beside ``SUITE``: ``entries(config: SuiteConfig)``, which
gives a ``Listing``, and ``play(request: PlayRequest) -> Iterator[Played]``. The process is
``python -m astra.bench.harness.project NAME``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from astra import plugins
from astra.bench import suites
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


@dataclass(frozen=True)
class PlayRequest:
    config: SuiteConfig
    endpoints: Mapping[str, ModelEndpoint]
    """The models by role; ``model`` is the one under test. No key is needed."""
    jobs: tuple[Job, ...]


def project_driver(name: str) -> DriverProcess:
    """A driver that runs ``entries`` and ``play`` of ``bench/suites/<name>.py``."""
    return DriverProcess((sys.executable, "-m", "astra.bench.harness.project", name), caged=False)


def main(name: str) -> None:
    out, sys.stdout = sys.stdout, sys.stderr  # what a suite prints is no reply

    def say(reply: Listing | Played | End) -> None:
        print(reply.model_dump_json(), file=out, flush=True)

    module = plugins.find(suites, name)
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
