"""Run by OpenEnv's own interpreter: every script of every arena, over its WebSocket protocol.

argv: the exported folder, a JSON file {script: {arena id: [assistant messages]}}, the place for
{script: {arena id: {"reward": .., "rewards": [..], "done": ..}}}. Serves the package's own app
on the loopback interface and plays through both clients: the package's and the generic one.
"""

import asyncio
import json
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, sys.argv[1])

import uvicorn
from astra_arenas.client import ArenaClient
from astra_arenas.models import ArenaAction
from astra_arenas.server.app import app
from openenv import GenericEnvClient


def serve() -> tuple[uvicorn.Server, str]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    threading.Thread(target=server.run, args=([listener],), daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    return server, f"http://127.0.0.1:{listener.getsockname()[1]}"


def actions(script: list) -> list[ArenaAction]:
    return [
        ArenaAction(
            content=message["content"],
            tool_calls=[call["function"] for call in message.get("tool_calls", [])],
        )
        for message in script
    ]


async def play(client: ArenaClient | GenericEnvClient, arena: str, script: list) -> dict:
    first = await client.reset(arena_id=arena)
    rewards: list[float] = []
    result = first
    for action in actions(script):
        result = await client.step(action)
        rewards.append(result.reward)
        if result.done:
            break
    state = await client.state()
    seen = first.observation
    return {
        "reward": sum(rewards),
        "rewards": rewards,
        "done": result.done,
        "prompt": len(seen.messages if hasattr(seen, "messages") else seen["messages"]),
        "state": state.model_dump() if hasattr(state, "model_dump") else state,
    }


async def main() -> None:
    scripts = json.loads(Path(sys.argv[2]).read_text())
    server, url = serve()
    found: dict = {"splits": {}, "typed": {}, "generic": {}}

    async def one(kind: str, client_class: type, name: str, arena: str, script: list) -> None:
        async with client_class(base_url=url) as client:
            found[kind].setdefault(name, {})[arena] = await play(client, arena, script)

    for kind, client_class in (("typed", ArenaClient), ("generic", GenericEnvClient)):
        await asyncio.gather(
            *(
                one(kind, client_class, name, arena, script)
                for name, by_arena in scripts.items()
                for arena, script in by_arena.items()
            )
        )
    server.should_exit = True
    Path(sys.argv[3]).write_text(json.dumps(found))


asyncio.run(main())
