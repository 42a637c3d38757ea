"""The asks of stage ``worlds``, before they are made: those for worlds of subjects."""

from __future__ import annotations

from astra.estimate.asks import AskForm, ExpectedAsks, counted
from astra.records.world import WorldShape
from astra.worlds.asks import (
    DECIDE,
    HOST_TOOLS,
    ROWS,
    RULES,
    SCHEMA,
    TOOLS,
    DecideReply,
    RowsReply,
    RulesReply,
    SchemaReply,
    ToolsReply,
)
from astra.worlds.config import WorldsConfig
from astra.worlds.soundness import BOUNDS
from astra.worlds.teaching import TOOLS_AN_ASK

RULE_BYTES, TOOL_BYTES, OUTLINE_BYTES, TABLE_BYTES = 330, 1_900, 650, 700
"""What replies hold of a rule, of a tool's code and changes, of its outline, and of a table."""
ROWS_BYTES, CASE_BYTES, VERDICT_BYTES = 6_500, 900, 130
"""A program for rows, a case of a rule with its records, and the decision of it."""
TRIES = 1.8
"""How often a part is asked for."""


def world_asks(config: WorldsConfig) -> list[ExpectedAsks]:
    """The asks of stage ``worlds``. The most are what ``max_asks`` allows, whatever their kind."""
    bounds, subjects = BOUNDS[config.shape], counted(len(config.subjects))
    middle = (lambda pair: sum(pair) / 2) if config.shape is WorldShape.FULL else max
    tables, tools = middle(bounds.tables), middle(bounds.tools) - HOST_TOOLS
    rules = middle(bounds.rules)
    schema = tables * TABLE_BYTES + tools * OUTLINE_BYTES
    shown = 200.0 + _document_bytes(config) / max(1, len(config.subjects))
    forms = (
        (AskForm(SCHEMA, SchemaReply, schema), 1.0, shown),
        (AskForm(RULES, RulesReply, rules * RULE_BYTES + 1_500), 1.0, schema),
        (AskForm(TOOLS, ToolsReply, TOOLS_AN_ASK * TOOL_BYTES), tools / TOOLS_AN_ASK,
         schema + rules * RULE_BYTES),
        (AskForm(ROWS, RowsReply, ROWS_BYTES), 1.0,
         schema + rules * RULE_BYTES + tools * TOOL_BYTES),
    )  # fmt: skip
    asked = [
        form.asked("teacher", config.teacher, subjects.times(TRIES * each, config.max_asks), length)
        for form, each, length in forms
    ]
    cases = config.agreement_cases
    decided = AskForm(DECIDE, DecideReply, cases * VERDICT_BYTES).asked(
        "judge", config.judge, subjects.times(TRIES * rules, config.max_asks),
        cases * CASE_BYTES + tables * TABLE_BYTES,
    )  # fmt: skip
    return [*asked, decided]


def _document_bytes(config: WorldsConfig) -> int:
    """What the documents of all subjects take; one that cannot be read is refused later."""
    paths = [one.document for one in config.subjects if one.document is not None]
    return sum(path.stat().st_size for path in paths if path.is_file())
