"""ACEBench agent: 20 multi-step and 30 multi-turn tasks on simulated phone and travel services.

Played with the official simulators, prompts and checker as evalscope vendors them (MIT), by a
driver of our own in the bench environment: evalscope's loop is bound to its model classes and
keeps no process apart. ``endpoints.user`` plays the user of the multi-turn tasks.

Data: the folder ``data``, else ``$ASTRA_CORPORA/benchmarks/acebench``; the official repository's
``data_all/data_en`` is such a folder.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from astra.bench.harness.environment import caged_driver
from astra.bench.harness.protocol import DriverProcess, SuiteConfig, SuiteError
from astra.settings import StageConfig, validate

Category = Literal["multi_step", "multi_turn"]
CATEGORIES: tuple[Category, ...] = ("multi_step", "multi_turn")


class AceBenchOptions(StageConfig):
    data: str | None = None
    language: Literal["en", "zh"] = "en"
    mode: Literal["prompt", "fc"] = "prompt"
    categories: tuple[Category, ...] = Field(default=CATEGORIES, min_length=1)
    max_steps: int = Field(default=40, ge=2)
    """Messages of all sides; the official limit."""
    user_decoding: dict[str, Any] = Field(default_factory=lambda: {"temperature": 0.0})


@dataclass(frozen=True)
class AceBench:
    name: str = "acebench"
    score: str = "accuracy"
    roles: tuple[str, ...] = ("user",)

    def complete(self, options: dict[str, Any]) -> dict[str, Any]:
        return validate("bench.suites.acebench", options, AceBenchOptions).model_dump(mode="json")

    def driver(self, config: SuiteConfig) -> DriverProcess:
        """Raises SuiteError where the data or the bench environment are missing."""
        folder = data_folder(AceBenchOptions.model_validate(config.options))
        made = caged_driver("acebench", ACEBENCH_DATA=str(folder))
        return replace(made, reads=(*made.reads, folder))


def data_folder(options: AceBenchOptions) -> Path:
    corpora = os.environ.get("ASTRA_CORPORA")
    place = options.data or (f"{corpora}/benchmarks/acebench" if corpora else "")
    folder = Path(place)
    if not place or not (folder / "possible_answer").is_dir():
        raise SuiteError(
            f"ACEBench's data are not at {place or '(nowhere)'}: clone the ACEBench repository and "
            "point options.data to its data_all/data_en, or set ASTRA_CORPORA"
        )
    return folder.resolve()


SUITE = AceBench()
