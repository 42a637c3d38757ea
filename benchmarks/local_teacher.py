"""A teacher on this machine: the offline rules' answers over HTTP, after a latency, and counted.

    python benchmarks/local_teacher.py REPLIES MEDIAN_S P99_S      prints its address, then serves

The rules are overheard once (``recording``), prompt by prompt; the server knows nothing else. All
samples of a prompt get its first reply, since a request does not say which sample it is: what a
stage makes of the answers then never depends on who came first.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import random
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

SHARE_99 = 2.3263478740408408
"""Standard deviations above the median of a normal distribution under which 99 % lie."""
COMPLETION = {"id": "x", "object": "chat.completion", "created": 1, "model": "local"}
USAGE = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}


@dataclass(frozen=True)
class Latency:
    """Lognormal seconds; constant where both are equal."""

    median_s: float
    p99_s: float

    @property
    def sigma(self) -> float:
        return math.log(self.p99_s / self.median_s) / SHARE_99

    @property
    def mean_s(self) -> float:
        return self.median_s * math.exp(self.sigma**2 / 2)

    def draw(self, request: str, time: int) -> float:
        """The latency of a request that comes for the n-th ``time``; the same in every run."""
        deviation = random.Random(f"{request} {time}").gauss(0, 1)
        return self.median_s * math.exp(self.sigma * deviation)


# -- what the rules say, overheard ----------------------------------------------------------


class Recorder:
    """Writes every ask of every role to a file: its prompt, its cache key and the reply."""

    def __init__(self, place: TextIO) -> None:
        self._place = place
        self._said: dict[str, dict[str, str]] = {}

    def role(self, config: Any, handlers: Any) -> Any:
        """A factory for ``teachers_from``; tables name the model as the endpoint would be named."""
        from astra.llm.offline import OfflineTeacher

        return _Overheard(config, OfflineTeacher(config, handlers), self)

    async def ask(self, config: Any, offline: Any, ask: Any) -> Any:
        from astra.llm.openai_backend import chat_bodies, teacher_key
        from astra.llm.protocol import ParseError, ProviderError
        from astra.prompting import render

        prompt = render(ask.template, ask.shown)
        sent = chat_bodies(config.model, {}, prompt, ask.response)
        shown = [digest(_prompt(body)) for body in (sent.plain, sent.structured or sent.plain)]
        line = {"shown": shown, "key": teacher_key(config, prompt, ask.response, ask.sample)}
        said = self._said.get(shown[0])
        if said is None:
            try:
                said = {"reply": (await offline.ask(ask)).model_dump_json()}
            except (ProviderError, ParseError) as error:
                said = {"refusal": str(error)}
            self._said[shown[0]] = said
        self.write(line | said)
        if "refusal" in said:
            raise ProviderError(said["refusal"])
        return ask.response.model_validate_json(said["reply"])

    def write(self, line: Mapping[str, Any]) -> None:
        self._place.write(json.dumps(line) + "\n")

    def learn_turns(self, trajectories: Path) -> None:
        """What the agent did after each beginning of a conversation."""
        from astra.llm.policy import wire_message
        from astra.records.trajectory import Trajectory
        from astra.store.tables import read_records

        for one in read_records(trajectories, Trajectory):
            names = [tool.name for tool in one.tools]
            messages = [wire_message(message) for message in one.messages]
            for place, message in enumerate(messages):
                if message["role"] == "assistant":
                    self.write({"began": beginning(messages[:place], names), "turn": message})


class _Overheard:
    def __init__(self, config: Any, offline: Any, recorder: Recorder) -> None:
        self.name = f"openai:{config.model}"
        self._config, self._offline, self._recorder = config, offline, recorder

    async def ask(self, ask: Any) -> Any:
        return await self._recorder.ask(self._config, self._offline, ask)


@contextmanager
def recording(place: Path) -> Generator[Recorder]:
    """Let every role answer by its rules within the block; ``place`` keeps what they say."""
    from astra.llm.build import teachers_from

    with place.open("w") as file:
        recorder = Recorder(file)
        with teachers_from(recorder.role):
            yield recorder


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def beginning(messages: Sequence[Mapping[str, Any]], tools: Sequence[str]) -> str:
    """A conversation as far as it matters: roles, texts, calls and the names of the tools."""
    kept = [
        [m["role"], m.get("content") or "", [c["function"] for c in m.get("tool_calls") or ()]]
        for m in messages
    ]
    return digest(json.dumps([kept, sorted(tools)], sort_keys=True))


def _prompt(body: Mapping[str, Any]) -> str:
    return body["messages"][0]["content"]


def asked_keys(replies: Path) -> dict[str, set[str]]:
    """The cache keys of all asks that show the same prompt, by the prompt's digest."""
    found: dict[str, set[str]] = {}
    for line in map(json.loads, replies.open()):
        if "key" in line:
            found.setdefault(line["shown"][0], set()).add(line["key"])
    return found


# -- the server -----------------------------------------------------------------------------


class Replies:
    """Messages by request, as recorded. What is not known gets a text, and is counted."""

    def __init__(self, place: Path) -> None:
        self._known: dict[str, str] = {}
        self._messages: dict[str, dict[str, Any]] = {}
        for line in map(json.loads, place.open()):
            if "turn" in line:
                self._messages.setdefault(line["began"], line["turn"])
                continue
            for shown in line["shown"]:
                self._known[shown] = line["shown"][0]
            message = {"role": "assistant", "content": line.get("reply")}
            if "refusal" in line:
                message["refusal"] = line["refusal"]
            self._messages.setdefault(line["shown"][0], message)

    def find(self, body: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
        """What the request is called in the log, and its message if there is one.

        An ask is called by its prompt's digest, an agent's turn by its answer's cache key.
        """
        if body["messages"][0]["role"] == "system":  # asks have none
            names = [tool["function"]["name"] for tool in body.get("tools", ())]
            return turn_key(body), self._messages.get(beginning(body["messages"], names))
        shown = digest(_prompt(body))
        name = self._known.get(shown, shown)
        return name, self._messages.get(name)


def turn_key(body: Mapping[str, Any]) -> str:
    """The key of the client's cache for an agent's turn in its first repetition."""
    from astra.llm.cache import answer_key

    return answer_key({"backend": "openai", "request": body, "sample": 0})


class Server:
    """Answers after the latency; keeps when each request came and when it was answered."""

    def __init__(self, replies: Replies, latency: Latency) -> None:
        self._replies = replies
        self._latency = latency
        self._times = Counter[str]()
        self.log: list[list[Any]] = []
        self.answered = 0
        self.unknown = 0

    async def chat(self, request: Any) -> Any:
        from aiohttp import web

        content = await request.read()
        came = time.monotonic()
        name, message = self._replies.find(json.loads(content))
        if message is None:
            self.unknown += 1
            message = {"role": "assistant", "content": "That is all."}
        wait = self._latency.draw(name, self._times[name])
        self._times[name] += 1
        entry = [name, came, None, wait]
        self.log.append(entry)
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "message": message, "finish_reason": finish}
        body = json.dumps({**COMPLETION, "choices": [choice], "usage": USAGE}).encode()
        await asyncio.sleep(came + wait - time.monotonic())
        entry[2] = time.monotonic()
        self.answered += 1
        return web.Response(body=body, content_type="application/json")

    async def counts(self, request: Any) -> Any:
        from aiohttp import web

        asked = {"asked": len(self.log), "answered": self.answered, "unknown": self.unknown}
        return web.json_response(asked | {"cpu_s": time.process_time()})

    async def whole_log(self, request: Any) -> Any:
        from aiohttp import web

        return web.json_response(self.log)


async def serve(server: Server) -> None:
    from aiohttp import web

    application = web.Application(client_max_size=2**26)
    application.router.add_post("/v1/chat/completions", server.chat)
    application.router.add_get("/counts", server.counts)
    application.router.add_get("/log", server.whole_log)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


# -- the server, from the other side --------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """One request as the server saw it; monotonic seconds. ``answered`` is None in flight."""

    name: str
    came: float
    answered: float | None
    latency_s: float


@dataclass(frozen=True)
class Peer:
    """A running server."""

    address: str

    @property
    def url(self) -> str:
        """What an endpoint's ``base_url`` is."""
        return f"{self.address}/v1"

    def counts(self) -> dict[str, Any]:
        return self._get("counts")

    def log(self) -> list[Request]:
        """Every request so far, in the order they came."""
        return [Request(*entry) for entry in self._get("log")]

    def _get(self, what: str) -> Any:
        with urllib.request.urlopen(f"{self.address}/{what}", timeout=60) as response:
            return json.load(response)


@contextmanager
def local_teacher(replies: Path, latency: Latency) -> Generator[Peer]:
    """A server in a process of its own until the end of the block."""
    numbers = [str(latency.median_s), str(latency.p99_s)]
    command = [sys.executable, str(Path(__file__).resolve()), str(replies), *numbers]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Peer(process.stdout.readline().strip())
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    chosen = Latency(float(sys.argv[2]), float(sys.argv[3]))
    asyncio.run(serve(Server(Replies(Path(sys.argv[1])), chosen)))
