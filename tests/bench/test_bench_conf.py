from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from astra.bench.bench import check_suites
from astra.bench.config import BenchConfig
from astra.bench.harness.protocol import SuiteConfig, SuiteError, find_suite
from astra.llm.protocol import ModelConfig
from astra.rollout.chat import PolicyConfig
from astra.settings import validate


@pytest.mark.parametrize("scale", ["test", "smoke", "small", "full", "paper"])
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


def test_the_papers_benchmarks_have_its_settings(root: Path) -> None:
    block = OmegaConf.to_container(OmegaConf.load(root / "conf/bench/paper.yaml"))
    assert isinstance(block, dict)
    suites = {one.suite: one for one in map(SuiteConfig.model_validate, block["suites"])}
    for one in suites.values():
        suite = find_suite(one.name)
        suite.options(one.options)  # refuses what it does not know
        assert set(one.endpoints) == set(suite.roles)
        assert one.sample.count is None
    settings = {
        name: (one.tries, one.decoding.temperature, one.decoding.top_p, one.decoding.top_k)
        for name, one in suites.items()
    }
    assert settings == {
        "bfcl": (1, 0.6, None, None),
        "tau2": (4, 0.0, None, None),
        "acebench": (4, 0.6, None, None),
        "aime_top_k_20": (32, 0.6, 0.95, 20),
        "aime_top_k_all": (32, 0.6, 0.95, None),
        "gpqa": (16, 0.6, None, None),
    }
    users = {name: one.endpoints["user"].model for name, one in suites.items() if one.endpoints}
    assert users == {"tau2": "gpt-5.1", "acebench": "gpt-4.1"}
    assert suites["tau2"].options["domains"] == ["retail", "telecom"]


def test_a_key_that_is_not_set_is_said_before_anything_is_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    user = {"base_url": "https://models.example/v1", "model": "m", "api_key_env": "NO_SUCH_KEY"}
    with pytest.raises(SuiteError, match=r"role user.*NO_SUCH_KEY"):
        check_suites([SuiteConfig.model_validate({"name": "tau2", "endpoints": {"user": user}})])


@pytest.mark.parametrize("role", ["teacher", "judge", "emulator", "user"])
@pytest.mark.parametrize("backend", ["offline", "openai"])
def test_every_role_has_both_backends(root: Path, role: str, backend: str) -> None:
    block = OmegaConf.to_container(
        OmegaConf.load(root / f"conf/{role}/{backend}.yaml"), resolve=True
    )
    assert validate(role, block, ModelConfig).backend == backend
