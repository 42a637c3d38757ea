"""What a sandboxed call costs, beside a bare pipe and beside one interpreter per call.

Run it with the package importable, at a quiet moment: ``python benchmarks/sandbox.py``.
Everything but the many-episodes run is pinned to one core. Wall rates suffer from whatever else
the machine does; rates per CPU-second count host, zygote and sessions and suffer much less.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from astra.sandbox.capacity import PoolConfig, children
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import SandboxLoadError, SandboxStatus, Session

SOURCE = {"f": "def f(x):\n    return x + 1"}
LIMITS = SandboxLimits(cpu_s=600, call_timeout_s=10.0)
EPISODES, CALLS = 512, 45_000
_TICK = os.sysconf("SC_CLK_TCK")
_PEER = """
import json, sys
scope = {}
request = json.load(sys.stdin)
exec(request["source"], scope)
print(json.dumps(scope["f"](**request["arguments"])))
"""

Figures = dict[str, Any]


def quantiles(samples: list[float], scale: float = 1e6) -> Figures:
    """p50, p90 and p99 of seconds, in microseconds unless scaled otherwise."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    return {f"p{q}": round(ordered[last * q // 100] * scale, 1) for q in (50, 90, 99)}


def cpu_seconds() -> float:
    """CPU time of this process and all below it, reaped ones included."""
    used = os.times()
    total = used.user + used.system + used.children_user + used.children_system
    level = children(os.getpid())
    while level:
        for pid in level:
            try:
                stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
            except OSError:
                continue
            total += sum(map(int, stat.rpartition(")")[2].split()[11:15])) / _TICK
        level = [child for pid in level for child in children(pid)]
    return total


def rate(count: int, work: Callable[[], object]) -> Figures:
    """Items per second of wall clock and of CPU time."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    work()
    wall = time.perf_counter() - wall
    time.sleep(0.05)  # let the last sessions be reaped
    cpu = max(cpu_seconds() - cpu, 1 / _TICK)
    return {"per_s": round(count / wall, 1), "per_cpu_s": round(count / cpu, 1)}


def pipe_floor() -> Callable[[], None]:
    """A JSON call to a bare forked echo over two pipes: nothing checked, nothing isolated."""
    requests_out, requests = os.pipe()
    replies, replies_in = os.pipe()
    if not os.fork():
        os.close(requests)
        while data := os.read(requests_out, 65_536):
            message = json.loads(data[4:])
            value = {"i": message["i"], "v": message["a"]["x"] + 1}
            payload = json.dumps(value).encode()
            os.write(replies_in, struct.pack("!I", len(payload)) + payload)
        os._exit(0)
    os.close(requests_out)
    os.close(replies_in)
    number = 0

    def call() -> None:
        nonlocal number
        number += 1
        payload = json.dumps({"i": number, "f": "f", "a": {"x": number}}).encode()
        os.write(requests, struct.pack("!I", len(payload)) + payload)
        assert json.loads(os.read(replies, 65_536)[4:])["v"] == number + 1

    return call


def naive_call() -> None:
    """One isolated interpreter for one call: the peer without any sandbox."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _PEER],
        input=json.dumps({"source": SOURCE["f"], "arguments": {"x": 1}}),
        capture_output=True,
        text=True,
        check=True,
        env={},
    )
    assert json.loads(done.stdout) == 2


def good(session: Session | SandboxLoadError) -> Session:
    assert not isinstance(session, SandboxLoadError), session
    return session


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def live(sandbox: LocalSandbox) -> Figures:
    """Floor and live call, interleaved so that a busy moment hits both."""
    floor, session = pipe_floor(), sandbox.session(SOURCE)

    def call() -> None:
        assert session.call("f", {"x": 1}).value == 2

    samples: dict[str, list[float]] = {"floor_us": [], "live_us": []}
    for name, work in (("floor_us", floor), ("live_us", call)) * 40:
        samples[name] += [timed(work) for _ in range(300)]
    figures: Figures = {name: quantiles(seconds) for name, seconds in samples.items()}
    figures["ratio_p50"] = round(figures["live_us"]["p50"] / figures["floor_us"]["p50"], 2)
    figures["live"] = rate(20_000, lambda: [call() for _ in range(20_000)])
    figures["floor"] = rate(20_000, lambda: [floor() for _ in range(20_000)])
    session.close()
    return figures


def episode(sandbox: LocalSandbox, calls: int) -> None:
    """One fresh session that answers ``calls`` calls and is closed."""
    session = sandbox.session(SOURCE)
    for x in range(calls):
        assert session.call("f", {"x": x}).value == x + 1
    session.close()


def fresh(sandbox: LocalSandbox, count: int = 600) -> Figures:
    samples: list[float] = []
    figures = rate(
        count,
        lambda: samples.extend(timed(lambda: episode(sandbox, 1)) for _ in range(count)),
    )
    return {**figures, "ms": quantiles(samples, 1e3)}


def warm(tier: str, count: int = 200) -> Figures:
    """Acquire, load and first call where an isolated session is waiting."""
    samples: list[float] = []
    with LocalSandbox(LIMITS, force_tier=tier, pool=PoolConfig(warm=4)) as sandbox:
        for _ in range(count):
            time.sleep(0.01)  # the pool refills between acquisitions
            session: list[Session] = []

            def acquire(opened: list[Session] = session, pool: LocalSandbox = sandbox) -> None:
                opened.append(pool.session(SOURCE))
                assert opened[0].call("f", {"x": 1}).value == 2

            samples.append(timed(acquire))
            session[0].close()
    return quantiles(samples, 1e3)


def amortised(sandbox: LocalSandbox) -> Figures:
    """k calls per session, session included, and how many times faster than the naive peer."""
    naive = rate(60, lambda: [naive_call() for _ in range(60)])
    figures: Figures = {"naive": naive}
    for k, sessions in ((1, 300), (10, 200), (100, 100), (1000, 20)):
        measured = rate(
            k * sessions,
            lambda k=k, n=sessions: [episode(sandbox, k) for _ in range(n)],
        )
        measured["times_naive"] = round(measured["per_s"] / naive["per_s"], 1)
        measured["times_naive_cpu"] = round(measured["per_cpu_s"] / naive["per_cpu_s"], 1)
        figures[f"k={k}"] = measured
    return figures


def episodes(tier: str) -> Figures:
    """45,000 calls of 512 sessions that are all open, in turns as a rollout makes them."""
    turns: list[float] = []
    elapsed: list[float] = []
    lost = 0
    with LocalSandbox(LIMITS, force_tier=tier, zygotes=2) as sandbox:
        opened: list[Session] = []
        opening = rate(
            EPISODES,
            lambda: opened.extend(map(good, sandbox.sessions([SOURCE] * EPISODES))),
        )
        left = CALLS

        def play() -> None:
            nonlocal left, lost
            while left:
                batch = opened[: min(left, EPISODES)]
                start = time.perf_counter()
                results = sandbox.call_many([(session, "f", {"x": left}) for session in batch])
                turns.append(time.perf_counter() - start)
                elapsed.extend(result.elapsed_s for result in results)
                lost += sum(
                    result.status is not SandboxStatus.OK or result.value != left + 1
                    for result in results
                )
                left -= len(batch)

        calls = rate(CALLS, play)
    return {
        "opening": opening,
        "calls": calls,
        "lost": lost,
        "call_us": quantiles(elapsed),
        "turn_of_512_ms": quantiles(turns, 1e3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Costs of sandboxed calls.")
    parser.add_argument("--tier", choices=["A", "B"], default="A")
    parser.add_argument("--core", type=int, default=None, help="pin to this core")
    parser.add_argument("--out", type=Path, default=None, help="also write the figures as JSON")
    options = parser.parse_args()
    everywhere = os.sched_getaffinity(0)
    core = max(everywhere) if options.core is None else options.core
    figures: Figures = {
        "python": sys.version.split()[0],
        "kernel": os.uname().release,
        "cores": len(everywhere),
        "tier": options.tier,
        "load_before": [round(value, 1) for value in os.getloadavg()],
    }
    os.sched_setaffinity(0, {core})
    with LocalSandbox(LIMITS, force_tier=options.tier) as sandbox:
        episode(sandbox, 500)
        figures["live call, one core"] = live(sandbox)
        figures["fresh session and one call, one core"] = fresh(sandbox)
        figures["calls per session, one core"] = amortised(sandbox)
    figures["warm acquire, load and first call, one core, ms"] = warm(options.tier)
    os.sched_setaffinity(0, everywhere)
    figures["45,000 calls from 512 open sessions, all cores"] = episodes(options.tier)
    figures["load_after"] = [round(value, 1) for value in os.getloadavg()]
    text = json.dumps(figures, indent=2)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
