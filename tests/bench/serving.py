"""A server in a thread, and a policy that was taught a few episodes, for tests."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from astra.agent.prompt import final_message
from astra.agent.toolcalls import parse_assistant
from astra.arena.answers import render_answer
from astra.arena.env import ArenaEnv
from astra.arena.prompt import initial_messages
from astra.bench.references import oracle_turns
from astra.records.environment import Arena
from astra.records.message import Message, MessageRole
from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_policy
from astra.sandbox.protocol import Sandbox
from astra.serving.chat import ChatHistory
from astra.serving.generation import Generated, GenerationSettings
from astra.serving.server import ChatServer, Limits, listening

NAME = "model-under-test"
TIMEOUT_S = 60.0


def taught(tiny: Path, arenas: Sequence[Arena], sandbox: Sandbox) -> LoadedPolicy:
    """The committed policy after a few steps on the gold episodes of ``arenas``."""
    torch.manual_seed(0)
    loaded = load_policy(PolicyConfig(path=str(tiny)))
    rows = [loaded.codec.encode_conversation(*episode(arena, sandbox)) for arena in arenas]
    width = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), width), loaded.codec.pad_id)
    labels = torch.full((len(rows), width), -100)
    for at, (row, mask) in enumerate(rows):
        ids[at, : len(row)] = torch.tensor(row)
        kept = torch.tensor(mask, dtype=torch.bool)
        labels[at, : len(row)][kept] = torch.tensor(row)[kept]
    optimizer = torch.optim.AdamW(loaded.model.parameters(), 3e-3)
    for _ in range(60):
        loss = loaded.model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if loss.item() < 0.003:
            break
    return loaded


def episode(arena: Arena, sandbox: Sandbox) -> tuple[list[Message], Sequence[Any]]:
    """The gold episode's messages and tools."""
    env = ArenaEnv(arena, sandbox)
    messages = list(initial_messages(arena))
    try:
        for turn in oracle_turns(arena)[:-1]:
            said = parse_assistant(turn)
            messages.append(said)
            messages += [
                Message(
                    role=MessageRole.TOOL, content=env.execute_now(call).content,
                    tool_call_id=call.id, name=call.name,
                )
                for call in said.tool_calls
            ]  # fmt: skip
        final = final_message("done.", [render_answer(arena.final_answer)])
        messages.append(Message(role=MessageRole.ASSISTANT, content=final))
        return messages, env.tools
    finally:
        env.close_now()


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
