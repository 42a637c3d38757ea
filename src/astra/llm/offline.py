"""The offline teacher: rules instead of a model. Deterministic, no network, no key."""

from __future__ import annotations

import random

from astra.llm.protocol import Ask, ModelConfig, OfflineHandlers, ParseError, ProviderError, Reply
from astra.records.base import content_id


class OfflineTeacher:
    """A teacher that answers each ask with its domain's rule, seeded by the ask itself.

    A rule that cannot answer raises ProviderError; a reply of the wrong type, or one that fails
    the ask's check, is a ParseError.
    """

    def __init__(self, config: ModelConfig, handlers: OfflineHandlers) -> None:
        self.name = f"offline:{config.model}"
        self._handlers = handlers

    async def ask(self, ask: Ask[Reply]) -> Reply:
        handler = self._handlers.get(ask.template)
        if handler is None:
            rules = ", ".join(sorted(self._handlers))
            raise ProviderError(f"the offline teacher has no rule for {ask.template!r} ({rules})")
        seed = content_id([self.name, ask.template, dict(ask.variables), ask.sample])
        reply = handler(ask.variables, random.Random(int(seed, 16)))
        if not isinstance(reply, ask.response):
            raise ParseError(f"rule {ask.template!r} returned {type(reply).__name__}")
        return ask.accepted(reply)
