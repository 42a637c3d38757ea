"""Ctrl-C while a stage waits for answers: one line, nothing half written, nothing asked twice."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from word_stage import Said

from astra.store.tables import read_records
from chat_server import Answer, ChatServer

STAGE = str(Path(__file__).with_name("word_stage.py"))
QUICK, ASKS, AT_ONCE = 7, 24, 4
RESUME = "interrupted; run the same command again to resume"
IGNORED = re.compile(r"Exception ignored in: .*?^KeyboardInterrupt: ?$", re.DOTALL | re.MULTILINE)
"""What Python itself prints of a second interrupt that falls into a weakref's callback."""


def number_of(body: dict[str, Any]) -> int:
    return int(body["messages"][0]["content"].split(".")[0].split()[1])


class Stalling:
    """Answers the first numbers at once; the others only after ``flows`` is set."""

    def __init__(self) -> None:
        self.flows = threading.Event()

    def __call__(self, body: dict[str, Any]) -> Answer:
        number = number_of(body)
        if number >= QUICK:
            self.flows.wait(60)
        return Answer(json.dumps({"word": f"word {number}"}))


def stage(server: ChatServer) -> subprocess.Popen[str]:
    """The stage in a process of its own, without an MLflow store: one takes seconds to make."""
    given = {
        "place": str(Path.cwd()), "url": server.url, "count": ASKS, "concurrency": AT_ONCE,
        "timeout_s": 60.0,
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, STAGE, json.dumps(given)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"},
        # What is started in the background of a script ignores Ctrl-C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize("signals", [1, 2])
def test_an_interrupt_is_one_line_and_no_committed_answer_is_asked_again(
    place: Path, signals: int
) -> None:
    stalling = Stalling()
    with ChatServer(default=stalling) as server:
        interrupted = stage(server)
        deadline = time.monotonic() + 60
        while len(server.requests) < QUICK + AT_ONCE and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.in_flight == AT_ONCE
        for _ in range(signals):
            interrupted.send_signal(signal.SIGINT)
            time.sleep(0.02)
        _, said = interrupted.communicate(timeout=120)
        assert interrupted.returncode == 130
        assert "Traceback" not in IGNORED.sub("", said)
        assert said.splitlines()[-1] == f"[words] {RESUME}"
        assert said.count("interrupted") == 1
        for left in ("data/words.parquet", "data/rejected/words.parquet", "metrics/words.json"):
            assert not (place / left).exists()
        assert not list(place.rglob("*.partial"))
        before = [number_of(body) for body in server.requests]
        assert sorted(before) == list(range(QUICK + AT_ONCE))

        stalling.flows.set()
        resumed = stage(server)
        _, said = resumed.communicate(timeout=120)
        assert resumed.returncode == 0, said
        asked = [number_of(body) for body in server.requests[len(before) :]]
        assert sorted(asked) == list(range(QUICK, ASKS))
    assert {one.number for one in read_records(place / "data/words.parquet", Said)} == set(
        range(ASKS)
    )
    if signals == 1:  # a second one may come before the run log is written
        first, second = map(json.loads, (place / "runs/usage.jsonl").read_text().splitlines())
        assert first["answers"] == second["cache_hits"] == QUICK
