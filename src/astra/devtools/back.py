"""Go back from an experiment to the committed build: parameters, lock, metrics, plots, outputs.

    python -m astra.devtools.back

git holds the parameters, ``dvc.lock``, the metrics and the plots; DVC's cache holds the data and
the models. Nothing is touched where something in the workspace would be replaced by what the cache
lacks. Committed outputs that were never built here stay absent, as in a fresh clone.
"""

from __future__ import annotations

import logging
import os
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from astra.devtools.programs import run_program
from astra.errors import AstraError
from astra.stage import run_stage

log = logging.getLogger("astra")
HELD_BY_GIT = ("params.yaml", "dvc.lock", "metrics", "plots")


def outputs(graph: Mapping[str, Any], lock: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Path and hash of each output in a lock file that DVC's cache has to hold.

    Metrics, plots and what ``graph`` (dvc.yaml) lists with ``{cache: false}`` lie in git.
    """
    for name, stage in graph["stages"].items():
        for out in lock["stages"].get(name, {}).get("outs", []):
            if out["path"] in stage["outs"]:
                yield out["path"], out["md5"]


def missing(graph: Mapping[str, Any], lock: Mapping[str, Any]) -> list[str]:
    """Outputs that DVC's cache lacks."""
    from dvc.repo import Repo  # slow to import

    with Repo() as repo:
        held = repo.cache.local
        return [path for path, digest in outputs(graph, lock) if not held.exists(digest)]


def main() -> None:
    ArgumentParser(description=__doc__).parse_args()
    graph, lock = (
        yaml.safe_load(run_program("git", "show", f"HEAD:dvc.{end}")) for end in ("yaml", "lock")
    )
    lacking = missing(graph, lock)
    if threatened := [path for path in lacking if Path(path).exists()]:
        raise AstraError(
            f"the cache lacks {', '.join(threatened)} of the committed build; nothing was changed. "
            "If the build in your workspace is the one to keep, commit it: "
            "`git add params.yaml dvc.lock metrics plots && git commit`"
        )
    _distrust_times()
    run_program("git", "checkout", "HEAD", "--", *HELD_BY_GIT)
    # DVC hashes a stage's folder of plots as a whole: a file that only the experiment wrote counts.
    run_program("git", "clean", "-fdq", "plots")
    at_hand = [path for path, _ in outputs(graph, lock) if path not in lacking]
    run_program("dvc", "checkout", *at_hand)
    if lacking:
        log.info("not built here, as before: %s", ", ".join(lacking))
    log.info(
        "this is the committed build: %s", run_program("git", "log", "-1", "--format=%h %s").strip()
    )


def _distrust_times() -> None:
    """Give the files that git holds a new time, so that git compares what they contain.

    A dvc command that failed midway may leave git's index with the size and time of a changed
    file; where the size is that of the committed file, git would take it for unchanged.
    """
    for line in run_program("git", "ls-files", "--", *HELD_BY_GIT).splitlines():
        if Path(line).is_file():
            os.utime(line)


if __name__ == "__main__":
    run_stage("back", main)
