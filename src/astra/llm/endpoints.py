"""Chat completions over one or several OpenAI-compatible endpoints, with bounded retries.

Who asks names neither an endpoint nor a key. A request goes to the endpoint with the least
work in flight; one that answered 429 or 503 with Retry-After rests for that long, one that
keeps failing rests for longer each time, and one that will not serve the model (wrong key,
unknown model) is left alone. What every endpoint refuses, and an outage, stops the stage:
dropping each item for it would pass an outage off as data.

An outage is that no answer comes: no connection, no reply in time, 5xx or 429 at every try, or
what is no chat completion. A refusal of the very ask (400, 422, a content filter) comes from an
endpoint that works. Some asks get no answer whenever they are sent, and when a stage is run again
they are all that is left to send. So neither an outage nor a model that cannot do its task is
concluded before an ask that has an answer, from the cache or from this run, was sent once more;
if it is answered again, what failed are those asks alone. The reply is not kept.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from astra.errors import OutOfTokens
from astra.llm.budget import Tokens, estimate
from astra.llm.desk import Account
from astra.llm.gateway import Gateway
from astra.llm.protocol import ParseError, ProviderError
from astra.llm.served import served, uncounted
from astra.llm.servers import EndpointError, Server
from astra.llm.structured import is_object
from astra.llm.usage import Usage
from astra.llm.wire import (
    ChatReply,
    Fatal,
    Fault,
    RefusedAsk,
    RefusedRequest,
    Retriable,
    classified,
    error_instead,
    read_reply,
    reported_tokens,
)

log = logging.getLogger("astra")

BACKOFF_S = 1.0
"""The longest pause before the second try of a request; it doubles with each further try."""
BACKOFF_MAX_S = 30.0
OUTAGE_ASKS = 8
"""How many asks in a row without an answer look like an outage; one does, if this process was
never answered."""
UNUSABLE_ASKS = 50
"""How many asks in a row that were refused, or got no usable reply, repairs included, look like a
model that cannot do it."""


@dataclass(frozen=True)
class ChatBodies:
    """The request bodies of one ask: one that any server takes, and perhaps a better one."""

    plain: Mapping[str, Any]
    """The body for any server; it shows the JSON schema of the reply in its messages."""
    structured: Mapping[str, Any] | None = None
    """The body for a server that takes JSON schemas."""
    schema_id: str = ""
    """Tells schemas apart: a server may refuse one and take another."""
    enforced: bool = False
    """Whether a server that takes the schema must follow it."""

    def structured_for(self, server: Server) -> bool:
        """Whether to try the structured body at ``server``."""
        return (
            self.structured is not None
            and server.structured is not False
            and self.schema_id not in server.refused_schemas
        )


@dataclass
class Attempts:
    """The tries left of one ask; transport faults and repairs draw on the same number."""

    left: int
    hold: Account
    taken: int = 0

    def take(self) -> bool:
        """Use up one try; False if none was left."""
        self.left -= 1
        self.taken += 1
        return self.left >= 0


Again = Callable[[Attempts], Awaitable[object]]
"""Sends an ask that has an answer once more. Raises ProviderError, ParseError or OutOfTokens where
it gets none."""


class ChatTransport:
    """Sends chat requests of one role for one model."""

    def __init__(self, gateway: Gateway, model: str, usage: Usage) -> None:
        self.gateway = gateway
        self.usage = usage
        self.model = model
        self.servers = [server for server in gateway.servers if server.serves(model)]
        if not self.servers:
            listed = ", ".join(server.url for server in gateway.servers)
            raise EndpointError(
                f"no endpoint serves model {model!r} ({listed}); add it to the `models` of one in "
                "conf/runtime, or change the role's model"
            )
        self._jitter = random.Random()
        self._failed_in_a_row = 0
        self._unusable_in_a_row = 0
        self._refused = False
        """Whether an endpoint refused an ask: then one is up."""
        self._again: Again | None = None
        """The last ask of this role that has an answer."""

    def attempts(self) -> Attempts:
        """The tries of one new ask; the caller closes their ``hold`` when the ask is done."""
        return Attempts(self.gateway.runtime.max_attempts, self.gateway.desk.hold())

    async def chat(self, bodies: ChatBodies, attempts: Attempts) -> ChatReply:
        """One completion. Raises ProviderError once the attempts are spent, RefusedAsk at once, and
        StageStop for faults that concern every request.
        """
        try:
            reply = await self.tried(bodies, attempts)
        except RefusedAsk as error:
            self._failed_in_a_row, self._refused = 0, True
            await self.unusable(str(error), attempts)
            raise
        except ProviderError as error:
            await self._unanswered(str(error), attempts)
            raise
        self._failed_in_a_row = 0
        return reply

    async def tried(self, bodies: ChatBodies, attempts: Attempts) -> ChatReply:
        """``chat``, but what comes of it says nothing of an outage."""
        problem = "no attempt was left"
        tried = 0
        avoid: Server | None = None
        while attempts.take():
            if tried > 0:
                self.usage.retries += 1
            tried += 1
            try:
                return await self._send(bodies, attempts, avoid)
            except Fatal as error:
                problem = str(error)
            except Retriable as error:
                problem, avoid = str(error), error.server
                log.debug("retrying: %s", problem)
                if attempts.left > 0:
                    await self._pause(avoid, tried, error.retry_after_s)
        raise ProviderError(f"no answer after {tried} attempts, the last: {problem}")

    def answered(self, again: Again) -> None:
        """Note an ask that has an answer, from the cache or from an endpoint."""
        self._again = self.gateway.answered[self.model] = again

    def usable(self) -> None:
        """Note that an endpoint's reply to an ask could be used."""
        self._unusable_in_a_row = 0

    async def unusable(self, problem: str, attempts: Attempts) -> None:
        """Count an ask that was refused, or whose replies could not be used, repairs included.

        Raises EndpointError where the model cannot do what this role asks. The ask is over.
        """
        self._unusable_in_a_row += 1
        attempts.hold.close()
        async with self.gateway.doubt(self.model):
            if self._unusable_in_a_row < UNUSABLE_ASKS:
                return
            if await self._answers(self._again):
                self._unusable_in_a_row = 0
                return
        raise EndpointError(
            f"the replies of {self.model} to {self._unusable_in_a_row} asks in a row could not be "
            f"used, repairs and refusals included, the last: {problem}. Try `astra teacher check`, "
            "a larger max_tokens or another model, and run the same command again"
        )

    async def _unanswered(self, problem: str, attempts: Attempts) -> None:
        """Count an ask without an answer. Raises EndpointError in an outage. The ask is over."""
        self._failed_in_a_row += 1
        # Else asks that wait here would keep budget that the one sent once more needs.
        attempts.hold.close()
        async with self.gateway.doubt(self.model):
            up = self._refused or any(server.answered[self.model] for server in self.servers)
            if up and self._failed_in_a_row < OUTAGE_ASKS:
                return
            if await self._answers(self.gateway.answered.get(self.model)):
                self._failed_in_a_row = 0
                return
        raise EndpointError(
            f"no endpoint answers for {self.model}: {self._failed_in_a_row} asks in a row "
            f"failed, the last: {problem}. Check the endpoints (`astra teacher check`) and "
            "run the same command again; committed answers are kept"
        )

    async def _answers(self, again: Again | None) -> bool:
        """Whether an ask that has an answer gets one once more; False without such an ask."""
        if again is None:
            return False
        # As one that was tried before, it waits behind no new ask.
        attempts = Attempts(self.gateway.runtime.max_attempts, self.gateway.desk.hold(), taken=1)
        try:
            with uncounted():
                await again(attempts)
        except (ProviderError, ParseError, OutOfTokens) as error:
            log.warning("%s does not answer an ask that it has answered: %s", self.model, error)
            return False
        finally:
            attempts.hold.close()
        return True

    def _choose(self, avoid: Server | None) -> Server:
        """The server with the least in flight among those that can start, the failed one last."""
        now = time.monotonic()
        able = [server for server in self.servers if self.model not in server.refuses]
        return min(
            able or self.servers,
            key=lambda s: (s.starts_at() > now, s is avoid, s.in_flight, s.starts_at()),
        )

    def _give_up(self, server: Server, problem: str) -> None:
        """The server will not serve this model any more. EndpointError if none is left."""
        if self.model not in server.refuses:
            server.refuses[self.model] = problem
            log.warning("endpoint %s is left out for %s: %s", server.url, self.model, problem)
        if all(self.model in candidate.refuses for candidate in self.servers):
            raise EndpointError(
                f"endpoint refused the request for good ({problem}); check its key, "
                "its quota, base_url and the role's model"
            )

    async def _pause(self, server: Server | None, tried: int, retry_after_s: float | None) -> None:
        """Wait before the next try: a random time up to a ceiling that doubles with each."""
        if retry_after_s is not None and server is not None:
            # All requests of this endpoint wait, and others go elsewhere meanwhile.
            server.rest(retry_after_s)
        if retry_after_s is None or len(self.servers) > 1:
            ceiling = min(BACKOFF_S * 2 ** (tried - 1), BACKOFF_MAX_S)
            await asyncio.sleep(self._jitter.uniform(0, ceiling))

    async def _send(
        self, bodies: ChatBodies, attempts: Attempts, avoid: Server | None
    ) -> ChatReply:
        """One request; if the structured body is refused, the plain one right after it."""
        try:
            server, structured, reply = await self._request(bodies, attempts, avoid)
        except _RefusedSchema as refused:
            # If the plain body is refused as well, it was not the schema, and this raises.
            server, _, reply = await self._request(bodies, attempts, avoid, refused.server)
            if server.structured:
                server.refused_schemas.add(bodies.schema_id)
            elif server.structured is None:
                server.structured = False
                log.info("%s enforces no JSON schema; replies are parsed instead", server.url)
            return reply
        whole = bool(reply.content) and not reply.truncated
        if structured and bodies.enforced and whole and not is_object(reply.content):
            server.ignored_schema()
        elif structured and server.structured is None:
            server.structured = True
        return reply

    async def _request(
        self,
        bodies: ChatBodies,
        attempts: Attempts,
        avoid: Server | None,
        plain_at: Server | None = None,
    ) -> tuple[Server, bool, ChatReply]:
        """One request, once budget, rate limits and places in flight allow it.

        Returns the server, whether it got the structured body, and the reply. ``plain_at``: the
        server to which the plain body is to go.
        """
        expected = Tokens()
        if self.gateway.paced:
            expected = estimate(bodies.plain)
        await attempts.hold.admit(self.model, expected)
        again = attempts.taken > 1 or plain_at is not None
        async with self.gateway.places(self.model).taken(again):
            server = plain_at or self._choose(avoid)
            structured = plain_at is None and bodies.structured_for(server)
            body = bodies.structured if structured else None
            await self._turn_at(server, expected)
            server.in_flight += 1
            try:
                reply = await self._exchange(server, body or bodies.plain, attempts.hold, expected)
            except RefusedRequest:
                if structured:
                    raise _RefusedSchema(server) from None
                raise
            except Fatal as error:
                self._give_up(server, str(error))
                raise
            except Retriable as error:
                error.server = server
                raise
            finally:
                server.in_flight -= 1
        return server, structured, reply

    async def _exchange(
        self, server: Server, body: Mapping[str, Any], hold: Account, expected: Tokens
    ) -> ChatReply:
        """Send a body and read the reply; the tokens used are booked whatever comes of it."""
        self.usage.requests += 1
        used = Tokens()
        sent_at = time.monotonic()
        try:
            document = await self._post(server, body)
            used = self._book(document, body)
            reply = read_reply(document)
        except Fault as error:
            self.usage.faults[error.kind] += 1
            error.args = (f"{server.url}: {error}",)
            if isinstance(error, Retriable) and error.retry_after_s is None:
                server.failed(sent_at, self._jitter)
            outcome = error.outcome()
            if outcome is error:
                raise
            raise outcome from error
        finally:
            self.usage.cost += await hold.charge(self.model, used)
            await server.limits.correct(used.total - expected.total)
        server.succeeded(self.model)
        self.usage.latency.add(time.monotonic() - sent_at)
        return reply

    def _book(self, document: Any, body: Mapping[str, Any]) -> Tokens:
        """Count the tokens of a reply, estimated where the server does not report them."""
        tokens = reported_tokens(document)
        if tokens is None:
            self.usage.unreported += 1
            tokens = Tokens(estimate(body).prompt, len(json.dumps(document)) // 4)
        self.usage.prompt_tokens += tokens.prompt
        self.usage.cached_tokens += tokens.cached
        self.usage.completion_tokens += tokens.completion
        return tokens

    async def _turn_at(self, server: Server, expected: Tokens) -> None:
        """Wait until the server rests no more and its rate limits have room."""
        wait = await server.limits.reserve(expected.total)
        if wait > 0:
            await asyncio.sleep(wait)
        while (rest := server.rests_until - time.monotonic()) > 0:
            await asyncio.sleep(rest)

    async def _post(self, server: Server, body: Mapping[str, Any]) -> Any:
        """The reply's JSON. Raises Fault."""
        try:
            with served():
                response = await server.chat(body)
        except (httpx2.ReadTimeout, TimeoutError) as error:
            raise Retriable("timeout", "timeout") from error
        except httpx2.HTTPError as error:
            # Also ConnectTimeout: the transport reports a dropped connection as one.
            problem = f"connection failed: {error or type(error).__name__}"
            raise Retriable(problem, "connection") from error
        if response.status_code != 200:
            content, headers = response.content, response.headers
            raise classified(response.status_code, content, headers, server.key)
        try:
            document = json.loads(response.content)
        except ValueError as error:
            raise Retriable(f"the response is no JSON: {error}", "no_completion") from error
        if fault := error_instead(document, response.headers, server.key):
            raise fault
        return document


class _RefusedSchema(Exception):
    """The structured body was refused; the plain one may not be."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.url)
        self.server = server
