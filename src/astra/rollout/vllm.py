"""The client of vLLM servers: token ids in, ids and log-probabilities out, new weights by folder.

Stock ``vllm serve`` with ``--logprobs-mode processed_logprobs`` and VLLM_SERVER_DEV_MODE=1,
from an environment of its own. Weights travel through a folder that trainer and servers share:
the trainer saves them, each server reloads them in place and forgets its prefix cache. Then it
is asked for log-probabilities that the trainer has computed too: a server may take weights and
leave some where they were (vLLM 0.32 on CPU keeps the old output head of a tied model).
A conversation stays on one server, whose prefix cache then holds its history.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import shutil
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib import request

import aiohttp

from astra.rollout.engine import Reference, Sampling, Turn
from astra.rollout.errors import EngineError, TurnLost
from astra.rollout.streaming import Admission, Talk

ATTEMPTS = 3
BACKOFF_S = 0.5
SYNC_TIMEOUT_S = 600.0
MOST_GAP = 0.1
"""Mean difference of log-probabilities (nats) beyond which a server computes something else."""
GAP_GROWTH, GAP_FLOOR = 3.0, 1e-3
"""A server's difference may grow to so many times that of its first weights, plus the floor."""
_RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504})
_DIRECT = request.build_opener(request.ProxyHandler({}))
"""Rollout servers are neighbours: never through a proxy."""
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass
class _Server:
    url: str
    admission: Admission
    alive: bool = True
    problem: str = ""
    talks: int = 0
    first_gap: float | None = None


@dataclass
class VLLMConfig:
    """``kv_tokens``: key-value memory of one server; None: what it says of itself."""

    servers: Sequence[str]
    model: str = "policy"
    """Name the servers serve the policy under (``--served-model-name``)."""
    kv_tokens: int | None = None
    request_timeout_s: float = 600.0
    folder: Path = field(default_factory=lambda: Path("runs/rl/weights"))
    """Where weights are handed over; every server must see it under the same path."""


class VLLMEngine:
    """``save(folder)`` writes the policy as a model folder and says whether this process hands
    it to the servers: of several ranks all call it, one does.

    Raises EngineError where no server is left, or where one answers with something that
    cannot be trained on: a token it stopped at that is not EOS, or no log-probabilities.
    """

    def __init__(
        self,
        config: VLLMConfig,
        eos_id: int,
        save: Callable[[Path], bool],
        reference: Reference | None = None,
    ) -> None:
        if not config.servers:
            raise EngineError(
                "rl/engine is vllm, but runtime.rollout_servers is empty; start `vllm serve` "
                "(docs/training.md) and list its URL there"
            )
        self.weight_version = -1
        self._config = config
        self._eos = eos_id
        self._save = save
        self._reference = reference
        self._servers = [
            _Server(url.rstrip("/"), Admission(config.kv_tokens or _kv_tokens(url.rstrip("/"))))
            for url in config.servers
        ]
        self._http: aiohttp.ClientSession | None = None

    @property
    def peak_tokens(self) -> int:
        """Most key-value memory that was ever held on one server."""
        return max(server.admission.peak for server in self._servers)

    def sync(self, version: int) -> None:
        """Hand the policy's weights to every server, once per version.

        A server that nobody answers for is left out until the next version. One that answers and
        does not take the weights is an EngineError: it would go on with stale ones.
        """
        if version == self.weight_version:
            return
        folder = (self._config.folder / f"version-{version}").absolute()
        hands_over = self._save(folder)
        expected = self._reference() if self._reference is not None else None
        for server in self._servers:
            server.alive = self._update(server, folder if hands_over else None)
            if server.alive and hands_over and expected is not None:
                self._compare(server, *expected)
        self._somebody()
        if hands_over:
            for stale in self._config.folder.glob("version-*"):
                if stale.name != folder.name:
                    shutil.rmtree(stale)
        self.weight_version = version

    def _update(self, server: _Server, weights: Path | None) -> bool:
        """Whether the server is there, and has taken ``weights`` where there are any."""
        try:
            _get(f"{server.url}/health")
        except OSError as error:
            server.problem = str(error)
            return False
        if weights is not None:
            body = {"method": "reload_weights", "kwargs": {"weights_path": str(weights)}}
            try:
                _post(f"{server.url}/collective_rpc", {**body, "timeout": SYNC_TIMEOUT_S})
                _post(f"{server.url}/reset_prefix_cache", None)
            except OSError as error:
                raise EngineError(
                    f"{server.url} does not take the policy's weights ({error}); it must run with "
                    f"VLLM_SERVER_DEV_MODE=1 and see {weights}"
                ) from error
        return True

    def _compare(self, server: _Server, ids: list[int], expected: list[float]) -> None:
        """Raises EngineError where the server does not compute what the trainer does."""
        body = {"model": self._config.model, "prompt": ids, "max_tokens": 1, "prompt_logprobs": 0}
        try:
            reply = json.loads(_post(f"{server.url}/v1/completions", body))
            rows = reply["choices"][0]["prompt_logprobs"][1:]
            told = [row[str(token)]["logprob"] for row, token in zip(rows, ids[1:], strict=True)]
        except (OSError, KeyError, IndexError, TypeError, ValueError) as error:
            raise EngineError(
                f"{server.url} does not say log-probabilities of a prompt: {error!r}"
            ) from error
        gap = sum(abs(a - b) for a, b in zip(told, expected, strict=True)) / len(expected)
        if server.first_gap is None:
            server.first_gap = gap
        most = min(MOST_GAP, GAP_GROWTH * server.first_gap + GAP_FLOOR)
        if not gap <= most:
            raise EngineError(
                f"{server.url} computes other log-probabilities than the trainer ({gap:.4f} nats "
                f"apart, at most {most:.4f}): it has not taken all of the policy's weights"
            )

    @asynccontextmanager
    async def running(self, sampling: Sampling) -> AsyncGenerator[None]:
        timeout = aiohttp.ClientTimeout(total=self._config.request_timeout_s)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            self._http = http
            yield
        self._http = None

    @asynccontextmanager
    async def admitted(self, tokens: int) -> AsyncGenerator[Talk]:
        server = min(self._somebody(), key=lambda server: server.talks / server.admission.capacity)
        server.talks += 1
        try:
            async with server.admission.hold(tokens):

                async def talk(ids: Sequence[int], budget: int, sampling: Sampling) -> Turn:
                    return await self._turn(server, ids, budget, sampling)

                yield talk
        finally:
            server.talks -= 1

    def _somebody(self) -> list[_Server]:
        """The servers that are alive. EngineError if none is."""
        alive = [server for server in self._servers if server.alive]
        if not alive:
            problems = "; ".join(f"{server.url}: {server.problem}" for server in self._servers)
            raise EngineError(
                f"no vLLM server is left ({problems}); start them again with the same command "
                "as before, then train again: it resumes from the last checkpoint"
            )
        return alive

    async def _turn(
        self, server: _Server, ids: Sequence[int], budget: int, sampling: Sampling
    ) -> Turn:
        body = {
            "model": self._config.model,
            "prompt": list(ids),
            "max_tokens": budget,
            "temperature": sampling.temperature,
            "top_p": 1.0,
            "top_k": -1,
            "seed": sampling.seed,
            "logprobs": 0,
            "return_token_ids": True,
            "stop_token_ids": [self._eos],
            "ignore_eos": True,  # of the model's own list; ours is the one above
        }
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(BACKOFF_S * 2**attempt)
            if not server.alive:
                break
            try:
                answer = await self._ask(server, body)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                server.problem = str(error) or type(error).__name__
                server.alive = attempt + 1 < ATTEMPTS
                continue
            if answer is not None:
                return self._read(server, answer, budget)
        self._somebody()
        raise TurnLost(server.url)

    async def _ask(self, server: _Server, body: dict[str, Any]) -> Any | None:
        """The reply; None where it is worth asking again."""
        assert self._http is not None
        async with self._http.post(f"{server.url}/v1/completions", json=body) as reply:
            if reply.status == 200:
                return await reply.json()
            text = (await reply.text())[:300]
            if reply.status in _RETRIED:
                server.problem = f"HTTP {reply.status}: {text}"
                return None
            raise EngineError(f"{server.url} refuses to generate: HTTP {reply.status}: {text}")

    def _read(self, server: _Server, answer: Any, budget: int) -> Turn:
        try:
            choice = answer["choices"][0]
            finish, ids = choice["finish_reason"], [int(i) for i in choice["token_ids"]]
            logprobs = [float(value) for value in choice["logprobs"]["token_logprobs"]]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise EngineError(
                f"{server.url} does not answer with token ids and log-probabilities ({error!r}); "
                "is it vLLM 0.22 or newer, started as docs/training.md says?"
            ) from None
        if finish not in ("stop", "length"):
            raise TurnLost(f"{server.url}: finish_reason {finish}")
        if not ids or len(ids) != len(logprobs) or len(ids) > budget:
            raise EngineError(f"{server.url}: {len(ids)} ids, {len(logprobs)} log-probabilities")
        if not all(math.isfinite(value) for value in logprobs):
            raise EngineError(f"{server.url}: a log-probability is not finite; NaN weights?")
        if ids[-1] == self._eos:
            return Turn(0, ids, logprobs, "eos")
        if finish == "stop":
            raise EngineError(
                f"{server.url} stopped at token {ids[-1]}, not at EOS {self._eos}; start it with "
                "--generation-config vllm"
            )
        return Turn(0, ids, logprobs, "length")


def _kv_tokens(url: str) -> int:
    """Tokens of key-value memory, from the server's metrics. EngineError if it does not say."""
    try:
        text = _get(f"{url}/metrics")
    except OSError as error:
        raise EngineError(
            f"vLLM server {url} does not answer: {error}; start it (docs/training.md), or "
            "correct runtime.rollout_servers"
        ) from error
    line = next((row for row in text.splitlines() if row.startswith("vllm:cache_config_info")), "")
    labels = dict(_LABEL.findall(line))
    for tokens in (
        labels.get("kv_cache_size_tokens", ""),
        str(_int(labels.get("num_gpu_blocks", "")) * _int(labels.get("block_size", ""))),
    ):
        if _int(tokens):
            return _int(tokens)
    raise EngineError(f"{url}/metrics does not say how much it caches; set rl.engine.kv_tokens")


def _int(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _get(url: str) -> str:
    with _DIRECT.open(url, timeout=30) as reply:  # what goes wrong with it is an OSError
        return reply.read().decode()


def _post(url: str, body: dict[str, Any] | None) -> str:
    data = b"" if body is None else json.dumps(body).encode()
    posted = request.Request(url, data, {"Content-Type": "application/json"}, method="POST")
    with _DIRECT.open(posted, timeout=SYNC_TIMEOUT_S) as reply:
        return reply.read().decode()
