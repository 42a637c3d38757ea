"""BFCL single-turn, one request an entry: official loop, official checkers (bfcl-eval), caged.

Options: ``mode`` fc (the server parses tool calls) or prompt (BFCL's own system prompt, calls
as text); ``categories``, all whose functions are Python's. Loop and checkers are called in
``drivers/bfcl_single_loop.py``.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from astra.bench.harness.environment import caged_driver
from astra.bench.harness.protocol import DriverProcess, Suite
from astra.settings import StageConfig

Category = Literal[
    "simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance",
    "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple",
    "live_irrelevance", "live_relevance",
]  # fmt: skip
CATEGORIES: tuple[Category, ...] = (
    "simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance",
)  # fmt: skip


class Options(StageConfig):
    mode: Literal["fc", "prompt"] = "fc"
    categories: tuple[Category, ...] = Field(default=CATEGORIES, min_length=1)


def driver(options: Options) -> DriverProcess:
    return caged_driver("bfcl_single")


SUITE = Suite(
    name="bfcl_single",
    score="accuracy",
    driver=driver,
    checker="bfcl_eval.eval_checker.ast_eval.ast_checker",
)
