from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_bench_arenas import make_arena
from test_bench_suite_statistics import episode, run_of
from typer.testing import CliRunner

from astra.bench.harness.protocol import SuiteError
from astra.bench.overlap import arena_items, overlap, prompts_of, sft_items, write_overlap
from astra.bench.suite_tables import write_run
from astra.cli.main import commands
from astra.records.environment import Arena
from astra.records.message import Message, MessageRole
from astra.records.qa import Split
from astra.records.tool import Tool
from astra.records.trajectory import SFTSample
from astra.store.tables import write_records

PROMPT = "one two three four five six seven eight nine ten eleven twelve"


def sample(split: str, question: str) -> SFTSample:
    return SFTSample(
        trajectory_id=split, split=split, language="en", domain="d", mean_score=1.0, scores={},
        tools=(Tool(name="f", description="d", parameters={}),),
        messages=(Message(role=MessageRole.SYSTEM, content="rules"),
                  Message(role=MessageRole.USER, content=question)),
    )  # fmt: skip


def test_shared_grams_are_counted_by_item_and_by_prompt() -> None:
    prompts = {
        "suite": [PROMPT, "please book a table for two at eight tonight"],
        "other": ["x " * 9],
    }
    tables = {
        "sft_set": [
            ("touches", ["zero one two three four five six seven eight nine ten and more"]),
            ("nine words are not ten", ["one two three four five six seven eight nine"]),
            ("apart", ["something else that nobody ever asked in any benchmark at all"]),
        ],
        "envs_merged": [("empty", [])],
    }
    found = overlap(prompts, tables, ngram=10)
    assert found["suite"]["prompts"] == 2
    assert found["suite"]["tables"]["sft_set"] == {
        "items": 3, "items_overlapping": 1, "ngrams_shared": 1, "prompts_overlapping": 1,
        "examples": ["touches"],
    }  # fmt: skip
    assert found["suite"]["tables"]["envs_merged"]["items_overlapping"] == 0
    assert found["other"]["tables"]["sft_set"]["items_overlapping"] == 0


def test_items_are_what_is_trained_on(tmp_path: Path) -> None:
    samples = [sample(split, "question") for split in ("train", "eval")]
    write_records(tmp_path / "sft.parquet", samples, SFTSample)
    arenas = [make_arena(1, split=Split.TRAIN), make_arena(2)]
    write_records(tmp_path / "arenas.parquet", arenas, Arena)
    assert [texts for _, texts in sft_items(tmp_path / "sft.parquet")] == [["question"]]
    ((name, texts),) = arena_items(tmp_path / "arenas.parquet")
    assert name == arenas[0].id
    assert texts[0] == arenas[0].main_question
    assert len(texts) == 3


def test_prompts_come_from_episodes_and_the_document_is_written(tmp_path: Path) -> None:
    said = (
        Message(role=MessageRole.SYSTEM, content="rules"),
        Message(role=MessageRole.USER, content=PROMPT),
        Message(role=MessageRole.ASSISTANT, content="ok"),
    )
    one = episode("base", "retail_1", 0, 1.0).model_copy(update={"messages": said})
    prompts = prompts_of([(run_of("base"), [one, one]), (run_of("rl"), [one])])
    assert prompts == {"tau2": sorted(["rules", PROMPT])}
    write_overlap(overlap(prompts, {"t": [("a", [PROMPT])]}), tmp_path / "m" / "overlap.json")
    document = json.loads((tmp_path / "m" / "overlap.json").read_text())
    assert document["tau2"]["tables"]["t"]["items_overlapping"] == 1


def test_the_command_tells_training_data_that_overlap_from_data_that_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arenas = [make_arena(1, split=Split.TRAIN), make_arena(2, split=Split.TRAIN)]
    write_records(Path("data/envs_merged.parquet"), arenas, Arena)
    write_records(Path("data/sft_set.parquet"), [sample("train", f"Please: {PROMPT}")], SFTSample)

    def command() -> list[str]:
        done = CliRunner().invoke(commands, ["contamination", "overlap"], catch_exceptions=False)
        assert done.exit_code == 0
        return done.output.splitlines()

    def played(prompt: str) -> None:
        asked = Message(role=MessageRole.USER, content=prompt)
        one = episode("base", "retail_1", 0, 1.0).model_copy(update={"messages": (asked,)})
        write_run(Path("data/suites"), run_of("base"), [one])

    with pytest.raises(SuiteError, match="data/suites holds no run"):
        command()
    played(PROMPT)
    assert command() == [
        "tau2: 1 of 1 items of sft_set share a 10-gram with 1 of 1 prompts",
        "tau2: 0 of 2 items of envs_merged share a 10-gram with 0 of 1 prompts",
    ]
    played(arenas[1].main_question)
    assert command() == [
        "tau2: 0 of 1 items of sft_set share a 10-gram with 0 of 1 prompts",
        "tau2: 1 of 2 items of envs_merged share a 10-gram with 1 of 1 prompts",
    ]
    played("nobody has ever been asked for anything like this before, in any language")
    assert command() == [
        "tau2: 0 of 1 items of sft_set share a 10-gram with 0 of 1 prompts",
        "tau2: 0 of 2 items of envs_merged share a 10-gram with 0 of 1 prompts",
    ]
    document = json.loads(Path("metrics/suite_overlap.json").read_text(encoding="utf-8"))
    assert document["tau2"]["tables"]["sft_set"]["examples"] == []
