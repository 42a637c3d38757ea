"""The arenas that a strong model made, in examples/pilot: they load, run and pay as they must."""

from __future__ import annotations

from collections import Counter

import pytest

from astra.arena.scripted import misordered, rate
from astra.records.environment import Arena
from astra.sandbox.protocol import Sandbox
from astra.store.paths import repository_root
from astra.store.tables import read_records

PILOT = repository_root() / "examples/pilot/envs_merged.parquet"


@pytest.fixture(scope="module")
def arenas() -> list[Arena]:
    return list(read_records(PILOT, Arena))


def test_most_come_from_real_questions_and_texts(arenas: list[Arena]) -> None:
    sources = Counter(arena.source.partition(":")[0] for arena in arenas)
    assert sources["question"] >= 8
    assert sources["context"] >= 8


def test_only_working_is_paid(arenas: list[Arena], sandbox: Sandbox) -> None:
    for arena, scores in zip(arenas, rate(arenas, sandbox), strict=True):
        assert misordered(arena, scores) == "", arena.id
