"""The offline emulator: rules that answer for document-only tools."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from astra.llm.protocol import OfflineHandlers
from astra.trajectories.emulated import TEMPLATE, EmulatedReply
from astra.trajectories.world import World


def emulate(variables: Mapping[str, Any], rng: random.Random) -> EmulatedReply:
    """One call. Seeded by server, attribute and arguments, not by ``rng``: the same call must
    get the same reply at any point of any episode, but for the episode's own writes."""
    del rng
    world = World(variables["server_id"], variables["state"])
    tool, arguments = variables["tool"], variables["arguments"]
    problem = world.missing(tool, arguments)
    if problem:
        return EmulatedReply(status="error", error=problem)
    return EmulatedReply(status="ok", result=world.read(tool, arguments))


HANDLERS: OfflineHandlers = {TEMPLATE: emulate}
