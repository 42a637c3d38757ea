"""ACEBench agent: the oracle reaches every end state, doing nothing and dropping calls do not."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from astra.bench.harness import oracle_acebench as oracles
from astra.bench.harness.play import run_suite
from astra.bench.harness.protocol import Decoding, Subject, SuiteConfig, SuiteError
from astra.bench.harness.scripted import ScriptedServer, Writer, idle
from astra.bench.suites import acebench
from astra.records.bench import SuiteEpisode
from astra.records.score import Scored


@pytest.fixture
def data(corpora: Path) -> Path:
    folder = corpora / "benchmarks" / "acebench"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    return folder


def test_milestones_are_calls_once_apostrophes_are_put_right() -> None:
    stone = "[add(merchant_name='Domino's', items=[{'product': 'It's', 'quantity': 1}]), f()]"
    assert oracles.parse(stone) == [
        ("add", {"merchant_name": "Domino's", "items": [{"product": "It's", "quantity": 1}]}),
        ("f", {}),
    ]
    with pytest.raises(ValueError, match="something else"):
        oracles.parse("[1]")


def test_the_user_by_rule_tells_its_instruction_and_ends() -> None:
    user = oracles.offline_user()
    body: dict[str, Any] = {
        "messages": [{"role": "system", "content": "You.\n\nInstruction: Do it.\n\nRules:"}]
    }
    assert user("e", body).content == "Do it."
    body["messages"] += [
        {"role": "assistant", "content": "Do it."},
        {"role": "user", "content": "?"},
    ]
    assert "go on" in str(user("e", body).content)
    body["messages"] += [
        {"role": "assistant", "content": "go on"},
        {"role": "user", "content": "?"},
    ]
    assert user("e", body).content == oracles.FINISHED


def test_every_task_has_a_solution_of_calls(data: Path) -> None:
    found = oracles.samples(data)
    assert len(found) == 50
    changed = [
        name for name, sample in found.items()
        if oracles.solution(sample) != oracles.alternatives(sample)[0]
    ]  # fmt: skip
    assert len(changed) < 20, "milestones are taken as they are where they can be"


def test_missing_data_say_where_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASTRA_CORPORA", raising=False)
    with pytest.raises(SuiteError, match="clone the ACEBench repository"):
        acebench.data_folder(acebench.Options())


def test_function_documents_become_json_schema() -> None:
    folder = Path(acebench.__file__).with_name("drivers")
    sys.path.insert(0, str(folder))
    try:
        driver = importlib.import_module("play_acebench")
    finally:
        sys.path.remove(str(folder))
    listed = {"type": "list", "items": {"type": "dict"}}
    properties = {"items": listed, "price": {"type": "float"}}
    given = {
        "name": "order", "description": "d",
        "parameters": {"type": "dict", "properties": properties},
    }  # fmt: skip
    parameters = driver.function_document(given)["function"]["parameters"]
    assert parameters["type"] == "object"
    assert parameters["properties"]["items"] == {"type": "array", "items": {"type": "object"}}
    assert parameters["properties"]["price"] == {"type": "number"}


def play(
    tmp_path: Path, data: Path, model: Writer, mode: str, name: str, count: int | None = None
) -> list[SuiteEpisode]:
    with ScriptedServer(model) as server, ScriptedServer(oracles.offline_user(4)) as user:
        config = SuiteConfig(
            name="acebench", concurrency=4, decoding=Decoding(), endpoints={"user": user.endpoint},
            options={"data": str(data), "mode": mode}, sample={"count": count},
        )  # fmt: skip
        _, episodes = run_suite(config, Subject(name, server.endpoint, name), tmp_path)
    return episodes


def solved(episodes: list[SuiteEpisode], category: str) -> tuple[int, int]:
    values = [
        score.value
        for one in episodes
        if one.category == category and isinstance(score := one.scores["accuracy"], Scored)
    ]
    return int(sum(values)), len(values)


@pytest.mark.parametrize("mode", ["prompt", "fc"])
def test_the_oracle_solves_all_fifty(
    bench_env: Path, data: Path, tmp_path: Path, mode: str
) -> None:
    episodes = play(tmp_path, data, oracles.oracle(oracles.samples(data), mode), mode, "oracle")
    assert solved(episodes, "multi_step") == (20, 20), [e.reason for e in episodes if e.reason]
    assert solved(episodes, "multi_turn") == (30, 30), [e.reason for e in episodes if e.reason]


def test_dropped_calls_and_idleness_fail(bench_env: Path, data: Path, tmp_path: Path) -> None:
    dropping = oracles.oracle(oracles.samples(data), "prompt", drop_last=True)
    bad = play(tmp_path, data, dropping, "prompt", "bad")
    assert solved(bad, "multi_step")[0] <= 2
    assert solved(bad, "multi_turn")[0] <= 2
    floor = play(tmp_path, data, idle, "prompt", "floor")
    assert solved(floor, "multi_step") == (0, 20)
    assert solved(floor, "multi_turn") == (1, 30)
