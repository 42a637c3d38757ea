"""The check that the tiny base's corpus knows no arena finds what is planted."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest
from training_world import make_arena

from astra.records.environment import Arena
from astra.records.qa import Split
from astra.store.tables import write_records
from astra.train.tiny import overlap as tiny_overlap
from astra.train.tiny.corpus import documents
from astra.train.tiny.overlap import grams, overlap, texts


@pytest.fixture
def arenas() -> list[Arena]:
    return [make_arena(seed, Split.TRAIN) for seed in range(6)]


def corpus(count: int) -> list[str]:
    return ["".join(text for text, _ in spans) for spans in islice(documents(0), count)]


def test_grams_are_runs_of_four_words_and_short_signatures() -> None:
    assert grams("Find the fee, please: now") == {
        ("find", "the", "fee", "please"),
        ("the", "fee", "please", "now"),
    }
    assert grams("get_fee(agent)") == {("get", "fee", "agent")}
    assert grams("fee agent") == set()


def test_arena_text_holds_questions_and_all_tools(arenas: list[Arena]) -> None:
    said = list(texts(arenas[:1]))
    assert arenas[0].main_question in said
    for offer in arenas[0].tools:
        assert any(text.startswith(offer.tool.name) for text in said)


def test_generated_documents_share_nothing_with_arenas(arenas: list[Arena]) -> None:
    assert overlap(arenas, corpus(2000)) == set()


def test_a_planted_question_and_a_planted_tool_are_found(arenas: list[Arena]) -> None:
    documents_ = corpus(50)
    tool = arenas[0].tools[0].tool
    signature = f"{tool.name}({', '.join(tool.parameters['properties'])})"
    for planted in (arenas[1].main_question.upper(), f"x {signature} y"):
        place = random.Random(planted).randrange(50)
        dirty = [*documents_[:place], f"before {planted} after", *documents_[place:]]
        assert overlap(arenas, dirty), planted


def test_the_command_fails_on_overlap_and_on_missing_arenas(
    arenas: list[Arena],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "arenas.parquet"
    monkeypatch.setattr("sys.argv", ["tiny_overlap", "--arenas", str(path)])
    monkeypatch.setattr(tiny_overlap, "DOCUMENTS", 30)
    with pytest.raises(SystemExit, match="missing"):
        tiny_overlap.main()
    write_records(path, arenas, Arena)
    tiny_overlap.main()
    assert "no overlap" in capsys.readouterr().out
    stolen = arenas[0].main_question
    monkeypatch.setattr(tiny_overlap, "documents", lambda seed: iter([[(stolen, True)]]))
    with pytest.raises(SystemExit, match="in both"):
        tiny_overlap.main()
