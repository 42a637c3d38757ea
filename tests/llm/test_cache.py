"""Commits of the answer cache: at once against a kill, soon against a power cut, or an error."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import BaseModel

from astra.llm import cache as caching
from astra.llm.build import Teachers
from astra.llm.cache import AnswerCache, CacheError
from astra.llm.protocol import Ask, ModelConfig, Teacher
from chat_server import Answer, ChatServer, runtime


class Word(BaseModel):
    word: str


def rows(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute("SELECT COUNT(*) FROM answers").fetchone()[0]


def without_log(cache: AnswerCache, place: Path) -> int:
    """Answers in the file alone, as if its log had never reached the disk."""
    try:
        return rows(shutil.copy(cache.path, place / "copy.sqlite"))
    except sqlite3.OperationalError:
        return 0  # not even the table


def test_another_process_sees_an_answer_at_once_and_the_file_has_it_soon(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caching, "SYNC_S", 0.05)
    cache = AnswerCache()
    for number in range(3):
        cache.put(f"k{number}", "m", {"reply": number})
    assert rows(cache.path) == 3  # another connection reads it: a kill would not lose it
    deadline = time.monotonic() + 10
    while without_log(cache, place) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    cache.put("k3", "m", {"reply": 3})
    cache.close()  # synchronises what came last
    assert without_log(cache, place) == 4


def test_a_replayed_answer_has_its_keys_in_the_order_in_which_it_came(place: Path) -> None:
    """A later prompt shows the answer: sorted keys would make it another prompt, paid again."""
    hours = {"reply": {"result": {"06:00": 4, "23:00": 9, "00:00": 7}, "hourly": True}}
    cache = AnswerCache()
    cache.put("k", "m", hours)
    assert json.dumps(cache.get("k")) == json.dumps(hours)
    cache.close()
    moved = AnswerCache(place / "elsewhere")
    moved.add(AnswerCache().replies())
    assert json.dumps(moved.get("k")) == json.dumps(hours)
    moved.close()


class Late(threading.Event):
    """Is set, as by ``stop``, just after a pause has ended without it."""

    def __init__(self, dirty: threading.Event) -> None:
        super().__init__()
        self._dirty = dirty

    def wait(self, timeout: float | None = None) -> bool:
        found = self.is_set()
        self.set()
        self._dirty.set()
        return found


def test_a_stop_just_after_a_pause_is_not_missed() -> None:
    class Sync(caching._Sync):
        def start(self) -> None:
            self._stopped = Late(self._dirty)
            super().start()

    with closing(AnswerCache()) as cache:
        sync = Sync(cache.path)
        sync.changed()
        sync.join(10)
    assert not sync.is_alive()
    assert sync._problem is None


def test_an_answer_that_cannot_be_kept_stops_the_stage() -> None:
    async def ask(teacher: Teacher) -> None:
        await teacher.ask(Ask("demo/say", {"word": "tree"}, Word))

    with (
        ChatServer(default=lambda _: Answer('{"word": "tree"}')) as server,
        Teachers(runtime(server.url), "demo") as teachers,
    ):
        teachers.gateway().desk.cache._connection.execute("PRAGMA query_only=ON")
        teacher = teachers.teacher(ModelConfig(backend="openai", model="m"), {})
        with pytest.raises(CacheError, match=r"cannot be written: .*readonly.*set ASTRA_CACHE"):
            asyncio.run(ask(teacher))


def test_a_disk_that_cannot_be_synchronised_is_an_error_at_the_next_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(caching, "SYNC_S", 0.0)
    cache = AnswerCache()

    def broken(path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path)
        connection.close()  # every use of it is a sqlite3.Error, as on a failing disk
        return connection

    monkeypatch.setattr(caching, "connect", broken)

    def put_on() -> None:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            cache.put("k", "m", {"reply": 1})
            time.sleep(0.01)

    with pytest.raises(CacheError, match="cannot be written"):
        put_on()
    cache.close()
    assert "cannot be written" in caplog.text
