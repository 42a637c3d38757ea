"""One vLLM server as the trainer administers it: weights taken, caches forgotten, both proven.

vLLM answers 200 where it did neither: ``/reset_prefix_cache`` skips a cache with a block in use
(vLLM pull requests 12284 and 28827), and ``reload_weights`` may leave weights where they were
(vLLM 0.32 on CPU keeps the old output head of a tied model). So a prompt is put into the cache
before the weights change and must not be found there afterwards, and the server must compute
what the trainer computes, and must have moved as the trainer did.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any, Literal
from urllib import request

from astra.rollout.errors import EngineError
from astra.rollout.transfer import Transfer

FaultKind = Literal["unreachable", "weights_refused", "cache_kept", "weights_kept", "restarted",
                "stalled", "turns_lost"]  # fmt: skip
"""What goes wrong with a server; metrics count each."""
RESETS = 5
"""How often the prefix cache is asked to go before the server is left out."""
RESET_WAIT_S = 0.2
"""The wait after the first try, doubled after each: blocks of aborted requests are freed late."""
PROBE_BLOCKS = 4
"""The probe fills so many blocks of the prefix cache."""
MOST_SILENT_S = 30.0
"""How long a server may take to say how it is."""
MOST_GAP = 0.1
"""Mean difference of log-probabilities (nats) beyond which a server computes something else."""
GAP_GROWTH, GAP_FLOOR = 3.0, 1e-3
"""A server's difference may grow to so many times that of its first weights, plus the floor."""
MOVED = 1e-5
"""Mean movement (nats) of the trainer's log-probabilities that a server must have followed."""
_CPU_BLOCK = 128
"""The largest usual block, for servers that do not tell theirs."""
_DIRECT = request.build_opener(request.ProxyHandler({}))
"""Rollout servers are neighbours: never through a proxy."""
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_STARTED = re.compile(r"^process_start_time_seconds(?:\{[^}]*\})? (\S+)", re.MULTILINE)
Scored = tuple[list[int], list[float]]
"""Ids of a prompt and the log-probabilities of all but the first."""


class ServerFault(Exception):
    """The server must not be used before it has taken the next version."""

    def __init__(self, kind: FaultKind, problem: str) -> None:
        super().__init__(problem)
        self.kind: FaultKind = kind


class Administration:
    """Administers the server at ``url``, which serves ``model``. Requests end after ``timeout_s``.

    Raises EngineError where it does not answer at all, or does not say what is needed of it.
    """

    def __init__(self, url: str, model: str, timeout_s: float) -> None:
        self.url = url
        self._model, self._timeout_s = model, timeout_s
        try:
            self._read_metrics()
        except OSError as error:
            raise EngineError(
                f"vLLM server {url} does not answer: {error}; start it (docs/training.md), or "
                "correct runtime.rollout_servers"
            ) from error
        self._first_gap: float | None = None
        self._anchor: tuple[Sequence[float], Sequence[float]] | None = None
        """What it and the trainer computed when it was shown to follow, if it was the last time."""
        self._offered: Sequence[float] | None = None
        """What the trainer computed with the weights that it was given last; before it was given
        any, with the first that it should have been given."""

    def _read_metrics(self) -> None:
        text = self.get("/metrics")
        rows = [row for row in text.splitlines() if row.startswith("vllm:cache_config_info")]
        labels = dict(_LABEL.findall(rows[0])) if rows else {}
        self.block = _int(labels.get("block_size", "")) or _CPU_BLOCK
        blocks = _int(labels.get("num_gpu_blocks", "")) * _int(labels.get("block_size", ""))
        self.kv_tokens = _int(labels.get("kv_cache_size_tokens", "")) or blocks
        """Tokens of key-value memory; 0 where it does not say."""
        self.started = started_at(text)

    def get(self, path: str) -> str:
        return _read(f"{self.url}{path}", min(MOST_SILENT_S, self._timeout_s))

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> str:
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        posted = request.Request(f"{self.url}{path}", data, headers, method="POST")
        return _read(posted, self._timeout_s)

    def hand_over(self, transfer: Transfer, expected: Scored) -> None:
        """Give it the weights by ``transfer``; afterwards it generates with nothing older.

        ``expected`` is what the trainer computes with them. Raises ServerFault where the server
        is not there, refuses, keeps its cache or computes something else.
        """
        ids, trained = expected
        if self._offered is None:
            self._offered = trained
        process = self.started
        try:
            self.get("/health")
            self._read_metrics()
            if self.started != process:
                self._anchor = None
            # Where it was not shown to follow last time, only this tells what it holds now.
            held = self._anchor or (self._scored(ids), self._offered)
            probe = self._probe(ids)
            self._cached(probe)  # now it is, by the old weights
        except OSError as error:
            raise ServerFault("unreachable", str(error)) from error
        anchor, self._anchor = self._anchor, None
        try:
            transfer.give(self)
            self._offered = trained
        except OSError as error:
            raise ServerFault(
                "weights_refused", f"does not take the policy's weights ({error})"
            ) from error
        try:
            self._forget(probe)
            told = self._follow(ids, trained, held)
        except OSError as error:
            raise ServerFault("unreachable", str(error)) from error
        small = _mean_difference(trained, held[1]) <= MOVED
        # An anchor stays while steps are small: they add up.
        self._anchor = anchor if anchor is not None and small else (told, trained)

    def _probe(self, ids: Sequence[int]) -> list[int]:
        """A prompt of some whole blocks and the token that a full hit must leave to compute.

        It begins as no conversation does: one that was given up may come back into the cache.
        """
        length = PROBE_BLOCKS * self.block + 1
        return (list(ids)[::-1] * (length // len(ids) + 1))[:length]

    def _cached(self, probe: list[int]) -> int:
        """How many of the probe's tokens the prefix cache gave, of one token generated after it."""
        body = {"model": self._model, "prompt": probe, "max_tokens": 1, "temperature": 0.0}
        reply = _parsed(self.post("/v1/completions", body))
        # Older versions leave the details out where nothing was cached.
        details = (reply.get("usage") or {}).get("prompt_tokens_details") or {}
        return int(details.get("cached_tokens") or 0)

    def _forget(self, probe: list[int]) -> None:
        """Have the prefix cache forgotten. ServerFault where the probe is still found in it."""
        kept = len(probe)
        for attempt in range(RESETS):
            if attempt:
                time.sleep(RESET_WAIT_S * 2 ** (attempt - 1))
            # Whatever runs was given up long ago, as this comes between batches.
            self.post("/reset_prefix_cache?reset_running_requests=true")
            if not (kept := self._cached(probe)):
                break
        if kept:
            raise ServerFault(
                "cache_kept",
                f"keeps {kept} tokens in its prefix cache that older weights computed, though it "
                f"was asked {RESETS} times to reset it; requests that never end may hold them",
            )
        if not self._cached(probe):
            raise ServerFault(
                "cache_kept",
                "does not say what its prefix cache holds, so a reset cannot be proven; start it "
                "with --enable-prefix-caching --enable-prompt-tokens-details",
            )

    def _follow(
        self, ids: list[int], expected: list[float], held: tuple[Sequence[float], Sequence[float]]
    ) -> list[float]:
        """What the server computes; ServerFault where that is not what the trainer does.

        ``held`` is what the server computed before it was given the weights, and what the trainer
        computed with those that the server held then, if it had taken all that it was given.
        """
        told = self._scored(ids)
        gap = _mean_difference(told, expected)
        first = gap if self._first_gap is None else self._first_gap
        most = min(MOST_GAP, GAP_GROWTH * first + GAP_FLOOR)
        if not gap <= most:
            raise ServerFault(
                "weights_kept",
                f"computes other log-probabilities than the trainer ({gap:.4f} nats apart, at most "
                f"{most:.4f}): it has not taken all of the policy's weights",
            )
        before, trained = held
        moved = _mean_difference(expected, trained)
        if moved > MOVED:
            should = [a + b - c for a, b, c in zip(before, expected, trained, strict=True)]
            if _mean_difference(told, before) < 0.5 * _mean_difference(told, should):
                raise ServerFault(
                    "weights_kept",
                    f"computes what it computed before, though the trainer moved by {moved:.2g} "
                    "nats: it has not taken the policy's weights",
                )
        self._first_gap = first
        return told

    def _scored(self, ids: list[int]) -> list[float]:
        body = {"model": self._model, "prompt": ids, "max_tokens": 1, "prompt_logprobs": 0}
        reply = _parsed(self.post("/v1/completions", body))
        try:
            rows = reply["choices"][0]["prompt_logprobs"][1:]
            return [float(row[str(i)]["logprob"]) for row, i in zip(rows, ids[1:], strict=True)]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ServerFault(
                "weights_refused", f"does not say log-probabilities of a prompt: {error!r}"
            ) from error


def started_at(metrics: str) -> float:
    """When the process that wrote ``metrics`` started (seconds since 1970).

    Raises EngineError where it does not say: a restart, with other weights, would go unseen.
    """
    found = _STARTED.search(metrics)
    if found is None:
        raise EngineError(
            "a vLLM server's /metrics lack process_start_time_seconds, so a restart would go "
            "unseen; run one API server per rollout server (--api-server-count 1)"
        )
    return float(found[1])


def _read(asked: str | request.Request, timeout_s: float) -> str:
    """The body of the answer. Whatever goes wrong with it is an OSError."""
    try:
        with _DIRECT.open(asked, timeout=timeout_s) as reply:
            return reply.read().decode()
    except HTTPException as error:
        raise OSError(f"{error!r}") from error


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OSError(f"no JSON: {text[:200]!r}") from error


def _mean_difference(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / len(one)


def _int(text: str) -> int:
    return int(text) if text.isdigit() else 0
