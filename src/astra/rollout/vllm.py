"""The client of vLLM servers: token ids in, ids and log-probabilities out, new weights between.

Stock ``vllm serve`` as ``conf/launch/vllm.sh`` starts it, from an environment of its own.
``transfer.py`` says how weights get there, ``vllm_admin.py`` how it is proven that they did.
A conversation stays on one server, whose prefix cache then holds its history.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import aiohttp

from astra.rollout.engine import Reference, Sampling, Turn
from astra.rollout.errors import EngineError, TurnLost
from astra.rollout.streaming import Admission, Talk
from astra.rollout.transfer import Transfer
from astra.rollout.vllm_admin import (
    MOST_SILENT_S,
    Administration,
    FaultKind,
    Scored,
    ServerFault,
    started_at,
)

ATTEMPTS = 3
BACKOFF_S = 0.5
SYNC_TIMEOUT_S = 600.0
"""How long one server may take over new weights; a 32B model from a slow disk takes minutes."""
REQUEST_TIMEOUT_S = 600.0
"""How long one turn may take; 4,096 tokens at 10 a second are 410 s."""
ENOUGH, REMEMBERED, SPREADS = 32, 512, 2.0
"""Conversations before their length is estimated, how many count, deviations above their mean."""
_RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504})


@dataclass
class _Server:
    admin: Administration
    admission: Admission
    alive: bool = True
    problem: str = ""
    talks: int = 0
    timeouts: int = 0
    """Turns in a row that got no answer in time."""
    answers: int = 0
    """Requests that it answered so far."""

    @property
    def url(self) -> str:
        return self.admin.url


class _Verdict(NamedTuple):
    """What came of handing weights to one server."""

    started: float
    fault: FaultKind | None = None
    problem: str = ""


@dataclass
class VLLMConfig:
    """``kv_tokens``: key-value memory of one server; None: what it says of itself."""

    servers: Sequence[str]
    model: str = "policy"
    """Name the servers serve the policy under (``--served-model-name``)."""
    kv_tokens: int | None = None
    ranks: int = 1
    """Processes that share the servers, and their memory, evenly."""
    request_timeout_s: float = REQUEST_TIMEOUT_S
    sync_timeout_s: float = SYNC_TIMEOUT_S


class Lengths:
    """What conversations really grow to, in tokens: less than they may, by far."""

    def __init__(self) -> None:
        self._newest: deque[int] = deque(maxlen=REMEMBERED)

    def add(self, tokens: int) -> None:
        self._newest.append(tokens)

    def likely(self, most: int) -> int:
        """Mean plus ``SPREADS`` standard deviations, at most ``most``, which holds at first."""
        count = len(self._newest)
        if count < ENOUGH:
            return most
        mean = sum(self._newest) / count
        variance = sum((tokens - mean) ** 2 for tokens in self._newest) / count
        return min(most, math.ceil(mean + SPREADS * math.sqrt(variance)))


class VLLMEngine:
    """``transfer`` hands weights over, ``reference`` says what they compute; every rank calls
    both, and ``gather``, which returns each rank's value.

    A server that fails is left out until the next version; ``faults`` counts what this rank saw.
    Raises EngineError where no server is left, or where one answers with something that
    cannot be trained on: a token it stopped at that is not EOS, or no log-probabilities.
    """

    def __init__(
        self,
        config: VLLMConfig,
        eos_id: int,
        transfer: Transfer,
        reference: Reference,
        gather: Callable[[Any], list[Any]] = lambda value: [value],
    ) -> None:
        if not config.servers:
            raise EngineError(
                "rl/engine is vllm, but runtime.rollout_servers is empty; start `vllm serve` "
                "(docs/training.md) and list its URL there"
            )
        self.weight_version = -1
        self.faults: Counter[str] = Counter()
        self._config = config
        self._eos = eos_id
        self._transfer, self._reference, self._gather = transfer, reference, gather
        self._servers = [self._server(url.rstrip("/")) for url in config.servers]
        self._lengths = Lengths()
        self._http: aiohttp.ClientSession | None = None

    def _server(self, url: str) -> _Server:
        admin = Administration(url, self._config.model, self._config.sync_timeout_s)
        capacity = self._config.kv_tokens or admin.kv_tokens
        if not capacity:
            raise EngineError(
                f"{url}/metrics does not say how much it caches; set rl.engine.kv_tokens"
            )
        return _Server(admin, Admission(capacity // self._config.ranks))

    def sync(self, version: int) -> None:
        """Hand the policy's weights to every server, once per version and side by side.

        Every rank calls it, while none is rolling, and none goes on before all may roll. A server
        that did not take them, or may hold something older, is left out until the next version.
        """
        if version == self.weight_version:
            return
        if self._http is not None:
            raise AssertionError("weights change while conversations run with the old ones")
        gives = self._transfer.offer(version)
        expected = self._reference()
        verdicts = self._hand_over(expected) if gives else None
        if gives:
            self._transfer.close()
        everyones = [one for one in self._gather(verdicts) if one is not None]
        for server, verdict in zip(self._servers, everyones[0], strict=True):
            server.admin.started, server.timeouts = verdict.started, 0
            server.alive, server.problem = verdict.fault is None, verdict.problem
            if gives and verdict.fault is not None:
                self.faults[verdict.fault] += 1
        self._somebody()
        self.weight_version = version

    def _hand_over(self, expected: Scored) -> list[_Verdict]:
        def to(server: _Server) -> _Verdict:
            try:
                server.admin.hand_over(self._transfer, expected)
            except ServerFault as fault:
                return _Verdict(server.admin.started, fault.kind, str(fault))
            return _Verdict(server.admin.started)

        with ThreadPoolExecutor(len(self._servers)) as pool:
            return list(pool.map(to, self._servers))

    @asynccontextmanager
    async def running(self, sampling: Sampling) -> AsyncGenerator[None]:
        timeout = aiohttp.ClientTimeout(total=self._config.request_timeout_s)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            self._http = http
            try:
                yield
            finally:
                self._http = None

    @asynccontextmanager
    async def admitted(self, tokens: int) -> AsyncGenerator[Talk]:
        """Wait until a server probably has room for the conversation, and hold that room.

        A server where more grow than was expected preempts some, which costs time alone. Where
        the episode's time ends while a turn is waited for, that turn is lost: the server's silence
        is never the policy's fault. Where its calls took the time, what was generated is kept.
        """
        server = min(self._somebody(), key=lambda server: server.talks / server.admission.capacity)
        whole = server.admission.capacity * self._config.ranks
        if tokens > whole:
            raise EngineError(
                f"one conversation may need {tokens} tokens of key-value memory, {server.url} has "
                f"{whole}; lower rl.limits.max_response_tokens or give it more memory"
            )
        grown, asked = 0, None  # asked: the server's answers when it was asked for a pending turn

        async def talk(ids: Sequence[int], budget: int, sampling: Sampling) -> Turn:
            nonlocal grown, asked
            asked = server.answers
            turn = await self._turn(server, ids, budget, sampling)
            grown, asked = len(ids) + len(turn.ids), None
            return turn

        server.talks += 1
        try:
            async with server.admission.hold(
                min(self._lengths.likely(tokens), server.admission.capacity)
            ):
                try:
                    yield talk
                except TimeoutError:
                    if asked is not None:
                        raise self._cut_off(server, silent=server.answers == asked) from None
                    await self._same_process(server)
                    raise
                await self._same_process(server)
                self._lengths.add(grown)
        finally:
            server.talks -= 1

    async def _same_process(self, server: _Server) -> None:
        """TurnLost where the server is no longer the process that took the weights."""
        assert self._http is not None
        try:
            silent = aiohttp.ClientTimeout(total=min(MOST_SILENT_S, self._config.request_timeout_s))
            async with self._http.get(f"{server.url}/metrics", timeout=silent) as reply:
                reply.raise_for_status()
                if started_at(await reply.text()) == server.admin.started:
                    return
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            problem = str(error) or type(error).__name__
            raise self._left_out(server, "unreachable", problem) from None
        raise self._left_out(server, "restarted", "was started anew, with other weights")

    def _left_out(self, server: _Server, fault: FaultKind, problem: str) -> TurnLost:
        """Use the server no more before the next version; EngineError if none is left."""
        if server.alive:
            self.faults[fault] += 1
            server.alive, server.problem = False, problem
        return self._lost(server)

    def _lost(self, server: _Server) -> TurnLost:
        self.faults["turns_lost"] += 1
        self._somebody()
        return TurnLost(f"{server.url}: {server.problem}")

    def _unanswered(self, server: _Server, problem: str) -> TurnLost:
        """The turn is lost; the server too, once it left ``ATTEMPTS`` in a row unanswered."""
        server.timeouts += 1
        server.problem = problem
        if server.timeouts >= ATTEMPTS:
            return self._left_out(server, "stalled", problem)
        return self._lost(server)

    def _cut_off(self, server: _Server, silent: bool) -> TurnLost:
        """The turn that was waited for when its episode's time ended is lost. It counts against
        the server only if that was ``silent`` meanwhile: episodes that began together end together,
        and a slow server that goes on answering is not stalled."""
        problem = "no answer before its episode's time was over (rl.engine.timeout_s)"
        if silent:
            return self._unanswered(server, problem)
        server.problem = problem
        return self._lost(server)

    def _somebody(self) -> list[_Server]:
        """The servers that may be used. EngineError if none may."""
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
            except TimeoutError:
                # Asked again it would be waited for as long again: elsewhere it goes on.
                problem = f"no answer in {self._config.request_timeout_s:.0f} s"
                raise self._unanswered(server, problem) from None
            except (aiohttp.ClientError, OSError) as error:
                server.problem = str(error) or type(error).__name__
                if attempt + 1 == ATTEMPTS:
                    raise self._left_out(server, "unreachable", server.problem) from None
                continue
            server.timeouts, server.answers = 0, server.answers + 1
            if answer is not None:
                return self._read(server, answer, budget)
        raise self._lost(server)

    async def _ask(self, server: _Server, body: dict[str, Any]) -> Any | None:
        """The reply; None where it is worth asking again."""
        assert self._http is not None
        async with self._http.post(f"{server.url}/v1/completions", json=body) as reply:
            if reply.status == 200:
                try:
                    return await reply.json()
                except ValueError as error:
                    server.problem = f"an answer that is no JSON: {error}"
                    return None
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
            server.problem = f"finish_reason {finish}"
            raise self._lost(server)
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
