"""Stages on 0, 1, 2 and 4 workers of a local Ray cluster: bytes, time, and what a kill costs.

    python benchmarks/machines.py [--stages tasks,envs] [--workers 0,1,2,4] [--folder PLACE]

Each stage runs as dvc starts it, every role asking a local server that answers as the offline rules
do after exactly a second (benchmarks/asking.py), with the same places in flight for each worker. 0
workers is the stage's own process. The wall is the whole stage's, asking the time from its first
request to its last answer; the difference is the start of Python, Ray and the workers. Then the
stage runs on two workers once more, and one is killed half-way: an answer that was in the cache at
that moment must not be asked for again.

The last line is one JSON object. Exit code 1 where tables, metrics or plots differ from those of
the stage's own process, or a committed answer was asked for again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import ray
import resume
import yaml
from asking import LOADS, Workplace
from local_teacher import Latency, Peer, asked_keys, local_teacher

LATENCY = Latency(1.0, 1.0)
PLACES = 4
ROWS = {"tasks": 200, "envs": 90}
"""Rows of a stage's first input: enough asks that the last items weigh little."""
POLL_S = 0.05


@dataclass(frozen=True)
class Outcome:
    """One run of a stage."""

    workers: int
    asks: int
    unknown: int
    """Requests that were not recorded; their answers are made up."""
    wall_s: float
    asking_s: float
    made: str
    """A digest of all tables, metrics and plots."""


@dataclass(frozen=True)
class Killed:
    """A run of which one worker was killed."""

    asks: int
    committed: int
    """Answers in the cache at the kill."""
    asked_again: int
    """How many of them were asked for again."""
    in_flight_lost: int
    """Requests beyond those of a run that nobody disturbs."""
    same: bool
    exit: int


class Trial:
    """A stage, its folder and the server that it asks."""

    def __init__(self, work: Workplace, stage: str, peer: Peer, address: str) -> None:
        self._work, self._stage, self._peer, self._address = work, stage, peer, address
        self._folder = work.at(stage)

    def run(self, workers: int) -> Outcome:
        """The stage from an empty answer cache."""
        came, before = len(self._peer.log()), self._peer.counts()
        started = time.monotonic()
        process = self._start(workers)
        if process.wait():
            raise SystemExit(f"stage {self._stage} failed: see {self._folder / 'stage.log'}")
        wall = time.monotonic() - started
        log, unknown = self._peer.log()[came:], self._peer.counts()["unknown"] - before["unknown"]
        answered = [one.answered for one in log if one.answered is not None]
        asking = max(answered) - min(one.came for one in log)
        return Outcome(workers, len(log), unknown, round(wall, 1), round(asking, 1), self._made())

    def killed(self, whole: Outcome) -> Killed:
        """Two workers, of which one is killed after half of the answers."""
        came, first = len(self._peer.log()), self._peer.counts()["answered"]
        process = self._start(2)
        while self._peer.counts()["answered"] - first < whole.asks // 2:
            if process.poll() is not None:
                raise SystemExit(f"stage {self._stage} ended early: see {self._folder}")
            time.sleep(POLL_S)
        os.kill(self._workers()[0], signal.SIGKILL)
        committed = resume.committed_keys(self._folder / "cache")
        sent_before = len(self._peer.log())
        status = process.wait()
        log = self._peer.log()
        # Sent before the cache was read, but not by then answered: not asked again, but still.
        late = [one.name for one in log[sent_before:]]
        keys = asked_keys(self._work.replies(self._stage))
        return Killed(
            asks=len(log) - came,
            committed=len(committed),
            asked_again=resume.again(late, keys, committed),
            in_flight_lost=len(log) - came - whole.asks,
            same=self._made() == whole.made,
            exit=status,
        )

    def _start(self, workers: int) -> subprocess.Popen[bytes]:
        self._work.ready(self._stage, self._peer.url, PLACES)
        place = self._folder / "params.yaml"
        document = yaml.safe_load(place.read_text())
        document["runtime"]["stage_workers"] = workers
        place.write_text(yaml.safe_dump(document, allow_unicode=True))
        environment = self._work.environment(self._stage) | {"RAY_ADDRESS": self._address}
        with (self._folder / "stage.log").open("wb") as log:
            command = [sys.executable, f"stages/{self._stage}.py"]
            return subprocess.Popen(command, cwd=self._folder, env=environment, stderr=log)

    def _workers(self) -> list[int]:
        """Processes of the stage's workers, all children of this process's cluster."""
        mine = psutil.Process().children(recursive=True)
        return [one.pid for one in mine if "StageWorker" in " ".join(one.cmdline())]

    def _made(self) -> str:
        inputs = {f"data/{name}.parquet" for name in LOADS[self._stage].inputs}
        total = hashlib.sha256()
        for part in ("data", "metrics", "plots"):
            for file in sorted((self._folder / part).rglob("*.*")):
                name = str(file.relative_to(self._folder))
                if name not in inputs:
                    total.update(name.encode() + hashlib.sha256(file.read_bytes()).digest())
        return total.hexdigest()


@contextmanager
def cluster() -> Generator[str]:
    """The address of a cluster of this machine alone."""
    ray.init(address="local", num_cpus=4, log_to_driver=False, include_dashboard=False)
    try:
        yield ray.get_runtime_context().gcs_address
    finally:
        ray.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stages", default="tasks,envs")
    parser.add_argument("--workers", default="0,1,2,4")
    parser.add_argument("--folder", type=Path, help="Kept; recorded answers are used again.")
    asked = parser.parse_args()
    found: dict[str, dict[str, object]] = {}
    faults: list[str] = []
    with ExitStack() as ends:
        folder = asked.folder or Path(
            ends.enter_context(tempfile.TemporaryDirectory(prefix="astra-machines-"))
        )
        work = Workplace(folder, rows=ROWS)
        address = ends.enter_context(cluster())
        for stage in filter(None, asked.stages.split(",")):
            peer = ends.enter_context(local_teacher(work.replies(stage), LATENCY))
            trial = Trial(work, stage, peer, address)
            runs: list[Outcome] = []
            for workers in map(int, asked.workers.split(",")):
                runs.append(trial.run(workers))
                print(f"{stage}: {runs[-1]}", file=sys.stderr, flush=True)
            killed = trial.killed(runs[0])
            print(f"{stage}: {killed}", file=sys.stderr, flush=True)
            found[stage] = {"runs": [asdict(one) for one in runs], "killed": asdict(killed)}
            same = len({one.made for one in runs}) == 1 and killed.same
            if not same or killed.asked_again or killed.exit or any(one.unknown for one in runs):
                faults.append(stage)
    print(json.dumps(found))
    if faults:
        raise SystemExit(f"not as it should be: {', '.join(faults)}")


if __name__ == "__main__":
    main()
