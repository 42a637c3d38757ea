"""Where the arguments of a chain come from (ASTRA section 3.1, check i)."""

from __future__ import annotations

import random
from collections.abc import Sequence

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
