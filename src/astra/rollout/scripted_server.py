"""A server that speaks as much of vLLM's HTTP interface as training uses, and fails as told.

Tests and rehearsals put it in a vLLM server's place where there is no GPU. It keeps what a real
one keeps: the weights that it last took, a prefix cache that remembers by which weights each
block was computed, and when it started. Its replies are scripted; its faults are switches that
may be turned while it serves.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from aiohttp import web

from astra.rollout.transfer import Broadcast, UpdateInfo

Reply = Callable[[dict[str, Any], int], list[int]]
Scorer = Callable[[list[int]], list[float]]
"""Log-probabilities (nats) of all ids but the first."""
BLOCK = 16
"""Tokens of a block of the prefix cache, vLLM's default on GPUs."""
INITIAL = "initial"
"""The name of the weights that a server starts with."""


@dataclass
class Faults:
    """What goes wrong while it is switched on."""

    status: dict[int, int] = field(default_factory=dict[int, int])
    """HTTP status of the completion request of that number, from 0."""
    administration: int = 200
    """HTTP status of all that changes the server."""
    delay_s: float = 0.0
    """Every completion is answered so much later."""
    stalls: bool = False
    """Completions are accepted and not answered until this is over."""
    refuses_reset: bool = False
    """The prefix cache stays, though the server says 200: so does vLLM while requests run."""
    loses_reload: bool = False
    """Weights are said to be taken, and are not."""
    tells_cached: bool = True
    """False: no usage details, as without --enable-prompt-tokens-details."""
    tells_start: bool = True
    """False: /metrics do not say when the process started, as with several API servers."""


class ScriptedVLLM:
    """``reply(body, n)`` gives the ids of completion n.

    ``logprob(weights)`` is the log-probability of every sampled token, where ``weights`` names
    the oldest weights that took part in it: those of the server, or of a cached block. Weights are
    named after the folder they came from, or ``transfer-N`` for those received as tensors.
    ``load(folder)`` makes the scorer that answers for prompts; without it each of their tokens
    has the log-probability ``told``.
    """

    def __init__(
        self,
        reply: Reply,
        *,
        logprob: Callable[[str], float] = lambda weights: -0.25,
        load: Callable[[Path], Scorer] | None = None,
        join: Callable[[Mapping[str, Any]], Broadcast] | None = None,
        kv_tokens: int = 16_000,
    ) -> None:
        self.reply, self.logprob, self.faults = reply, logprob, Faults()
        self.requests: list[dict[str, Any]] = []
        self.posted: list[tuple[str, Any]] = []
        self.running = self.most_running = 0
        self.told = -1.0
        self.choice: dict[str, Any] = {}
        """What replaces parts of every choice."""
        self.metrics = (
            f'vllm:cache_config_info{{block_size="{BLOCK}",num_gpu_blocks="{kv_tokens // BLOCK}"}} '
            "1.0\n"
        )
        self.received: dict[str, torch.Tensor] = {}
        """The tensors of the newest transfer, by name."""
        self.port = 0
        self._load, self._join = load, join
        self._begin()

    def _begin(self) -> None:
        """Be a process that has just started: initial weights, nothing cached."""
        self.weights, self._ages = INITIAL, {INITIAL: 0}
        self._cache: dict[int, str] = {}
        self._scorer: Scorer | None = None
        self._group: Broadcast | None = None
        self.running = 0
        self._born = time.time()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    # --- life

    def start(self) -> None:
        """Serve, on the port it had before if it had one. A second start is another process."""
        self._begin()
        self._thread.start()
        if not self._ready.wait(30):
            raise RuntimeError(f"the scripted server could not take port {self.port}")

    def stop(self) -> None:
        """Die: what is in flight breaks, nobody listens any more."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _application(self) -> web.Application:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/completions", self._complete)
        for path in ("collective_rpc", "reset_prefix_cache", "pause", "resume",
                     "init_weight_transfer_engine", "start_weight_update", "update_weights",
                     "finish_weight_update"):  # fmt: skip
            app.router.add_post(f"/{path}", self._administrate)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/health", self._metrics)
        app.router.add_get("/get_world_size", self._world_size)
        return app

    async def _serve(self) -> None:
        runner = web.AppRunner(self._application(), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = runner.addresses[0][1]
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    # --- what it says of itself

    async def _metrics(self, request: web.Request) -> web.Response:
        started = f"process_start_time_seconds {self._born}\n" if self.faults.tells_start else ""
        return web.Response(text=self.metrics + started)

    async def _world_size(self, request: web.Request) -> web.Response:
        return web.json_response({"world_size": 1})

    # --- what changes it

    async def _administrate(self, request: web.Request) -> web.Response:
        body: Any = await request.json() if request.can_read_body else None
        self.posted.append((request.path, body))
        if self.faults.administration == 200:
            if request.path == "/collective_rpc":
                await asyncio.to_thread(self._reload, Path(body["kwargs"]["weights_path"]))
            elif request.path == "/reset_prefix_cache":
                preempts = request.query.get("reset_running_requests") == "true"
                if not self.faults.refuses_reset and (preempts or not self.running):
                    self._cache.clear()
            elif request.path == "/init_weight_transfer_engine":
                assert self._join is not None, "this server was not told how to join a transfer"
                self._group = await asyncio.to_thread(self._join, body["init_info"])
            elif request.path == "/update_weights":
                await asyncio.to_thread(self._receive, body["update_info"])
        return web.json_response({"results": [None]}, status=self.faults.administration)

    def _reload(self, folder: Path) -> None:
        scorer = self._load(folder) if self._load is not None else None
        if not self.faults.loses_reload:
            self._take(folder.name, scorer)

    def _take(self, name: str, scorer: Scorer | None = None) -> None:
        self.weights, self._scorer = name, scorer
        self._ages.setdefault(name, len(self._ages))

    def _receive(self, info: UpdateInfo) -> None:
        """One broadcast for every tensor that was announced, in that order."""
        assert self._group is not None, "weights are sent before the transfer was set up"
        received: dict[str, torch.Tensor] = {}
        for name, dtype, shape in zip(
            info["names"], info["dtype_names"], info["shapes"], strict=True
        ):
            received[name] = torch.empty(shape, dtype=getattr(torch, dtype))
            self._group.broadcast(received[name], src=0)
        if not self.faults.loses_reload:
            self.received = received
            self._take(f"transfer-{len(self._ages)}")

    # --- what it generates

    def _blocks(self, prompt: list[int]) -> Iterator[int]:
        """Keys of the prompt's full blocks, each of which depends on all before it."""
        key = 0
        for end in range(BLOCK, len(prompt), BLOCK):
            key = hash((key, *prompt[end - BLOCK : end]))
            yield key

    def _read(self, prompt: list[int]) -> tuple[int, str]:
        """How many tokens of the prompt are cached, and the oldest weights that compute it now;
        afterwards all of it is cached."""
        cached, oldest, hit = 0, self.weights, True
        for key in self._blocks(prompt):
            hit = hit and key in self._cache
            if hit:
                cached += BLOCK
                oldest = min(oldest, self._cache[key], key=self._ages.__getitem__)
            else:
                self._cache[key] = self.weights
        return cached, oldest

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        if "prompt_logprobs" in body:
            ids = body["prompt"]
            told = self._scorer(ids) if self._scorer is not None else [self.told] * (len(ids) - 1)
            rows = [{str(i): {"logprob": one}} for i, one in zip(ids[1:], told, strict=True)]
            return web.json_response({"choices": [{"prompt_logprobs": [None, *rows]}]})
        if body["max_tokens"] == 1 and "return_token_ids" not in body:  # how much is cached?
            return self._answer(body, [0], *self._read(body["prompt"]))
        number = len(self.requests)
        self.requests.append(body)
        with self._running():
            cached, oldest = self._read(body["prompt"])
            while self.faults.stalls:
                await asyncio.sleep(0.01)
            await asyncio.sleep(self.faults.delay_s)
        if status := self.faults.status.get(number):
            return web.json_response({"error": "scripted"}, status=status)
        return self._answer(body, self.reply(body, number)[: body["max_tokens"]], cached, oldest)

    @contextmanager
    def _running(self) -> Generator[None]:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            yield
        finally:
            self.running -= 1

    def _sampled(self, prompt: list[int], ids: list[int], oldest: str) -> list[float]:
        """Log-probabilities (nats) of the ids sampled after ``prompt``."""
        return [self.logprob(oldest)] * len(ids)

    def _answer(
        self, body: dict[str, Any], ids: list[int], cached: int, oldest: str
    ) -> web.Response:
        stopped = ids[-1] in body.get("stop_token_ids", ())
        choice = {
            "index": 0,
            "text": "",
            "token_ids": ids,
            "logprobs": {"token_logprobs": self._sampled(body["prompt"], ids, oldest)},
            "finish_reason": "stop" if stopped else "length",
        }
        # As older versions of vLLM, which leave the details out where nothing was cached.
        details = {"cached_tokens": cached} if cached and self.faults.tells_cached else None
        usage = {"prompt_tokens": len(body["prompt"]), "prompt_tokens_details": details}
        return web.json_response({"choices": [choice | self.choice], "usage": usage})
