"""Work in processes that a test may kill: one fork for each line of input.

A line is the JSON that the work takes. Each run's process number is printed and, when it has
ended, its wait status. Runs share the imports of the process that forks.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn


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
