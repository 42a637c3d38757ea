"""Estimates of the environment track, held against the asks that a build really makes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from builds import Build, close, made

from astra.envsynth.envs_config import EnvsConfig
from astra.envsynth.envs_merged_config import EnvsMergedConfig
from astra.envsynth.estimate import environment_asks, merge_asks
from astra.estimate.questions import questions_of
from astra.qa.config import QAConfig, QAValidConfig
from astra.qa.estimate import expected_questions, expected_valid, question_asks, verdict_asks
from astra.qa.free import count_requests
from astra.records.environment import Arena
from astra.records.tool import ToolServer
from astra.settings import load
from astra.store.tables import write_records

OVERRIDES = (
    "scale=test",
    "teacher=openai",
    "judge=openai",
    "qa.instances={train: 14, dev: 4, heldout: 10}",
    "qa.languages={en: 0.7, zh: 0.3}",
    "qa.sources={hotels: 10, library: 10}",
    "qa.extended=true",
    "qa.kinds={read_only: 0.5, write: 0.3, infeasible: 0.2}",
    "qa.corpora={texts: {mode: knowledge_base, path: texts_en.jsonl, hops: {min: 1, max: 3},"
    " samples: 4}, gefragt: {mode: knowledge_base, path: texts_zh.jsonl, language: zh,"
    " hops: {min: 1, max: 3}, samples: 4}}",
)
"""Scale test with little data, and everything on that other templates are for."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[Build]:
    def more(folder: Path) -> None:
        write_records(folder / "data/tools.parquet", [], ToolServer)
        write_records(folder / "data/goals.parquet", [], Arena)

    stages = ("qa", "qa_valid", "envs", "envs_merged")
    yield from made(tmp_path_factory.mktemp("environments"), root, OVERRIDES, stages, more)


@pytest.fixture(autouse=True)
def _in_the_workspace(built: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(built.folder)


def test_questions(built: Build) -> None:
    config = load("qa", QAConfig)
    asked = question_asks(config, count_requests(config, Path("sources/knowledge")))
    close(asked, built.heard["qa"])


def test_verdicts(built: Build) -> None:
    asked = verdict_asks(load("qa_valid", QAValidConfig), questions_of(built.table("qa")))
    close(asked, built.heard["qa_valid"])


def test_environments(built: Build) -> None:
    asked = environment_asks(load("envs", EnvsConfig), questions_of(built.table("qa_valid")))
    close(asked, built.heard["envs"])


def test_merges(built: Build) -> None:
    config = load("envs_merged", EnvsMergedConfig)
    close(merge_asks(config, questions_of(built.table("qa_valid"))), built.heard["envs_merged"])


def test_without_tables_the_guess_is_near_too(built: Build) -> None:
    config = load("qa", QAConfig)
    questions = expected_questions(config, count_requests(config, Path("sources/knowledge")))
    valid = expected_valid(load("qa_valid", QAValidConfig), questions)
    close(environment_asks(load("envs", EnvsConfig), valid), built.heard["envs"], factor=2.0)


def test_each_stage_begins_by_saying_what_it_will_ask(built: Build) -> None:
    for stage, role in (("qa", "teacher"), ("qa_valid", "judge"), ("envs_merged", "teacher")):
        first, last = built.logged[stage][0], built.logged[stage][1]
        assert first.startswith(f"to be asked: {role} zai-org/GLM-4.6-FP8: "), stage
        assert "no cap is set" in last
    asks = len(built.heard["qa"].sizes["qa/outline"])
    assert asks > 10
    assert os.getcwd() == str(built.folder)
