"""The offline teacher's stateful tools: reads over the world's tables, and three kinds of write.

``insert`` adds a row of its arguments and of the constants that its write states; ``update``
sets what its write sets in the rows that the other arguments select; ``delete`` removes them.
All refuse entities that do not exist and changes that change nothing. A write returns the cell
named by ``select`` of a row it touched, else true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from astra.envsynth.offline.tool_code import query_body
from astra.llm.protocol import ProviderError
from astra.records.state import WriteAction

WRITE_OPS = frozenset(action.value for action in WriteAction)


def write_stateful_code(
    tool: Mapping[str, Any], operation: Mapping[str, Any], world: Mapping[str, Any]
) -> str:
    """Source of a module that defines the tool over ``world`` (what the ask shows of it)."""
    if operation["table"] not in world["tables"]:
        raise ProviderError(f"table {operation['table']!r} is not in the world")
    schema, parameters = tool["parameters"], list(tool["parameters"]["properties"])
    optional = [name for name in parameters if name not in schema["required"]]
    signature = ", ".join(["world", *schema["required"], *(f"{name}=None" for name in optional)])
    helpers: list[str] = []
    if operation["op"] in WRITE_OPS:
        body = "".join(f"    {line}\n" for line in _write_body(parameters, operation, world))
    else:
        body, helpers = query_body(tool, operation, f'world.tables["{operation["table"]}"]')
    function = f'def {tool["name"]}({signature}):\n    """{tool["description"]}"""\n{body}'
    return "\n\n".join([*helpers, function])


def parameter_type(value: Any) -> str:
    """The JSON type of what a write's argument holds; text for an earlier answer."""
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number")):
        if isinstance(value, kind):
            return name
    return "string"


def _write_body(
    parameters: Sequence[str], operation: Mapping[str, Any], world: Mapping[str, Any]
) -> list[str]:
    if len(world["writes"]) != 1 or world["writes"][0]["table"] != operation["table"]:
        raise ProviderError("the offline rules write one row of the operation's table at a time")
    write, table = world["writes"][0], operation["table"]
    if operation["op"] == "insert":
        return _insert(parameters, operation, world, write["values"])
    chosen = [name for name in parameters if name in write["where"]]
    test = " and ".join(f'row["{name}"] == {name}' for name in chosen)
    written = [name for name in parameters if name in write["values"]]
    lines = [
        *_unknown_refused(written, table, world),
        f'rows = [row for row in world.tables["{table}"] if {test}]',
        "if not rows:",
        f'    raise ValueError(f"no {chosen[0]} named {{{chosen[0]}}}")',
    ]
    if operation["op"] == "update":
        lines += [
            f"change = {_dictionary(write['values'], parameters)}",
            "if all(row[name] == value for row in rows for name, value in change.items()):",
            '    raise ValueError("it is so already")',
            "for row in rows:",
            "    row.update(change)",
        ]
    else:
        lines.append(
            f'world.tables["{table}"] = [row for row in world.tables["{table}"] if row not in rows]'
        )
    return [*lines, _returned("rows[0]", operation)]


def _insert(
    parameters: Sequence[str],
    operation: Mapping[str, Any],
    world: Mapping[str, Any],
    values: Mapping[str, Any],
) -> list[str]:
    table = operation["table"]
    lines = _unknown_refused(parameters, table, world)
    key = world["row_keys"][table]
    if key in parameters:  # named by who inserts: one row per name
        lines += [
            f'if any(row["{key}"] == {key} for row in world.tables["{table}"]):',
            f'    raise ValueError(f"{{{key}}} has a row in {table} already")',
        ]
    made: list[str] = world["made"][table]
    fresh = [
        f'"{name}": world.new_id("{table}")' if not at else f'"{name}": world.clock'
        for at, name in enumerate(made)
    ]
    return [
        *lines,
        f"new = {_dictionary(values, parameters)}",
        f'rows = world.tables["{table}"]',
        "if any(all(row[name] == value for name, value in new.items()) for row in rows):",
        '    raise ValueError("it is so already")',
        f"rows.append({{{', '.join([*fresh, '**new'])}}})",
        _returned("rows[-1]", operation),
    ]


def _unknown_refused(parameters: Sequence[str], table: str, world: Mapping[str, Any]) -> list[str]:
    """Refusals of names that the table whose key they are does not hold."""
    lines: list[str] = []
    for name in parameters:
        owner = next(
            (other for other, columns in world["columns"].items()
             if other != table and columns[0] == name), None,
        )  # fmt: skip
        if owner is not None:
            lines += [
                f'if not any(row["{name}"] == {name} for row in world.tables["{owner}"]):',
                f'    raise ValueError(f"no {name} named {{{name}}}")',
            ]
    return lines


def _dictionary(values: Mapping[str, Any], parameters: Sequence[str]) -> str:
    """A literal in which parameters stand for themselves and the rest are constants."""
    cells = (
        f'"{name}": {name}' if name in parameters else f'"{name}": {value!r}'
        for name, value in values.items()
    )
    return f"{{{', '.join(cells)}}}"


def _returned(row: str, operation: Mapping[str, Any]) -> str:
    return f'return {row}["{operation["select"]}"]' if operation["select"] else "return True"
