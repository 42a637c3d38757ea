"""A server that speaks vLLM's token-level completions API, and does what a test scripts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Self

from aiohttp import web

Reply = Callable[[dict[str, Any], int], list[int]]
METRICS = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="1000",x="y"} 1.0\n'


class ScriptedVLLM:
    """``reply(body, n)`` gives the ids of request n. ``faults`` maps n to an HTTP status."""

    def __init__(self, reply: Reply, faults: dict[int, int] | None = None) -> None:
        self.reply, self.faults = reply, faults or {}
        self.requests: list[dict[str, Any]] = []
        self.posted: list[tuple[str, Any]] = []
        self.running = self.most_running = 0
        self.delay_s = 0.0
        self.administration = 200
        self.told = -1.0
        """Log-probability of every token of a prompt."""
        self.choice: dict[str, Any] = {}
        """What replaces parts of every choice."""
        self.metrics = METRICS
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self) -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/collective_rpc", self._note)
        app.router.add_post("/reset_prefix_cache", self._note)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/health", self._metrics)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, shutdown_timeout=0.1)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=self.metrics)

    async def _note(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        self.posted.append((request.path, body))
        return web.json_response({"results": [None]}, status=self.administration)

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        if "prompt_logprobs" in body:
            told = [{str(token): {"logprob": self.told}} for token in body["prompt"][1:]]
            return web.json_response({"choices": [{"prompt_logprobs": [None, *told]}]})
        number = len(self.requests)
        self.requests.append(body)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(self.delay_s)
        self.running -= 1
        if status := self.faults.get(number):
            return web.json_response({"error": "scripted"}, status=status)
        ids = self.reply(body, number)[: body["max_tokens"]]
        stopped = ids[-1] in body["stop_token_ids"]
        choice = {
            "index": 0,
            "text": "",
            "token_ids": ids,
            "logprobs": {"token_logprobs": [-0.25] * len(ids)},
            "finish_reason": "stop" if stopped else "length",
        }
        return web.json_response({"choices": [choice | self.choice]})

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
