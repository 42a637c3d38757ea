"""BFCL v3 multi-turn, 4 x 200 entries: official loop, official checker (bfcl-eval), caged.

Options: ``mode`` fc (the server parses tool calls) or prompt (BFCL's own system prompt, calls
as text); ``categories``. Loop and checker are called in ``drivers/bfcl_loop.py``.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from astra.bench.harness.environment import caged_driver
from astra.bench.harness.protocol import DriverProcess, Suite
from astra.settings import StageConfig

Category = Literal["base", "miss_func", "miss_param", "long_context"]
CATEGORIES: tuple[Category, ...] = ("base", "miss_func", "miss_param", "long_context")


class Options(StageConfig):
    mode: Literal["fc", "prompt"] = "fc"
    categories: tuple[Category, ...] = Field(default=CATEGORIES, min_length=1)


def driver(options: Options) -> DriverProcess:
    return caged_driver("bfcl")


SUITE = Suite(
    name="bfcl",
    score="accuracy",
    driver=driver,
    checker="bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker",
)
