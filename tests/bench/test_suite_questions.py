"""AIME and GPQA on made-up problems: the last answer counts, whatever was boxed before."""

from __future__ import annotations

import importlib
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from astra.bench.harness.play import run_suite
from astra.bench.harness.protocol import Decoding, Subject, SuiteConfig, SuiteError
from astra.bench.harness.questions import QuestionSource, questions_driver, read_rows
from astra.bench.harness.scripted import ScriptedServer, ScriptedTurn
from astra.bench.suites import aime, gpqa
from astra.records.score import Scored

PROBLEMS = [{"problem": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in (3, 20, 102)]
GPQA = [
    {
        "Record ID": f"r{n}", "Question": f"Which of these is {n}?", "Correct Answer": str(n),
        **{f"Incorrect Answer {k}": str(n + 100 * k) for k in (1, 2, 3)},
        "High-level domain": "Counting",
    }
    for n in range(12)
]  # fmt: skip


@pytest.fixture(scope="module")
def driver() -> Any:
    """The driver's functions; math-verify is in the bench environment alone."""
    folder = Path(aime.__file__).with_name("drivers")
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("play_questions")
    finally:
        sys.path.remove(str(folder))


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"so \boxed{7}? No: \boxed{204}.", "204"),
        (r"\boxed{\frac{1}{2}} and \boxed{\text{m}+\boxed{3}}", "3"),
        (r"\boxed{12} then \boxed{34", "12"),
        (r"nothing \boxed", None),
        ("", None),
    ],
)
def test_the_last_closed_box_counts(driver: Any, text: str, box: str | None) -> None:
    assert driver.last_box(text) == box


@pytest.mark.parametrize(
    ("box", "same"),
    [("204", True), (" 0204 ", True), ("$204$", True), ("205", False), ("20,4", True),
     ("7,204", False), ("", False), ("x" * 300, False)],
)  # fmt: skip
def test_plain_numbers_need_no_parser(driver: Any, box: str, same: bool) -> None:
    if box:
        assert driver.same_number("204", box) is same
    question = {"kind": "math", "gold": "204"}
    assert driver.judge(question, f"\\boxed{{{box}}}" if box else "204")[0] is (same and bool(box))


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("Answer: B", "B"),
        ("A is tempting. The answer is (C).", "C"),
        ("Answer: A\nWait. Answer: D", "D"),
        (r"so \boxed{\text{B}}", "B"),
        ("**Answer: c**", "C"),
        ("A good question", None),
        ("Answer: all of them", None),
    ],
)
def test_the_last_stated_letter_counts(driver: Any, text: str, letter: str | None) -> None:
    assert driver.last_choice(text) == letter


def test_options_are_shuffled_by_seed_and_question(tmp_path: Path) -> None:
    path = tmp_path / "gpqa.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in GPQA))
    options = gpqa.Options(source=QuestionSource(file=str(path)))
    made = gpqa.questions(options)
    assert made == gpqa.questions(options)
    other = gpqa.questions(options.model_copy(update={"shuffle_seed": 1}))
    assert [one.prompt for one in made] != [one.prompt for one in other]
    assert len({one.gold for one in made}) == 4
    for row, one in zip(GPQA, made, strict=True):
        assert f"{one.gold}) {row['Correct Answer']}" in one.prompt.splitlines()
    assert gpqa.SUITE.prompts is not None
    assert gpqa.SUITE.prompts(options)[0].startswith("Which")


def test_problems_come_from_files_of_any_kind_or_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in PROBLEMS) + "\n")
    (tmp_path / "a.json").write_text(json.dumps(PROBLEMS))
    lines = ["problem,answer", *(f"{row['problem']},{row['answer']}" for row in PROBLEMS)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    pq.write_table(pa.Table.from_pylist(PROBLEMS), tmp_path / "a.parquet")
    for ending in ("jsonl", "json", "csv", "parquet"):
        assert read_rows(QuestionSource(file=str(tmp_path / f"a.{ending}"))) == PROBLEMS, ending

    asked: list[Any] = []

    def load(*args: Any, **fields: Any) -> Any:
        asked.append((args, fields))
        return PROBLEMS

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load))
    made = aime.questions("2025", aime.Options())
    assert [one.gold for one in made] == ["6", "40", "204"]
    assert [one.id for one in made] == ["2025-1", "2025-2", "2025-3"]
    assert asked == [(("math-ai/aime25", None), {"split": "test", "revision": None})]

    def fail(*args: Any, **fields: Any) -> Any:
        raise ConnectionError("no network")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=fail))
    with pytest.raises(SuiteError, match=r"no network.*options\.source\.file"):
        read_rows(QuestionSource(dataset="x/y"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        ("{", "cannot be read"),
        ('{"problem": "x"}', "list of objects"),
        ('[{"question": "x"}]', "none of the columns"),
        ('[{"problem": "x", "answer": "m+n"}]', "no integer"),
        ('[{"problem": "x", "answer": "1000"}]', "no integer"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "bad.json"
    if text is not None:
        path.write_text(text)
    options = aime.Options(years=("2024",), sources={"2024": QuestionSource(file=str(path))})
    with pytest.raises(SuiteError, match=said):
        aime.questions("2024", options)


def test_no_problems_are_no_suite() -> None:
    with pytest.raises(SuiteError, match="no problems"):
        questions_driver("aime", [])


def test_aime_end_to_end(bench_env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right in LaTeX, wrong after a right one, too long for the context."""
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "made-up.json"
    file.write_text(json.dumps(PROBLEMS))
    said = {"2024-1": r"\boxed{\frac{12}{2}}", "2024-2": r"\boxed{40}, no, \boxed{41}"}

    def write(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        assert body["top_k"] == 20
        if entry not in said:
            return ScriptedTurn(status=400, error="maximum context length is 8 tokens")
        return ScriptedTurn(content=said[entry])

    config = SuiteConfig(
        name="aime", label="aime_top_k_20", tries=2, concurrency=2,
        decoding=Decoding(temperature=0.6, top_p=0.95, top_k=20),
        options={"years": ["2024"], "sources": {"2024": {"file": str(file)}}},
    )  # fmt: skip
    with ScriptedServer(write) as server:
        run, episodes = run_suite(config, Subject("base", server.endpoint, "x"), tmp_path)
    assert run.tries == 2
    assert run.sample_of == 3
    assert len(run.versions["data"]) == 16
    right = {one.entry_id: one.scores["accuracy"] for one in episodes}
    assert right == {
        "2024-1": Scored(value=1.0), "2024-2": Scored(value=0.0), "2024-3": Scored(value=0.0),
    }  # fmt: skip
    assert run.outcomes == {"overflow": 2, "scored": 4}
    assert not any("plus" in message.content for one in episodes for message in one.messages)
