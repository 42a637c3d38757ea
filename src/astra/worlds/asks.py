"""What stage ``worlds`` asks a teacher for a world, part by part, and the replies it expects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from astra.llm.protocol import Ask
from astra.records.state import WriteAction
from astra.records.world import ColumnType, Enforced, Expr, ToolRole, WorldShape
from astra.worlds.soundness import BOUNDS
from astra.worlds.subjects import WorldSubject

SCHEMA, RULES, TOOLS = "worlds/schema", "worlds/rules", "worlds/tools"
ROWS, DECIDE = "worlds/rows", "worlds/decide"
WORDINGS = "worlds/wordings"
HOST_TOOLS = 2
"""``decline_request`` and ``hand_over``, which every world has and no teacher writes."""

HOST_WORDS = {WorldShape.FULL: 250, WorldShape.SMALL: 40, WorldShape.SERVICE: 250}
"""Words of a policy that the host writes, at most: the opening, codes, and how a request ends."""


class WorldReply(BaseModel):
    model_config = ConfigDict(extra="ignore")


class TaughtColumn(WorldReply):
    name: str
    type: ColumnType
    values: list[str] = []
    references: str = ""
    optional: bool = False
    unit: str = ""


class TaughtTable(WorldReply):
    name: str
    key: str
    columns: list[TaughtColumn]


class ToolOutline(WorldReply):
    """A tool before it is code."""

    name: str
    role: ToolRole
    description: str
    parameters: dict[str, Any]
    reads: list[str]
    writes: list[str] = []
    shows: dict[str, list[str]] = {}

    @model_validator(mode="after")
    def _properties(self) -> Self:
        if not isinstance(self.parameters.get("properties", {}), dict):
            raise ValueError("`properties` of `parameters` is an object")
        return self


class TaughtInvariant(WorldReply):
    table: str
    text: str
    holds: Expr


class SchemaReply(WorldReply):
    analysis: str = ""
    title: str = Field(min_length=1)
    tables: list[TaughtTable]
    tools: list[ToolOutline]
    invariants: list[TaughtInvariant]
    topics: dict[str, str] = Field(min_length=1)


class TaughtRule(WorldReply):
    id: str
    text: str
    tools: list[str]
    when: Expr = None
    require: Expr
    enforced: Enforced
    reason: str


class RulesReply(WorldReply):
    analysis: str = ""
    about: str = ""
    rules: list[TaughtRule]


class TaughtChange(WorldReply):
    action: WriteAction
    table: str
    key: Expr = None
    parts: list[Expr] = []
    binds: str = ""
    values: dict[str, Expr] = {}
    when: Expr = None


class ToolBody(WorldReply):
    """What makes an outline a tool."""

    name: str
    code: str = ""
    changes: list[TaughtChange] = []
    impossible: str = ""
    """What of the outline keeps the tool from being written; empty where there is code."""

    @model_validator(mode="after")
    def _code_or_reason(self) -> Self:
        if bool(self.code.strip()) == bool(self.impossible.strip()):
            raise ValueError("give either `code` or the reason in `impossible`")
        return self


class ToolsReply(WorldReply):
    analysis: str = ""
    tools: list[ToolBody]


class RowsReply(WorldReply):
    analysis: str = ""
    code: str


class CaseVerdict(WorldReply):
    case: int
    reason: str = ""
    allowed: bool


class DecideReply(WorldReply):
    analysis: str = ""
    cases: list[CaseVerdict]


class WordedTurn(WorldReply):
    turn: int
    wordings: list[str]


class WordingsReply(WorldReply):
    analysis: str = ""
    turns: list[WordedTurn]


@dataclass(frozen=True)
class RefusedPart:
    """A reply that was refused, as the next ask for the same part shows it."""

    reasons: tuple[str, ...]
    reply: Any = None
    """None where no reply could be read."""

    @property
    def shown(self) -> dict[str, Any]:
        return {"feedback": list(self.reasons), "rejected": self.reply}


NOT_YET = RefusedPart(())
"""Nothing was refused yet."""


def schema_ask(
    subject: WorldSubject, openapi: str, shape: WorldShape, sample: int, refused: RefusedPart
) -> Ask[SchemaReply]:
    """Ask for tables, the tools' outlines and what always holds. ``openapi`` is the document of the
    service that the world stands for; empty for none."""
    variables = {
        "subject": subject.about, "openapi": openapi, "shape": shape.value, **refused.shown,
    }  # fmt: skip
    return Ask(SCHEMA, variables, SchemaReply, sample, limits=_limits(shape))


def rules_ask(
    schema: SchemaReply, shape: WorldShape, sample: int, refused: RefusedPart
) -> Ask[RulesReply]:
    """Ask for the rules, each as a sentence and as an expression."""
    variables = {**_shown(schema), "shape": shape.value, **refused.shown}
    return Ask(RULES, variables, RulesReply, sample, limits=_limits(shape))


def tools_ask(
    schema: SchemaReply, rules: RulesReply, wanted: list[str], sample: int, refused: RefusedPart
) -> Ask[ToolsReply]:
    """Ask for the code and the changes of some of the tools."""
    variables = {
        **_shown(schema), "rules": _rules(rules), "wanted": wanted, **refused.shown,
    }  # fmt: skip
    return Ask(TOOLS, variables, ToolsReply, sample)


def rows_ask(
    schema: SchemaReply, rules: RulesReply, codes: dict[str, str], shape: WorldShape, clock: str,
    sample: int, refused: RefusedPart,
) -> Ask[RowsReply]:  # fmt: skip
    """Ask for the program that makes the rows."""
    variables = {
        **_shown(schema), "rules": _rules(rules), "codes": codes, "clock": clock, **refused.shown,
    }  # fmt: skip
    return Ask(ROWS, variables, RowsReply, sample, limits=_limits(shape))


def decide_ask(
    text: str, tables: list[dict[str, Any]], tools: list[dict[str, Any]], clock: str,
    cases: list[dict[str, Any]],
) -> Ask[DecideReply]:  # fmt: skip
    """Ask of some calls whether a rule allows them, by its sentence alone."""
    variables = {"text": text, "tables": tables, "tools": tools, "clock": clock, "cases": cases}
    return Ask(DECIDE, variables, DecideReply)


def wordings_ask(
    title: str, opening: str, persona: str, turns: list[dict[str, Any]], wanted: int
) -> Ask[WordingsReply]:
    """Ask for so many ways to say each turn of a user, in a persona's voice."""
    variables = {"title": title, "opening": opening, "persona": persona, "turns": turns}
    return Ask(WORDINGS, variables, WordingsReply, limits={"wanted": wanted})


def _shown(schema: SchemaReply) -> dict[str, Any]:
    """What later asks show of a schema."""
    return schema.model_dump(mode="json", exclude={"analysis"}, exclude_defaults=True)


def _rules(rules: RulesReply) -> list[dict[str, Any]]:
    return [rule.model_dump(mode="json", exclude_defaults=True) for rule in rules.rules]


def _limits(shape: WorldShape) -> dict[str, int]:
    """The bounds that soundness holds a world of the shape to, less what the host adds."""
    bounds = BOUNDS[shape]
    return {
        "least_tables": bounds.tables[0], "most_tables": bounds.tables[1],
        "least_tools": max(1, bounds.tools[0] - HOST_TOOLS),
        "most_tools": bounds.tools[1] - HOST_TOOLS,
        "least_rules": bounds.rules[0], "most_rules": bounds.rules[1],
        "policy_rules": bounds.policy_rules,
        "least_words": bounds.words[0], "most_words": max(0, bounds.words[1] - HOST_WORDS[shape]),
        "least_rows": bounds.rows[0], "most_rows": bounds.rows[1],
    }  # fmt: skip
