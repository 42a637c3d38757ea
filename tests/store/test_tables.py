from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from itertools import permutations
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field

from astra.records.base import Frozen, Record
from astra.records.score import Score, Scored, Unscored
from astra.store import tables
from astra.store.tables import (
    TableError,
    TableWriter,
    arrow_schema,
    count_records,
    read_records,
    write_records,
)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Part(Frozen):
    name: str
    weight: float | None = None


class Row(Record):
    identity: ClassVar[tuple[str, ...]] = ("name", "extra")
    name: str
    number: int = 0
    share: float = 0.0
    good: bool = True
    colour: Colour = Colour.RED
    maybe: str | None = None
    level: int | None = None
    ratio: float | None = None
    parts: tuple[Part, ...] = ()
    extra: dict[str, Any] = Field(default_factory=dict)
    score: Score = Unscored(reason="not yet")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=8,
)
rows = st.builds(
    Row,
    name=st.text(st.characters(exclude_categories=["Cs"])),
    number=st.integers(-(2**63), 2**63 - 1),
    share=st.floats(allow_nan=False, allow_infinity=False),
    good=st.booleans(),
    colour=st.sampled_from(Colour),
    maybe=st.none() | st.text(st.characters(exclude_categories=["Cs"])),
    level=st.none() | st.integers(-5, 5),
    ratio=st.none() | st.floats(0, 1),
    extra=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), json_values),
    score=st.builds(Scored, value=st.floats(0, 1)) | st.just(Unscored(reason="outage")),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(rows, max_size=5, unique_by=lambda row: row.id))
def test_records_come_back_as_they_were(tmp_path: Path, given_rows: list[Row]) -> None:
    path = tmp_path / "rows.parquet"
    expected = {row.id: row for row in given_rows}
    assert write_records(path, given_rows, Row) == len(expected)
    back = list(read_records(path, Row))
    assert back == [expected[key] for key in sorted(expected)]


def test_the_bytes_do_not_depend_on_the_order_and_no_scratch_is_left(tmp_path: Path) -> None:
    made = [Row(name=f"n{n}", extra={"b": n, "a": None}) for n in range(3000)]
    digests: set[str] = set()
    for name, order in (("x", made), ("y", made[::-1]), ("z", made + made[:7])):
        path = tmp_path / f"{name}.parquet"
        assert write_records(path, iter(order), Row) == 3000
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
    assert len(digests) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.parquet", "y.parquet", "z.parquet"]


BY_HOUR = {"06:00": 4, "23:00": 9, "00:00": {"low": 1, "high": 2}}


def test_the_keys_of_free_form_values_stay_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    write_records(path, [Row(name="a", extra=BY_HOUR)], Row)
    (back,) = read_records(path, Row)
    assert json.dumps(back.extra) == json.dumps(BY_HOUR)
    assert back.id == Row(name="a", extra=dict(sorted(BY_HOUR.items()))).id


def test_of_equal_records_with_keys_in_another_order_one_stays_by_a_rule(tmp_path: Path) -> None:
    """Whichever comes first, and however often."""
    orders = [dict(items) for items in permutations(BY_HOUR.items())]
    written: set[str] = set()
    for number, given_orders in enumerate((orders, orders[::-1], orders[3:] + orders[:3])):
        path = tmp_path / f"{number}.parquet"
        assert write_records(path, (Row(name="a", extra=one) for one in given_orders), Row) == 1
        (back,) = read_records(path, Row)
        written.add(json.dumps(back.extra))
    assert written == {min(json.dumps(one) for one in orders)}


def test_another_value_is_refused_also_where_the_order_differs(tmp_path: Path) -> None:
    class Named(Record):
        identity: ClassVar[tuple[str, ...]] = ("name",)
        name: str
        extra: dict[str, Any]

    one, other = {"b": 1, "a": [2, 3]}, {"a": [3, 2], "b": 1}
    with pytest.raises(TableError, match=r"differ in \['extra'\]"):
        write_records(
            tmp_path / "r.parquet", [Named(name="n", extra=extra) for extra in (one, other)], Named
        )


def test_rows_with_one_id_and_different_content_are_refused(tmp_path: Path) -> None:
    same = [Row(name="a", number=1), Row(name="a", number=2)]
    with pytest.raises(TableError, match=same[0].id):
        write_records(tmp_path / "r.parquet", same, Row)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.builds(Row, name=st.sampled_from("abc"), number=st.integers(0, 1)), max_size=8))
def test_a_writer_keeps_what_a_dictionary_would(tmp_path: Path, given_rows: list[Row]) -> None:
    path = tmp_path / "rows.parquet"
    path.unlink(missing_ok=True)
    plain: dict[str, Row] = {}
    with TableWriter(path, Row) as writer:
        for row in given_rows:
            known = plain.setdefault(row.id, row)
            if known == row:
                assert writer.add(row) == (known is row)
            else:
                with pytest.raises(TableError, match=r"differ in \['number'\]"):
                    writer.add(row)
        assert not path.exists()
        assert writer.commit() == len(plain)
    assert list(read_records(path, Row)) == [plain[key] for key in sorted(plain)]


def test_a_writer_without_a_commit_writes_nothing(tmp_path: Path) -> None:
    with TableWriter(tmp_path / "below" / "r.parquet", Row) as writer:
        assert writer.add(Row(name="a"))
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_table(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    write_records(path, [Row(name="old")], Row)

    def failing() -> Any:
        yield Row(name="new")
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        write_records(path, failing(), Row)
    assert [row.name for row in read_records(path, Row)] == ["old"]
    assert [p.name for p in tmp_path.iterdir()] == ["r.parquet"]


def test_scalars_are_columns_and_free_form_values_are_text() -> None:
    schema = arrow_schema(Row)
    kinds = {name: str(schema.field(name).type) for name in schema.names}
    assert schema.names[0] == "id"
    assert (kinds["number"], kinds["share"], kinds["good"]) == ("int64", "double", "bool")
    assert (kinds["extra"], kinds["parts"], kinds["score"]) == ("string", "string", "string")


def test_an_edited_row_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    write_records(path, [Row(name="a")], Row)
    table = pq.read_table(path).to_pylist()
    table[0]["name"] = "b"
    pq.write_table(type(pq.read_table(path)).from_pylist(table, arrow_schema(Row)), path)
    with pytest.raises(TableError, match="edited"):
        list(read_records(path, Row))


def test_a_missing_table_and_a_foreign_one_name_the_repair(tmp_path: Path) -> None:
    class Different(Record):
        identity: ClassVar[tuple[str, ...]] = ("title",)
        title: str

    with pytest.raises(TableError, match="dvc repro tasks"):
        list(read_records(tmp_path / "tasks.parquet", Row))
    path = tmp_path / "r.parquet"
    write_records(path, [Row(name="a")], Row)
    with pytest.raises(TableError, match="title"):
        list(read_records(path, Different))
    path.write_bytes(b"no parquet")
    with pytest.raises(TableError, match=r"r\.parquet"):
        list(read_records(path, Row))


def test_a_corrupt_cell_names_its_row(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    write_records(path, [Row(name="a")], Row)
    table = pq.read_table(path).to_pylist()
    table[0]["extra"] = "{broken"
    pq.write_table(type(pq.read_table(path)).from_pylist(table, arrow_schema(Row)), path)
    with pytest.raises(TableError, match=table[0]["id"]):
        list(read_records(path, Row))


def test_reading_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "BATCH_ROWS", 10)
    path = tmp_path / "r.parquet"
    write_records(path, (Row(name=str(n)) for n in range(35)), Row)
    assert pq.ParquetFile(path).num_row_groups == 4
    assert count_records(path) == 35
    stream = read_records(path, Row)
    assert next(stream).id == min(Row(name=str(n)).id for n in range(35))


def test_an_empty_table_is_a_table(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    assert write_records(path, [], Row) == 0
    assert list(read_records(path, Row)) == []
    assert json.loads(json.dumps(pq.read_schema(path).names))[0] == "id"
