"""BFCL v3 multi-turn: 4 x 200 entries, official loop and checker (reference: bfcl-eval).

Options: ``mode`` fc (the server parses tool calls) or prompt (BFCL's own system prompt, calls
as text); ``categories``.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from astra.bench.harness.environment import caged_driver
from astra.bench.harness.harness import HarnessSuite
from astra.settings import StageConfig

Category = Literal["base", "miss_func", "miss_param", "long_context"]
CATEGORIES: tuple[Category, ...] = ("base", "miss_func", "miss_param", "long_context")


class BfclOptions(StageConfig):
    mode: Literal["fc", "prompt"] = "fc"
    categories: tuple[Category, ...] = Field(default=CATEGORIES, min_length=1)


SUITE = HarnessSuite("bfcl", "accuracy", (), BfclOptions, lambda: caged_driver("bfcl"))
