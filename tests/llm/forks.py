"""Work in processes that a test may kill: one fork for each line of input.

A line is the JSON that the work takes. Each run's process number is printed and, when it has
ended, its wait status. Runs share the imports of the process that forks, which ``Runs`` drives.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn


class Runs:
    """Runs one after the other, each in a fresh fork."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = 0

    def start(self, given: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(given) + "\n")
        self._process.stdin.flush()
        self.pid = self._read()

    def _read(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def status(self) -> int:
        """The wait status of the last run, once it has ended; 0 for a good end."""
        return self._read()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert self.status() == signal.SIGKILL, "it ended before it could be killed"


@contextmanager
def forked(script: Path, paths: Sequence[Path]) -> Iterator[Runs]:
    """The runs of a script that calls ``serve``, with ``paths`` on its path."""
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
    ) as process:
        yield Runs(process)
        assert process.stdin is not None
        process.stdin.close()


def serve(work: Callable[[Any], None]) -> None:
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            _end(work, json.loads(line))
        print(pid, flush=True)
        print(os.waitpid(pid, 0)[1], flush=True)


def _end(work: Callable[[Any], None], given: Any) -> NoReturn:
    """Do the work and leave with status 0, or 1 with what ended it on stderr."""
    code = 1
    try:
        work(given)
        code = 0
    finally:
        # Not by returning: the loop of the process that forked is not this one's to go on with.
        if code:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)
