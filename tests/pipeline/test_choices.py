"""Engine and importance ratio of stage rl are files of conf/, swapped and changed by overrides."""

from __future__ import annotations

from pathlib import Path

import pytest

from astra.devtools import params
from astra.rollout import engines
from astra.settings import ParamsError, load
from astra.train.rl_config import RLConfig


@pytest.fixture
def composed(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(root)
    return tmp_path / "params.yaml"


@pytest.mark.parametrize(
    ("overrides", "engine"),
    [
        (["rl/engine=vllm"], {"type": "vllm", "kv_tokens": None, "timeout_s": 1800}),
        (["scale=full", "rl/engine=batched"], {"type": "batched", "rows": 128}),
        (["scale=small", "rl/engine=vllm"], {"type": "vllm", "timeout_s": 1800}),
        (["rl.engine.rows=7"], {"type": "batched", "rows": 7, "tool_overlap": False}),
        (["rl/engine=continuous", "rl.engine.kv_tokens=512"], {"kv_tokens": 512}),
    ],
)
def test_an_engine_is_chosen_at_every_scale(
    composed: Path, overrides: list[str], engine: dict[str, object]
) -> None:
    params.compose(composed, overrides)
    assert engine.items() <= load("rl", RLConfig, composed).engine.model_dump().items()


def test_every_engine_and_importance_ratio_has_a_file(root: Path) -> None:
    files = {path.stem for path in (root / "conf/rl/engine").glob("*.yaml")}
    assert {path.stem for path in Path(engines.__path__[0]).glob("[!_]*.py")} <= files
    ratios = {path.stem for path in (root / "conf/rl/importance").glob("*.yaml")}
    assert ratios == {"sampler", "trainer", "truncated"}


def test_a_file_that_chooses_no_engine_is_told_the_line_to_add(composed: Path) -> None:
    with pytest.raises(ParamsError, match=r"no engine and no importance .*engine: batched"):
        params.compose(composed, ["rl=base"])


def test_an_engine_without_what_it_needs_is_refused(composed: Path) -> None:
    with pytest.raises(ParamsError, match=r"kv_tokens: Input should be a valid integer"):
        params.compose(composed, ["rl/engine=continuous"])
    with pytest.raises(ParamsError, match="choose one by -S rl/engine=NAME"):
        params.compose(composed, ["rl.engine=vllm"])
