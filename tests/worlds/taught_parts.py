"""A generated world said once more as the replies of a teacher, for faults to be planted in."""

from __future__ import annotations

import json
from typing import Any

from astra.records.world import OUTCOMES, World

ENDING = ("decline_request", "hand_over")


def parts_of(world: World, about: str) -> dict[str, Any]:
    """What a teacher would have to reply for this world: schema, rules, bodies by tool, rows."""
    tools = [tool for tool in world.tools if tool.tool.name not in ENDING]
    tables = [
        table.model_dump(mode="json", exclude={"fields"})
        for table in world.tables
        if table.name != OUTCOMES
    ]
    rows = {name: rows for name, rows in world.rows.items() if name != OUTCOMES}
    outlines = [
        {"name": tool.tool.name, "role": tool.role, "description": tool.tool.description,
         "parameters": tool.tool.parameters, "reads": tool.reads, "writes": tool.writes,
         "shows": tool.shows}
        for tool in tools
    ]  # fmt: skip
    parts = {
        "schema": {"title": world.title, "tables": tables, "tools": outlines,
                   "invariants": [dict(one) for one in world.invariants], "topics": world.topics},
        "rules": {"about": about, "rules": [dict(rule) for rule in world.rules]},
        "tools": {
            tool.tool.name: {"name": tool.tool.name, "code": tool.code,
                             "changes": [change.model_dump(mode="json") for change in tool.changes]}
            for tool in tools
        },
        "rows": {"code": rows_code(rows)},
    }  # fmt: skip
    return json.loads(json.dumps(parts))


def rows_code(rows: Any) -> str:
    """A program that makes these rows and no others."""
    head = "import json\n\n\ndef make_rows(clock, seed):\n"
    return f"{head}    return json.loads({json.dumps(rows)!r})\n"
