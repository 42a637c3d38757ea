"""Our arenas over an endpoint: the same episodes and scores as in process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from serving_chat import NAME, Scripted, serving
from test_bench_arenas import ARENAS, make_arena

from astra.bench.arenas import job_of
from astra.bench.episodes import rollout_scores
from astra.bench.harness.project import PlayRequest
from astra.bench.harness.protocol import (
    Decoding,
    Job,
    ModelEndpoint,
    Played,
    SuiteConfig,
    SuiteError,
)
from astra.bench.harness.scripted import ScriptedServer, ScriptedTurn, idle
from astra.bench.suites import arenas
from astra.records.bench import SuiteOutcome
from astra.records.environment import Arena
from astra.records.qa import Split
from astra.records.score import Scored
from astra.rollout.batched import BatchedEngine
from astra.rollout.chat import LoadedPolicy
from astra.rollout.driver import RolloutDriver
from astra.rollout.engine import Sampling
from astra.rollout.live import PAPER_LIMITS, RolloutLimits
from astra.sandbox.protocol import Sandbox
from astra.serving.engine import ServingEngine
from astra.serving.local import LocalGenerator
from astra.store.tables import write_records
from chat_server import Answer, ChatServer

LIMITS = {
    "max_turns": 4, "max_calls": 8, "max_parallel_calls": 4, "max_result_chars": 200,
    "max_turn_tokens": 96, "max_prompt_tokens": 512, "max_response_tokens": 300,
}  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "arenas.parquet"
    write_records(path, [*ARENAS, make_arena(11, split=Split.TRAIN)], Arena)
    return path


def config(table: Path, **options: Any) -> SuiteConfig:
    given = {"table": str(table), "limits": LIMITS, **options}
    return SuiteConfig(name="arenas", options=given, decoding=Decoding(temperature=0.0))


def play(settings: SuiteConfig, endpoint: ModelEndpoint, ids: Sequence[str]) -> dict[str, Played]:
    jobs = tuple(Job(entry_id=one, category="c", attempt=0, seed=1) for one in ids)
    found = arenas.play(PlayRequest(settings, {"model": endpoint}, jobs))
    return {one.entry_id: one for one in found}


def value(played: Played, name: str) -> float:
    score = played.scores[name]
    assert isinstance(score, Scored), score
    return score.value


def test_a_policy_has_the_same_episodes_over_an_endpoint(
    table: Path, policy: LoadedPolicy, sandbox: Sandbox
) -> None:
    listed = arenas.entries(config(table))
    assert {one.id for one in listed.entries} == {arena.id for arena in ARENAS}, "held out alone"
    engine = BatchedEngine(policy.model, policy.codec.eos_id, policy.codec.pad_id)
    driver = RolloutDriver(engine, policy.codec, sandbox, RolloutLimits(**LIMITS))
    settings = config(table, irrelevant_tools="banded")
    options = arenas.Options.model_validate(settings.options)
    jobs = [job_of(arena, options.irrelevant_tools, 1, 0) for arena in ARENAS]
    in_process = driver.run(jobs, Sampling(temperature=0.0))

    served = ServingEngine(policy.model, policy.codec.eos_id, policy.codec.pad_id, 4, 1 << 24)
    with serving(policy.codec, LocalGenerator(served, 2048)) as url:
        endpoint = ModelEndpoint(base_url=url, model=NAME)
        played = play(settings, endpoint, [arena.id for arena in ARENAS])
    assert len({tuple(one.messages) for one in played.values()}) > 4
    for rollout in in_process:
        one = played[rollout.arena.id]
        assert one.messages == rollout.messages
        assert one.outcome == SuiteOutcome.SCORED
        expected = rollout_scores(rollout)
        assert one.scores["success"] == expected["success"]
        assert one.scores["f1"] == expected["f1_plain"]
        assert one.scores["f1_with_answer"] == expected["f1"]
        assert one.steps == rollout.turns


def test_doing_nothing_scores_nothing_and_a_lost_endpoint_is_no_wrong_answer(table: Path) -> None:
    ids = [arena.id for arena in ARENAS[:2]]
    with ScriptedServer(idle) as server:
        floor = play(config(table), server.endpoint, ids)
    assert [value(one, "f1") for one in floor.values()] == [0.0, 0.0]
    assert [value(one, "success") for one in floor.values()] == [0.0, 0.0]
    assert {one.steps for one in floor.values()} == {1}
    lost = play(config(table), server.endpoint, ids[:1])[ids[0]]  # it does not serve any more
    assert lost.outcome == SuiteOutcome.INFRA
    assert not lost.scores
    assert "CompletionError" in lost.reason


def test_hard_arenas_are_scored_apart(table: Path) -> None:
    hard, lookup = (
        next(arena.id for arena in ARENAS if arena.is_hard is wanted) for wanted in (True, False)
    )
    with ScriptedServer(idle) as server:
        played = play(config(table), server.endpoint, [hard, lookup])
    for id, part, other in ((hard, "hard", "lookup"), (lookup, "lookup", "hard")):
        scores = played[id].scores
        assert scores[f"f1_{part}"] == scores["f1"]
        assert scores[f"success_{part}"] == scores["success"]
        assert f"f1_{other}" not in scores


def test_an_overflow_is_the_models_failure(table: Path) -> None:
    refused = ScriptedTurn(status=400, error="context_length_exceeded: too long")
    with ScriptedServer(lambda entry, body: refused) as server:
        one = play(config(table), server.endpoint, [ARENAS[0].id])[ARENAS[0].id]
    assert one.outcome == SuiteOutcome.OVERFLOW
    assert value(one, "f1") == 0.0


def test_a_refusal_is_the_models_own_reply(table: Path) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "get_price", "arguments": "{}"}}
    refused = Answer(refusal="I will not.", tool_calls=[call])
    filtered = Answer(content="Well,", finish="content_filter")
    emptied = Answer(finish="content_filter")
    ids = [ARENAS[0].id]
    with ChatServer(refused, filtered, emptied) as server:
        endpoint = ModelEndpoint(base_url=server.url, model="m")
        played = [play(config(table), endpoint, ids)[ids[0]] for _ in range(3)]
        lost = play(config(table), endpoint, ids)[ids[0]]
    assert {one.outcome for one in played} == {SuiteOutcome.SCORED}
    assert {value(one, "f1") for one in played} == {0.0}
    said = [one.messages[-1] for one in played]
    assert [one.content for one in said] == ["I will not.", "Well,", "(content filter)"]
    assert not any(one.tool_calls for one in said)
    assert lost.outcome == SuiteOutcome.INFRA, "the script is over"


def test_limits_that_the_options_leave_out_are_the_papers() -> None:
    stated = arenas.Options.model_validate({"limits": {"max_turns": 3}}).limits
    assert stated == PAPER_LIMITS.model_copy(update={"max_turns": 3})
    with pytest.raises(ValueError, match=r"max_turn\b"):
        arenas.Options.model_validate({"limits": {"max_turn": 3}})


def test_limits_on_tokens_end_an_episode(table: Path, policy: LoadedPolicy) -> None:
    call = (
        '<tool_call>\n{"name": "get_price", "arguments": {"listing": "Amber Cove"}}\n</tool_call>'
    )
    ids = [ARENAS[0].id]
    with serving(policy.codec, Scripted(policy.codec, lambda n: call)) as url:
        endpoint = ModelEndpoint(base_url=url, model=NAME)
        long = play(config(table, limits={**LIMITS, "max_prompt_tokens": 5}), endpoint, ids)
        cut = play(config(table, limits={**LIMITS, "max_turn_tokens": 3}), endpoint, ids)
        full = play(config(table, limits={**LIMITS, "max_response_tokens": 60}), endpoint, ids)
    assert [one[ids[0]].steps for one in (long, cut)] == [1, 1]
    assert 1 < full[ids[0]].steps < 4
    for one in (long, cut, full):
        assert one[ids[0]].reason == "ended: max_tokens"


def test_without_irrelevant_tools_only_the_arenas_own_are_offered(table: Path) -> None:
    offered: list[list[str]] = []

    def note(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        offered.append([tool["function"]["name"] for tool in body["tools"]])
        return ScriptedTurn(content="<answer>100</answer>")

    with ScriptedServer(note) as server:
        play(config(table, irrelevant_tools="none"), server.endpoint, [ARENAS[0].id])
        play(config(table), server.endpoint, [ARENAS[0].id])
    assert offered == [["get_price"], ["find_agent", "get_price"]]


def test_other_irrelevant_tools_are_another_version(table: Path) -> None:
    """Else the journal would give episodes that were played among other tools."""
    before = arenas.entries(config(table))
    assert arenas.entries(config(table)) == before
    fewer = [make_arena(0).model_copy(update={"irrelevant": {}}), *ARENAS[1:]]
    assert [one.id for one in fewer] == [one.id for one in ARENAS]
    write_records(table, fewer, Arena)
    after = arenas.entries(config(table))
    assert after.entries == before.entries
    assert after.versions != before.versions


def test_a_missing_table_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="dvc repro envs_merged"):
        arenas.entries(config(tmp_path / "none.parquet"))
