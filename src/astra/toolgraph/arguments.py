"""Where the arguments of a chain come from (ASTRA section 3.1, check i)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator
from referencing.exceptions import Unresolvable

from astra.records.graph import ArgumentOrigin, ArgumentSource, ChainStep
from astra.records.tool import Tool
from astra.text.values import NoValue, draw_value
from astra.toolgraph.linking import feeds, outputs, required_parameters


class Unsatisfiable(ValueError):
    """A required argument has no source; says which."""


def bind_sources(tools: Sequence[Tool]) -> tuple[ChainStep, ...]:
    """Steps whose required arguments each have a source. Raises Unsatisfiable.

    Preference: a result of the latest earlier step that fits, the schema's only or default
    value, else the user's task, provided that a conforming value can be stated at all.
    """
    return tuple(
        ChainStep(
            tool=tool.name,
            arguments={name: _source(tools, index, name) for name in required_parameters(tool)},
        )
        for index, tool in enumerate(tools)
    )


def _source(tools: Sequence[Tool], index: int, name: str) -> ArgumentSource:
    tool = tools[index]
    schema = required_parameters(tool)[name]
    for step in range(index - 1, -1, -1):
        for output in outputs(tools[step]):
            if feeds(output, tools[step], name, schema):
                return ArgumentSource(origin=ArgumentOrigin.OUTPUT, step=step, path=output.path)
    if "const" in schema:
        return ArgumentSource(origin=ArgumentOrigin.DEFAULT, value=schema["const"])
    if isinstance(schema.get("enum"), list) and len(schema["enum"]) == 1:
        return ArgumentSource(origin=ArgumentOrigin.DEFAULT, value=schema["enum"][0])
    if "default" in schema:
        return ArgumentSource(origin=ArgumentOrigin.DEFAULT, value=schema["default"])
    hinted = {**schema, **tool.hints.get(name, {})}
    try:
        draw_value(hinted, random.Random(0), name, tool.parameters)
    except NoValue as error:
        raise Unsatisfiable(f"{tool.name}.{name}: {error}") from None
    return ArgumentSource(origin=ArgumentOrigin.TASK)


def replay(
    steps: Sequence[ChainStep], tools: Mapping[str, Tool], rng: random.Random
) -> list[dict[str, Any]]:
    """Arguments of each call when the chain is walked with made-up values and results.

    Raises Unsatisfiable where a source is missing, holds nothing, or gives a value that the
    tool's schema refuses: a source of the right type alone does not make a valid call.
    """
    calls: list[dict[str, Any]] = []
    results: list[Any] = []
    for step in steps:
        tool = tools[step.tool]
        missing = set(required_parameters(tool)) - set(step.arguments)
        if missing:
            raise Unsatisfiable(f"{tool.name}: no source for {sorted(missing)}")
        arguments = {
            name: _replayed(tool, name, source, results, rng)
            for name, source in step.arguments.items()
        }
        _check(tool, arguments)
        calls.append(arguments)
        results.append(_result(tool, rng))
    return calls


def _replayed(
    tool: Tool, name: str, source: ArgumentSource, results: Sequence[Any], rng: random.Random
) -> Any:
    if source.origin is ArgumentOrigin.DEFAULT:
        return source.value
    if source.origin is ArgumentOrigin.TASK:
        schema = {**required_parameters(tool)[name], **tool.hints.get(name, {})}
        try:
            return draw_value(schema, rng, name, tool.parameters)
        except NoValue as error:
            raise Unsatisfiable(f"{tool.name}.{name}: {error}") from None
    if source.step is None or source.step >= len(results):
        raise Unsatisfiable(f"{tool.name}.{name}: no earlier step {source.step}")
    value = results[source.step]
    for part in source.path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            raise Unsatisfiable(f"{tool.name}.{name}: nothing at {list(source.path)}") from None
    return value


def _check(tool: Tool, arguments: dict[str, Any]) -> None:
    try:
        error = next(Draft202012Validator(tool.parameters).iter_errors(arguments), None)
    except (Unresolvable, RecursionError) as problem:
        raise Unsatisfiable(f"{tool.name}: {problem}") from None
    if error is not None:
        raise Unsatisfiable(f"{tool.name}: {error.message[:200]}")


def _result(tool: Tool, rng: random.Random) -> Any:
    """A result as the tool's output schema promises it; None where it promises nothing."""
    if tool.output_schema is None:
        return None
    schema = _whole(tool.output_schema)
    try:
        return draw_value(schema, rng, str(schema.get("title", tool.name)), schema)
    except NoValue as error:
        raise Unsatisfiable(f"result of {tool.name}: {error}") from None


def _whole(schema: Mapping[str, Any]) -> dict[str, Any]:
    """``schema`` with every property present, as ``outputs`` reads schemas that require none."""
    out = dict(schema)
    properties = out.get("properties")
    if isinstance(properties, Mapping):
        out["properties"] = {
            key: _whole(item) if isinstance(item, Mapping) else item
            for key, item in properties.items()
        }
        out["required"] = out.get("required") or list(properties)
    if isinstance(out.get("items"), Mapping):
        out["items"] = _whole(out["items"])
    return out
