"""Worlds exported as domains of tau2-Bench, played by its own orchestrator and evaluators.

    make bench-env
    PYTHONPATH=src python benchmarks/worlds_export_tau2.py --json [--table data/goals.parquet]
        [--shape small] [--goals N] [--out FOLDER]

Without a table the worlds of the three held-out domains and their goals are made first, as scale
``small`` makes them. Every task is then played by scripted sides: ``oracle`` follows the goal's
trace and must get 1; ``mute`` says and does nothing, ``careless`` leaves out the last call that
writes, ``silent`` makes every call and tells nothing, and each must get 0. The last line is one
JSON object; exits 1 if a task pays otherwise.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from astra.arena.world_table import read_arenas
from astra.arena.worlds import base_of, goal_of, resolve, world_texts
from astra.bench.harness.hosted import HostedDesk
from astra.devtools.params import compose
from astra.export.tau2 import Tau2Domains
from astra.export.write import write_domains
from astra.records.environment import Arena
from astra.records.qa import Split
from astra.records.world import EventKind, TraceEvent, World
from astra.sandbox.local import LocalSandbox
from astra.settings import validate
from astra.store.metrics import StageMetrics
from astra.worlds.config import WorldsConfig
from astra.worlds.domain import load_domains
from astra.worlds.goal_config import GoalsConfig
from astra.worlds.goal_plans import world_plans
from astra.worlds.goal_stage import goal_arenas
from astra.worlds.plans import plans
from astra.worlds.worlds import worlds
from worlds import NOBODY, OPEN, Nobody, drained

DRIVER, PACKAGE = "tau2_export", "exported_worlds"
NOTHING = "..."
PAID = {"oracle": 1.0, "mute": 0.0, "careless": 0.0, "silent": 0.0}
"""What each side must get on every task."""
log = logging.getLogger(__name__)
Moves = list[dict[str, Any]]


def made(shape: str, goals: int) -> list[Arena]:
    """Goals in one world of each held-out domain."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "params.yaml"
        compose(file, ["scale=small"])
        params = yaml.safe_load(file.read_text("utf-8"))
    held = [domain.name for domain in load_domains().values() if domain.split == Split.HELDOUT]
    block = {"contamination": None, "shape": shape, "domains": held, "variants": {"heldout": 1}}
    planned = validate("worlds", params["worlds"] | block, WorldsConfig)
    counts = {"instances": {"heldout": goals}}
    config = validate("goals", params["goals"] | counts, GoalsConfig)
    with LocalSandbox(planned.sandbox) as sandbox:
        metrics = StageMetrics("worlds")
        found = drained(
            worlds(plans(planned), NOBODY, sandbox, planned, None, OPEN, metrics), World
        )
        wanted = list(world_plans(found, config))
        metrics = StageMetrics("goals")
        arenas = drained(goal_arenas(wanted, Nobody(), sandbox, config, OPEN, metrics), Arena)
    texts = world_texts(found)
    return [resolve(arena, texts) for arena in arenas]


def scripts(arena: Arena) -> Iterator[tuple[str, Moves]]:
    """The moves of each side that has something to do, or to leave out, in a task."""
    goal, base = goal_of(arena), base_of(arena)
    moves = [move_of(event) for event in goal.trace]
    yield "oracle", moves
    yield "mute", [moves[0], {"say": NOTHING}]
    writing = [at for at, event in enumerate(goal.trace) if base.writes.get(event.tool)]
    if writing:
        yield "careless", moves[: writing[-1]] + moves[writing[-1] + 1 :]
    if goal.say:
        yield "silent", [{"say": NOTHING} if "say" in move else move for move in moves]


def move_of(event: TraceEvent) -> dict[str, Any]:
    if event.kind == EventKind.CALL:
        return {"tool": event.tool, "arguments": event.arguments}
    return {"user" if event.kind == EventKind.USER else "say": event.text}


def played(arenas: list[Arena], domains: Tau2Domains, folder: Path) -> dict[str, Any]:
    """Every exported task by every side."""
    by_id = {arena.id: arena for arena in arenas}
    rewards: dict[str, Counter[float]] = {side: Counter() for side in PAID}
    wrong: list[dict[str, Any]] = []
    desk = HostedDesk(DRIVER, folder)
    try:
        told = desk.ask("open", folder=str(folder), package=PACKAGE)
        for domain, tasks in domains.tasks.items():
            ids = [task["id"] for task in tasks]
            assert told[domain]["tasks"] == ids, f"{domain}: tau2 loads other tasks than written"
            for at, id in enumerate(ids):
                for side, moves in scripts(by_id[id]):
                    run = desk.ask("play", domain=domain, task=id, moves=moves)
                    rewards[side][run["reward"]] += 1
                    odd = side == "oracle" and (run["failed"] or run["left"])
                    if run["reward"] != PAID[side] or odd:
                        wrong.append({"domain": domain, "task": id, "side": side, **run})
                log.info("%s: %d of %d", domain, at + 1, len(ids))
        cpu = desk.ask("cpu_seconds")
    finally:
        desk.close()
    return {
        "rewards": {side: {f"{reward:g}": many for reward, many in sorted(found.items())}
                    for side, found in rewards.items()},
        "wrong": wrong,
        "cpu_seconds_in_tau2": round(cpu, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--table", type=Path, help="arenas in worlds; the held-out are played")
    parser.add_argument("--shape", choices=("small", "full"), default="full", help="of made worlds")
    parser.add_argument("--goals", type=int, default=150, help="so many are made, at most")
    parser.add_argument("--out", type=Path, help="where the domains are left")
    parser.add_argument("--json", action="store_true", help="print nothing but the figures")
    wanted = parser.parse_args()
    level = logging.WARNING if wanted.json else logging.INFO
    logging.basicConfig(level=level, stream=sys.stderr, format="%(message)s")
    begun = time.monotonic()
    if wanted.table:
        arenas = [one for one in read_arenas(wanted.table) if one.split == Split.HELDOUT]
    else:
        arenas = made(wanted.shape, wanted.goals)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (wanted.out or Path(temporary) / "domains").absolute()
        _, domains = write_domains(arenas, folder, PACKAGE)
        figures = {
            "goals": len(arenas),
            "left_out": domains.left_out,
            "tasks": {domain: len(tasks) for domain, tasks in domains.tasks.items()},
            "kinds": dict(Counter(task["description"]["purpose"] for tasks in
                                  domains.tasks.values() for task in tasks)),
            **played(arenas, domains, folder),
            "seconds": round(time.monotonic() - begun, 1),
        }  # fmt: skip
    print(json.dumps(figures))
    if figures["wrong"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
