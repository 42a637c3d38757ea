"""What a teacher would be asked, without asking: the first ask that fits is caught.

Every other ask is answered from the cache where the role is a model that was asked before, and
by the offline rules elsewhere, so that prompts which build on earlier answers come about.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from typing import Any

from astra.errors import StageStop
from astra.llm.build import teachers_from
from astra.llm.cache import AnswerCache
from astra.llm.offline import OfflineTeacher
from astra.llm.openai_backend import (
    chat_bodies,
    committed_reply,
    sampling_fields,
    teacher_key,
)
from astra.llm.protocol import Ask, ModelConfig, OfflineHandlers, Reply
from astra.prompting import render


class Captured(StageStop):
    """The ask that was wanted. ``plain`` and ``structured`` are the two bodies it is sent as."""

    def __init__(self, ask: Ask[Any], prompt: str, config: ModelConfig) -> None:
        super().__init__(f"captured {ask.template}")
        self.template = ask.template
        self.prompt = prompt
        bodies = chat_bodies(config.model, sampling_fields(config), prompt, ask.response)
        self.plain = dict(bodies.plain)
        self.structured = dict(bodies.structured or {})


class CapturingTeacher:
    """Raises Captured at the ``nth`` ask of ``template`` whose prompt contains ``text``."""

    def __init__(
        self, config: ModelConfig, handlers: OfflineHandlers, template: str, text: str, nth: int
    ) -> None:
        self.name = f"{config.backend}:{config.model}"
        self._config = config
        self._offline = OfflineTeacher(config, handlers)
        self._wanted = (template, text)
        self._nth = nth

    async def ask(self, ask: Ask[Reply]) -> Reply:
        template, text = self._wanted
        prompt = render(ask.template, ask.shown)
        if ask.template == template and text in prompt:
            self._nth -= 1
            if self._nth <= 0:
                raise Captured(ask, prompt, self._config)
        if self._config.backend == "openai":
            with closing(AnswerCache()) as cache:
                value = cache.get(teacher_key(self._config, prompt, ask.response, ask.sample))
            cached = committed_reply(value, ask)
            if cached is not None:
                return cached
        return await self._offline.ask(ask)


def capturing(template: str, text: str, nth: int) -> AbstractContextManager[None]:
    """Let every teacher that is built within the block capture."""

    def make(config: ModelConfig, handlers: OfflineHandlers) -> CapturingTeacher:
        return CapturingTeacher(config, handlers, template, text, nth)

    return teachers_from(make)
