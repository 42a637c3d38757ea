"""Run by verifiers' own interpreter: every script of every arena, through its environment.

argv: the exported folder, a JSON file {script: {arena id: [assistant messages]}}, the place for
{script: {arena id: {"reward": .., "ok": .., "messages": ..}}}. The scripted agent is an
OpenAI-compatible server on the loopback interface; the model's name chooses the script.
"""

import asyncio
import json
import sys
from pathlib import Path

from aiohttp import web

sys.path.insert(0, sys.argv[1])

import verifiers.v1 as vf

tools: dict[tuple[str, str], list[list]] = {}
"""The tools of each request, by script and arena."""


def server(scripts: dict, tasks: dict[str, str]) -> web.Application:
    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        messages = body["messages"]
        question = next(m["content"] for m in messages if m["role"] == "user")
        turn = sum(m["role"] == "assistant" for m in messages)
        written = scripts[body["model"]][tasks[question]][turn]
        tools.setdefault((body["model"], tasks[question]), []).append(body["tools"])
        reason = "tool_calls" if written.get("tool_calls") else "stop"
        choice = {"index": 0, "finish_reason": reason, "message": written}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return web.json_response(
            {"id": "x", "object": "chat.completion", "created": 0, "model": body["model"],
             "choices": [choice], "usage": usage}
        )  # fmt: skip

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    return app


async def main() -> None:
    scripts = json.loads(Path(sys.argv[2]).read_text())
    config = vf.resolve_env_config(
        {"taskset": {"id": "astra-arenas"}, "agent": {"runtime": {"type": "subprocess"}}}
    )
    env = vf.load_environment(config)
    tasks = list(env.taskset)
    runner = web.AppRunner(server(scripts, {t.data.prompt: t.row.id for t in tasks}))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    client = vf.EvalClientConfig(base_url=f"http://127.0.0.1:{port}/v1", api_key_var="NO_KEY")
    found: dict = {name: {} for name in scripts}

    async def play(name: str, task: vf.Task) -> None:
        context = vf.ModelContext(model=name, client=client)
        episode = await env.run_slot(env.slots(task)[0], context)
        trace = episode.traces[0]
        found[name][task.row.id] = {
            "reward": trace.reward,
            "ok": trace.ok,
            "errors": [error.message for error in trace.errors],
            "messages": [message.role for message in trace.branches[-1].messages],
            "tools": [len(offered) for offered in tools[name, task.row.id]],
            "harness": trace.agent.config.harness.id,
        }

    async with env.serving():
        await asyncio.gather(*(play(name, task) for name in scripts for task in tasks))
    await runner.cleanup()
    Path(sys.argv[3]).write_text(json.dumps(found))


asyncio.run(main())
