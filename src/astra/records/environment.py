"""Executable environments and arenas (stages ``envs`` and ``envs_merged``; ASTRA section 4.2)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from astra.records.base import Frozen, Record
from astra.records.qa import Answer, QuestionKind, Scenario, Split
from astra.records.tool import Tool


class Environment(Record):
    """One sub-question made executable: tool document, code, gold call, verified in the sandbox."""

    identity: ClassVar[tuple[str, ...]] = ("qa_id", "sub_question_id", "tool", "code", "arguments")
    qa_id: str
    sub_question_id: int
    tool: Tool
    code: str
    """Python source defining a function named ``tool.name``; data are literals inside it."""
    arguments: dict[str, Any]
    """The arguments of the gold call."""
    answer: Answer
    checks: dict[str, int]
    """How often each verification was made, for example ``{"fresh_sessions": 2, ...}``."""
    prompt_hash: str = ""
    """Hashes of the prompt templates whose answers it holds, joined by ``+``."""


class Band(StrEnum):
    """Similarity of an irrelevant tool to a tool in scope (ASTRA section 5.2)."""

    HIGH = "high"  # > 0.85
    MEDIUM = "medium"  # [0.4, 0.85]
    LOW = "low"  # < 0.4


class Trait(StrEnum):
    """What makes an arena harder than looking answers up one by one; ours."""

    SELECTION = "selection"  # the agent picks a part of a record or a list that a tool returned
    PAGES = "pages"  # a result continues on pages that the agent has to turn
    TWINS = "twins"  # two tools in scope differ by one parameter
    UNLIKE_NAMES = "unlike_names"  # a needed tool's name shares no content word with the question
    FORMATS = "formats"  # an argument has another form than the agent was told it in
    HOPS = "hops"  # four hop levels or more


HARD_TRAITS = 2
"""How many traits make a question and its arena hard; ours."""
HARD_CALLS = 2
"""How many calls a hard arena takes at least: one well described call is a look-up; ours."""
DEEP = 4
"""The hop levels from which on trait ``hops`` holds; ours."""


class ArenaTool(Frozen):
    """A tool in scope. ``code`` is empty for a document-only distractor."""

    tool: Tool
    code: str = ""


class ArenaStep(Frozen):
    """A sub-question. ``tool_name`` is None where no tool is needed."""

    id: int
    hop_level: int
    question: str
    answer: Answer
    dependencies: tuple[int, ...] = ()
    tool_name: str | None = None
    arguments: dict[str, Any] = {}
    """The arguments of the gold call."""


class Arena(Record):
    """One RL row: everything needed to run and reward an episode, without any framework."""

    identity: ClassVar[tuple[str, ...]] = ("qa_id", "split", "tools", "steps", "world_id", "goal")
    sparse: ClassVar[tuple[str, ...]] = ("prompt_hash", "traits", "world_id", "goal")
    qa_id: str
    split: Split
    domain: str
    language: str
    source: str
    kind: QuestionKind
    scenario: Scenario
    hops: int
    """The deepest hop level."""
    main_question: str
    final_answer: Answer
    tools: tuple[ArenaTool, ...]
    steps: tuple[ArenaStep, ...]
    irrelevant: dict[Band, tuple[ArenaTool, ...]] = {}
    """Candidates per band; a rollout draws from them (rl.irrelevant_tools)."""
    state: str = ""
    """Initial state as JSON, its columns in the tables' own order; empty for read-only arenas."""
    expected_state: str = ""
    entities: tuple[str, ...]
    composition: str
    prompt_hash: str = ""
    """Hashes of the prompt templates whose answers it holds, joined by ``+``."""
    traits: tuple[Trait, ...] = ()
    """What makes it hard, in the order of ``Trait``; see envsynth/traits.py."""
    world_id: str = ""
    """The persistent world that it plays in, whose rows and tools are not repeated here."""
    goal: str = ""
    """What is wanted there, a ``WorldGoal`` as JSON; empty for questions."""

    def _identifying(self) -> set[str]:
        # The tools of an arena in a world are the world's, and are there only once it is resolved.
        return super()._identifying() - ({"tools"} if self.world_id else set())

    @property
    def is_hard(self) -> bool:
        """Whether it has several traits of a hard arena and takes several calls; the others are
        look-ups."""
        calls = sum(step.tool_name is not None for step in self.steps)
        return len(self.traits) >= HARD_TRAITS and calls >= HARD_CALLS

    @property
    def difficulty(self) -> str:
        """``hard``, ``lookup`` or, with a goal in it, ``world``, as scores are told apart by."""
        if self.world_id:
            return "world"
        return "hard" if self.is_hard else "lookup"
