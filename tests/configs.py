"""Configurations for tests: the values of conf/, with the changes that a test makes to them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from astra.agent.episode import EpisodeLimits
from astra.embedding.protocol import EmbeddingConfig
from astra.envsynth.envs_merged_config import CodeConfig
from astra.rollout.chat import PolicyConfig
from astra.rollout.live import RolloutLimits
from astra.train.rl_config import RLConfig
from astra.train.sft_config import SFTConfig

CONF = Path(__file__).resolve().parents[1] / "conf"
STAGES = (
    "tools", "graph", "chains", "tasks", "trajectories", "sft_set", "worlds", "goals",
    "conversations", "qa", "qa_valid", "envs", "envs_merged", "sft", "rl", "bench",
)  # fmt: skip
BASE = (
    "scale=full", *(f"{stage}=base" for stage in STAGES),
    "+rl/engine=batched", "+rl/importance=sampler",
)  # fmt: skip


def rl_config(**changes: Any) -> RLConfig:
    return RLConfig.model_validate(changed(block("rl"), changes))


def engine_options(name: str, **changes: Any) -> dict[str, Any]:
    """``rl.engine`` as conf/rl/engine/NAME.yaml has it, with changes."""
    values: Any = OmegaConf.to_container(OmegaConf.load(CONF / "rl" / "engine" / f"{name}.yaml"))
    return {**values, **changes}


def sft_config(**changes: Any) -> SFTConfig:
    return SFTConfig.model_validate(changed(block("sft"), changes))


def code_config(**changes: Any) -> CodeConfig:
    return CodeConfig.model_validate(changed(block("envs_merged")["code"], changes))


def embedding_config(**changes: Any) -> EmbeddingConfig:
    return EmbeddingConfig.model_validate(changed(block("embedding"), changes))


def policy_config(**changes: Any) -> PolicyConfig:
    return PolicyConfig.model_validate(changed(block("policy"), changes))


def rollout_limits(**changes: int) -> RolloutLimits:
    return rl_config(limits=changes).limits


def episode_limits(**changes: int) -> EpisodeLimits:
    return rollout_limits(**changes).episode()


def changed(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` with ``changes`` laid over them, key by key; one of a union replaces the other."""

    def value(key: str, change: Any) -> Any:
        merges = isinstance(change, Mapping) and isinstance(values.get(key), Mapping)
        return changed(values[key], change) if merges and "type" not in change else change

    return {**values, **{key: value(key, change) for key, change in changes.items()}}


def block(name: str) -> dict[str, Any]:
    """One block of conf/ with the values that scales start from, most of them the paper's."""
    values = OmegaConf.to_container(_base()[name], resolve=True)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


@cache
def _base() -> DictConfig:
    with initialize_config_dir(str(CONF), version_base=None):
        return compose("config", list(BASE))
