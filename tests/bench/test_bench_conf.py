from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from astra.bench.config import BenchConfig
from astra.llm.protocol import ModelConfig
from astra.rollout.chat import PolicyConfig
from astra.settings import validate


@pytest.mark.parametrize("scale", ["test", "smoke", "small", "full"])
def test_every_scale_is_a_valid_block(root: Path, scale: str) -> None:
    base = OmegaConf.load(root / "conf/bench/base.yaml")
    change = OmegaConf.load(root / f"conf/bench/{scale}.yaml")
    assert isinstance(change, DictConfig)
    assert change.pop("defaults") == ["base", "_self_"]
    policy = PolicyConfig.saved("policies/tiny", "float32").model_dump()
    outside = {"policy": policy, "contamination": "index.parquet"}
    merged = OmegaConf.merge(outside, {"bench": base})
    merged = OmegaConf.merge(merged, {"bench": change})
    block = OmegaConf.to_container(merged.bench, resolve=True)
    config = validate("bench", block, BenchConfig)
    assert config.arenas == {"test": 24, "smoke": 800}.get(scale)


@pytest.mark.parametrize("role", ["teacher", "judge", "emulator", "user"])
@pytest.mark.parametrize("backend", ["offline", "openai"])
def test_every_role_has_both_backends(root: Path, role: str, backend: str) -> None:
    block = OmegaConf.to_container(
        OmegaConf.load(root / f"conf/{role}/{backend}.yaml"), resolve=True
    )
    assert validate(role, block, ModelConfig).backend == backend
