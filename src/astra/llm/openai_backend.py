"""A teacher behind OpenAI-compatible endpoints: render, look up, ask, parse, repair, commit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

from pydantic import ValidationError

from astra.llm.cache import AnswerCache, answer_key
from astra.llm.endpoints import Attempts, ChatRequest, ChatTransport
from astra.llm.protocol import Ask, ModelConfig, ParseError, ProviderError, Reply
from astra.llm.structured import (
    instructions,
    parse_reply,
    repair_request,
    response_format,
    schema_text,
    without_thinking,
)
from astra.llm.usage import Usage
from astra.prompting import render
from astra.settings import RuntimeConfig

ECHO_CHARS = 4000
"""How much of an unusable reply its repair shows again."""


def sampling_fields(config: ModelConfig) -> dict[str, Any]:
    """Request fields of a role; ``extra`` overrides, and null there removes a field."""
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
    """Answers asks over HTTP. Use it within one event loop, and close it there.

    An answer is committed to the cache before it is returned; equal asks in flight at the
    same time are sent once.
    """

    def __init__(
        self,
        config: ModelConfig,
        runtime: RuntimeConfig,
        stage: str,
        cache: AnswerCache | None = None,
    ) -> None:
        self.name = f"openai:{config.model}"
        self.usage = Usage(stage, self.name)
        self.usage.write_at_exit()
        self._config = config
        self._transport = ChatTransport(runtime, self.usage)
        self._cache = cache or AnswerCache()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def ask(self, ask: Ask[Reply]) -> Reply:
        """The reply, from the cache if it was ever given. ProviderError, ParseError otherwise."""
        prompt = render(ask.template, ask.variables)
        sampling = sampling_fields(self._config)
        key = answer_key(
            {
                "backend": "openai",
                "model": self._config.model,
                "messages": [_user(prompt)],
                "schema": schema_text(ask.response),
                "sampling": sampling,
                "sample": ask.sample,
            }
        )
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            known = self._committed(key, ask.response)
            if known is not None:
                self.usage.cache_hits += 1
                return known
            try:
                reply = await self._converse(prompt, sampling, ask.response)
            except (ProviderError, ParseError) as error:
                self.usage.failures += 1
                place = f"[{self.usage.stage} {ask.template} sample {ask.sample}]"
                raise type(error)(f"{place} {error}") from error
            self._cache.put(key, self.name, {"reply": reply.model_dump(mode="json")})
            self.usage.answers += 1
            return reply

    async def close(self) -> None:
        self.usage.write()
        self._cache.close()
        await self._transport.close()

    def _committed(self, key: str, response: type[Reply]) -> Reply | None:
        value = self._cache.get(key)
        if value is None:
            return None
        try:
            return response.model_validate(value["reply"])
        except (ValidationError, KeyError):
            return None  # a validator became stricter than its schema: ask again

    async def _converse(
        self, prompt: str, sampling: Mapping[str, Any], response: type[Reply]
    ) -> Reply:
        """Ask, then ask for repairs while attempts are left."""
        base = {"model": self._config.model, **sampling}
        form, enforced = response_format(response)
        shown = f"{prompt}\n\n{instructions(response)}"
        attempts = Attempts(self._transport.max_attempts)
        repair: list[dict[str, str]] = []
        while True:
            request = ChatRequest(
                plain={**base, "messages": [_user(shown), *repair]},
                structured={
                    **base,
                    "messages": [_user(prompt if enforced else shown), *repair],
                    "response_format": json.loads(form),
                },
                schema_id=form,
            )
            reply = await self._transport.chat(request, attempts)
            try:
                if reply.truncated:
                    raise ParseError("the reply was cut off at the token limit; be brief")
                return parse_reply(reply.content, response)
            except ParseError as error:
                if attempts.left <= 0:
                    raise ParseError(f"unusable after all attempts: {error}") from error
                self.usage.repairs += 1
                echo = without_thinking(reply.content).strip()[:ECHO_CHARS] or "(nothing)"
                repair = [
                    {"role": "assistant", "content": echo},
                    _user(repair_request(str(error), response)),
                ]


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}
