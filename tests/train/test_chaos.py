"""Servers that die, stall, answer late, keep their cache or lose a reload: no gradient sees it."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from chaos_ranks import ARENAS, DEV, PATIENCE_S, small_policy, told_by, train
from processes import run_python, script
from served import half_solved, scorer_of

from astra.rollout import vllm_admin
from astra.rollout.scripted_server import INITIAL, Faults, ScriptedVLLM

KINDS = ("dies", "stalls", "late", "refuses_reset", "loses_reload")
LONG_S = 1500


def version(server: ScriptedVLLM) -> int:
    return -1 if server.weights == INITIAL else int(server.weights.removeprefix("version-"))


class Chaos:
    """Turns faults on and off, all the time, and leaves one server in peace.

    Which one changes every ``BLOCK`` versions, once the next one has taken weights in peace: what
    was left out for a step may only come back with the next.
    """

    BLOCK = 4

    def __init__(self, servers: list[ScriptedVLLM], seed: int, first: int = 2) -> None:
        self.servers, self._first = servers, first
        self.done: Counter[str] = Counter()
        self._rng = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Chaos:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _reached(self) -> int:
        return max(version(server) for server in self.servers)

    def _until(self, version_: int, server: ScriptedVLLM) -> None:
        while version(server) < version_ and not self._over.is_set():
            time.sleep(0.01)

    def _run(self) -> None:
        peaceful = 0
        # Nobody can tell before the first movement that a server stayed where it was.
        self._until(self._first, self.servers[0])
        while not self._over.is_set():
            until = self._reached() + self.BLOCK
            while self._reached() < until and not self._over.is_set():
                others = [one for at, one in enumerate(self.servers) if at != peaceful]
                self._trouble(self._rng.choice(others))
            peaceful = (peaceful + 1) % len(self.servers)
            # One version may be half handed over when peace begins: the second is whole.
            self._until(self._reached() + 2, self.servers[peaceful])

    def _trouble(self, server: ScriptedVLLM) -> None:
        """One fault, for about a step."""
        kind = self._rng.choice(KINDS)
        self.done[kind] += 1
        if kind == "dies":
            server.stop()
        elif kind == "late":
            server.faults.delay_s = self._rng.choice((0.2, 1.5 * PATIENCE_S))
        else:
            setattr(server.faults, kind, True)
        # A reset is asked for again for three seconds: what ends sooner costs nothing.
        lasts = 1.2 * PATIENCE_S if kind in ("stalls", "refuses_reset") else 1.5
        self._over.wait(self._rng.uniform(0.3, lasts))
        server.faults = Faults()
        if kind == "dies":
            server.start()


def servers(count: int, stack: ExitStack) -> list[ScriptedVLLM]:
    codec = small_policy().codec
    reply = half_solved(codec, [*ARENAS, *DEV])
    return [
        stack.enter_context(
            ScriptedVLLM(reply, logprob=told_by, load=scorer_of(small_policy()), kv_tokens=160_000)
        )
        for _ in range(count)
    ]


def verify(report: dict[str, Any], steps: int, samples: int) -> None:
    assert report["steps"] == steps
    assert report["samples"] == samples
    assert report["wrong"] == [], "(step, log-probabilities) of samples by other weights"
    for figures in report["dev"].values():
        assert figures["success"] == 1.0, "evaluation rolled what had been lost again"


def test_a_few_steps_with_failing_servers_train_on_the_right_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_admin, "RESET_WAIT_S", 0.01)
    with ExitStack() as stack:
        some = servers(2, stack)
        some[1].faults.refuses_reset = True  # before the first step
        with Chaos(some, seed=1):
            report = train(tmp_path, [server.url for server in some], steps=6)
    verify(report, 6, 6 * 8)
    assert report["faults"]["cache_kept"] >= 1


@pytest.mark.long
@pytest.mark.timeout(LONG_S + 60)
def test_200_steps_of_four_ranks_survive_failing_servers(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("processes.TIMEOUT_S", LONG_S)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "4"]
    with ExitStack() as stack:
        some = servers(3, stack)
        with Chaos(some, seed=2) as chaos:
            urls = [server.url for server in some]
            ranks = script(root, "chaos_ranks.py")
            run_python(root, *launch, ranks, str(tmp_path), "200", *urls, ACCELERATE_USE_CPU="1")
    reports = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(4)]
    for report in reports:
        verify(report, 200, 200 * 2)
        assert report["faults"] == reports[0]["faults"], "all ranks tell the same"
    print("faults switched on:", dict(chaos.done))
    print("faults seen:", reports[0]["faults"], "episodes rolled again:", reports[0]["retries"])
    assert set(chaos.done) == set(KINDS)
    seen = set(reports[0]["faults"])
    assert seen >= {"unreachable", "cache_kept", "weights_kept", "turns_lost"}
