"""BFCL's single turns through the official loop and checkers: an oracle, floors, broken answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from astra.bench.harness import oracle_bfcl_single as single
from astra.bench.harness.play import list_entries, run_suite
from astra.bench.harness.protocol import (
    Entry,
    Listing,
    Subject,
    SuiteConfig,
    SuiteError,
    find_suite,
)
from astra.bench.harness.scripted import ScriptedServer, ScriptedTurn, Writer, idle
from astra.bench.suites.bfcl_single import CATEGORIES
from astra.records.bench import SuiteEpisode, SuiteOutcome
from astra.records.score import Scored

pytestmark = pytest.mark.usefixtures("bench_env")

SIMPLE, MULTIPLE, PARALLEL, BOTH, IRRELEVANT = (
    "simple_python_3", "multiple_5", "parallel_7", "parallel_multiple_12", "irrelevance_9",
)  # fmt: skip
ENTRIES = [SIMPLE, MULTIPLE, PARALLEL, BOTH, IRRELEVANT]
Only = Callable[[list[str]], None]


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Only:
    """Let the suite list just these entries, so that a test plays what it is about."""

    def put(wanted: list[str]) -> None:
        def listed(suite: Any, config: SuiteConfig) -> Listing:
            entries = tuple(Entry(id=one, category=one.rsplit("_", 1)[0]) for one in wanted)
            return Listing(entries=entries, versions={"sampled": "by hand"})

        monkeypatch.setattr("astra.bench.harness.play.list_entries", listed)

    return put


def play(write: Writer, root: Path, mode: str = "fc", **fields: Any) -> dict[str, SuiteEpisode]:
    with ScriptedServer(write) as server:
        config = SuiteConfig(name="bfcl_single", options={"mode": mode}, **fields)
        episodes = run_suite(config, Subject("sft", server.endpoint, ""), root)[1]
    return {one.entry_id: one for one in episodes}


def scores(episodes: dict[str, SuiteEpisode]) -> list[float]:
    found = [episodes[name].scores.get("accuracy") for name in ENTRIES]
    return [one.value for one in found if isinstance(one, Scored)]


def test_all_entries_are_listed() -> None:
    suite = find_suite("bfcl_single")
    config = SuiteConfig(name="bfcl_single", options=suite.options({}).model_dump(mode="json"))
    entries = list_entries(suite, config).entries
    counts = {one: sum(entry.category == one for entry in entries) for one in CATEGORIES}
    assert counts == {
        "simple_python": 400, "multiple": 200, "parallel": 200, "parallel_multiple": 200,
        "irrelevance": 240,
    }  # fmt: skip
    assert {entry.id for entry in entries} == set(single.bfcl_entries())


@pytest.mark.parametrize("mode", ["fc", "prompt"])
def test_the_oracle_is_right_and_a_wrong_value_is_wrong(
    only: Only, tmp_path: Path, mode: str
) -> None:
    assert "." in single.bfcl_entries()[SIMPLE]["function"][0]["name"]  # offered as "_" in fc
    only(ENTRIES)
    right = play(single.oracle(mode), tmp_path / "right", mode)
    assert scores(right) == [1.0] * 5
    assert all(one.steps == 1 and one.prompt_tokens for one in right.values())
    wrong = play(single.wrong(mode), tmp_path / "wrong", mode)
    assert scores(wrong) == [0.0] * 5
    assert "value" in wrong[SIMPLE].reason or "type" in wrong[SIMPLE].reason
    assert "irrelevance_error" in wrong[IRRELEVANT].reason


def test_silence_is_right_where_nothing_fits_and_calls_never(only: Only, tmp_path: Path) -> None:
    only(ENTRIES)
    assert scores(play(idle, tmp_path / "idle")) == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert scores(play(single.caller("fc"), tmp_path / "calls")) == [0.0] * 5


def test_a_request_is_the_official_one(only: Only, tmp_path: Path) -> None:
    only([SIMPLE])
    bodies: list[dict[str, Any]] = []

    def write(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        bodies.append(body)
        return idle(entry, body)

    play(write, tmp_path / "fc", decoding={"temperature": 0.0, "max_tokens": 77})
    play(write, tmp_path / "prompt", "prompt")
    offered, told = bodies
    entry = single.bfcl_entries()[SIMPLE]
    assert offered["max_tokens"] == 77
    assert offered["messages"] == entry["question"][0]
    (tool,) = offered["tools"]
    assert tool["function"]["description"].endswith("in Python 3 syntax.")
    assert "tools" not in told
    assert entry["function"][0]["name"] in told["messages"][0]["content"]


def test_broken_answers_are_scored_as_the_official_evaluation_does(
    only: Only, tmp_path: Path
) -> None:
    """A call that cannot be read is no call: wrong where one is due, right where none is."""
    only(ENTRIES)
    right = single.oracle("fc")
    broken = {
        SIMPLE: "{not json", MULTIPLE: "[1, 2]", IRRELEVANT: "{not json",
        BOTH: json.dumps({"surplus": 1}),
    }  # fmt: skip

    def write(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        if entry == PARALLEL:
            return ScriptedTurn(calls=right(entry, body).calls[1:])  # one call too few
        return ScriptedTurn(calls=(("f", {}),), raw_arguments=broken[entry])

    found = play(write, tmp_path)
    assert scores(found) == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert "decoder_failed" in found[SIMPLE].reason
    assert "wrong_output_format" in found[MULTIPLE].reason
    assert "wrong_count" in found[PARALLEL].reason


def test_what_the_endpoint_loses_has_no_score_and_is_played_again(
    only: Only, tmp_path: Path
) -> None:
    only(ENTRIES)
    right = single.oracle("fc")
    asked: list[str] = []

    def losing(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        asked.append(entry)
        if entry == MULTIPLE:
            return ScriptedTurn(status=422, error="this tool is not understood")
        if entry == PARALLEL:
            return ScriptedTurn(status=400, error="maximum context length is 4096 tokens")
        return right(entry, body)

    with pytest.raises(SuiteError, match=r"no score: harness or endpoint lost 1 of 5"):
        play(losing, tmp_path)
    found = play(losing, tmp_path, max_infra_share=0.5)
    assert found[MULTIPLE].outcome == SuiteOutcome.INFRA
    assert not found[MULTIPLE].scores
    assert found[PARALLEL].outcome == SuiteOutcome.OVERFLOW
    assert scores(found) == [1.0, 0.0, 1.0, 1.0]
    assert asked.count(SIMPLE) == 1  # the rest is in the journal
    assert asked.count(MULTIPLE) == 2
