"""Goals in worlds on the benchmark: played through the harness, floors beside every score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from astra.arena.world_table import read_arenas
from astra.arena.worlds import goal_of
from astra.bench.arenas import select
from astra.bench.bench import run_arenas
from astra.bench.config import BenchConfig
from astra.bench.report import build_document
from astra.records.bench import BenchEpisode, EpisodeClass
from astra.records.environment import Arena
from astra.records.message import MessageRole
from astra.records.qa import Split
from astra.records.score import Scored
from astra.records.trajectory import StopReason
from astra.records.world import OutcomeKind, World, WorldShape
from astra.rollout.chat import PolicyConfig
from astra.settings import RuntimeConfig, validate
from astra.store.tables import write_records
from world_goals import worlds_and_goals

RUNTIME = RuntimeConfig(threads=1, device="cpu", sandbox_workers=1)


def config(root: Path) -> BenchConfig:
    block: dict[str, Any] = {
        "policy": PolicyConfig.saved(str(root / "policies/tiny"), "float32").model_dump(),
        "limits": {
            "max_turns": 12, "max_calls": 12, "max_parallel_calls": 4, "max_result_chars": 4000,
            "max_turn_tokens": 400, "max_prompt_tokens": 4000, "max_response_tokens": 4000,
        },
        "arenas": None, "irrelevant_tools": "banded", "irrelevant_per_band": 1,
        "engine_rows": 16, "resamples": 200, "confidence": 0.95, "max_infra_share": 0.01,
        "examples": 2, "suites": [], "user": None,
        "serving": {"engine": "local", "rows": 16, "keep_mb": 1024},
        "endpoints": {},
        "contamination": None, "sandbox": {}, "seed": 0,
    }  # fmt: skip
    return validate("bench", block, BenchConfig)


@pytest.fixture(scope="module")
def arenas(tmp_path_factory: pytest.TempPathFactory) -> list[Arena]:
    """Held-out goals with their users, as envs_merged hands them on."""
    folder = tmp_path_factory.mktemp("bench")
    world, made = worlds_and_goals("museum_ticketing", WorldShape.SMALL, 60)
    assert world.split == Split.HELDOUT
    assert any(goal_of(one).needs_user for one in made)
    write_records(folder / "worlds.parquet", [world], World)
    write_records(folder / "envs_merged.parquet", sorted(made, key=lambda a: a.id), Arena)
    return list(read_arenas(folder / "envs_merged.parquet"))


@pytest.fixture(scope="module")
def episodes(
    root: Path, arenas: list[Arena], tmp_path_factory: pytest.TempPathFactory
) -> list[BenchEpisode]:
    from astra.bench import bench

    folder = tmp_path_factory.mktemp("run")
    patch = pytest.MonkeyPatch()
    patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    patch.chdir(folder)
    # The references alone: a model's turns say nothing here that others do not.
    patch.setattr(bench._Arenas, "checkpoint", lambda *_: [])
    (folder / "table.parquet").write_bytes(b"")
    tiny = root / "policies/tiny"
    try:
        return run_arenas(
            config(root), RUNTIME, select(arenas, config(root)), folder / "table.parquet",
            {"sft": tiny, "rl": tiny},
        )  # fmt: skip
    finally:
        patch.undo()


def of(episodes: list[BenchEpisode], name: str) -> list[BenchEpisode]:
    return [episode for episode in episodes if episode.checkpoint == name]


def success(episodes: list[BenchEpisode]) -> float:
    values = [s.value for e in episodes if isinstance(s := e.scores["success"], Scored)]
    return sum(values) / len(values)


def test_the_goals_own_traces_succeed_through_the_harness(
    arenas: list[Arena], episodes: list[BenchEpisode]
) -> None:
    ceiling = of(episodes, "ceiling")
    assert len(ceiling) == len(arenas) >= 10
    assert {one.outcome for one in ceiling} == {EpisodeClass.SUCCESS}
    assert {one.world_id for one in ceiling} == {arenas[0].world_id}
    assert {one.stop_reason for one in ceiling} == {StopReason.ANSWERED}
    users = [sum(m.role == MessageRole.USER for m in one.messages) for one in ceiling]
    assert max(users) > 1, "users talk"
    roles = [[m.role for m in one.messages] for one in ceiling]
    assert all(one[-1] == MessageRole.ASSISTANT for one in roles)


def test_an_agent_that_never_asks_reaches_less_and_one_that_does_nothing_is_left(
    arenas: list[Arena], episodes: list[BenchEpisode]
) -> None:
    never = of(episodes, "never_asks")
    assert 0 < len(never) < len(arenas)
    assert success(never) <= 0.5
    assert {one.stop_reason for one in of(episodes, "floor")} == {StopReason.USER_LEFT}


def test_doing_nothing_never_pays(episodes: list[BenchEpisode]) -> None:
    assert success(of(episodes, "floor")) == 0.0
    assert {one.outcome for one in of(episodes, "floor")} == {EpisodeClass.NO_CALL}


def test_declining_pays_where_declining_is_right_with_that_code(
    arenas: list[Arena], episodes: list[BenchEpisode]
) -> None:
    outcomes = {one.id: goal_of(one).outcome for one in arenas}
    for name, kind in (("decline", OutcomeKind.DECLINED), ("hand_over", OutcomeKind.HANDED_OVER)):
        played = of(episodes, name)
        assert len(played) == len(arenas)
        paid = {one.arena_id for one in played if one.outcome == EpisodeClass.SUCCESS}
        right = [outcome.reason for outcome in outcomes.values() if outcome.kind == kind]
        assert {outcomes[one].kind for one in paid} <= {kind}
        assert len({outcomes[one].reason for one in paid}) <= 1
        assert len(paid) <= max((right.count(code) for code in right), default=0)


def test_the_document_has_floors_and_parts_of_its_own(
    root: Path, arenas: list[Arena], episodes: list[BenchEpisode]
) -> None:
    played = {name: of(episodes, name) for name in dict.fromkeys(e.checkpoint for e in episodes)}
    played["base"] = [
        one.model_copy(update={"checkpoint": "base"}) for one in of(episodes, "ceiling")
    ]
    rates = {"base": {"turns": 3.0, "fallbacks": 0.5}}
    document = build_document(played, config(root), rates)
    assert document["worlds"]["checkpoints"]["base"]["llm_user"] == rates["base"]
    assert list(document["checkpoints"]) == ["base"]
    assert list(document["references"]) == ["floor", "ceiling"]
    assert list(document["checkpoints"]["base"]["by_difficulty"]) == ["world"]
    worlds = document["worlds"]
    assert {"floor", "ceiling", "decline", "hand_over"} <= set(worlds["floors"])
    base = worlds["checkpoints"]["base"]
    assert (base["success"]["mean"], base["success"]["n"]) == (1.0, len(arenas))
    assert {base[f"goal_{part}"] for part in ("state", "outcome", "said", "read", "rules")} == {1.0}
    kinds = {arena.kind.value for arena in arenas}
    assert set(base["by_kind"]) == kinds
    assert sum(block["n"] for block in base["by_kind"].values()) == len(arenas)
    traits = {trait.value for arena in arenas for trait in goal_of(arena).traits}
    assert set(base["by_trait"]) - {"none"} == traits
    assert set(base["by_domain"]) == {"museum_ticketing"}
    assert base["talk"]["questions_per_needed_fact"] == 1.0
    assert {base["talk"][name] for name in ("nudges", "other_acts", "user_left", "early_end",
                                            "leaks", "user_fault")} == {0.0}  # fmt: skip
    assert "rules_broken" not in base
    rules = {goal_of(arena).violates for arena in arenas} - {""}
    assert set(base.get("by_rule", {})) == rules
    floor = worlds["floors"]["floor"]
    assert floor["talk"]["user_left"] == 1.0
    assert floor["talk"]["questions_per_needed_fact"] == 0.0
    assert floor["success"]["mean"] == 0.0
    assert all(block["success"] == 0.0 for block in floor["by_kind"].values())


def test_without_worlds_the_document_says_nothing_of_them(
    root: Path, episodes: list[BenchEpisode]
) -> None:
    plain = [
        one.model_copy(update={"world_id": "", "goal_traits": (), "checkpoint": "base"})
        for one in of(episodes, "ceiling")
    ]
    assert "worlds" not in build_document({"base": plain}, config(root))
