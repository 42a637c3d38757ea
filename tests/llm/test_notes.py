"""A record stores which prompts stand behind it: those that were answered, and no others."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import BaseModel

from astra.llm.notes import PromptNotes
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask, ModelConfig, ProviderError
from astra.prompting import joined_hashes, template_hash


class Word(BaseModel):
    text: str


def ask(template: str) -> Ask[Word]:
    return Ask(template, {}, Word)


def test_answers_are_noted_whoever_gave_them_and_failures_are_not() -> None:
    def rule(*_: object) -> Word:
        return Word(text="yes")

    known = {"demo/say": rule, "demo/other": rule}
    one, other = (
        OfflineTeacher(ModelConfig(backend="offline", model=name), known) for name in ("a", "b")
    )

    async def run() -> None:
        noted = notes.of(one)
        assert noted.name == "offline:a"
        await noted.ask(ask("demo/say"))
        await noted.ask(ask("demo/say"))
        await notes.of(other).ask(ask("demo/other"))
        with pytest.raises(ProviderError):
            await noted.ask(ask("demo/unknown"))

    notes = PromptNotes()
    assert notes.prompt_hash == ""
    asyncio.run(run())
    wanted = sorted(map(template_hash, ("demo/say", "demo/other")))
    assert notes.prompt_hash == "+".join(wanted)


def test_joining_keeps_each_hash_once() -> None:
    assert joined_hashes("", "b+a", "c", "a") == "a+b+c"
    assert joined_hashes("", "") == ""
