"""Runs stages of the track in processes that a test may kill (``forks``).

A line of input is ``place`` (the workspace) and ``stage``. The folders of the tests that it imports
from are on the path of whoever starts it.
"""

from __future__ import annotations

import importlib
import os

from forks import serve
from track import run

from astra.llm import endpoints, servers


def stage(given: dict[str, str]) -> None:
    place = given["place"]
    os.chdir(place)
    os.environ["ASTRA_CACHE"] = f"{place}/cache"
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{place}/mlflow.db"
    endpoints.BACKOFF_S = servers.REST_S = 0.02
    run(given["stage"])


if __name__ == "__main__":
    importlib.import_module("astra.llm.openai_backend")  # once, before the forks
    serve(stage)
