"""The real harnesses on a few entries: what an oracle, a mute and a hostile model score."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "sandbox"))
from cage_attacks import ATTACKS

from astra.bench.harness import environment, oracles
from astra.bench.harness.play import checked, list_entries, run_suite
from astra.bench.harness.protocol import (
    Entry,
    Listing,
    Subject,
    SuiteConfig,
    SuiteError,
    find_suite,
)
from astra.bench.harness.scripted import ScriptedServer, ScriptedTurn, Writer, idle
from astra.records.bench import SuiteEpisode, SuiteOutcome
from astra.records.score import Scored

SECRET = "sk-secret-of-the-host"


@pytest.fixture(scope="module", autouse=True)
def _environment(root: Path) -> None:
    if not os.environ.get(environment.VARIABLE):
        os.environ[environment.VARIABLE] = str(root / environment.DEFAULT)
    try:
        environment.bench_environment()
    except SuiteError as error:
        pytest.skip(f"no bench environment: {error}")


Only = Callable[[str, list[str]], None]


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Only:
    """Let a suite list just these entries, so that a test plays what it is about."""

    def put(name: str, wanted: list[str]) -> None:
        def listed(suite: Any, config: SuiteConfig) -> Listing:
            entries = tuple(
                Entry(id=entry, category=entry.rsplit("_", 1)[0].split("/")[0]) for entry in wanted
            )
            return Listing(entries=entries, versions={"sampled": "by hand"})

        monkeypatch.setattr("astra.bench.harness.play.list_entries", listed)

    return put


def play(
    name: str, write: Writer, root: Path, user: Writer = idle, **fields: Any
) -> dict[tuple[str, int], SuiteEpisode]:
    """By entry and attempt. Every model has the same name, as checkpoints of one server do."""
    with ScriptedServer(write) as server, ScriptedServer(user) as simulator:
        roles = find_suite(name).roles
        config = SuiteConfig(
            name=name, endpoints=dict.fromkeys(roles, simulator.endpoint), **fields
        )
        episodes = run_suite(config, Subject("sft", server.endpoint, ""), root)[1]
    return {(one.entry_id, one.attempt): one for one in episodes}


def score(episode: SuiteEpisode) -> float:
    (found,) = episode.scores.values()
    assert isinstance(found, Scored)
    return found.value


BFCL = ["multi_turn_base_1", "multi_turn_miss_func_7", "multi_turn_miss_param_11"]
BFCL_LONG = "multi_turn_long_context_3"


def test_both_suites_list_all_their_entries() -> None:
    counts = {}
    for name in ("bfcl", "tau2"):
        suite = find_suite(name)
        config = SuiteConfig(name=name, options=suite.options({}).model_dump(mode="json"))
        entries = list_entries(suite, config).entries
        for entry in entries:
            counts[entry.category] = counts.get(entry.category, 0) + 1
    assert counts == {
        "multi_turn_base": 200, "multi_turn_miss_func": 200, "multi_turn_miss_param": 200,
        "multi_turn_long_context": 200, "retail": 114, "telecom": 114, "airline": 50,
    }  # fmt: skip


def test_checkpoints_and_tries_of_one_name_do_not_influence_each_other(
    only: Only, tmp_path: Path
) -> None:
    """A bad checkpoint, then a perfect one of the same name; and a perfect try after a bad one.

    The harness keeps each simulator in a module global named by model and entry.
    """
    only("bfcl", [*BFCL, BFCL_LONG])
    perfect, bad = oracles.bfcl("fc"), oracles.bfcl("fc", drop_last=True)

    def turning(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        """Bad at the first try of each entry (tries differ by their seeds), then perfect."""
        if len(seeds[entry]) < 1 or body["seed"] == seeds[entry][0]:
            seeds[entry][:1] = [body["seed"]]
            return bad(entry, body)
        return perfect(entry, body)

    seeds: dict[str, list[int]] = {entry: [] for entry in [*BFCL, BFCL_LONG]}
    found = play("bfcl", turning, tmp_path / "a", tries=2, concurrency=1)
    assert [score(one) for (_, attempt), one in found.items() if attempt == 0] == [0.0] * 4
    assert [score(one) for (_, attempt), one in found.items() if attempt == 1] == [1.0] * 4
    again = play("bfcl", perfect, tmp_path / "b")
    assert [score(one) for one in again.values()] == [1.0] * 4


def test_prompt_mode_silence_and_overflow_of_bfcl(only: Only, tmp_path: Path) -> None:
    only("bfcl", [*BFCL, BFCL_LONG])
    perfect = oracles.bfcl("prompt")

    def write(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        assert "tools" not in body
        assert body["top_p"] == 0.9
        assert body["top_k"] == 20
        if entry == BFCL_LONG:
            return ScriptedTurn(status=400, error="maximum context length is 4096 tokens")
        return idle(entry, body) if entry == BFCL[1] else perfect(entry, body)

    decoding = {"temperature": 0.7, "top_p": 0.9, "top_k": 20}
    found = play("bfcl", write, tmp_path, options={"mode": "prompt"}, decoding=decoding)
    right, silent, right_too, long = (found[entry, 0] for entry in [*BFCL, BFCL_LONG])
    assert (score(right), score(right_too), score(silent), score(long)) == (1.0, 1.0, 0.0, 0.0)
    assert long.outcome == SuiteOutcome.OVERFLOW
    assert silent.outcome == SuiteOutcome.SCORED
    assert "empty_turn_model_response" in silent.reason
    assert silent.steps == len(oracles.bfcl_truths()[BFCL[1]])
    assert right.prompt_tokens > right.completion_tokens > 0
    assert {message.role for message in right.messages} == {"system", "user", "assistant"}


def test_a_planted_call_name_is_evaluated_and_finds_every_door_shut(
    only: Only, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUITE_TEST_SECRET", SECRET)
    (tmp_path / "key").write_text(SECRET, encoding="utf-8")
    planted = tmp_path / "planted"
    only("bfcl", BFCL[:1])
    heard: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        code = ATTACKS.format(
            port=elsewhere.getsockname()[1], planted=planted, key=tmp_path / "key",
            host=os.getpid(), source=Path(__file__), only=(),
        )  # fmt: skip
        text = base64.b64encode(code.encode()).decode()
        name = (
            "(lambda **_: (lambda d: (exec(__import__('base64').b64decode('"
            f"{text}').decode(), d), __import__('json').dumps(d['found']))[1])({{}}))"
        )

        def write(entry: str, body: dict[str, Any]) -> ScriptedTurn:
            heard.extend(m["content"] for m in body["messages"] if m["role"] == "tool")
            if any(message["role"] == "assistant" for message in body["messages"]):
                return idle(entry, body)
            return ScriptedTurn(calls=((name, {}), ("__import__('os').system", {"command": "id"})))

        found = play("bfcl", write, tmp_path)
        elsewhere.settimeout(0.1)
        with pytest.raises(TimeoutError):
            elsewhere.accept()
    assert score(found[BFCL[0], 0]) == 0.0
    doors: dict[str, str] = json.loads(heard[0])  # it did run, and told the model what it found
    assert len(doors) >= 15
    assert {said for said in doors.values() if not said.startswith("denied")} == set()
    assert heard[1] == "0"  # os.system ran: `id`, as nobody
    assert not planted.exists()
    assert SECRET not in json.dumps(heard)


def test_a_harness_that_dies_and_an_endpoint_that_dies_leave_a_run_to_resume(
    only: Only, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's call ends BFCL's process; then its endpoint goes away; then all is well."""
    monkeypatch.setattr("astra.bench.harness.relay.PAUSE_S", 0.01)
    only("bfcl", BFCL)
    perfect = oracles.bfcl("fc")
    asked: list[str] = []

    def deadly(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        if entry == BFCL[1]:
            return ScriptedTurn(calls=(("__import__('os')._exit", {"status": 3}),))
        return perfect(entry, body)

    def leaving(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        asked.append(entry)
        return ScriptedTurn(status=503, error="going") if entry == BFCL[2] else perfect(entry, body)

    with pytest.raises(SuiteError, match=r"after 1 of 3 attempts.*no score.*exit code 3"):
        play("bfcl", deadly, tmp_path, concurrency=1)
    with pytest.raises(SuiteError, match=r"after 2 of 3 attempts.*no score.*does not answer"):
        play("bfcl", leaving, tmp_path, concurrency=1)
    assert BFCL[0] not in asked
    found = play("bfcl", perfect, tmp_path)
    assert [score(one) for one in found.values()] == [1.0] * 3
    assert {one.outcome for one in found.values()} == {SuiteOutcome.SCORED}


def test_tau2_agents_and_users_fail_apart(only: Only, tmp_path: Path) -> None:
    """Oracle, broken arguments from agent and from user, an agent without words, a careless one."""
    entries = ["retail/0", "retail/1", "retail/2", "retail/3", "telecom/", "airline/2", "retail/4"]
    tasks = oracles.tau2_tasks()
    entries[4] = next(entry for entry in tasks if entry.startswith("telecom/[service_issue]"))
    only("tau2", entries)
    agent, user = oracles.tau2_agent(), oracles.tau2_user()
    careless = oracles.tau2_agent(drop_last=True)
    broken = ScriptedTurn(calls=(("get_order_details", {}),), raw_arguments="{not json")

    def writes(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        if entry == "retail/1":
            return broken
        if entry == "retail/3":
            return ScriptedTurn(content="")
        return (careless if entry == "retail/4" else agent)(entry, body)

    def says(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        if entry == "retail/2":
            return broken
        return user(entry, body)

    found = play("tau2", writes, tmp_path, user=says, max_infra_share=0.5)
    for entry in (entries[0], entries[4], entries[5]):
        assert score(found[entry, 0]) == 1.0, found[entry, 0].reason
        assert found[entry, 0].steps
        assert found[entry, 0].prompt_tokens
    assert score(found["retail/1", 0]) == 0.0
    assert "JSON" in found["retail/1", 0].reason
    assert score(found["retail/3", 0]) == 0.0
    assert score(found["retail/4", 0]) == 0.0
    assert "DB 0" in found["retail/4", 0].reason
    assert found["retail/2", 0].outcome == SuiteOutcome.INFRA


def test_the_official_checkers_are_where_the_suites_say() -> None:
    python = environment.bench_environment() / "bin/python"
    for name in ("acebench", "aime", "bfcl", "bfcl_single", "tau2"):
        place = Path(*find_suite(name).checker.split("."))
        code = (
            "import sys, pathlib\n"
            f"places = [pathlib.Path(folder) / {str(place)!r} for folder in sys.path]\n"
            "sys.exit(not any(p.is_dir() or p.with_suffix('.py').is_file() for p in places))"
        )
        assert subprocess.run([python, "-c", code], check=False).returncode == 0, name


def test_a_missing_environment_names_its_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.VARIABLE, "/nowhere")
    with pytest.raises(SuiteError, match="make bench-env"):
        checked(SuiteConfig(name="bfcl"))
