from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from astra.bench.arenas import BenchError, select
from astra.bench.bench import run_arenas
from astra.bench.config import BenchConfig
from astra.bench.references import oracle_turns
from astra.bench.report import build_document, report_bench
from astra.errors import AstraError
from astra.records.base import content_id
from astra.records.bench import BenchEpisode, EpisodeClass
from astra.records.environment import Arena, ArenaStep, ArenaTool, Band, Trait
from astra.records.qa import Answer, AnswerType, QuestionKind, Scenario, Split
from astra.records.score import Scored, Unscored
from astra.records.tool import Tool
from astra.records.trajectory import StopReason
from astra.rollout.chat import PolicyConfig
from astra.rollout.driver import Rollout, RolloutDriver
from astra.settings import RuntimeConfig, validate
from astra.store.metrics import StageMetrics
from astra.store.tables import read_records, write_records

NAMES = ("Amber Cove", "Jade Mill", "Calm Harbor", "Ruby Gate", "Opal Ridge", "Sage Point")


def tool(name: str, code: str) -> ArenaTool:
    schema = {
        "type": "object",
        "properties": {"listing": {"type": "string"}},
        "required": ["listing"],
    }
    return ArenaTool(tool=Tool(name=name, description="A tool.", parameters=schema), code=code)


def number(value: float) -> Answer:
    return Answer(type=AnswerType.NUMBER, value=value)


def make_arena(n: int, *, split: Split = Split.HELDOUT, gold: int | None = None) -> Arena:
    """The price of one listing; odd arenas ask for a second one as well."""
    prices = {name: 100 + 7 * i for i, name in enumerate(NAMES)}
    asked = [NAMES[n % 6]] + ([NAMES[(n + 1) % 6]] if n % 2 else [])
    code = f"PRICES = {prices!r}\n\ndef get_price(listing):\n    return PRICES[listing]\n"
    steps = tuple(
        ArenaStep(
            id=i, hop_level=1, question=f"price of {name}?", tool_name="get_price",
            answer=number(prices[name] if gold is None else gold), arguments={"listing": name},
        )
        for i, name in enumerate(asked)
    )  # fmt: skip
    final = number(prices[asked[0]])
    if len(asked) > 1:
        final = Answer(type=AnswerType.LIST, value=[prices[name] for name in asked])
    extra = tool("find_agent", "def find_agent(listing):\n    return listing\n")
    return Arena(
        qa_id=f"qa{n}", split=split, domain="real_estate" if n % 3 else "travel", language="en",
        source="test", kind=QuestionKind.READ_ONLY, hops=1,
        scenario=Scenario.PARALLEL_SINGLE_HOP if len(asked) > 1 else Scenario.SINGLE_HOP,
        main_question=f"what is the price of {' and '.join(asked)}?", final_answer=final,
        tools=(tool("get_price", code),), steps=steps, irrelevant={Band.LOW: (extra,)},
        entities=tuple(asked), composition="price",
        traits=(Trait.TWINS, Trait.PAGES) if n % 5 == 0 else (Trait.TWINS,),
    )  # fmt: skip


def config(root: Path, **values: Any) -> BenchConfig:
    block: dict[str, Any] = {
        "policy": PolicyConfig.saved(str(root / "policies/tiny"), "float32").model_dump(),
        "limits": {
            "max_turns": 4, "max_calls": 8, "max_parallel_calls": 4, "max_result_chars": 200,
            "max_turn_tokens": 96, "max_prompt_tokens": 512, "max_response_tokens": 300,
        },
        "arenas": None, "irrelevant_tools": "banded", "irrelevant_per_band": 1,
        "engine_rows": 16, "resamples": 200, "confidence": 0.95, "max_infra_share": 0.01,
        "examples": 2, "suites": [], "user": None,
        "serving": {"engine": "local", "rows": 16, "keep_mb": 1024}, "endpoints": {},
        "contamination": None, "sandbox": {}, "seed": 0,
    }  # fmt: skip
    return validate("bench", block | values, BenchConfig)


RUNTIME = RuntimeConfig(threads=1, device="cpu", sandbox_workers=1)
ARENAS = [make_arena(n) for n in range(10)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One MLflow store for all tests: creating one takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


@pytest.fixture
def workspace(tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    write_records(tmp_path / "arenas.parquet", ARENAS, Arena)
    return tmp_path


def play(root: Path, workspace: Path, **values: Any) -> list[BenchEpisode]:
    tiny = root / "policies/tiny"
    arenas = select(read_records(workspace / "arenas.parquet", Arena), config(root))
    return run_arenas(
        config(root, **values), RUNTIME, arenas, workspace / "arenas.parquet",
        {"sft": tiny, "rl": tiny},
    )  # fmt: skip


def of(episodes: list[BenchEpisode], checkpoint: str) -> list[BenchEpisode]:
    return [episode for episode in episodes if episode.checkpoint == checkpoint]


def mean(episodes: list[BenchEpisode], name: str) -> float:
    values = [score.value for e in episodes if isinstance(score := e.scores[name], Scored)]
    return sum(values) / len(values)


def test_all_checkpoints_meet_the_same_arenas_between_floor_and_ceiling(
    root: Path, workspace: Path, store: str
) -> None:
    episodes = play(root, workspace)
    metrics = StageMetrics("bench")
    report_bench(metrics, episodes, config(root))
    metrics.write()
    assert [len(of(episodes, name)) for name in ("floor", "ceiling", "base", "sft", "rl")] == [
        10
    ] * 5
    ceiling, floor = of(episodes, "ceiling"), of(episodes, "floor")
    for name in ("f1", "f1_plain", "precision", "recall", "success", "answer"):
        assert mean(ceiling, name) == pytest.approx(1.0, abs=1e-5), name
        assert mean(floor, name) == 0.0, name
    assert mean(ceiling, "calls") == 1.5
    assert mean(ceiling, "turns") == 2.0
    assert {episode.tools for episode in episodes} == {2}
    assert {str(e.scores["malformed"].kind) for e in floor} == {"unscored"}

    document = json.loads((workspace / "metrics/bench.json").read_text())
    assert list(document["checkpoints"]) == ["base", "sft", "rl"]
    # One and the same model stands for all three here, so nothing may differ.
    assert document["differences"]["rl-sft"]["f1"] == {
        "mean": 0.0, "low": 0.0, "high": 0.0, "n": 10,
    }  # fmt: skip
    by = document["checkpoints"]["base"]["by_scenario"]
    assert {name: block["n"] for name, block in by.items()} == {
        "parallel_single_hop": 5,
        "single_hop": 5,
    }
    by = document["checkpoints"]["base"]["by_difficulty"]
    assert {name: block["n"] for name, block in by.items()} == {"hard": 1, "lookup": 9}
    lines = (workspace / "plots/bench/f1.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["label", "base", "sft", "rl"]
    lines = (workspace / "plots/bench/success_by_scenario.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == [
        f"{part} {checkpoint}"
        for part in ("parallel_single_hop", "single_hop")
        for checkpoint in ("base", "sft", "rl")
    ]
    assert (workspace / "plots/bench/f1_by_hops.csv").is_file()
    assert "## base: " in (workspace / "runs/bench/examples.md").read_text()

    from mlflow import MlflowClient

    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("astra/bench")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert sorted(run.data.tags["checkpoint"] for run in runs[:3]) == ["base", "rl", "sft"]
    assert all("f1" in run.data.metrics for run in runs[:3])


def test_the_same_inputs_give_the_same_bytes(root: Path, workspace: Path) -> None:
    written: list[bytes] = []
    for _ in range(2):
        episodes = play(root, workspace)
        write_records(workspace / "bench.parquet", episodes, BenchEpisode)
        written.append((workspace / "bench.parquet").read_bytes())
    assert written[0] == written[1]
    assert len(list(read_records(workspace / "bench.parquet", BenchEpisode))) == 50


def test_a_wrong_gold_answer_stops_the_benchmark(root: Path, workspace: Path) -> None:
    broken = [*ARENAS[:9], make_arena(9, gold=-1)]
    write_records(workspace / "arenas.parquet", broken, Arena)
    with pytest.raises(BenchError, match="gold calls fail in 1 of 10") as caught:
        play(root, workspace)
    assert broken[9].id in str(caught.value)


def test_limits_too_tight_for_the_gold_calls_stop_the_benchmark(
    root: Path, workspace: Path
) -> None:
    tight = config(root).limits.model_dump() | {"max_turn_tokens": 5}
    with pytest.raises(BenchError, match="too tight"):
        play(root, workspace, limits=tight)


def test_infra_losses_are_no_model_failures(
    root: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = RolloutDriver.run

    def losing(self: RolloutDriver, *arguments: Any) -> list[Rollout]:
        rollouts = original(self, *arguments)
        rollouts[0].score, rollouts[0].stop_reason = None, StopReason.INFRA
        return rollouts

    monkeypatch.setattr(RolloutDriver, "run", losing)
    with pytest.raises(BenchError, match="machinery lost 1 of 10"):
        play(root, workspace)
    episodes = play(root, workspace, max_infra_share=0.2)
    lost = [episode for episode in episodes if episode.outcome == EpisodeClass.INFRA]
    assert len(lost) == 5
    assert not any(episode.scores for episode in lost)
    played = {name: of(episodes, name) for name in ("floor", "ceiling", "base", "sft", "rl")}
    document = build_document(played, config(root))
    assert document["checkpoints"]["base"]["excluded_infra"] == 1
    assert document["checkpoints"]["base"]["scores"]["f1"]["n"] == 9
    assert document["references"]["ceiling"]["f1"] == pytest.approx(1.0, abs=1e-5)
    assert document["differences"]["rl-sft"]["f1"]["n"] == 9


def test_only_held_out_arenas_count_and_fewer_are_drawn_by_content(root: Path) -> None:
    others = [make_arena(n, split=Split.TRAIN) for n in range(10)]
    assert {a.id for a in select([*others, *ARENAS], config(root))} == {a.id for a in ARENAS}
    drawn = select(ARENAS, config(root, arenas=4))
    assert drawn == select(ARENAS[::-1], config(root, arenas=4))
    assert len(drawn) == 4
    wanted = sorted(ARENAS, key=lambda arena: content_id([0, arena.id]))[:4]
    assert {arena.id for arena in drawn} == {arena.id for arena in wanted}
    with pytest.raises(BenchError, match="no held-out arena"):
        select(others, config(root))


def test_the_oracle_makes_each_call_once_and_level_by_level() -> None:
    arena = make_arena(1)
    deeper = arena.steps[0].model_copy(update={"id": 7, "hop_level": 2})
    later = arena.steps[1].model_copy(
        update={"id": 8, "hop_level": 2, "arguments": {"listing": "Sage Point"}}
    )
    turns = oracle_turns(arena.model_copy(update={"steps": (*arena.steps, deeper, later)}))
    assert [turn.count("<tool_call>") for turn in turns] == [2, 1, 0]
    assert turns[-1] == "done. <answer>107; 114</answer>"


def test_questions_without_tools_have_no_plain_scores(root: Path, workspace: Path) -> None:
    answer = Answer(type=AnswerType.STRING, value="no tool")
    arena = make_arena(0).model_copy(
        update={"id": "", "steps": (), "final_answer": answer, "kind": QuestionKind.MISSING_TOOL}
    )
    arena = Arena.model_validate(arena.model_dump())
    write_records(workspace / "arenas.parquet", [arena], Arena)
    (ceiling,) = of(play(root, workspace), "ceiling")
    assert isinstance(ceiling.scores["f1_plain"], Unscored)
    assert ceiling.scores["f1"].kind == "scored"
    assert ceiling.outcome == EpisodeClass.SUCCESS


def test_a_missing_checkpoint_names_its_stage(root: Path, workspace: Path) -> None:
    arenas = select(ARENAS, config(root))
    with pytest.raises(AstraError, match="dvc repro"):
        run_arenas(
            config(root), RUNTIME, arenas, workspace / "arenas.parquet",
            {"sft": Path("models/sft")},
        )  # fmt: skip
