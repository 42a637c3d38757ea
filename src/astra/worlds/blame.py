"""Which of a teacher's replies a fault of a whole world may lie in: those are asked for again.

A fault of what two replies make together is shown to both, and each is free to stay as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from astra.records.world import World
from astra.worlds.declarations import priced_by
from astra.worlds.soundness import WorldFault

SCHEMA, RULES, ROWS = "schema", "rules", "rows"
OF_SCHEMA = frozenset(
    {
        "tables_out_of_bounds", "tools_out_of_bounds", "duplicate_table", "duplicate_tool",
        "bad_columns", "bad_document", "bad_key", "roles", "unreachable_tool", "contaminated",
        "invalid_call", "unknown_filter", "unmatched_quote",
    }
)  # fmt: skip
OF_RULES = frozenset(
    {
        "rules_out_of_bounds", "policy_rules_out_of_bounds", "words_out_of_bounds",
        "duplicate_rule", "shared_reason", "unnamed_reason", "unenforceable", "untold_rule",
        "unknown_argument", "other_reading", "undecided", "unseen_fact",
    }
)  # fmt: skip
OF_ROWS = frozenset(
    {
        "rows_out_of_bounds", "duplicate_key", "bad_row", "bad_cell", "dangling_reference",
        "invariant_broken", "bad_rows", "no_distractors", "dead_end",
        "two_parties", "unidentified_party",
    }
)  # fmt: skip
OF_RULES_OR_ROWS = frozenset({"rule_never_breaks", "rule_never_holds", "too_few_cases"})


@dataclass(frozen=True)
class PartFault:
    """A fault, and the parts that it may lie in: ``schema``, ``rules``, ``rows`` or
    ``tools/NAME``."""

    parts: tuple[str, ...]
    fault: WorldFault


def tool_part(name: str) -> str:
    """What the part is called that makes a tool."""
    return f"tools/{name}"


def suspects(world: World, faults: Iterable[WorldFault]) -> list[PartFault]:
    """Faults of a whole world with the parts that each may lie in."""
    return [PartFault(_parts(world, fault), fault) for fault in faults]


def _parts(world: World, fault: WorldFault) -> tuple[str, ...]:
    reason, detail = fault.reason, fault.detail
    writing = [tool.tool.name for tool in world.tools if tool.writes and tool.changes]
    if reason == "no_hidden_prerequisite":
        return (ROWS, *map(tool_part, writing))
    if detail.startswith("after "):  # what a tool has done to the rows
        return (tool_part(_tool_in(detail.removeprefix("after "))),)
    if reason in OF_SCHEMA:
        return (SCHEMA,)
    if reason in OF_RULES or (reason == "bad_expression" and detail.startswith("rule ")):
        return (RULES,)
    if reason in OF_RULES_OR_ROWS:
        return (RULES, ROWS)
    if reason in OF_ROWS:
        return (ROWS,)
    named = _named(world, detail)
    if reason == "never_succeeds" and named:
        return (tool_part(named), ROWS)
    if reason in ("idle_argument", "never_shown") and named:
        return (tool_part(named), SCHEMA)
    if reason == "uncounted" and named:
        return (tool_part(named), RULES)
    if reason == "other_quote" and named:
        quote = next(tool for tool in world.tools if tool.tool.name == named)
        return (tool_part(named), *(tool_part(one.tool.name) for one in priced_by(world, quote)))
    return (tool_part(named),) if named else (SCHEMA,)


def _tool_in(text: str) -> str:
    return text.split("(", 1)[0]


def _named(world: World, detail: str) -> str:
    """The tool that a detail begins with, alone or after a rule's id."""
    names = {tool.tool.name for tool in world.tools}
    for part in detail.split(": ", 2)[:2]:
        for word in (_tool_in(part), part.split(" ", 1)[0]):
            if word in names:
                return word
    return ""
