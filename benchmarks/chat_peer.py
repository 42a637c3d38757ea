"""The other side of benchmarks/teacher.py: a chat server with a fixed latency, in its own process.

python benchmarks/chat_peer.py LATENCY_S        prints its address, then serves until killed
"""

from __future__ import annotations

import asyncio
import json
import sys

from aiohttp import web

REPLY = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": '{"word": "tree"}'},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13},
}


async def serve(latency_s: float) -> None:
    body = json.dumps(REPLY).encode()

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        await asyncio.sleep(latency_s)
        return web.Response(body=body, content_type="application/json")

    application = web.Application()
    application.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
