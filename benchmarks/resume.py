"""Every asking stage killed and interrupted, and run again: nothing paid twice, the same tables.

    python benchmarks/resume.py [--json] [--stages graph,chains] [--times 5] [--seed 0]

Each stage runs to its end once, against a local server with short latencies (benchmarks/asking.py).
Then, from an empty answer cache, it is ended five times at random moments and started again each
time until it is done: once with SIGKILL, which leaves no time for anything, and once with SIGINT to
its process group, as Ctrl-C in a terminal does. Held against the server's log:

- an ask whose answer was in the cache when the stage started is not sent again. What was in flight
  is; the server's log and the cache's keys tell them apart. Exact per prompt: of its samples no
  more are sent than were missing;
- it sends nothing that the undisturbed run did not: what later asks show of an earlier answer is
  the same whether that came from the server or from the cache;
- the tables and metrics at the end have the same bytes as those of the run that nobody disturbed;
- an interrupted stage ends with exit code 130, says how to go on and shows no traceback;
- no process of it is left.

Exit code 1 where any of that fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from asking import ASKING, LOADS, Workplace
from local_teacher import Latency, Peer, asked_keys, local_teacher

LATENCY = Latency(0.05, 0.5)
PLACES = 64
POLL_S = 0.01
JITTER_S = 0.05
END_S = 60.0
"""An ended stage is gone by then."""
LEAVE_S = 5.0
"""And its processes so much later."""
SIGNALS = {"killed": signal.SIGKILL, "interrupted": signal.SIGINT}
FAREWELL = "interrupted; run the same command again to resume"


@dataclass
class Resumed:
    """What came of one stage that was ended again and again."""

    asks: int
    """How many asks the run made that nobody disturbed."""
    sent: int = 0
    """Requests of all runs together."""
    asked_again: int = 0
    """How many of the requests asked for an answer that was committed before."""
    unknown: int = 0
    """Requests that the run that nobody disturbed would not have made."""
    same: bool = False
    exits: list[int] = field(default_factory=list[int])
    unsaid: int = 0
    """Interrupts after which the stage did not say how to go on, or showed a traceback."""
    left_behind: int = 0
    """Processes that outlived the stage."""
    slowest_end_s: float = 0.0
    """The longest time from a signal to the end of the stage."""

    def faults(self) -> int:
        return self.asked_again + self.unknown + self.unsaid + self.left_behind

    def faultless(self, how: str) -> bool:
        code = 130 if how == "interrupted" else -signal.SIGKILL
        ended = all(one == code for one in self.exits[:-1]) and self.exits[-1] == 0
        return ended and self.same and not self.faults()


def again(sent: Iterable[str], keys: Mapping[str, Set[str]], committed: Set[str]) -> int:
    """How many requests ``sent`` by one run had an answer that was ``committed`` before it.

    ``keys`` holds the keys of the asks that show the same prompt, by the request's name; a name
    that is not there is itself a key.
    """
    found = 0
    for name, times in Counter(sent).items():
        missing = keys.get(name, {name}) - committed
        found += max(0, times - len(missing))
    return found


def committed_keys(cache: Path) -> set[str]:
    """What the cache holds; read from a copy, so that the next run finds it as it was left."""
    if not (cache / "answers.sqlite").exists():
        return set()
    with tempfile.TemporaryDirectory() as place:
        for file in cache.glob("answers.sqlite*"):
            shutil.copy(file, place)
        with closing(sqlite3.connect(Path(place) / "answers.sqlite")) as connection:
            return {key for (key,) in connection.execute("SELECT key FROM answers")}


class Trial:
    """A stage, its folder and the server that it asks."""

    def __init__(self, work: Workplace, stage: str, peer: Peer) -> None:
        self._work, self._stage, self._peer = work, stage, peer
        self._folder = work.at(stage)
        self._log = self._folder / "stage.log"
        self._keys = asked_keys(work.replies(stage))

    def undisturbed(self) -> tuple[int, dict[str, str]]:
        """Asks and digests of what a run makes that nobody ends."""
        self._work.ready(self._stage, self._peer.url, PLACES)
        process = self._start()
        if process.wait():
            raise SystemExit(f"stage {self._stage} failed: see {self._log}")
        return self._peer.counts()["asked"], self._made()

    def resumed(self, how: str, asks: int, made: Mapping[str, str], moments: Moments) -> Resumed:
        """The stage ended at every moment, then run to its end."""
        found = Resumed(asks)
        self._work.ready(self._stage, self._peer.url, PLACES)
        first = self._peer.counts()
        for moment in [*moments.draw(asks), None]:
            before = committed_keys(self._folder / "cache")
            came = self._peer.counts()["asked"]
            process = self._start()
            if moment is None:
                found.exits.append(process.wait())
            elif self._reached(process, first["answered"] + moment, came):
                moments.jitter()
                self._end(process, how, found)
            else:
                found.exits.append(process.returncode)  # too early: shown as a fault
            sent = [one.name for one in self._peer.log()[came:]]
            found.sent += len(sent)
            found.asked_again += again(sent, self._keys, before)
        found.unknown = self._peer.counts()["unknown"] - first["unknown"]
        found.same = self._made() == made
        return found

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, f"stages/{self._stage}.py"]
        environment = self._work.environment(self._stage)
        with self._log.open("wb") as log:
            return subprocess.Popen(
                command, cwd=self._folder, env=environment, stderr=log, start_new_session=True
            )

    def _reached(self, process: subprocess.Popen[bytes], answers: int, came: int) -> bool:
        """Wait until this run has asked and ``answers`` were given in all; False if it ends."""
        while process.poll() is None:
            counts = self._peer.counts()
            if counts["asked"] > came and counts["answered"] >= answers:
                return True
            time.sleep(POLL_S)
        return False

    def _end(self, process: subprocess.Popen[bytes], how: str, found: Resumed) -> None:
        try:
            family = psutil.Process(process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            family = []
        started = time.monotonic()
        if how == "interrupted":
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.kill()
        found.exits.append(process.wait(END_S))
        found.slowest_end_s = max(found.slowest_end_s, round(time.monotonic() - started, 2))
        if how == "interrupted":
            said = self._log.read_text(errors="replace")
            found.unsaid += FAREWELL not in said[-200:] or "Traceback" in said
        _, left = psutil.wait_procs(family, LEAVE_S)
        found.left_behind += len(left)
        for one in left:
            one.kill()

    def _made(self) -> dict[str, str]:
        """Digests of tables and metrics by name, inputs left out."""
        inputs = {f"{name}.parquet" for name in LOADS[self._stage].inputs}
        files = [
            *(p for p in (self._folder / "data").rglob("*.parquet") if p.name not in inputs
              or p.parent.name != "data"),
            *(self._folder / "metrics").glob("*.json"),
        ]  # fmt: skip
        return {
            str(file.relative_to(self._folder)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in files
        }


class Moments:
    """When a stage is ended: by how many answers it has had, and a little later."""

    def __init__(self, seed: str, times: int) -> None:
        self._random = random.Random(seed)
        self._times = times

    def draw(self, asks: int) -> list[int]:
        """Numbers of answers in rising order; the run after the last still has asks to make."""
        chosen = range(1, asks - 3 * PLACES)
        return sorted(self._random.sample(chosen, self._times))

    def jitter(self) -> None:
        time.sleep(self._random.uniform(0, JITTER_S))


def examine(work: Workplace, stage: str, times: int, seed: int) -> dict[str, Resumed]:
    replies = work.replies(stage)
    with local_teacher(replies, LATENCY) as peer:
        trial = Trial(work, stage, peer)
        asks, made = trial.undisturbed()
        return {
            how: trial.resumed(how, asks, made, Moments(f"{seed} {stage} {how}", times))
            for how in SIGNALS
        }


HEAD = (
    "| stage | ended by | asks | sent | asked again | not known | same bytes "
    "| exit codes | unsaid | left behind | slowest end s |"
)


def lines(stage: str, found: Mapping[str, Resumed]) -> list[str]:
    rows: list[str] = []
    for how, one in found.items():
        codes = " ".join(map(str, one.exits))
        cells = [
            stage, SIGNALS[how].name, one.asks, one.sent, one.asked_again, one.unknown, one.same,
            codes, one.unsaid, one.left_behind, one.slowest_end_s,
        ]  # fmt: skip
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stages", default=",".join(ASKING))
    parser.add_argument("--folder", type=Path, help="Kept; recorded answers are used again.")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found: dict[str, dict[str, Resumed]] = {}
    with ExitStack() as ends:
        folder = asked.folder or Path(
            ends.enter_context(tempfile.TemporaryDirectory(prefix="astra-resume-"))
        )
        work = Workplace(folder)
        print("\n".join([HEAD, "|" + "---|" * (HEAD.count("|") - 1)]), file=sys.stderr)
        for stage in filter(None, asked.stages.split(",")):
            found[stage] = examine(work, stage, asked.times, asked.seed)
            print("\n".join(lines(stage, found[stage])), file=sys.stderr, flush=True)
    if asked.json:
        shown: dict[str, Any] = {
            stage: {how: asdict(one) for how, one in both.items()} for stage, both in found.items()
        }
        print(json.dumps(shown))
    faults = [
        f"{stage} {how}"
        for stage, both in found.items()
        for how, one in both.items()
        if not one.faultless(how)
    ]
    if faults:
        raise SystemExit(f"not as it should be: {', '.join(faults)}")


if __name__ == "__main__":
    main()
