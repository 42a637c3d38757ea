"""Tables of one's own: CSV, parquet and SQLite as a knowledge source."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import ModelConfig
from astra.qa.config import TableSource
from astra.qa.knowledge.schema import CellType, KnowledgeError
from astra.qa.knowledge.tables import load_tables
from astra.qa.offline.handlers import HANDLERS
from astra.qa.qa import QuestionWriter, instances
from astra.records.base import canonical_json
from astra.records.qa import QAInstance, Split
from astra.store.metrics import StageMetrics
from astra.text.names import Pool, pool_of

TEACHER = OfflineTeacher(ModelConfig(backend="offline", model="rules-1"), HANDLERS)
KEEPERS = [
    {
        "keeper": f"{first} {last}",
        "fee": 10 + 3 * number,
        "town": "North" if number % 2 else "South",
    }
    for number, (first, last) in enumerate(
        (first, last)
        for first in ("Alder", "Birch", "Ebony", "Ficus", "Gorse", "Holly", "Linden", "Rowan")
        for last in ("House", "Hall", "Lodge", "Grange", "Court", "Villa")
    )
]
GARDENS = [
    {
        "garden": f"{first} {last}",
        "keeper": KEEPERS[(7 * number) % len(KEEPERS)]["keeper"],
        "area": 20 + 13 * number,
        "opened": f"20{10 + number % 14}-0{1 + number % 9}-1{number % 10}",
        "note": f"remark {number}",
        "code": f"0{number}",
    }
    for number, (first, last) in enumerate(
        (first, last)
        for first in ("Aster", "Briar", "Clover", "Daisy", "Elder", "Fennel", "Poppy", "Violet")
        for last in (
            "Walk", "Lawn", "Terrace", "Meadow", "Plot", "Bed", "Border", "Patch", "Yard", "Green",
        )
    )
]  # fmt: skip


def write_csv(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    lines = [",".join(rows[0]), *(",".join(str(cell) for cell in row.values()) for row in rows)]
    (folder / name).write_text("\ufeff" + "\n".join(lines) + "\n", encoding="utf-8")


def write_sqlite(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    columns = ", ".join(rows[0])
    with closing(sqlite3.connect(folder / name)) as connection:
        connection.execute(f'CREATE TABLE "my table" ({columns})')
        marks = ", ".join("?" for _ in rows[0])
        values = [tuple(row.values()) for row in rows]
        connection.executemany(f'INSERT INTO "my table" VALUES ({marks})', values)
        connection.commit()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_csv(tmp_path, "gardens.csv", GARDENS)
    write_csv(tmp_path, "keepers.csv", KEEPERS)
    pq.write_table(pa.Table.from_pylist(KEEPERS), tmp_path / "keepers.parquet")
    write_sqlite(tmp_path, "keepers.sqlite", KEEPERS)
    return tmp_path


def spec(**keepers: Any) -> dict[str, Any]:
    return {
        "weight": 1,
        "tables": {
            "gardens": {"path": "gardens.csv", "key": "garden", "units": {"area": "m2"}},
            "keepers": {"path": "keepers.csv", "key": "keeper", **keepers},
        },
    }


def load(folder: Path, split: Split = Split.TRAIN, **keepers: Any) -> Any:
    return load_tables("parks", TableSource.model_validate(spec(**keepers)), split, folder, 150)


def test_what_columns_hold_is_read_off_their_cells(folder: Path) -> None:
    source = load(folder)
    assert source.kinds["gardens"] == {
        "garden": CellType.ENTITY, "keeper": CellType.ENTITY, "area": CellType.NUMBER,
        "opened": CellType.DATE,
    }  # fmt: skip
    assert source.kinds["keepers"] == {
        "keeper": CellType.ENTITY, "fee": CellType.NUMBER, "town": CellType.CATEGORY,
    }  # fmt: skip
    relations = {relation.name: relation for relation in source.relations}
    assert relations["garden.keeper"].target == "keeper"
    assert relations["garden.opened"].target == "date"
    assert relations["garden.area"].unit == "m2"
    assert {"keeper.gardens", "keeper.total_area", "keeper.top_garden_by_area"} <= set(relations)


@pytest.mark.parametrize(
    "where",
    [
        {"path": "keepers.parquet"},
        {"path": "keepers.sqlite", "table": "my table"},
    ],
)
def test_every_format_gives_the_same_source(folder: Path, where: dict[str, str]) -> None:
    assert load(folder, **where) == load(folder)


def test_rows_stay_in_the_split_of_what_they_link_to(folder: Path) -> None:
    sources = {split: load(folder, split) for split in Split}
    owner: dict[str, Split] = {}
    for split, source in sources.items():
        for name in source.names:
            assert owner.setdefault(name, split) is split
        for row in source.tables["keepers"].rows if "keepers" in source.tables else ():
            assert pool_of(row[0]) is Pool(split.value)
    assert len(sources[Split.TRAIN].tables["gardens"].rows) >= 8


def test_stated_kinds_columns_and_phrases_win(folder: Path) -> None:
    document = spec(columns=["fee"])
    document["tables"]["gardens"]["kinds"] = {"code": "category"}
    document["phrases"] = {"keeper.fee": "what {x} charges"}
    source = load_tables("parks", TableSource.model_validate(document), Split.TRAIN, folder, 150)
    assert set(source.kinds["keepers"]) == {"keeper", "fee"}
    assert source.kinds["gardens"]["code"] is CellType.CATEGORY
    assert all(str(row[-1]).startswith("0") for row in source.tables["gardens"].rows)
    phrases = {relation.name: relation.phrase for relation in source.relations}
    assert phrases["keeper.fee"] == "what {x} charges"


def test_questions_are_made_of_them_in_both_languages(
    qa_config: Any, tmp_path: Path, folder: Path
) -> None:
    chinese = {**spec(), "language": "zh", "words": {"garden": "花园", "keeper": "园丁"}}
    chinese["tables"] = {
        "gardens": {"path": "gardens.csv", "key": "garden", "columns": ["keeper", "area"]},
        "keepers": {"path": "keepers.csv", "key": "keeper", "columns": ["fee"]},
    }
    chinese["words"] |= {"area": "面积"}
    config = qa_config(
        languages={"en": 0.5, "zh": 0.5},
        sources={},
        tables={"parks": spec(), "parks_zh": chinese},
        instances={"train": 24},
        compositions={"train": 1.0},
        hops={1: 1, 2: 1},
    )

    async def collect() -> list[Any]:
        writer, metrics = QuestionWriter(config, folder), StageMetrics("qa")
        return [o async for o in instances(writer, TEACHER, 4, metrics)]

    outcomes = asyncio.run(collect())
    assert all(isinstance(outcome, QAInstance) for outcome in outcomes), outcomes
    assert {outcome.source for outcome in outcomes} == {"file:parks", "file:parks_zh"}
    assert any("面积" in outcome.main_question for outcome in outcomes)
    assert any(s.answer.unit == "m2" for outcome in outcomes for s in outcome.sub_questions)


def _absent(folder: Path) -> None:
    (folder / "keepers.csv").unlink()


def _no_key(folder: Path) -> None:
    write_csv(folder, "keepers.csv", [{"name": "A", "fee": 1}])


def _not_csv(folder: Path) -> None:
    (folder / "keepers.csv").write_bytes(b"keeper,fee\n\xff\xfe\xfa,1\n")


def _circle(folder: Path) -> None:
    rows = [{**row, "best": GARDENS[n]["garden"]} for n, row in enumerate(KEEPERS)]
    write_csv(folder, "keepers.csv", rows)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (_absent, "no such file"),
        (_no_key, "key column 'keeper'"),
        (_not_csv, "cannot be read"),
        (_circle, "in a circle"),
    ],
)
def test_a_source_that_cannot_be_used_says_why(
    damage: Callable[[Path], None], why: str, folder: Path
) -> None:
    damage(folder)
    with pytest.raises(KnowledgeError, match=why):
        load(folder)


def test_a_missing_sqlite_table_is_named(folder: Path) -> None:
    with pytest.raises(KnowledgeError, match="no such table"):
        load(folder, path="keepers.sqlite", table="other")


@pytest.mark.parametrize("path", ["/etc/passwd", "../secrets.csv", "a/../../b.csv"])
def test_files_outside_the_declared_folder_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="must lie below sources/knowledge"):
        TableSource.model_validate(spec(path=path))


def test_rows_without_a_name_of_their_own_are_left_out(folder: Path) -> None:
    write_csv(folder, "keepers.csv", [*KEEPERS, KEEPERS[0], {"keeper": "", "fee": 3, "town": "x"}])
    for split in Split:
        assert KEEPERS[0]["keeper"] not in load(folder, split).names


@pytest.mark.parametrize("text", ["-infinity", "+inf", "+nan", "1e999", "NaN", "-Infinity"])
def test_what_no_number_states_is_text_or_missing(text: str, folder: Path) -> None:
    odd = [{**row, "rate": 1.5, "odd": text} for row in KEEPERS]
    write_csv(folder, "keepers.csv", odd)
    source = load(folder)
    assert source.kinds["keepers"]["rate"] is CellType.NUMBER
    assert source.kinds["keepers"]["odd"] is CellType.CATEGORY
    missing = [{**row, "rate": float(text) if n % 9 else 1.5} for n, row in enumerate(KEEPERS)]
    pq.write_table(pa.Table.from_pylist(missing), folder / "keepers.parquet")
    write_sqlite(folder, "rates.sqlite", missing)
    for where in ({"path": "keepers.parquet"}, {"path": "rates.sqlite", "table": "my table"}):
        assert "rate" not in load(folder, **where).kinds["keepers"]
        stated = load(folder, **where, kinds={"rate": "number"})
        assert stated.tables["keepers"].rows
        canonical_json([table.model_dump(mode="json") for table in stated.tables.values()])
