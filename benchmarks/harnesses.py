"""What scripted models score in the harnesses of BFCL and tau2: oracle, careless and mute.

    make bench-env
    PYTHONPATH=src python benchmarks/harnesses.py [--suite bfcl|bfcl_single|tau2]
        [--model oracle|drops|wrong|calls|idle] [--mode fc|prompt] [--live] [--count N]
        [--concurrency 4]

``oracle`` answers the ground truth and must score 1 on every entry, else no score of the suite
can be trusted; ``drops`` leaves one call out: BFCL's last one of the last turn, tau2's last one
that does more than look up; ``wrong`` gives one wrong value in each call of BFCL's single turns and
calls where nothing is to be called; ``calls`` calls the first function with nothing; ``idle`` says
"Done.", to a tau2 user who does what a user has to do. The last two are floors. ``--live`` plays
the live categories of the single turns, where four entries cannot be solved. Without ``--count``
all entries are played. What is finished is in the journal (ASTRA_CACHE), so that a killed run
resumes. Prints one JSON line per run; exits 1 if an oracle misses an entry.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Iterator
from typing import Any

from astra.bench.harness import oracle_bfcl_single as single
from astra.bench.harness import oracles
from astra.bench.harness.play import run_suite
from astra.bench.harness.protocol import Sample, Subject, SuiteConfig
from astra.bench.harness.scripted import ScriptedServer, Writer, idle
from astra.bench.suites.bfcl_single import CATEGORIES
from astra.records.bench import SuiteEpisode
from astra.records.score import Scored

SCRIPT = "1"
"""Part of the journal's keys: another number plays everything again."""
SUITES = ("bfcl", "bfcl_single", "tau2")
LIVE = (
    "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple",
    "live_irrelevance", "live_relevance",
)  # fmt: skip


def options_of(suite: str, wanted: argparse.Namespace) -> dict[str, Any]:
    options: dict[str, Any] = {} if suite == "tau2" else {"mode": wanted.mode}
    if suite == "bfcl_single":
        options["categories"] = LIVE if wanted.live else CATEGORIES
    return options


def writers(suite: str, options: dict[str, Any]) -> Iterator[tuple[str, Writer, Writer]]:
    """(name, model, user simulator)."""
    mode = options.get("mode", "")
    if suite == "bfcl":
        yield "oracle", oracles.bfcl(mode), idle
        yield "drops", oracles.bfcl(mode, drop_last=True), idle
        yield "idle", idle, idle
    elif suite == "bfcl_single":
        yield "oracle", single.oracle(mode, options["categories"]), idle
        yield "wrong", single.wrong(mode, options["categories"]), idle
        yield "calls", single.caller(mode, options["categories"]), idle
        yield "idle", idle, idle
    else:
        yield "oracle", oracles.tau2_agent(), oracles.tau2_user()
        yield "drops", oracles.tau2_agent(drop_last=True), oracles.tau2_user()
        yield "idle", idle, oracles.tau2_patient_user()


def measure(suite: str, name: str, model: Writer, user: Writer, wanted: argparse.Namespace) -> bool:
    """Play, print, and say whether nothing is wrong with the harness."""
    options = options_of(suite, wanted)
    started = time.monotonic()
    with ScriptedServer(model, name) as server, ScriptedServer(user, f"user-{name}") as simulator:
        config = SuiteConfig(
            name=suite,
            sample=Sample(count=wanted.count),
            concurrency=wanted.concurrency,
            options=options,
            endpoints={"user": simulator.endpoint} if suite == "tau2" else {},
        )
        run, episodes = run_suite(config, Subject(name, server.endpoint, SCRIPT))
    print(
        json.dumps(
            {
                "suite": suite, "model": name, **options, "versions": run.versions,
                "entries": len(episodes), "outcomes": run.outcomes,
                "full_by_category": full_by_category(episodes, run.score),
                "missed": [one.entry_id for one in episodes if not full(one, run.score)][:5],
                "seconds": round(time.monotonic() - started, 1),
            }
        ),
        flush=True,
    )  # fmt: skip
    return name != "oracle" or all(full(one, run.score) for one in episodes)


def full(episode: SuiteEpisode, score: str) -> bool:
    measured = episode.scores.get(score)
    return isinstance(measured, Scored) and measured.value == 1.0


def full_by_category(episodes: list[SuiteEpisode], score: str) -> dict[str, str]:
    """How many episodes have the full score, as ``3/200``, by category."""
    rows: dict[str, list[bool]] = {}
    for episode in episodes:
        rows.setdefault(episode.category, []).append(full(episode, score))
    return {category: f"{sum(solved)}/{len(solved)}" for category, solved in sorted(rows.items())}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--suite", choices=SUITES)
    parser.add_argument("--model", choices=("oracle", "drops", "wrong", "calls", "idle"))
    parser.add_argument("--mode", choices=("fc", "prompt"), default="fc")
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--count", type=int)
    parser.add_argument("--concurrency", type=int, default=4)
    wanted = parser.parse_args()
    if wanted.mode == "prompt" and wanted.suite not in ("bfcl", "bfcl_single"):
        parser.error("--mode prompt is a mode of BFCL alone; add --suite bfcl or bfcl_single")
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    good = [
        measure(suite, name, model, user, wanted)
        for suite in SUITES
        if wanted.suite in (None, suite)
        for name, model, user in writers(suite, options_of(suite, wanted))
        if wanted.model in (None, name)
    ]
    sys.exit(0 if good and all(good) else 1)


if __name__ == "__main__":
    main()
