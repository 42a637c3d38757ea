"""Notes on the asks of one record or item: the templates answered, and how many asks."""

from __future__ import annotations

from astra.errors import AstraError
from astra.llm.protocol import Ask, Reply, Teacher
from astra.prompting import joined_hashes, template_hash


class PromptNotes:
    """The templates of the asks that were answered for one record.

    Ask through ``of(teacher)``; an ask without an answer leaves no note.
    """

    def __init__(self) -> None:
        self._templates: set[str] = set()

    def of(self, teacher: Teacher) -> Teacher:
        """``teacher``, whose answers are noted here."""
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


class AskBudgetSpent(AstraError):
    """An item has made as many asks as it may."""


class AskBudget:
    """How many asks one item may make in all: a hopeless one must not hold or bankrupt a build.

    Ask through ``of(teacher)``. Asks count whether or not they are answered, also from the
    cache, so that a resumed build stops at the same ask.
    """

    def __init__(self, most: int) -> None:
        self.left = most
        self._most = most

    def of(self, teacher: Teacher) -> Teacher:
        """``teacher``, whose asks count here; it raises AskBudgetSpent instead of one too many."""
        return _Counted(teacher, self)

    def spend(self) -> None:
        """Count one ask. Raises AskBudgetSpent if none is left."""
        if self.left < 1:
            raise AskBudgetSpent(f"all {self._most} asks are spent")
        self.left -= 1


class _Counted:
    def __init__(self, teacher: Teacher, budget: AskBudget) -> None:
        self.name = teacher.name
        self._teacher = teacher
        self._budget = budget

    async def ask(self, ask: Ask[Reply]) -> Reply:
        self._budget.spend()
        return await self._teacher.ask(ask)
