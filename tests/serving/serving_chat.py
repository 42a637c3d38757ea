"""A server in a thread, a generator by script, and requests to them, for tests."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from astra.serving.chat import ChatHistory
from astra.serving.generation import Generated, GenerationSettings
from astra.serving.server import ChatServer, Limits, listening

NAME = "model-under-test"
TIMEOUT_S = 60.0


class Scripted:
    """A generator that says ``reply(n)``, or waits for ever where that is None."""

    def __init__(self, codec: Any, reply: Any, context: int = 512) -> None:
        self.context = context
        self.decodings: list[GenerationSettings] = []
        self._codec, self._reply = codec, reply

    async def generate(self, ids: Sequence[int], decoding: GenerationSettings) -> Generated:
        said = self._reply(len(self.decodings))
        self.decodings.append(decoding)
        if said is None:
            await asyncio.sleep(TIMEOUT_S)
        made = [*self._codec.tokenizer.encode(said, add_special_tokens=False), self._codec.eos_id]
        finish = "eos" if len(made) <= decoding.max_tokens else "length"
        return Generated(made[: decoding.max_tokens], finish)

    async def close(self) -> None:
        pass


@contextmanager
def serving(
    codec: Any, generator: Any, limits: Limits | None = None, history: ChatHistory | None = None
) -> Generator[str]:
    """The address of a server in a thread of its own; closes the generator too."""
    ready, stop = threading.Event(), asyncio.Event()
    state: dict[str, Any] = {}

    async def run() -> None:
        state["loop"] = asyncio.get_running_loop()
        server = ChatServer(NAME, history or ChatHistory(codec), generator, limits or Limits())
        async with listening(server, "127.0.0.1", 0) as url:
            state["url"] = url
            ready.set()
            await stop.wait()
        await generator.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert ready.wait(TIMEOUT_S)
    try:
        yield state["url"]
    finally:
        state["loop"].call_soon_threadsafe(stop.set)
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def ask(url: str, body: Any, path: str = "/chat/completions") -> tuple[int, Any]:
    """Status and document; ``body`` None: GET, bytes: sent as they are."""
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": NAME, "messages": [{"role": "user", "content": text}], **fields}
