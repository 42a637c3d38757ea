"""A world as text for a person: policy, tables, tools and rules, and a few rows of each table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from astra.cli.play import readable

ROWS = 3
"""How many rows of a table are shown."""
Document = Mapping[str, Any]


def world_page(record: Document) -> Text:
    """The page of a ``World`` as its table holds it."""
    page = Text()
    page.append(f"World {record['id']}  {record['title']}\n", style="bold")
    page.append(
        f"  {record['domain']}, {record['split']}, variant {record['variant']}, "
        f"{record['shape']} shape, {record['language']}, clock {record['clock']}\n"
    )
    parts = {
        "policy": record["policy"].splitlines(),
        f"tables ({len(record['tables'])}, {sum(map(len, record['rows'].values()))} rows)": [
            line for table in record["tables"] for line in _table(table, record["rows"])
        ],
        f"tools ({len(record['tools'])})": [_tool(tool) for tool in record["tools"]],
        f"rules ({len(record['rules'])})": [
            line for rule in record["rules"] for line in _rule(rule)
        ],
        f"invariants ({len(record['invariants'])})": [
            f"{one['table']}: {one['text']}" for one in record["invariants"]
        ],
        "for a person": [f"{code}: {topic}" for code, topic in record["topics"].items()],
        "also declined": [f"{code}: {when}" for code, when in record["refusals"].items()],
        "proofs": [", ".join(f"{name} {count}" for name, count in record["checks"].items())],
    }
    for title, lines in parts.items():
        if any(lines):
            page.append(f"  {title}\n", style="cyan")
            page.append("".join(f"    {line}\n" for line in lines))
    return page


def _table(table: Document, rows: Mapping[str, Sequence[Document]]) -> Iterator[str]:
    found = rows.get(table["name"], ())
    yield f"{table['name']} ({len(found)} rows, key {table['key']})"
    for column in table["columns"]:
        more = [", ".join(column.get("values", ())), column.get("unit", "")]
        more += [f"-> {column['references']}"] if column.get("references") else []
        more += ["may be null"] if column.get("optional") else []
        told = "; ".join(one for one in more if one)
        yield f"  {column['name']}: {column['type']}{f' ({told})' if told else ''}"
    shown = readable(json.dumps(found[:ROWS], ensure_ascii=False)) if found else ""
    yield from (f"    {line}" for line in shown.splitlines())


def _tool(tool: Document) -> str:
    document = tool["tool"]
    required = document["parameters"].get("required", ())
    names = [
        name if name in required else f"{name}?"
        for name in document["parameters"].get("properties", {})
    ]
    writes = f"; writes {', '.join(tool['writes'])}" if tool["writes"] else ""
    return f"{document['name']}({', '.join(names)}): {tool['role']}{writes}"


def _rule(rule: Document) -> Iterator[str]:
    by = {"tool": "the tool refuses", "policy": "nobody refuses"}[rule["enforced"]]
    yield f"{rule['id']} ({by}; {rule['reason']}): {rule['text']}"
    if rule.get("when") is not None:
        yield f"  when    {json.dumps(rule['when'], ensure_ascii=False)}"
    yield f"  require {json.dumps(rule['require'], ensure_ascii=False)}"
