"""ACEBench agent, 50 tasks: official simulators, prompts and checker (evalscope), our loop, caged.

20 multi-step and 30 multi-turn tasks on simulated phone and travel services. The official parts
are those that evalscope vendors (MIT), called in ``drivers/play_acebench.py``. The loop there is
ours: evalscope's is bound to its model classes and keeps no process apart. ``endpoints.user`` plays
the user of the multi-turn tasks.

Data: the folder ``data``, else ``$ASTRA_CORPORA/benchmarks/acebench``; the official repository's
``data_all/data_en`` is such a folder.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from astra.bench.harness.environment import caged_driver
from astra.bench.harness.protocol import DriverProcess, Suite, SuiteError
from astra.settings import StageConfig

Category = Literal["multi_step", "multi_turn"]
CATEGORIES: tuple[Category, ...] = ("multi_step", "multi_turn")


class Options(StageConfig):
    data: str | None = None
    """Folder of the data; null: in $ASTRA_CORPORA."""
    language: Literal["en", "zh"] = "en"
    mode: Literal["prompt", "fc"] = "prompt"
    categories: tuple[Category, ...] = Field(default=CATEGORIES, min_length=1)
    max_steps: int = Field(default=40, ge=2)
    """Messages of all sides; the official limit."""
    user_decoding: dict[str, Any] = Field(default_factory=lambda: {"temperature": 0.0})


def driver(options: Options) -> DriverProcess:
    """Raises SuiteError where the data or the bench environment are missing."""
    folder = data_folder(options)
    process = caged_driver("acebench", ACEBENCH_DATA=str(folder))
    return replace(process, reads=(*process.reads, folder))


def data_folder(options: Options) -> Path:
    """Raises SuiteError saying where the data come from."""
    corpora = os.environ.get("ASTRA_CORPORA")
    place = options.data or (f"{corpora}/benchmarks/acebench" if corpora else "")
    folder = Path(place)
    if not place or not (folder / "possible_answer").is_dir():
        raise SuiteError(
            f"ACEBench's data are not at {place or '(nowhere)'}: clone the ACEBench repository and "
            "point options.data to its data_all/data_en, or set ASTRA_CORPORA"
        )
    return folder.resolve()


SUITE = Suite(
    name="acebench",
    score="accuracy",
    driver=driver,
    roles=("user",),
    checker="evalscope.benchmarks.acebench.checker",
)
