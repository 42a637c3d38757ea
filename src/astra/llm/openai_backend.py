"""A teacher behind OpenAI-compatible endpoints: render, look up, ask, parse, repair, commit.

``teacher_key`` says by what an answer is found again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from pydantic import BaseModel, ValidationError

from astra.llm.cache import answer_key
from astra.llm.endpoints import Attempts, ChatBodies, ChatReply, ChatTransport
from astra.llm.gateway import Gateway
from astra.llm.protocol import (
    Ask,
    ModelConfig,
    ParseError,
    ProviderError,
    Reply,
    TruncatedReply,
    UnfitReply,
)
from astra.llm.structured import (
    instructions,
    parse_reply,
    repair_request,
    response_format,
    schema_text,
    without_thinking,
)
from astra.prompting import render

ECHO_CHARS = 4000
"""How much of an unusable reply the request for its repair shows again."""


Chat = Callable[[ChatBodies, Attempts], Awaitable[ChatReply]]
"""How a request is sent: ``ChatTransport.chat``, or ``tried`` for an ask that is sent once more."""


def sampling_fields(config: ModelConfig) -> dict[str, Any]:
    """The sampling fields of a role's requests; ``extra`` overrides, null there removes one."""
    fields: dict[str, Any] = {
        "temperature": config.temperature,
        "top_p": config.top_p,
        "max_tokens": config.max_tokens,
    }
    if "max_completion_tokens" in config.extra:
        del fields["max_tokens"]
    fields |= config.extra
    return {name: value for name, value in fields.items() if value is not None}


class OpenAITeacher:
    """Answers asks over HTTP, within one event loop at a time.

    An answer is committed to the cache before it is returned; equal asks in flight at the
    same time are sent once.
    """

    def __init__(self, config: ModelConfig, gateway: Gateway) -> None:
        self.name = f"openai:{config.model}"
        self._config = config
        self._sampling = sampling_fields(config)
        self._gateway = gateway
        self.usage = self._gateway.usage(self.name)
        self._transport = ChatTransport(self._gateway, config.model, self.usage)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def ask(self, ask: Ask[Reply]) -> Reply:
        """The reply, from the cache if it was ever given. Raises ProviderError or ParseError."""
        await self._gateway.enter()
        prompt = render(ask.template, ask.shown)
        key = self.key(ask, prompt)
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock, self._gateway.desk.claimed(key) as committed:
            reply = committed_reply(committed, ask)
            if reply is not None:
                self.usage.cache_hits += 1
            else:
                reply = await self._answer(ask, key, prompt)
            self._transport.answered(partial(self._converse, prompt, ask, self._transport.tried))
        self._gateway.reporter.tick()
        return reply

    def key(self, ask: Ask[Reply], prompt: str) -> str:
        """The key under which the answer to an ask is cached."""
        return teacher_key(self._config, prompt, ask.response, ask.sample)

    async def _answer(self, ask: Ask[Reply], key: str, prompt: str) -> Reply:
        """Ask and commit. The ask's budget stays reserved until the answer is committed."""
        attempts = self._transport.attempts()
        try:
            reply = await self._converse(prompt, ask, self._transport.chat, attempts)
            self._transport.usable()
            value = {"reply": reply.model_dump(mode="json")}
            await self._gateway.desk.commit(key, self.name, value)
        except (ProviderError, ParseError) as error:
            self.usage.failures += 1
            if isinstance(error, ParseError):
                await self._transport.unusable(str(error), attempts)
            place = f"[{self.usage.stage} {ask.template} sample {ask.sample}]"
            raise type(error)(f"{place} {error}") from error
        finally:
            attempts.hold.close()
        self.usage.answers += 1
        return reply

    async def _converse(
        self, prompt: str, ask: Ask[Reply], chat: Chat, attempts: Attempts
    ) -> Reply:
        """Ask, then ask for repairs while attempts are left."""
        response = ask.response
        repair: list[dict[str, str]] = []
        while True:
            bodies = chat_bodies(self._config.model, self._sampling, prompt, response, repair)
            reply = await chat(bodies, attempts)
            try:
                return ask.accepted(_parsed(reply, response))
            except ParseError as error:
                self.usage.faults[error.kind] += 1
                if attempts.left <= 0:
                    raise type(error)(f"unusable after all attempts: {error}") from error
                self.usage.repairs += 1
                echo = without_thinking(reply.content).strip()[:ECHO_CHARS] or "(nothing)"
                repair = [
                    {"role": "assistant", "content": echo},
                    _user(repair_request(str(error), response)),
                ]


def teacher_key(config: ModelConfig, prompt: str, response: type[BaseModel], sample: int) -> str:
    """The answer cache's key of an ask: ``answer_key`` of what the ask is made of.

    It covers the model, the rendered messages, the reply's schema, the sampling fields and the
    sample index: an ask that differs in one of them is a new one. Endpoints, keys of access and
    the template's name are not part of it.
    """
    return answer_key(
        {
            "backend": "openai",
            "model": config.model,
            "messages": [_user(prompt)],
            "schema": schema_text(response),
            "sampling": sampling_fields(config),
            "sample": sample,
        }
    )


def _parsed(reply: ChatReply, response: type[Reply]) -> Reply:
    if reply.truncated:
        raise TruncatedReply("the reply was cut off at the token limit; be brief")
    return parse_reply(reply.content, response)


def committed_reply(value: Mapping[str, Any] | None, ask: Ask[Reply]) -> Reply | None:
    """A cached value as the ask's reply; None if there is none, or it is not valid any more."""
    if value is None:
        return None
    try:
        return ask.accepted(ask.response.model_validate(value["reply"]))
    except (ValidationError, UnfitReply, KeyError):
        return None


def chat_bodies(
    model: str,
    sampling: Mapping[str, Any],
    prompt: str,
    response: type[BaseModel],
    repair: Sequence[Mapping[str, str]] = (),
) -> ChatBodies:
    """The request bodies of an ask, with the messages of a repair after its own."""
    base = {"model": model, **sampling}
    form, schema_id, enforced = response_format(response)
    instructed = f"{prompt}\n\n{instructions(response)}"
    return ChatBodies(
        plain={**base, "messages": [_user(instructed), *repair]},
        structured={
            **base,
            "messages": [_user(prompt if enforced else instructed), *repair],
            "response_format": form,
        },
        schema_id=schema_id,
        enforced=enforced,
    )


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}
