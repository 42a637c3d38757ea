"""Two thousand asks with faults and kills, against a server that counts."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forks import Runs, forked
from word_stage import Said

from astra.records.score import Rejection
from astra.store.tables import read_records
from chat_server import Answer, ChatServer

ASKS = 2000
STAGE = Path(__file__).with_name("word_stage.py")
TIMEOUT_S = 6.0
"""Long enough that a busy machine answers in time; one reply more that comes too late would be a
fault which the server did not draw."""
HOPELESS = {7: "reply_unparsable", 13: "ask_failed"}
"""Numbers with this remainder by 100 never get a usable reply."""


def number_of(body: dict[str, Any]) -> int:
    return int(body["messages"][0]["content"].split(".")[0].split()[1])


def good(number: int) -> str:
    return json.dumps({"word": f"word {number}"})


def faults(number: int) -> list[Answer]:
    function = {"name": "say", "arguments": {"word": 1}}
    return [
        Answer(status=429, headers={"Retry-After": "0.05"}),
        Answer(status=500),
        Answer(status=503, error="busy"),
        Answer(drop=True),
        Answer(good(number), delay_s=TIMEOUT_S + 1),
        Answer(raw=b"<html>gateway</html>"),
        Answer('{"word": "tr'),
        Answer('{"word": 3}'),
        Answer(raw=b'{"choices": []}'),
        Answer(good(number)[:9], finish="length"),
        Answer(None, tool_calls=[{"type": "function", "function": function}]),
        Answer(None, tool_calls=[{"id": "x"}]),
        Answer("<think>" + good(number)),
    ]


class Faulty:
    """A tenth of all replies is a fault, drawn by number and try; counts usable replies."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.seen: Counter[int] = Counter()
        self.given: Counter[int] = Counter()

    def __call__(self, body: dict[str, Any]) -> Answer:
        number = number_of(body)
        self.seen[number] += 1
        if HOPELESS.get(number % 100) == "ask_failed":
            return Answer(status=400, error="too long")
        if HOPELESS.get(number % 100) == "reply_unparsable":
            return Answer("I would rather not.")
        draw = random.Random(f"{number} {self.seen[number]}")
        if draw.random() < 0.1:
            return draw.choice(faults(number))
        self.given[number] += 1
        return Answer(good(number), delay_s=self.delay_s)


@pytest.fixture(scope="module")
def runs(root: Path) -> Iterator[Runs]:
    with forked(STAGE, [root / "src"]) as forks:
        yield forks


def start(runs: Runs, server: ChatServer, concurrency: int) -> None:
    given = {"place": str(Path.cwd()), "url": server.url, "count": ASKS, "timeout_s": TIMEOUT_S}
    runs.start({**given, "concurrency": concurrency})


def check_outputs(place: Path) -> None:
    said = {record.number: record.word for record in read_records(
        place / "data/words.parquet", Said
    )}  # fmt: skip
    wanted = {n: f"word {n}" for n in range(ASKS) if n % 100 not in HOPELESS}
    assert said == wanted
    metrics = json.loads((place / "metrics/words.json").read_text())
    dropped = {"ask_failed": ASKS // 100, "reply_unparsable": ASKS // 100}
    assert metrics == {"words": len(wanted), "dropped": dropped}
    rejections = list(read_records(place / "data/rejected/words.parquet", Rejection))
    assert Counter(rejection.reason for rejection in rejections) == dropped
    assert {int(one.item) for one in rejections} == set(range(ASKS)) - set(wanted)


def test_a_tenth_of_faulty_replies_costs_no_record_and_each_is_attributed(
    place: Path, runs: Runs
) -> None:
    answers = Faulty()
    with ChatServer(default=answers) as server:
        start(runs, server, 64)
        assert runs.status() == 0
        requests = len(server.requests)
    check_outputs(place)
    (line,) = (place / "runs/usage.jsonl").read_text().splitlines()
    usage = json.loads(line)
    assert usage["requests"] == requests
    assert usage["answers"] == ASKS - usage["failures"] == ASKS - 2 * ASKS // 100
    # Every request is an answer or a fault of a stated kind.
    assert sum(usage["faults"].values()) == usage["requests"] - usage["answers"]
    for kind in ("http_429", "http_500", "connection", "timeout", "unparsable", "truncated"):
        assert usage["faults"][kind] > 0, kind
    assert 0 < usage["latency_p50_s"] <= usage["latency_p95_s"]
    with sqlite3.connect(place / "mlflow.db") as store:
        tracked = dict(store.execute("SELECT key, value FROM metrics"))
    assert tracked["requests"] == requests
    assert tracked["faults.http_429"] == usage["faults"]["http_429"]
    assert tracked["latency_p95_s"] == usage["latency_p95_s"]


def test_five_kills_repeat_no_committed_answer(place: Path, runs: Runs) -> None:
    concurrency, kills = 16, 5
    answers = Faulty(delay_s=0.005)
    draw = random.Random(0)
    committed: set[int] = set()
    with ChatServer(default=answers) as server:
        for _ in range(kills):
            goal = len(server.requests) + draw.randint(40, 330)
            start(runs, server, concurrency)
            deadline = time.monotonic() + 60
            while len(server.requests) < goal and time.monotonic() < deadline:
                time.sleep(0.002)
            runs.kill()
            before = sum(answers.given.values())
            with sqlite3.connect(place / "cache/answers.sqlite") as cache:
                rows = cache.execute("SELECT value FROM answers").fetchall()
            committed = {int(json.loads(row[0])["reply"]["word"].split()[1]) for row in rows}
            # What was given and not committed was in flight.
            assert len({n for n in answers.given if n not in committed}) <= concurrency
        given_before = {n: answers.given[n] for n in committed}
        assert before < ASKS
        start(runs, server, concurrency)
        assert runs.status() == 0
    assert {n: answers.given[n] for n in committed} == given_before
    repeats = sum(count - 1 for count in answers.given.values())
    assert 0 < repeats + 1 <= kills * concurrency + 1
    check_outputs(place)
