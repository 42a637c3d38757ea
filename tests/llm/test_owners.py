"""Who owns what the roles of a stage share: nothing of it is found again by a later owner."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from pydantic import BaseModel

from astra.llm.build import Teachers, teachers_from
from astra.llm.cache import AnswerCache
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask, ModelConfig, OfflineHandlers
from astra.settings import RuntimeConfig
from astra.stage import Reporter
from chat_server import Answer, ChatServer, runtime

CONFIG = ModelConfig(backend="openai", model="m")
GOOD = Answer('{"word": "tree"}')


class Word(BaseModel):
    word: str


def asked(owner: Teachers, sample: int = 0) -> str:
    teacher = owner.teacher(CONFIG, {})
    return asyncio.run(teacher.ask(Ask("demo/say", {"word": "tree"}, Word, sample))).word


def kept(folder: Path) -> int:
    cache = AnswerCache(folder)
    try:
        return sum(count for count, _ in cache.stats().models.values())
    finally:
        cache.close()


@pytest.mark.parametrize("first_closes", [True, False])
def test_equal_owners_write_to_the_cache_that_each_was_made_with(
    place: Path, monkeypatch: pytest.MonkeyPatch, first_closes: bool
) -> None:
    """One that nobody closed used to be handed on: its answers then went to the old folder."""
    with ChatServer(default=lambda _: GOOD) as server:
        owners: list[Teachers] = []
        for name in ("one", "other"):
            monkeypatch.setenv("ASTRA_CACHE", str(place / name))
            owner = Teachers(runtime(server.url), "demo")
            owners.append(owner)
            assert asked(owner) == "tree"
            if first_closes:
                owner.close()
        assert len(server.requests) == 2  # the second folder did not hold the answer
        assert [kept(place / name) for name in ("one", "other")] == [1, 1]
        if not first_closes:
            asked(owners[0], sample=1)
            assert [kept(place / name) for name in ("one", "other")] == [2, 1]
            for owner in owners:
                owner.close()


def test_a_cache_that_is_gone_is_made_anew_by_the_next_owner(place: Path) -> None:
    with ChatServer(default=lambda _: GOOD) as server:
        abandoned = Teachers(runtime(server.url), "demo")
        asked(abandoned)
        shutil.rmtree(place / "cache")
        with Teachers(runtime(server.url), "demo") as owner:
            asked(owner)
        assert len(server.requests) == 2
    assert kept(place / "cache") == 1


def test_an_owner_reports_once_and_its_note_leaves_the_progress_lines(place: Path) -> None:
    reporter = Reporter()
    with ChatServer(default=lambda _: GOOD) as server:
        owner = Teachers(runtime(server.url), "demo", reporter)
        assert reporter.noted() == ""
        asked(owner)
        assert reporter.noted().startswith("1 answers, ")
        owner.close()
        owner.close()
    assert reporter.notes == []
    (line,) = (place / "runs/usage.jsonl").read_text().splitlines()
    assert json.loads(line)["answers"] == 1


def test_offline_roles_open_neither_cache_nor_connection(place: Path) -> None:
    with Teachers(RuntimeConfig(), "demo") as owner:
        owner.teacher(ModelConfig(backend="offline", model="v1"), {})
    assert list(place.iterdir()) == []


def test_teachers_of_a_factory_stand_in_for_every_role_within_the_block_only(place: Path) -> None:
    made: list[str] = []

    def factory(config: ModelConfig, handlers: OfflineHandlers) -> OfflineTeacher:
        made.append(config.model)
        return OfflineTeacher(config, {"demo/say": lambda *_: Word(word="bush")})

    with Teachers(RuntimeConfig(), "demo") as owner:
        with teachers_from(factory):
            assert asked(owner) == "bush"
            with pytest.raises(ZeroDivisionError), teachers_from(lambda *_: 1 // 0):
                asked(owner)
            assert asked(owner) == "bush"
        assert made == ["m", "m"]
        with pytest.raises(Exception, match=r"runtime\.endpoints is empty"):
            owner.teacher(CONFIG, {})
