"""How fast a teacher is asked, against the floor: aiohttp alone doing the same HTTP work.

    PYTHONPATH=src python benchmarks/teacher.py            rates at 64 and 256 in flight
    PYTHONPATH=src python benchmarks/teacher.py --memory   memory from 1,000 to 100,000 asks

The server runs in a process of its own with 100 ms latency; every ask is rendered, looked up,
sent, parsed, validated and committed to a fresh cache. CPU is that of the asking process alone,
all its threads. Prints one JSON object; the load average stands beside the numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from pydantic import BaseModel, ConfigDict

from astra import prompting
from astra.llm.build import Teachers
from astra.llm.openai_backend import chat_bodies, sampling_fields
from astra.llm.pool import map_bounded
from astra.llm.protocol import Ask, ModelConfig
from astra.settings import Endpoint, RuntimeConfig

LATENCY_S = 0.1
PROMPT = "Name a thing that grows, other than {{ word }}.\n" * 20
CONFIG = ModelConfig(backend="openai", model="m")


class Word(BaseModel):
    model_config = ConfigDict(extra="forbid")
    word: str


@contextmanager
def peer() -> Iterator[str]:
    """The address of a server that runs until the end of the block."""
    command = [sys.executable, str(Path(__file__).with_name("chat_peer.py")), str(LATENCY_S)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def timed(count: int, in_flight: int, run: Callable[[], Awaitable[None]]) -> dict[str, float]:
    """Rate and CPU per ask; ideal is ``in_flight`` asks every latency."""

    async def measured() -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        await run()
        return time.perf_counter() - wall, time.process_time() - cpu

    wall, cpu = asyncio.run(measured())
    # The last asks of a run leave places empty, also in the ideal.
    ideal = -(-count // in_flight) * LATENCY_S
    return {
        "per_s": round(count / wall, 1),
        "of_ideal": round(ideal / wall, 3),
        "cpu_ms_per_ask": round(cpu / count * 1e3, 3),
        "per_core_s": round(count / cpu, 1),
        "load": round(os.getloadavg()[0], 1),
    }


def floor(url: str, count: int, in_flight: int) -> dict[str, float]:
    """aiohttp alone: the same body, the same connection count, the reply decoded."""
    request = chat_bodies("m", sampling_fields(CONFIG), PROMPT, Word)
    body: Any = request.structured

    async def run() -> None:
        left = iter(range(count))
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def worker() -> None:
                for _ in left:
                    headers = {"Authorization": "Bearer none"}
                    async with session.post(
                        f"{url}/chat/completions", json=body, headers=headers
                    ) as response:
                        json.loads(await response.read())

            await asyncio.gather(*(worker() for _ in range(in_flight)))

    return timed(count, in_flight, run)


def teacher(url: str, count: int, in_flight: int, start: int = 0) -> dict[str, float]:
    """The openai backend, from ask to committed reply."""
    runtime = RuntimeConfig(
        endpoints=(Endpoint(base_url=url, api_key_env=""),), concurrency=in_flight
    )

    async def run() -> None:
        async def one(number: int) -> str:
            return (await asked.ask(Ask("bench/word", {"word": str(number)}, Word))).word

        async for word in map_bounded(range(start, start + count), one, in_flight):
            assert word == "tree"

    with Teachers(runtime, "benchmark") as teachers:
        asked = teachers.teacher(CONFIG, {})
        return timed(count, in_flight, run)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 1e6, 1)


def rates(count: int) -> dict[str, Any]:
    """Best of three, floor and teacher in turn: other work on the machine only slows."""
    found: dict[str, Any] = {"latency_s": LATENCY_S, "cores": os.cpu_count()}
    with peer() as url:
        floor(url, 200, 16)  # both sides warm
        teacher(url, 200, 16, start=10**9)
        for in_flight in (64, 256):
            pairs = [
                (floor(url, count, in_flight), teacher(url, count, in_flight, start=number * 10**6))
                for number in range(in_flight, in_flight + 3)
            ]
            bare = max((pair[0] for pair in pairs), key=lambda run: run["per_s"])
            ours = max((pair[1] for pair in pairs), key=lambda run: run["per_s"])
            times = [round(us["cpu_ms_per_ask"] / it["cpu_ms_per_ask"], 2) for it, us in pairs]
            found[f"{in_flight}_in_flight"] = {
                "teacher": ours, "aiohttp": bare, "cpu_times_aiohttp": times
            }  # fmt: skip
    return found


def memory(total: int) -> dict[str, Any]:
    """Resident memory after 1,000, 10,000 ... asks of one process, in one stage's setting."""
    found: dict[str, Any] = {}
    with peer() as url:
        done = 0
        marks = [mark for mark in (1_000, 10_000, 30_000, 100_000) if mark <= total]
        for mark in marks:
            outcome = teacher(url, mark - done, 256, start=done)
            done = mark
            found[str(mark)] = {"resident_mb": resident_mb(), **outcome}
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--memory", action="store_true")
    options.add_argument("--asks", type=int, default=0)
    given = options.parse_args()
    prompting._source = lambda template: PROMPT  # type: ignore[assignment]
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory(prefix="astra-bench-") as folder:
        os.chdir(folder)
        os.environ["ASTRA_CACHE"] = folder
        found = memory(given.asks or 100_000) if given.memory else rates(given.asks or 4_000)
        os.chdir("/")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
