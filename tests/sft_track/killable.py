"""Runs stages of the track in processes that a test may kill, one fork for each line of input.

A line is JSON: ``place`` (the workspace), ``stage``. It prints each run's process number and, when
that has ended, its wait status. Runs share one import of everything a stage needs.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("sft_track", "trajectories", "llm", ".")]

from track import run  # noqa: E402  (the path comes first)

from astra.llm import endpoints, openai_backend, servers  # noqa: E402

_ = openai_backend  # imported before the forks


def child(place: str, stage: str) -> None:
    os.chdir(place)
    os.environ["ASTRA_CACHE"] = f"{place}/cache"
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{place}/mlflow.db"
    endpoints.BACKOFF_S = servers.REST_S = 0.02
    run(stage)


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            code = 1
            try:
                child(**json.loads(line))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        print(pid, flush=True)
        print(os.waitpid(pid, 0)[1], flush=True)


if __name__ == "__main__":
    main()
