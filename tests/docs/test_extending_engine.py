"""The engine of docs/extending.md, chosen as the page says, rolls episodes in a real sandbox."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml

from configs import block, changed, rl_config, rollout_limits

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
sys.path.insert(0, str(Path(__file__).parents[1] / "serving"))
sys.path.insert(0, str(Path(__file__).parent))
from pages import blocks
from taught import taught
from test_bench_arenas import ARENAS

from astra.records.message import CallStatus
from astra.rollout import engines
from astra.rollout.build import build_driver, build_engine
from astra.rollout.chat import LoadedPolicy
from astra.rollout.driver import EpisodeSetting
from astra.rollout.engine import EngineConfig, EngineInputs, Sampling
from astra.rollout.live import EpisodeJob, Rollout
from astra.sandbox.local import LocalSandbox
from astra.settings import ParamsError, validate
from astra.train.rl_config import RLConfig

LIMITS = rollout_limits(
    max_turns=4, max_turn_tokens=96, max_prompt_tokens=512, max_response_tokens=300
)


@pytest.fixture
def entry(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The page's file of conf/; its engine lies in a folder that ``engines`` also searches."""
    page = {one.title: one.text for one in blocks(root / "docs/extending.md")}
    (tmp_path / "plain.py").write_text(page["src/astra/rollout/engines/plain.py"])
    monkeypatch.setattr(engines, "__path__", [*engines.__path__, str(tmp_path)])
    yield page["conf/rl/engine/plain.yaml"]
    sys.modules.pop(f"{engines.__name__}.plain", None)


@pytest.fixture(scope="module")
def policy(root: Path) -> LoadedPolicy:
    """One that knows the arenas it is given."""
    with LocalSandbox() as sandbox:
        return taught(root / "policies/tiny", ARENAS[:4], sandbox)


def options(entry: str) -> EngineConfig:
    return rl_config(engine=yaml.safe_load(entry)).engine


def rolled(policy: LoadedPolicy, options: EngineConfig, sampling: Sampling) -> list[Rollout]:
    inputs = EngineInputs(
        policy, lambda folder: True, lambda: None, lambda: ([], []), (), Path("weights"),
        ranks=1, gather=lambda value: [value],
    )  # fmt: skip
    engine = build_engine(options, inputs)
    jobs = [EpisodeJob(arena) for arena in ARENAS[:2]]
    with LocalSandbox() as sandbox:
        rl = rl_config()
        setting = EpisodeSetting(policy.codec, sandbox, LIMITS, rl.reward, rl.final_answer)
        driver = build_driver(engine, options, setting)
        driver.weights_are(3)
        driver.run(jobs, sampling)  # an engine serves one batch after the other
        rollouts = driver.run(jobs, sampling)
    assert {one.weight_version for one in rollouts} == {3}
    assert driver.infra_retries == 0
    return rollouts


def test_its_log_probabilities_are_those_of_the_policy(entry: str, policy: LoadedPolicy) -> None:
    for one in rolled(policy, options(entry), Sampling(temperature=0.7, seed=5)):
        assert one.completion_ids
        ids = torch.tensor([[*one.prompt_ids, *one.completion_ids]])
        with torch.no_grad():
            scores = torch.log_softmax(policy.model(input_ids=ids).logits[0].float() / 0.7, -1)
        start = len(one.prompt_ids)
        for at, token in enumerate(one.completion_ids):
            if one.mask[at]:
                expected = scores[start + at - 1, token].item()
                assert one.logprobs[at] == pytest.approx(expected, abs=1e-4)


def test_greedy_it_solves_what_the_batched_engine_solves(entry: str, policy: LoadedPolicy) -> None:
    plain = options(entry)
    greedy = Sampling(temperature=0.0)
    rollouts = rolled(policy, plain, greedy)
    batched = rolled(policy, rl_config().engine, greedy)
    assert [one.completion_ids for one in rollouts] == [one.completion_ids for one in batched]
    for one in rollouts:
        assert [call.result.status for call in one.calls] == [CallStatus.OK] * len(one.arena.steps)
        assert one.score is not None
        assert one.score.success


def test_an_unknown_engine_or_option_is_refused_with_the_known_ones(entry: str) -> None:
    def refused(engine: object) -> str:
        with pytest.raises(ParamsError) as error:
            validate("rl", changed(block("rl"), {"engine": engine}), RLConfig)
        return str(error.value)

    assert "'plane'; there are: batched, continuous, plain, vllm" in refused({"type": "plane"})
    assert "Its options: type, timeout_s" in refused(yaml.safe_load(entry) | {"rows": 1})
