"""Driver of BFCL's single turns: lists their entries, or plays them with the official loop."""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import wire
from play_bfcl import PACKAGES, listed

MODES = {
    "fc": SimpleNamespace(underscore_to_dot=True),
    "prompt": SimpleNamespace(underscore_to_dot=False),
}
"""What the checkers ask of a model: whether it was offered names with "_" in the place of ".", as
the official handler offers them in fc."""


def register_modes() -> None:
    """Put ``MODES`` in the place of the package's registry of models, which the checkers import and
    with it the client of every vendor, none of which is installed."""
    registry: Any = ModuleType("bfcl_eval.constants.model_config")
    registry.MODEL_CONFIG_MAPPING = MODES
    sys.modules[registry.__name__] = registry


def main() -> None:
    channel = wire.Wire()
    if channel.request["task"] == "list":
        channel.listing(listed(channel.options["categories"]), PACKAGES)
        return
    register_modes()
    from bfcl_single_loop import Suite

    suite = Suite(channel.options)
    channel.play(lambda job: suite.attempt(channel, job))


if __name__ == "__main__":
    main()
