"""Compose conf/ to params.yaml, exactly as `dvc exp run` does, and validate every block.

    python -m astra.devtools.params [--check] [OVERRIDE ...]

It tells the keys that changed, and names the file to edit where an edit had no effect.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from dvc.utils.hydra import compose_and_dump
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel

from astra.bench.config import BenchConfig
from astra.devtools.params_changes import changes, overridden_edits
from astra.envsynth.envs_config import EnvsConfig
from astra.envsynth.envs_merged_config import EnvsMergedConfig
from astra.errors import AstraError
from astra.llm.protocol import ModelsConfig
from astra.qa.config import QAConfig, QAValidConfig
from astra.scoring.config import SFTSetConfig
from astra.settings import PARAMS, ParamsError, RuntimeConfig, validate
from astra.stage import run_stage
from astra.tasking.config import TasksConfig
from astra.toolbank.config import ToolsConfig
from astra.toolgraph.config import ChainsConfig, GraphConfig
from astra.train.rl_config import RLConfig
from astra.train.sft_config import SFTConfig
from astra.trajectories.config import TrajectoriesConfig
from astra.worlds.config import WorldsConfig
from astra.worlds.conversation_config import PlayedGoalsConfig
from astra.worlds.goal_config import GoalsConfig

log = logging.getLogger("astra")
BLOCKS: Mapping[str, type[BaseModel]] = {
    "voters": ModelsConfig,
    "back_translators": ModelsConfig,
    "tools": ToolsConfig,
    "graph": GraphConfig,
    "chains": ChainsConfig,
    "tasks": TasksConfig,
    "trajectories": TrajectoriesConfig,
    "sft_set": SFTSetConfig,
    "worlds": WorldsConfig,
    "goals": GoalsConfig,
    "conversations": PlayedGoalsConfig,
    "qa": QAConfig,
    "qa_valid": QAValidConfig,
    "envs": EnvsConfig,
    "envs_merged": EnvsMergedConfig,
    "sft": SFTConfig,
    "rl": RLConfig,
    "bench": BenchConfig,
    "runtime": RuntimeConfig,
}


def checked(*, _root_: Any) -> str:
    """Resolver of the key ``parameters``: every block passes its model, or ParamsError."""
    for block, model in BLOCKS.items():
        validate(block, OmegaConf.to_container(_root_[block], resolve=True), model)
    return "checked"


def read_where(setting: Any, table: str, otherwise: str) -> str:
    """Resolver of a dependency that a stage has by one of its settings alone: ``table`` where that
    is set and not ``none``, else a file that the stage depends on already, which adds nothing."""
    return otherwise if setting in (None, "none") else table


def compose(output: Path, overrides: list[str]) -> None:
    """Write the composition of ``conf/`` with ``overrides`` to ``output``. Raises ParamsError."""
    root = Path.cwd()
    place = (str(output), str(root / "conf"), None, "config", str(root / "src"))
    try:
        compose_and_dump(*place, overrides)
    except (HydraException, OmegaConfBaseException) as error:
        # What `checked` refused says more than what was made of it on the way here.
        if isinstance(error.__context__, ParamsError):
            raise error.__context__ from None
        raise ParamsError(f"conf/ does not compose: {error}") from None


def rewrite(overrides: list[str]) -> None:
    """Compose ``params.yaml`` anew; tell what changed, and which edits had no effect."""
    before = _read(PARAMS) if PARAMS.is_file() else {}
    compose(PARAMS, overrides)
    told = changes(before, _read(PARAMS))
    for line in told or ["nothing changed"]:
        log.info("%s", line)
    for warning in overridden_edits(overrides):
        log.warning("%s", warning)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    except yaml.YAMLError:  # a torn file, or one with git's conflict marks, is to be written anew
        return {}
    return document if isinstance(document, dict) else {}


def main() -> None:
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    if "--check" not in sys.argv:
        rewrite(arguments)
        return
    fresh = Path(".params.check.yaml")
    try:
        compose(fresh, arguments)
        if fresh.read_text(encoding="utf-8") != PARAMS.read_text(encoding="utf-8"):
            raise AstraError("params.yaml differs from conf/; run `make params` and commit it")
    finally:
        fresh.unlink(missing_ok=True)


if __name__ == "__main__":
    run_stage("params", main)
