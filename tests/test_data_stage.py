"""What becomes of a data stage's records and rejections, and how it ends."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import ClassVar

import pytest

from astra.data_stage import DataStage, data_stage
from astra.errors import AstraError
from astra.llm.pool import flow
from astra.llm.protocol import ModelConfig
from astra.records.base import Record
from astra.records.score import Rejection
from astra.settings import StageConfig
from astra.store.tables import TableError, TableWriter, read_records, write_records


class Sized(StageConfig):
    pass


class Fruit(Record):
    identity: ClassVar[tuple[str, ...]] = ("name",)
    name: str
    weight: int = 0


class Seed(Record):
    identity: ClassVar[tuple[str, ...]] = ("name",)
    name: str


Outcome = Fruit | Seed | Rejection
FRUITS, REJECTED = Path("data/fruits.parquet"), Path("data/rejected/fruits.parquet")
METRICS = Path("metrics/fruits.json")


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    (tmp_path / "params.yaml").write_text("fruits: {}\nruntime: {concurrency: 3}\n")
    return tmp_path


async def flowing(
    outcomes: Iterable[Outcome], error: BaseException | None = None
) -> AsyncGenerator[Outcome, None]:
    for outcome in outcomes:
        yield outcome
    if error is not None:
        raise error


def build(outcomes: Iterable[Outcome], error: BaseException | None = None) -> list[str]:
    """Runs the stage; what ``measure`` saw."""
    measured: list[str] = []
    with data_stage("fruits", Sized) as stage:
        stage.write(
            flowing(outcomes, error),
            Fruit,
            lambda metrics, fruit: (metrics.count("fruits"), measured.append(fruit.name))[1],
            beside={"seeds": Seed},
        )
    return measured


def rejected() -> list[Rejection]:
    return list(read_records(REJECTED, Rejection))


def files(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}


BAD = Rejection(item="i1", part="p", reason="rotten", detail="brown", said="I would not eat it")


def test_records_go_to_their_tables_and_rejections_to_theirs() -> None:
    apple, pear, pip = Fruit(name="apple", weight=3), Fruit(name="pear"), Seed(name="pip")
    assert build([pear, BAD, pip, apple]) == ["pear", "apple"]  # in the flow's order
    assert list(read_records(FRUITS, Fruit)) == sorted([apple, pear], key=lambda one: one.id)
    assert list(read_records(Path("data/seeds.parquet"), Seed)) == [pip]
    assert rejected() == [BAD]
    assert json.loads(METRICS.read_text()) == {"fruits": 2, "dropped": {"rotten": 1}}


def test_equal_rejections_are_rows_that_a_number_tells_apart() -> None:
    other = Rejection(item="i2", reason="rotten")
    build([BAD, other, BAD, BAD])
    found = rejected()
    assert len({one.id for one in found}) == 4
    assert sorted((one.item, one.repeat) for one in found) == [
        ("i1", 0), ("i1", 1), ("i1", 2), ("i2", 0),
    ]  # fmt: skip
    fields = BAD.model_dump(exclude={"id", "repeat"})
    assert all(
        one.model_dump(exclude={"id", "repeat"}) == fields for one in found if one.item == "i1"
    )


def test_equal_rejections_are_numbered_on_without_trying_every_number_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    add = TableWriter.add

    def counting(writer: TableWriter[Rejection], record: Rejection) -> bool:
        asked.append(record.repeat)
        return add(writer, record)

    monkeypatch.setattr(TableWriter, "add", counting)
    with data_stage("fruits", Sized) as stage:
        for _ in range(50):
            stage.reject(BAD)
        stage.reject(BAD.model_copy(update={"id": "", "repeat": 7}))
        stage.reject(BAD)
    assert sorted(one.repeat for one in rejected()) == list(range(52))
    assert len(asked) <= 3 * 52


def test_the_last_line_says_what_came_in_was_kept_and_was_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "astra")
    with data_stage("fruits", Sized) as stage:
        stage.follow("baskets", 3)
        stage.metrics.count("baskets", 3)
        outcomes = [Fruit(name="fig"), Fruit(name="fig"), Seed(name="pip"), BAD]
        stage.write(flowing(outcomes), Fruit, beside={"seeds": Seed})
    lines = [line for line in caplog.messages if line.startswith("baskets")]
    assert len(lines) == 1
    kept, *_, dropped = lines[0].split(", ", 2)
    assert kept == "baskets 3/3 -> 1 rows in data/fruits.parquet"
    assert lines[0].startswith(f"{kept}, 1 rows in data/seeds.parquet, ")
    assert dropped.endswith("dropped 1: rotten 1")


def test_the_last_line_of_a_stage_that_failed_claims_nothing_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "astra")

    def failing() -> None:
        with data_stage("fruits", Sized) as stage:
            stage.follow("baskets", 3)
            stage.write(flowing([BAD], AstraError("down")), Fruit)

    with pytest.raises(AstraError):
        failing()
    lines = [line for line in caplog.messages if line.startswith("baskets")]
    assert len(lines) == 1
    assert "->" not in lines[0]


def test_counts_of_the_metrics_are_those_of_the_rows() -> None:
    made = [
        Rejection(item=f"i{n % 5}", reason=reason, attempt=n % 3, final=final)
        for n, (reason, final) in enumerate(
            [("rotten", True), ("rotten", False), ("small", False), ("small", True)] * 9
        )
    ]
    build([Fruit(name="fig"), *made])
    metrics = json.loads(METRICS.read_text())
    rows = rejected()
    for name, final in (("dropped", True), ("tries", False)):
        assert metrics[name] == Counter(one.reason for one in rows if one.final == final)
    assert len(rows) == len(made)


def test_the_same_outcomes_in_any_order_give_the_same_bytes(workspace: Path) -> None:
    made: list[Outcome] = [Fruit(name=f"f{n}") for n in range(40)]
    made += [Rejection(item=f"i{n % 7}", reason="rotten") for n in range(40)]
    build(made)
    before = [path.read_bytes() for path in (FRUITS, REJECTED, METRICS)]
    build(made[::-1])
    assert [path.read_bytes() for path in (FRUITS, REJECTED, METRICS)] == before


def test_why_an_ask_failed_is_kept_and_where_is_only_logged(
    workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = (
        "no answer after 6 attempts, the last: http://127.0.0.1:{0}/v1: connection failed: Cannot "
        "connect to host 127.0.0.1:{0} ssl:default [Connect call failed ('127.0.0.1', {0})]"
    )
    elsewhere = Rejection(item="i2", reason="rotten", detail="http://127.0.0.1:99/v1 in a question")
    kept: list[bytes] = []
    for port in (4711, 4712):
        runtime = f"runtime: {{endpoints: [{{base_url: 'http://127.0.0.1:{port}/v1'}}]}}"
        (workspace / "params.yaml").write_text(f"fruits: {{}}\n{runtime}\n")
        with caplog.at_level("INFO", logger="astra"):
            build([Rejection(item="i1", reason="ask_failed", detail=text.format(port)), elsewhere])
        assert f"http://127.0.0.1:{port}/v1" in caplog.text
        kept.append(REJECTED.read_bytes())
    assert kept[0] == kept[1]
    assert {one.item: one.detail for one in rejected()} == {
        "i1": "no answer after 6 attempts, the last: endpoint: connection failed: Cannot connect "
        "to host endpoint ssl:default [Connect call failed]",
        "i2": elsewhere.detail,
    }


def test_nothing_rejected_is_an_empty_table() -> None:
    build([Fruit(name="fig")])
    assert rejected() == []
    assert json.loads(METRICS.read_text()) == {"fruits": 1, "dropped": {}}


@pytest.mark.parametrize(
    "error", [AstraError("the endpoint is down"), ExceptionGroup("tasks", [AstraError("down")])]
)
def test_after_an_error_for_the_user_the_rejections_tell_why_and_nothing_else_changes(
    workspace: Path, error: Exception
) -> None:
    write_records(FRUITS, [Fruit(name="old")], Fruit)
    with pytest.raises(type(error)):
        build([Fruit(name="fig"), Seed(name="pip"), BAD], error)
    assert rejected() == [BAD]
    assert [one.name for one in read_records(FRUITS, Fruit)] == ["old"]
    assert files(workspace) == {"params.yaml", str(FRUITS), str(REJECTED)}


@pytest.mark.parametrize(
    "error", [KeyError("bug"), KeyboardInterrupt(), ExceptionGroup("t", [KeyError("bug")])]
)
def test_a_bug_or_an_interrupt_leaves_nothing(workspace: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        build([Fruit(name="fig"), BAD], error)
    assert files(workspace) == {"params.yaml"}


def test_two_different_records_of_one_id_stop_the_stage() -> None:
    with pytest.raises(TableError, match="two Fruit records have id"):
        build([BAD, Fruit(name="fig", weight=1), Fruit(name="fig", weight=2)])
    assert rejected() == [BAD]
    assert not FRUITS.exists()


def test_a_stage_that_fails_ends_what_its_flow_has_open() -> None:
    ended: list[int] = []

    async def work(n: int) -> list[Fruit]:
        try:
            await asyncio.sleep(0 if n == 0 else 30)
        finally:
            ended.append(n)
        return [Fruit(name="fig", weight=n)]

    def measure(metrics: object, fruit: Fruit) -> None:
        raise AstraError("enough")

    with pytest.raises(AstraError, match="enough"), data_stage("fruits", Sized) as stage:
        stage.write(flow(range(100), work, 4), Fruit, measure)
    assert sorted(ended) == [0, 1, 2, 3, 4]


def test_the_first_few_of_a_reason_are_logged_and_a_failed_try_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "astra")
    build(
        [
            Rejection(item="i0", reason="rotten", final=False),
            BAD,
            *(Rejection(item=f"i{number}", reason="rotten") for number in (2, 3, 4, 5)),
            Rejection(item="i6", reason="small", detail="x" * 10_000),
        ]
    )
    said = [line for line in caplog.messages if line.startswith("dropped")]
    assert said[0] == "dropped (rotten): i1 p brown"
    assert [line[:19] for line in said] == ["dropped (rotten): i"] * 3 + ["dropped (small): i6"]
    assert all(len(line) < 400 for line in said)


def test_a_stage_reads_counts_and_looks_up_other_tables() -> None:
    write_records(FRUITS, [Fruit(name="fig", weight=2), Fruit(name="pear", weight=2)], Fruit)
    with data_stage("fruits", Sized) as stage:
        assert isinstance(stage, DataStage)
        assert stage.count("fruits") == 2
        assert {one.name for one in stage.read("fruits", Fruit)} == {"fig", "pear"}
        by_weight = stage.shelf("fruits", Fruit, lambda fruit: str(fruit.weight))
        assert {one.name for one in by_weight.of("2")} == {"fig", "pear"}
        assert by_weight.one("9") is None
        assert stage.open_items == 6
        with pytest.raises(TableError, match="dvc repro seeds"):
            stage.count("seeds")


def test_a_role_without_an_endpoint_is_refused_before_anything_is_asked() -> None:
    role = ModelConfig(backend="openai", model="m")
    for refused in (DataStage.policy, lambda stage, config: stage.panel([config], {})):
        with (
            pytest.raises(AstraError, match=r"runtime\.endpoints is empty"),
            data_stage("fruits", Sized) as stage,
        ):
            refused(stage, role)
    assert not METRICS.exists()
