"""The HTTP server of a checkpoint: an OpenAI-compatible endpoint, on aiohttp.

Requests are answered as they come; those in flight together are generated together.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from astra.serving.chat import ChatHistory
from astra.serving.generation import GenerationError, GenerationSettings, Generator
from astra.serving.wire import ChatRequest, RequestError, read_request, write_reply

log = logging.getLogger(__name__)

MOST_BYTES = 1 << 26
DRAIN_S = 2.0
"""How long replies may take to be sent once the server is told to stop."""
_MASK = 2**63 - 1


@dataclass(frozen=True)
class Limits:
    new_tokens: int | None = None
    """The longest reply, whatever the request asks for; None: what the context leaves."""


class ChatServer:
    """``name`` is the model's, as clients must ask for it."""

    def __init__(
        self, name: str, history: ChatHistory, generator: Generator, limits: Limits
    ) -> None:
        self.name = name
        self.requests = 0
        self.overflows = 0
        """Requests refused because their prompt fills the context."""
        self._history = history
        self._generator = generator
        self._limits = limits
        self._numbers = itertools.count()
        self._created = int(time.time())

    def app(self) -> web.Application:
        app = web.Application(client_max_size=MOST_BYTES, middlewares=[_stated])
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        return app

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _models(self, request: web.Request) -> web.Response:
        model = {
            "id": self.name, "object": "model", "created": self._created, "owned_by": "astra",
            "max_model_len": self._generator.context,
        }  # fmt: skip
        return web.json_response({"object": "list", "data": [model]})

    async def _complete(self, request: web.Request) -> web.Response:
        self.requests += 1
        try:
            body = json.loads(await request.text())
        except (ValueError, RecursionError) as error:
            raise RequestError(f"the body is no JSON: {error}") from None
        asked = read_request(body)
        if asked.model != self.name:
            raise RequestError(
                f"model {asked.model!r} is not served here; this is {self.name!r}",
                "model", "model_not_found", 404,
            )  # fmt: skip
        prompt = self._history.prompt(asked)
        decoding = self._decoding(asked, len(prompt))
        number = next(self._numbers)
        seeds = [decoding.seed] if asked.n == 1 else [decoding.seed + at for at in range(asked.n)]
        tasks = [
            asyncio.create_task(self._generator.generate(prompt, _seeded(decoding, seed)))
            for seed in seeds
        ]
        try:
            written = await asyncio.gather(*tasks)
        except GenerationError as error:
            raise RequestError(str(error), status=500) from error
        finally:
            for task in tasks:
                task.cancel()
        choices = [self._history.choice(asked, prompt, one) for one in written]
        reply = write_reply(number, int(time.time()), asked, prompt, choices)
        return web.json_response(reply)

    def _decoding(self, asked: ChatRequest, prompt: int) -> GenerationSettings:
        """Raises RequestError, with OpenAI's code, where the prompt leaves no room for a reply."""
        context = self._generator.context
        if prompt >= context:
            self.overflows += 1
            raise RequestError(
                f"This model's maximum context length is {context} tokens. However, your messages "
                f"resulted in {prompt} tokens. Please reduce the length of the messages.",
                "messages", "context_length_exceeded",
            )  # fmt: skip
        room = [context - prompt, asked.max_tokens, self._limits.new_tokens]
        return GenerationSettings(
            max_tokens=min(one for one in room if one is not None),
            temperature=asked.temperature,
            top_p=asked.top_p,
            top_k=asked.top_k,
            # Without a seed requests differ from each other, and a rerun in the same order repeats.
            seed=(self.requests if asked.seed is None else asked.seed) & _MASK,
        )


def _seeded(decoding: GenerationSettings, seed: int) -> GenerationSettings:
    return GenerationSettings(
        decoding.max_tokens, decoding.temperature, decoding.top_p, decoding.top_k, seed & _MASK
    )


@web.middleware
async def _stated(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Errors as OpenAI states them, whatever raised them."""
    try:
        return await handler(request)
    except RequestError as error:
        return web.json_response(error.body(), status=error.status)
    except web.HTTPException as error:
        stated = RequestError(error.text or error.reason, status=error.status)
        return web.json_response(stated.body(), status=error.status)
    except Exception as error:
        log.exception("request failed")
        stated = RequestError(f"{type(error).__name__}: {error}", status=500)
        return web.json_response(stated.body(), status=500)


@asynccontextmanager
async def listening(server: ChatServer, host: str, port: int) -> AsyncGenerator[str]:
    """Serve until the block ends; gives the endpoint's address (``port`` 0: a free one)."""
    runner = web.AppRunner(server.app(), access_log=None, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, shutdown_timeout=DRAIN_S).start()
        address: Any = runner.addresses[0]
        yield f"http://{host}:{address[1]}/v1"
    finally:
        await runner.cleanup()
