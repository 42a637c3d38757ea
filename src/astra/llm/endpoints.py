"""Chat completions over one or several OpenAI-compatible endpoints, with bounded retries.

Who asks names neither an endpoint nor a key. A request goes to the endpoint with the least
work in flight; one that answered 429 or 503 with Retry-After rests for that long. Faults that
every request would meet (wrong key, unknown model, a long outage) stop the stage, since
dropping each item for them would pass an outage off as data.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import logging
import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import openai
from openai import AsyncOpenAI

from astra.errors import AstraError
from astra.llm.protocol import ProviderError
from astra.llm.usage import Usage
from astra.settings import Endpoint, RuntimeConfig

log = logging.getLogger(__name__)

RETRIED = frozenset({408, 409, 429})  # and every 5xx
FATAL = frozenset({401, 403, 404})
BACKOFF_S = 1.0
BACKOFF_MAX_S = 30.0
RETRY_AFTER_MAX_S = 300.0
OUTAGE_ASKS = 8
"""So many asks in a row without any answer are an outage."""


class EndpointError(AstraError):
    """No endpoint can serve this stage: missing, misconfigured or down. Stops the stage."""


class RefusedRequest(ProviderError):
    """The server refused this very request (400 or 422); sending it again is no use."""


@dataclass(frozen=True)
class ChatRequest:
    """What to send: a body that any server takes, and perhaps a better one.

    ``structured`` is the body to prefer where the server enforces JSON schemas; ``plain`` then
    shows the schema in its messages instead. ``schema_id`` tells schemas apart.
    """

    plain: Mapping[str, Any]
    structured: Mapping[str, Any] | None = None
    schema_id: str = ""


@dataclass(frozen=True)
class ChatReply:
    """One completion. ``tool_calls`` are (name, argument text) as the server sent them."""

    content: str
    tool_calls: tuple[tuple[str, str], ...]
    truncated: bool


@dataclass
class Server:
    """An endpoint with what this process has learnt of it."""

    url: str
    client: AsyncOpenAI
    in_flight: int = 0
    rests_until: float = 0.0
    structured: bool | None = None
    """Whether it takes ``response_format``; None until tried."""
    refused_schemas: set[str] = field(default_factory=set[str])
    """Of a server that takes it: schemas that it refused all the same."""

    def enforces(self, request: ChatRequest) -> bool:
        """Whether to try the structured body here."""
        return (
            request.structured is not None
            and self.structured is not False
            and request.schema_id not in self.refused_schemas
        )


@dataclass
class Attempts:
    """The tries left of one ask; transport faults and repairs draw on the same number."""

    left: int

    def take(self) -> bool:
        self.left -= 1
        return self.left >= 0


def build_servers(endpoints: Sequence[Endpoint], timeout_s: float) -> list[Server]:
    """Clients of all endpoints. Raises EndpointError naming the missing setting."""
    if not endpoints:
        raise EndpointError(
            "backend openai needs an endpoint and runtime.endpoints is empty; add one in "
            "conf/runtime (base_url and api_key_env), or choose the offline teacher"
        )
    servers: list[Server] = []
    for endpoint in endpoints:
        key = os.environ.get(endpoint.api_key_env, "") if endpoint.api_key_env else "none"
        if not key:
            raise EndpointError(
                f"endpoint {endpoint.base_url}: environment variable {endpoint.api_key_env} is "
                "not set; export the key under that name (or set api_key_env to '' where the "
                "server wants no key)"
            )
        client = AsyncOpenAI(
            base_url=endpoint.base_url, api_key=key, timeout=timeout_s, max_retries=0
        )
        servers.append(Server(endpoint.base_url, client))
    return servers


class ChatTransport:
    """Sends chat requests for one role. Lives in one event loop; close it there."""

    def __init__(self, runtime: RuntimeConfig, usage: Usage) -> None:
        self.servers = build_servers(runtime.endpoints, runtime.request_timeout_s)
        self.usage = usage
        self.max_attempts = runtime.max_attempts
        self._slots = asyncio.Semaphore(runtime.concurrency)
        self._jitter = random.Random()
        self._failed_in_a_row = 0

    async def chat(self, request: ChatRequest, attempts: Attempts) -> ChatReply:
        """One completion. Raises ProviderError once the attempts are spent, RefusedRequest at
        once, and EndpointError for faults that concern every request.
        """
        problem = "no attempt was left"
        tried = 0
        avoid: Server | None = None
        async with self._slots:
            while attempts.take():
                self.usage.retries += tried > 0
                server = await self._choose(avoid)
                tried += 1
                try:
                    reply = await self._send(server, request)
                except RefusedRequest as error:
                    self._count_failure(str(error))
                    raise
                except _Retriable as error:
                    problem, avoid = f"{server.url}: {error}", server
                    log.debug("retrying: %s", problem)
                    if attempts.left > 0:
                        await self._pause(server, tried, error.retry_after_s)
                else:
                    self._failed_in_a_row = 0
                    return reply
        self._count_failure(problem)
        raise ProviderError(f"no answer after {tried} attempts, the last: {problem}")

    async def close(self) -> None:
        for server in self.servers:
            await server.client.close()

    def _count_failure(self, problem: str) -> None:
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= OUTAGE_ASKS:
            raise EndpointError(
                f"{self._failed_in_a_row} asks in a row failed at the endpoint, the last: "
                f"{problem}. Check the endpoints and run the same command again; "
                "committed answers are kept"
            )

    async def _choose(self, avoid: Server | None) -> Server:
        """The server with the least in flight among those not resting, the failed one last."""
        now = time.monotonic()
        server = min(
            self.servers,
            key=lambda s: (s.rests_until > now, s is avoid, s.in_flight, s.rests_until),
        )
        while (rest := server.rests_until - time.monotonic()) > 0:
            await asyncio.sleep(rest)
        return server

    async def _pause(self, server: Server, tried: int, retry_after_s: float | None) -> None:
        if retry_after_s is not None:
            # All requests of this endpoint wait, and others go elsewhere meanwhile.
            server.rests_until = max(server.rests_until, time.monotonic() + retry_after_s)
        if retry_after_s is None or len(self.servers) > 1:
            ceiling = min(BACKOFF_S * 2 ** (tried - 1), BACKOFF_MAX_S)
            await asyncio.sleep(self._jitter.uniform(0, ceiling))

    async def _send(self, server: Server, request: ChatRequest) -> ChatReply:
        """One request; if the structured body is refused, the plain one right after it."""
        if request.structured is None or not server.enforces(request):
            return await self._request(server, request.plain)
        try:
            reply = await self._request(server, request.structured)
        except RefusedRequest:
            reply = await self._request(server, request.plain)  # refused again: not the schema
            if server.structured:
                server.refused_schemas.add(request.schema_id)
            else:
                server.structured = False
                log.info("%s enforces no JSON schema; replies are parsed instead", server.url)
            return reply
        server.structured = True
        return reply

    async def _request(self, server: Server, body: Mapping[str, Any]) -> ChatReply:
        server.in_flight += 1
        self.usage.requests += 1
        extra = {name: value for name, value in body.items() if name not in ("model", "messages")}
        try:
            raw = await server.client.chat.completions.with_raw_response.create(
                model=body["model"], messages=body["messages"], extra_body=extra
            )
            document = json.loads(raw.text)
        except openai.APITimeoutError as error:
            raise _Retriable("timeout") from error
        except openai.APIConnectionError as error:
            raise _Retriable(f"connection failed: {error.__cause__ or error}") from error
        except openai.APIStatusError as error:
            raise _classified(server, error) from error
        except (ValueError, openai.APIError) as error:
            raise _Retriable(f"the response is no JSON: {error}") from error
        finally:
            server.in_flight -= 1
        return self._read(document)

    def _read(self, document: Any) -> ChatReply:
        try:
            used = document.get("usage") or {}
            self.usage.prompt_tokens += int(used.get("prompt_tokens") or 0)
            self.usage.completion_tokens += int(used.get("completion_tokens") or 0)
            choice = document["choices"][0]
            message = choice["message"]
            calls = tuple(
                (_clean(call["function"]["name"]), _clean(call["function"]["arguments"]))
                for call in message.get("tool_calls") or ()
            )
            content = _clean(message.get("content") or "")
            refusal = message.get("refusal")
            finish = choice.get("finish_reason")
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise _Retriable(f"the response is no chat completion: {error!r}") from error
        if refusal or finish == "content_filter":
            raise ProviderError(f"the model refused: {refusal or 'content filter'}")
        return ChatReply(content, calls, truncated=finish == "length")


def _clean(text: str) -> str:
    """Half of a surrogate pair (a character cut in two) is no text; it becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class _Retriable(Exception):
    """A fault that another attempt may not meet."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


def _classified(server: Server, error: openai.APIStatusError) -> Exception:
    status = error.status_code
    message = f"HTTP {status}: {error.message[:300]}"
    if status in FATAL or (status == 429 and error.code == "insufficient_quota"):
        return EndpointError(
            f"endpoint {server.url} refused the request for good ({message}); check its key, "
            "its quota, base_url and the role's model"
        )
    if status in RETRIED or status >= 500:
        wait = retry_after_s(error.response.headers)
        if wait is not None and wait > RETRY_AFTER_MAX_S:
            return EndpointError(
                f"endpoint {server.url} asks to wait {wait:.0f} s ({message}); run again later"
            )
        return _Retriable(message, wait)
    return RefusedRequest(f"{server.url}: {message}")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait (number or HTTP date), or None."""
    text = headers.get("retry-after", "")
    try:
        return max(float(text), 0.0)
    except ValueError:
        parsed = email.utils.parsedate_to_datetime(text) if _is_date(text) else None
    return max(parsed.timestamp() - time.time(), 0.0) if parsed else None


def _is_date(text: str) -> bool:
    return email.utils.parsedate_tz(text) is not None
