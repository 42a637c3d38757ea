"""Both stages as processes over real files: every drop counted, bytes that never change."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from env_samples import ENVS, EVERY_OP, MERGED, answer, instance, price

from astra.prompting import joined_hashes, template_hash
from astra.records.environment import Arena, Environment
from astra.records.qa import QAInstance, Split
from astra.records.score import Rejection
from astra.records.tool import Execution, Tool, ToolServer
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.store.tables import read_records, write_records

OUTPUTS = ("data/envs.parquet", "data/envs_merged.parquet", "metrics/envs.json",
           "metrics/envs_merged.json", "data/rejected/envs.parquet",
           "data/rejected/envs_merged.parquet")  # fmt: skip


def _workspace(folder: Path, zygotes: int) -> Path:
    pair = (price(1, "Amber Cove", 812), price(2, "Jade Mill", 455))
    rows = [
        instance(*EVERY_OP),
        instance(*pair, final=answer("list", [812, 455]), domain="law"),
        instance(*EVERY_OP[:4], domain="food"),
        instance(price(1, "Amber Cove", 1), domain="wrong"),
        instance(EVERY_OP[11], split=Split.HELDOUT, entities=("Hugo Penn",)),
    ]
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools = (Tool(name="get_weather", description="Get the weather.", parameters=schema),)
    server = ToolServer(
        name="weather", title="", description="", domain="weather", source="t", licence="",
        language="en", execution=Execution.EMULATED, deterministic=True, tools=tools,
    )  # fmt: skip
    folder.mkdir()
    write_records(folder / "data/qa_valid.parquet", rows, QAInstance)
    write_records(folder / "data/tools.parquet", [server], ToolServer)
    write_records(folder / "data/goals.parquet", [], Arena)
    # No call is meant to time out: a busy machine must not decide what is compared.
    patient = {"sandbox": SandboxLimits(call_timeout_s=20.0)}
    params = {
        "envs": ENVS.model_copy(update=patient).model_dump(mode="json"),
        "envs_merged": MERGED.model_copy(update=patient).model_dump(mode="json"),
        "runtime": {"threads": 1, "sandbox_workers": zygotes, "concurrency": 1 + 7 * zygotes},
    }
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    return folder


def _run(folder: Path, root: Path, seed: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "PYTHONHASHSEED": seed}
    for stage in ("envs", "envs_merged"):
        done = subprocess.run(
            [sys.executable, root / "stages" / f"{stage}.py"],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (folder / f"{stage}.log").write_text(done.stderr)


@pytest.fixture(scope="module")
def workspaces(tmp_path_factory: pytest.TempPathFactory, root: Path) -> list[Path]:
    base = tmp_path_factory.mktemp("stages")
    folders = [_workspace(base / str(zygotes), zygotes) for zygotes in (1, 2)]
    for folder, seed in zip(folders, ("1", "77"), strict=True):
        _run(folder, root, seed)
    return folders


def test_bytes_do_not_depend_on_hash_seed_concurrency_or_workers(workspaces: list[Path]) -> None:
    for output in OUTPUTS:
        digests = {
            hashlib.sha256((folder / output).read_bytes()).hexdigest() for folder in workspaces
        }
        assert len(digests) == 1, output
    plots = [
        {path.name: path.read_text() for path in sorted((folder / "plots").rglob("*.csv"))}
        for folder in workspaces
    ]
    assert plots[0] == plots[1]
    assert "scenario.csv" in plots[0]


def test_records_name_the_prompts_behind_them(workspaces: list[Path]) -> None:
    always = [template_hash(f"envsynth/{name}") for name in ("document", "call", "code")]
    scaled = joined_hashes(*always, template_hash("envsynth/complexity"))
    hashes = {
        made.tool.name: made.prompt_hash
        for made in read_records(workspaces[0] / "data/envs.parquet", Environment)
    }
    assert hashes["get_asking_price"] == joined_hashes(*always)
    assert hashes["list_listings"] == scaled
    assert set(hashes.values()) == {joined_hashes(*always), scaled}
    # Steps of one operation are merged without a teacher.
    arenas = list(read_records(workspaces[0] / "data/envs_merged.parquet", Arena))
    assert {one.prompt_hash for one in arenas} == {""}


def test_every_row_is_accounted_for(workspaces: list[Path]) -> None:
    folder = workspaces[0]
    envs = json.loads((folder / "metrics/envs.json").read_text())
    assert envs["dropped"] == {"wrong_answer": 1}
    assert envs["needing_tool"] == envs["environments"] + 1 == 24
    made = list(read_records(folder / "data/envs.parquet", Environment))
    assert len(made) == envs["environments"]
    merged = json.loads((folder / "metrics/envs_merged.json").read_text())
    assert merged["instances"] == 5
    assert merged["arenas"] + sum(merged["dropped"].values()) == 5
    assert merged["dropped"] == {"missing_environment": 1}
    assert merged["merged_groups"] == 1


def test_progress_counts_the_sub_questions_that_need_a_tool(workspaces: list[Path]) -> None:
    last = (workspaces[0] / "envs.log").read_text()
    assert "sub-questions 24/24 -> 23 rows in data/envs.parquet" in last
    assert "dropped 1: wrong_answer 1" in last


def test_each_drop_is_a_row_that_points_to_its_question(workspaces: list[Path]) -> None:
    folder = workspaces[0]
    (wrong,) = (
        one
        for one in read_records(folder / "data/qa_valid.parquet", QAInstance)
        if one.domain == "wrong"
    )
    (envs,) = read_records(folder / "data/rejected/envs.parquet", Rejection)
    assert (envs.item, envs.part, envs.reason) == (wrong.id, "1", "wrong_answer")
    assert envs.detail == "returned 812, expected 1"
    (merged,) = read_records(folder / "data/rejected/envs_merged.parquet", Rejection)
    assert (merged.item, merged.reason) == (wrong.id, "missing_environment")


def test_irrelevant_tools_come_from_other_domains_only(workspaces: list[Path]) -> None:
    arenas = list(read_records(workspaces[0] / "data/envs_merged.parquet", Arena))
    assert len(arenas) == 4
    for arena in arenas:
        names = {tool.tool.name for tool in arena.tools}
        offered = [tool for band in arena.irrelevant.values() for tool in band]
        assert offered
        assert not names & {tool.tool.name for tool in offered}
        if arena.split == Split.HELDOUT:  # the only held-out arena: nothing with code to offer
            assert {tool.tool.name for tool in offered} == {"get_weather"}


def test_each_run_says_in_which_tier_code_was_executed(workspaces: list[Path]) -> None:
    with LocalSandbox() as sandbox:
        tier = sandbox.tier
    with closing(sqlite3.connect(workspaces[0] / "mlflow.db")) as store:
        rows = store.execute(
            "SELECT experiments.name, tags.value FROM tags JOIN runs USING (run_uuid) "
            "JOIN experiments USING (experiment_id) WHERE tags.key = 'sandbox_tier'"
        ).fetchall()
    assert sorted(rows) == [("astra/envs", tier), ("astra/envs_merged", tier)]


def test_a_missing_input_ends_with_its_repair(tmp_path: Path, root: Path) -> None:
    folder = _workspace(tmp_path / "w", 1)
    (folder / "data/qa_valid.parquet").unlink()
    done = subprocess.run(
        [sys.executable, root / "stages/envs.py"], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(root / "src")}, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "dvc repro qa_valid" in done.stderr
    assert "Traceback" not in done.stderr
