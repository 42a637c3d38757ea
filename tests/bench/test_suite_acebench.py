"""ACEBench agent: the oracle reaches every end state, doing nothing and dropping calls do not."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from astra.bench.harness import oracle_acebench as oracles
from astra.bench.harness.play import run_suite
from astra.bench.harness.protocol import Decoding, Subject, SuiteConfig, SuiteError
from astra.bench.harness.scripted import ScriptedServer, ScriptedTurn, Writer, idle
from astra.bench.suites import acebench
from astra.records.bench import SuiteEpisode
from astra.records.score import Scored


@pytest.fixture
def data(corpora: Path) -> Path:
    folder = corpora / "benchmarks" / "acebench"
    if not folder.is_dir():
        pytest.skip(f"ASTRA_CORPORA has no {folder}")
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
    system = {"role": "system", "content": "You.\n\nInstruction: Do it.\n\nRules:"}
    body: dict[str, Any] = {"messages": [system, {"role": "user", "content": "Hello?"}]}
    assert user("e", body).content == "Do it."
    body["messages"] += [
        {"role": "system", "content": "Do it."},
        {"role": "user", "content": "?"},
    ]
    assert "go on" in str(user("e", body).content)
    body["messages"] += [
        {"role": "system", "content": "go on"},
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


def script(name: str) -> Any:
    """A file of ``suites/drivers``."""
    folder = Path(acebench.__file__).with_name("drivers")
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


class Phone:
    """A simulator."""

    def __init__(self) -> None:
        self.on = False

    def turn_on(self, when: str = "now") -> dict[str, Any]:
        self.on = True
        return {"status": True, "when": when}

    def battery(self) -> int:
        return 7

    def label(self) -> str:
        return "my phone"


class Scenarios:
    """In place of the official module."""

    @staticmethod
    def load_scenario_instances(config: Any, classes: Any, language: str) -> dict[str, Any]:
        return {"Phone": Phone()}

    @staticmethod
    def snapshot_states(apis: dict[str, Any]) -> list[dict[str, Any]]:
        return [{name: vars(api)} for name, api in apis.items()]


def world() -> Any:
    sample = {"initial_config": {}, "classes": ["Phone"]}
    return script("acebench_executor").World(Scenarios, sample, "en")


def test_the_executor_says_what_the_official_one_says() -> None:
    on, battery, label = {"turn_on": {}}, {"battery": {}}, {"label": {}}
    told = [{"status": True, "when": "now"}, 7, "my phone"]
    assert world().each([on, battery, label]) == told
    assert world().together([on, battery, label]) == told
    wrong, missing = {"turn_on": {"whem": "now"}}, {"no_such": {}}
    failed = world().each([wrong, battery])
    assert failed[0].startswith("Error during execution: Phone.turn_on() got an unexpected")
    assert failed[1] == 7
    assert "not defined" in world().each([missing])[0]
    assert world().each([battery, missing]) == [7, 7], "officially the result before it"
    assert "".join(world().together([wrong, battery])) == "Error during execution: {str(e)}"


def test_an_end_state_is_what_executed_turns_left() -> None:
    idle, failed, done = world(), world(), world()
    assert idle.end_state() == []
    failed.together([{"turn_on": {}}, {"no_such": {}}, {"turn_on": {"whem": 1}}])
    assert failed.end_state() == []
    failed.together([])
    assert failed.end_state() == [{"Phone": {"on": True}}]
    done.each([{"no_such": {}}])
    assert done.end_state() == [{"Phone": {"on": False}}]


def test_only_multi_step_minds_what_stands_between_calls() -> None:
    check = script("acebench_executor").check_elements
    for text in ("[f(x=1), g()]", " f(x=1)", "nothing"):
        check(text)
    with pytest.raises(ValueError, match="else than calls"):
        check("[f(x=1), 0]")


def test_the_careless_model_is_careless_in_four_ways(data: Path) -> None:
    tasks = oracles.samples(data)
    write = oracles.careless(tasks)
    said: list[list[str]] = []
    for name in list(tasks)[:4]:
        said.append([])
        while (text := str(write(name, {}).content)) != oracles.FINISHED:
            said[-1].append(text)
    lengths = [len(oracles.solution(tasks[name])) for name in list(tasks)[:4]]
    assert [len(one) for one in said] == [lengths[0] - 1, lengths[1], 1, lengths[3] + 3]
    assert "mispelt=1" in said[1][0]
    assert said[3][1] == "[no_such_function()]"


def test_function_documents_become_json_schema() -> None:
    driver = script("play_acebench")
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


def official() -> dict[str, Any]:
    """In place of the official modules, as far as a conversation that ends early needs them."""
    said: dict[str, str] = {"user_opening": "Hello?"}
    prompts = SimpleNamespace(
        agent_prompt_set=lambda language: said,
        build_user_simulator_prompt=lambda *given: "You are the user.",
        build_agent_prompts=lambda **given: ("You are the agent.", given["transcript"]),
    )
    checker = SimpleNamespace(milestone_accuracy=lambda process, milestones: 0.0)
    return {"prompts": prompts, "checker": checker, "scenarios": Scenarios, "parser": None}


@pytest.mark.parametrize("mode", ["prompt", "fc"])
def test_only_the_models_own_overflow_is_its_failure(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    driver = script("play_acebench")
    for name, module in official().items():
        monkeypatch.setitem(driver.OFFICIAL, name, module)
    sample = {
        "category": "multi_turn", "question": "q", "initial_config": {}, "functions": [],
        "classes": ["Phone"], "end_state": [], "milestones": [],
    }  # fmt: skip
    full = ScriptedTurn(status=400, error="context_length_exceeded: too long")

    def played(model: Writer, user: Writer) -> dict[str, Any]:
        with ScriptedServer(model) as first, ScriptedServer(user) as second:
            roles = (("model", first), ("user", second))
            endpoints = {role: server.endpoint.model_dump() for role, server in roles}
            options = {"language": "en", "max_steps": 6, "mode": mode, "user_decoding": {}}
            main = SimpleNamespace(
                options=options, request={"endpoints": endpoints}, decoding=lambda job: {}
            )
            return driver.attempt(main, {"e": sample}, {"entry_id": "e"})

    assert played(lambda *_: full, idle)["outcome"] == "overflow"
    with pytest.raises(Exception, match="context_length_exceeded"):
        played(idle, lambda *_: full)


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
    assert solved(floor, "multi_turn") == (0, 30)
