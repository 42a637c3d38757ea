"""Calls as a person types them: in Python's notation, as JSON, or a name and text."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from astra.records.message import ToolCall
from astra.text.source import parsed_expression

OPEN, CLOSE = "<<", "."
"""What begins and ends an argument of several lines."""
_QUOTES = "\"'“”‘’「」"
_CONSTANTS = {"true": True, "false": False, "null": None}
"""JSON's names for them; Python's are literals."""


class UnreadableCommand(ValueError):
    """What was typed is no call; the message says why, and how it is typed."""


def read_call(line: str, more: Iterator[str], tools: Sequence[Mapping[str, Any]]) -> ToolCall:
    """The call that a line states, with lines of ``more`` where it opens text of several.

    ``tools`` are function schemas. Raises UnreadableCommand.
    """
    text = line.strip()
    end = next((at for at, sign in enumerate(text) if not (sign.isalnum() or sign == "_")), None)
    name, stated = (text, "") if end is None else (text[:end], text[end:])
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    if name not in schemas:
        raise UnreadableCommand(f"{name or text!r} is no tool and no command")
    if stated.strip() == OPEN:
        body = "\n".join(iter(lambda: next(more, CLOSE), CLOSE))
        arguments = {_only_parameter(name, body, schemas[name]): body}
    else:
        arguments = _arguments(name, stated, schemas[name])
    return ToolCall(id="", name=name, arguments=json.dumps(arguments, ensure_ascii=False))


def parameters(schema: Mapping[str, Any]) -> list[str]:
    """Parameter names, required ones first: a stored schema has lost its own order."""
    required = list(schema.get("required", ()))
    return [*required, *(name for name in schema.get("properties", {}) if name not in required)]


def _arguments(name: str, stated: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that stand after a tool's name."""
    text = stated.strip()
    if not text:
        return {}
    if text.startswith("{"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise UnreadableCommand(f"that is no JSON: {error}") from None
    names = parameters(schema)
    written = _call_arguments(f"{name}{text}", names) if text.startswith("(") else None
    if written is not None:
        return written
    if not names:
        raise UnreadableCommand(f"{name} takes no argument: {name}()")
    named = "|".join(map(re.escape, names))
    # After a space "(" may also begin the text of a single parameter, a formula for example.
    if stated.startswith("(") or re.match(rf"\(?\s*(?:{named})\s*=", text):
        raise UnreadableCommand(f"text needs quotes: {_corrected(name, text, schema)}")
    only = _only_parameter(name, text, schema)
    return {only: _value(text, schema, only)}


def _only_parameter(name: str, text: str, schema: Mapping[str, Any]) -> str:
    """The parameter that text without a name is for; there must be one alone."""
    names = parameters(schema)
    if len(names) != 1:
        several = f"{name} has {len(names)} parameters, so each is named"
        raise UnreadableCommand(f"{several}: {_corrected(name, text, schema)}")
    return names[0]


def _call_arguments(text: str, names: list[str]) -> dict[str, Any] | None:
    """Arguments of a call in Python's notation, by position or name; None if it is none.

    Raises UnreadableCommand for more arguments than there are parameters.
    """
    try:
        tree = parsed_expression(text).body
    except (SyntaxError, ValueError, RecursionError):
        return None
    if not isinstance(tree, ast.Call):
        return None
    if names and len(tree.args) > len(names):
        called, example = text.partition("(")[0], ", ".join(f"{name}=..." for name in names)
        most = "1 argument" if len(names) == 1 else f"{len(names)} arguments"
        raise UnreadableCommand(f"{called} takes {most} at most: {called}({example})")
    pairs = list(zip(names, tree.args, strict=False))
    pairs += [(keyword.arg or "", keyword.value) for keyword in tree.keywords]
    try:
        arguments = {name: _literal(value) for name, value in pairs}
        json.dumps(arguments)  # a set or bytes are literals too
    except (ValueError, TypeError):
        return None
    return arguments if len(tree.args) <= len(names) else None


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    return ast.literal_eval(node)


def _corrected(name: str, text: str, schema: Mapping[str, Any]) -> str:
    """What was meant, as it is typed; ``...`` stands for a required value that is not there."""
    names = parameters(schema)
    inner = text.removeprefix("(").rstrip().removesuffix(")")
    named = "|".join(map(re.escape, names))
    parts = re.split(rf"(?:^|,)\s*({named})\s*=", inner) if names else [inner]
    given = dict(zip(parts[1::2], parts[2::2], strict=True))
    if not given and names:
        given = dict(zip(names, inner.split(",") if len(names) > 1 else [inner], strict=False))
    shown = {
        key: json.dumps(_value(value.strip().strip(_QUOTES), schema, key), ensure_ascii=False)
        for key, value in given.items()
        if value.strip()
    }
    missing = [key for key in schema.get("required", ()) if key not in shown]
    shown |= dict.fromkeys(missing, "...")
    return f"{name}({', '.join(f'{key}={value}' for key, value in shown.items())})"


def _value(text: str, schema: Mapping[str, Any], name: str) -> Any:
    """Text as the parameter's type; as text where that is its type, or it is of no other."""
    quoted = re.fullmatch(f"[{_QUOTES}]([^{_QUOTES}]*)[{_QUOTES}]", text)
    bare = quoted[1] if quoted else text
    if schema.get("properties", {}).get(name, {}).get("type", "string") == "string":
        return bare
    try:
        return json.loads(text)
    except ValueError:
        return bare
