"""Which templates stand behind a record: noted as teachers answer."""

from __future__ import annotations

from astra.llm.protocol import Ask, Reply, Teacher
from astra.prompting import joined_hashes, template_hash


class PromptNotes:
    """The templates of the asks that were answered for one record.

    Ask through ``of(teacher)``; an ask without an answer leaves no note.
    """

    def __init__(self) -> None:
        self._templates: set[str] = set()

    def of(self, teacher: Teacher) -> Teacher:
        """``teacher``, whose answers are noted here. Closing stays with who built it."""
        return _Noted(teacher, self._templates)

    @property
    def prompt_hash(self) -> str:
        """What the record stores; empty if nothing was answered."""
        return joined_hashes(*map(template_hash, self._templates))


class _Noted:
    def __init__(self, teacher: Teacher, templates: set[str]) -> None:
        self.name = teacher.name
        self._teacher = teacher
        self._templates = templates

    async def ask(self, ask: Ask[Reply]) -> Reply:
        reply = await self._teacher.ask(ask)
        self._templates.add(ask.template)
        return reply

    async def close(self) -> None:
        return None
