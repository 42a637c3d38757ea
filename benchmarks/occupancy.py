"""How much of the places in flight each asking stage uses, with answers that take their time.

    python benchmarks/occupancy.py [--json] [--stages graph,chains] [--folder PLACE]
    python benchmarks/occupancy.py --constant 4 --places 256 --stages tasks,envs --times 3

Each stage runs as dvc starts it, at scale ``full`` but for its counts, every role asking a local
server that answers as the offline rules do (benchmarks/asking.py) after a lognormal latency:
median 1 s, 99 % within 10 s. Occupancy is the mean share of the places that the server found in
use between the first and the last 5 % of the stage's answers. The ideal wall keeps all places in
use from the first request to the last. With ``--json`` the last line is one object, stage ->
occupancy.

With ``--constant`` all answers take as long, and the wall is set against the longer of two bounds:
all asks through all places, and the longest chain of asks of which each needs the one before.
``--more 3`` makes three times the asks: starting, the last items and MLflow then weigh less.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from asking import ASKING, LOADS, Workplace
from local_teacher import Latency, Request, local_teacher

LATENCY = Latency(1.0, 10.0)
PLACES = 64
EDGE = 0.05
"""Share of the answers at either end that is not looked at: places fill, and items run out."""
ENOUGH = 3_000
"""Asks below which a stage's occupancy says too little."""


@dataclass(frozen=True)
class Outcome:
    """One run of a stage."""

    asks: int
    wall_s: float
    asking_s: float
    """The time from the first request to the last answer."""
    ideal_s: float
    occupancy: float
    cpu_s: float
    """What the stage's process and its children used."""
    server_cpu_s: float
    lag_ms: float
    """How much longer than their latency the server kept its requests, on average."""
    unknown: int
    """Requests that were not recorded; their answers are made up."""
    load: float

    @property
    def started_s(self) -> float:
        """What passes before the first request and after the last answer."""
        return self.wall_s - self.asking_s


def in_use(log: Sequence[Request], places: int, edge: float = EDGE) -> float:
    """Mean share of ``places`` in use between the first and last ``edge`` of the answers."""
    ends = sorted(one.answered for one in log if one.answered is not None)
    cut = round(len(ends) * edge)
    start, end = ends[cut], ends[-1 - cut]
    busy = sum(max(0.0, min(one.answered or end, end) - max(one.came, start)) for one in log)
    return busy / (places * (end - start))


def measure(work: Workplace, stage: str, latency: Latency, places: int) -> Outcome:
    """Run the stage once from an empty answer cache."""
    replies = work.replies(stage)
    with ExitStack() as ends:
        peer = ends.enter_context(local_teacher(replies, latency))
        work.ready(stage, peer.url, places)
        place = work.at(stage) / "stage.log"
        log = ends.enter_context(place.open("wb"))
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, f"stages/{stage}.py"],
            cwd=work.at(stage), env=work.environment(stage), stderr=log,
        )  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
        wall = time.monotonic() - started
        requests, counts = peer.log(), peer.counts()
    if status:
        raise SystemExit(f"stage {stage} failed: see {place}")
    answered = [one.answered for one in requests if one.answered is not None]
    return Outcome(
        asks=len(requests),
        wall_s=wall,
        asking_s=max(answered) - requests[0].came,
        ideal_s=sum(one.latency_s for one in requests) / places,
        occupancy=in_use(requests, places),
        cpu_s=used.ru_utime + used.ru_stime,
        server_cpu_s=counts["cpu_s"],
        lag_ms=1e3
        * statistics.mean(
            one.answered - one.came - one.latency_s for one in requests if one.answered is not None
        ),
        unknown=counts["unknown"],
        load=os.getloadavg()[0],
    )


# -- what a person reads --------------------------------------------------------------------

HEAD = (
    "| stage | asks | not recorded | wall s | asking s | ideal s "
    "| occupancy | CPU s | server CPU s | lag ms | load |"
)


def line(stage: str, one: Outcome) -> str:
    cells = [
        stage, f"{one.asks:,}", str(one.unknown), f"{one.wall_s:.1f}", f"{one.asking_s:.1f}",
        f"{one.ideal_s:.1f}", f"{one.occupancy:.3f}", f"{one.cpu_s:.1f}",
        f"{one.server_cpu_s:.1f}", f"{one.lag_ms:.1f}", f"{one.load:.1f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def table(found: dict[str, Outcome]) -> str:
    rule = "|" + "---|" * (HEAD.count("|") - 1)
    return "\n".join([HEAD, rule, *(line(stage, one) for stage, one in found.items())])


def against_bounds(stage: str, one: Outcome, latency_s: float, places: int) -> str:
    """The wall as a multiple of what it cannot be shorter than."""
    chain = LOADS[stage].chain
    bound = max(one.asks * latency_s / places, chain * latency_s)
    return (
        f"{stage}: wall {one.wall_s:.1f} s, {one.asks:,} asks, chain {chain}, bound {bound:.1f} s, "
        f"ratio {one.wall_s / bound:.3f} (asking {one.asking_s / bound:.3f}), "
        f"CPU {one.cpu_s:.1f} s, load {one.load:.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stages", default=",".join(ASKING))
    parser.add_argument("--folder", type=Path, help="Kept; recorded answers are used again.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--places", type=int, default=PLACES)
    parser.add_argument("--constant", type=float, metavar="SECONDS")
    parser.add_argument("--times", type=int, default=1, help="Runs of each stage.")
    parser.add_argument("--more", type=int, default=1, help="Times the usual asks.")
    asked = parser.parse_args()
    stages = [name for name in asked.stages.split(",") if name]
    latency = Latency(asked.constant, asked.constant) if asked.constant else LATENCY
    with ExitStack() as ends:
        folder = asked.folder or Path(
            ends.enter_context(tempfile.TemporaryDirectory(prefix="astra-asks-"))
        )
        work = Workplace(folder, asked.more)
        found: dict[str, Outcome] = {}
        for stage in stages:
            for _ in range(asked.times):
                found[stage] = one = measure(work, stage, latency, asked.places)
                if asked.constant:
                    print(against_bounds(stage, one, asked.constant, asked.places), flush=True)
                else:
                    print(line(stage, one), file=sys.stderr, flush=True)
                if one.asks < ENOUGH:
                    print(f"{stage}: fewer than {ENOUGH:,} asks", file=sys.stderr)
    if asked.json:
        print(json.dumps({stage: round(one.occupancy, 3) for stage, one in found.items()}))
    elif not asked.constant:
        print(table(found))


if __name__ == "__main__":
    main()
