from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from astra.cli.main import commands
from astra.contamination.grams import name_hash, schema_hash, text_hashes
from astra.contamination.index import (
    ContaminationConfig,
    ContaminationError,
    ContaminationIndex,
    Overlap,
)
from astra.contamination.suites import SuiteFilesError, read_suites

TASK = (
    "I live in Oslo and want to move my booking of the harbour hotel from Friday to Sunday, and "
    "please keep the sea view that I paid for."
)
CONFIG = ContaminationConfig(index="", tool_names=0.5, schemas=0.25)
BOOKING = {"type": "dict", "properties": {"booking": {}, "day": {}}, "required": ["booking"]}


@pytest.fixture
def suites(tmp_path: Path) -> Path:
    """Three suites in three shapes: JSON lines named .json, nested tasks, a plain list."""
    folder = tmp_path / "suites"
    entries = [
        {"id": n, "question": [[{"role": "user", "content": f"{TASK} Case {n}."}]],
         "function": [{"name": "move_booking", "description": "Move a booking.",
                       "parameters": BOOKING}]}
        for n in range(3)
    ]  # fmt: skip
    (folder / "lines").mkdir(parents=True)
    (folder / "lines" / "a.json").write_text("\n".join(map(json.dumps, entries)))
    (folder / "nested" / "deep").mkdir(parents=True)
    action = {"name": "cancelOrder", "arguments": {"order": "W1"}}
    story = "You are Mei. You lost your parcel and you do not remember the number of it."
    document = [{"user_scenario": {"instructions": story}, "evaluation": {"actions": [action]}}]
    (folder / "nested" / "deep" / "tasks.json").write_text(json.dumps(document))
    (folder / "chinese").mkdir()
    problem = {"problem": "小明有三个苹果，又买了五个，一共有多少个苹果？"}
    (folder / "chinese" / "b.jsonl").write_text(json.dumps(problem) + "\n\n")
    return folder


@pytest.fixture
def index(suites: Path) -> ContaminationIndex:
    return ContaminationIndex.of(read_suites(suites))


@pytest.mark.parametrize(
    ("text", "suite"),
    [
        (TASK, "lines"),
        ("Hello! " + TASK.upper().replace(",", " -") + " Thanks.", "lines"),
        ("please keep the sea view that I paid for. Case 2.", "lines"),
        ("I want to move my booking from Friday to Sunday.", None),
        ("please keep the view", None),
        ("你好，小明有三个苹果，又买了五个，一共有多少个苹果？", "chinese"),
        ("小红有三个苹果", None),
        ("", None),
    ],
)
def test_texts_by_grams_whatever_the_case_and_punctuation(
    index: ContaminationIndex, text: str, suite: str | None
) -> None:
    overlap = index.shared_text(["unrelated words of another user", text])
    assert (overlap.suite if overlap else None) == suite


def test_tools_by_names_and_schemas(index: ContaminationIndex) -> None:
    own: dict[str, Any] = {"type": "object", "properties": {"x": {}}}
    same = ("moveBooking", {"properties": {"day": {"type": "string"}, "booking": {}}})
    assert index.shared_tools([same, *[(f"t{n}", own) for n in range(3)]], CONFIG) == Overlap(
        "schemas", "lines", 0.25
    )
    assert index.shared_tools([same, *[(f"t{n}", own) for n in range(9)]], CONFIG) is None
    called = index.shared_tools([("cancel_order", own), ("other", own)], CONFIG)
    assert called == Overlap("names", "nested", 0.5)
    assert index.shared_tools([("cancel_order", own), *[(f"t{n}", own) for n in range(4)]],
                              CONFIG) is None  # fmt: skip
    assert index.shared_tools([], CONFIG) is None


def test_what_is_compared() -> None:
    assert name_hash("getPrice") == name_hash("get_price") == name_hash("get-price")
    assert schema_hash("f", {"properties": {"a": {}}}) is None
    assert schema_hash("f", {"properties": []}) is None
    assert text_hashes("one two three four five", 10) == set()
    assert len(text_hashes("one two three four five six", 10)) == 1
    assert len(text_hashes(" ".join(map(str, range(15))), 10)) == 6


def test_an_index_on_disk_is_the_same_and_holds_no_text(suites: Path, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.parquet", "b.parquet")]
    for path in paths:
        done = CliRunner().invoke(
            commands, ["contamination", "build", str(suites), "--out", str(path)]
        )
        assert done.exit_code == 0, done.output
        assert "lines: files 1, texts 3" in done.output
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert b"harbour" not in paths[0].read_bytes()
    index = ContaminationIndex.load(paths[0])
    assert index.suites == ["chinese", "lines", "nested"]
    assert index.shared_text([TASK]) is not None


def test_an_empty_index_finds_nothing(tmp_path: Path) -> None:
    ContaminationIndex.of([]).save(tmp_path / "none.parquet")
    index = ContaminationIndex.load(tmp_path / "none.parquet")
    assert index.suites == []
    assert index.shared_text([TASK]) is index.shared_tools([("a", BOOKING)], CONFIG) is None


def test_what_cannot_be_read_says_how_to_repair(tmp_path: Path) -> None:
    with pytest.raises(ContaminationError, match="astra contamination build"):
        ContaminationIndex.load(tmp_path / "absent.parquet")
    (tmp_path / "bad.parquet").write_text("no table")
    with pytest.raises(ContaminationError, match="is no contamination index"):
        ContaminationIndex.load(tmp_path / "bad.parquet")
    with pytest.raises(SuiteFilesError, match="no subfolder"):
        read_suites(tmp_path)
    (tmp_path / "suite").mkdir()
    with pytest.raises(SuiteFilesError, match="holds no text"):
        read_suites(tmp_path)
    (tmp_path / "suite" / "x.jsonl").write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(SuiteFilesError, match=r"x\.jsonl line 2"):
        read_suites(tmp_path)


@pytest.mark.parametrize("name", ["latin.json", "latin.jsonl", "folder.json"])
def test_a_suite_file_that_is_no_utf8_text_is_named(suites: Path, name: str) -> None:
    path = suites / "lines" / name
    if name.startswith("folder"):
        path.mkdir()
    else:
        path.write_bytes('{"text": "café"}'.encode("latin-1"))
    with pytest.raises(SuiteFilesError, match=rf"lines/{name} cannot be read as UTF-8"):
        read_suites(suites)


def test_an_index_that_cannot_be_written_leaves_the_last_one_and_nothing_else(
    index: ContaminationIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "built"
    index.save(place / "index.parquet")
    before = (place / "index.parquet").read_bytes()

    def cut_off(table: object, file: Path, **options: object) -> None:
        file.write_bytes(before[:100])
        raise OSError("the disk is full")

    monkeypatch.setattr("pyarrow.parquet.write_table", cut_off)
    with pytest.raises(OSError, match="the disk is full"):
        index.save(place / "index.parquet")
    assert {one.name: one.read_bytes() for one in place.iterdir()} == {"index.parquet": before}


def test_the_committed_index_is_of_real_suites(root: Path) -> None:
    index = ContaminationIndex.load(root / "contamination" / "index.parquet")
    assert {"acebench-agent", "bfcl-multi-turn", "tau2"} <= set(index.suites)
    shell = [(name, {}) for name in ("pwd", "ls", "cd", "mkdir", "touch", "grep")]
    overlap = index.shared_tools(shell, CONFIG)
    assert overlap is not None
    assert overlap.suite == "bfcl-multi-turn"
