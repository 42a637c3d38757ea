"""What tools return and whether they change anything, by a teacher where no publisher says so.

Hardly any listed tool documents its result. Without one, no later call can take a value from it,
and made-up answers have no form to keep to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from astra.llm.pool import together
from astra.llm.protocol import Ask, ParseError, ProviderError, Teacher
from astra.prompting import joined_hashes, template_hash
from astra.records.base import Frozen
from astra.records.score import Rejection
from astra.records.tool import InferredResult, Tool, ToolServer
from astra.text.schemas import schema_fault, violation
from astra.toolbank.schema import normalise_output

RESULT = "toolbank/result"
MAX_SCHEMA_CHARS = 6000
MAX_EXAMPLE_CHARS = 3000
"""Both bounds are ours: a large record of a public interface fits, and prompts that show one tool's
result stay short."""
MAX_DEPTH = 12
"""The deepest nesting of a schema."""
_BRANCHES = ("anyOf", "oneOf")


class ResultGuess(Frozen):
    reason: str
    effect: Literal["reads", "writes", "unknown"]
    output_schema: dict[str, Any] | None
    example: Any


def result_ask(server: ToolServer, tool: Tool) -> Ask[ResultGuess]:
    """One tool among the names and parameters of all.

    Descriptions of the others are left out: an edited one would ask about every tool again.
    """
    variables = {
        "title": server.title,
        "description": server.description,
        "tools": [_signature(one) for one in server.tools],
        "tool": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        },
        "output_schema": tool.output_schema,
    }
    limits = {"schema_chars": MAX_SCHEMA_CHARS, "example_chars": MAX_EXAMPLE_CHARS}

    def check(reply: ResultGuess) -> None:
        if not tool.output_schema:
            inferred_result(reply)

    return Ask(RESULT, variables, ResultGuess, limits=limits, check=check)


def _signature(tool: Tool) -> str:
    needed = tool.parameters.get("required", ())
    named = (name if name in needed else f"{name}?" for name in tool.parameters["properties"])
    return f"{tool.name}({', '.join(named)})"


def inferred_result(reply: ResultGuess) -> InferredResult | None:
    """The result that a reply describes; None if it makes no guess. Raises ValueError saying why
    the guess is of no use."""
    if reply.output_schema is None:
        return None
    size = len(json.dumps(reply.output_schema, ensure_ascii=False))
    if size > MAX_SCHEMA_CHARS:
        raise ValueError(f"output_schema has {size} characters, at most {MAX_SCHEMA_CHARS}")
    if fault := schema_fault(reply.output_schema):
        raise ValueError(f"output_schema is no JSON Schema: {fault}")
    if gap := _gap(reply.output_schema, "", 0):
        raise ValueError(f"output_schema: {gap}")
    schema, repairs = normalise_output(reply.output_schema)  # in the form of published ones
    if schema is None:
        raise ValueError("; ".join(repairs))
    if fault := _example_fault(reply.example, schema):
        raise ValueError(f"example: {fault}")
    return InferredResult(output_schema=schema, example=reply.example)


def _example_fault(example: Any, schema: Mapping[str, Any]) -> str:
    if example in (None, "", [], {}):
        return "it is empty"
    size = len(json.dumps(example, ensure_ascii=False))
    if size > MAX_EXAMPLE_CHARS:
        return f"it has {size} characters, at most {MAX_EXAMPLE_CHARS}"
    if isinstance(example, str) and example.lstrip()[:1] in ("{", "["):
        try:
            json.loads(example)
        except (ValueError, RecursionError):
            return violation(example, schema)
        return "it is JSON inside a string: describe and write the JSON itself"
    return violation(example, schema)


def _gap(schema: Any, place: str, depth: int) -> str:
    """Where a schema leaves open what a value is; empty if nowhere."""
    here = place or "the root"
    if depth > MAX_DEPTH:
        return f"{here} is nested deeper than {MAX_DEPTH}"
    if not isinstance(schema, dict) or not schema.keys() & {"type", "enum", "const", *_BRANCHES}:
        return f"{here} has no type" + (" (write $ref out)" if "$ref" in str(schema) else "")
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    properties, values = schema.get("properties", {}), schema.get("additionalProperties")
    if "object" in kinds and not properties and not isinstance(values, dict):
        return f"{here} is an object without properties"
    inner = {f"{place}/{name}": part for name, part in properties.items()}
    if isinstance(values, dict):
        inner[f"{place}/*"] = values
    if "array" in kinds and "prefixItems" not in schema:
        inner[f"{place}/0"] = schema.get("items")
    for keyword in ("prefixItems", *_BRANCHES):
        inner |= {f"{place}/{keyword}{n}": part for n, part in enumerate(schema.get(keyword, ()))}
    gaps = (_gap(part, where, depth + 1) for where, part in inner.items())
    return next(filter(None, gaps), "")


async def infer_results(server: ToolServer, teacher: Teacher) -> tuple[ToolServer, list[Rejection]]:
    """``server`` with what the teacher tells of the tools that say too little themselves.

    A publisher's word stays. A tool without an answer stays as it is, with a failed try.
    """
    told = await together(*(_told(server, tool, teacher) for tool in server.tools))
    tools = tuple(tool for tool, _ in told)
    failed = [rejection for _, rejection in told if rejection]
    if tools == server.tools:
        return server, failed
    hashes = joined_hashes(server.prompt_hash, template_hash(RESULT))
    changes = {"id": "", "tools": tools, "prompt_hash": hashes}
    return ToolServer.model_validate(server.model_dump() | changes), failed


async def _told(server: ToolServer, tool: Tool, teacher: Teacher) -> tuple[Tool, Rejection | None]:
    if tool.output_schema and tool.effect:
        return tool, None
    try:
        reply = await teacher.ask(result_ask(server, tool))
    except (ProviderError, ParseError) as error:
        reason = "result_ask_failed" if isinstance(error, ProviderError) else "result_unparsable"
        part = f"tool {tool.name}"
        return tool, Rejection(
            item=server.name, part=part, reason=reason, detail=str(error), final=False
        )
    changes: dict[str, Any] = {}
    if not tool.effect and reply.effect != "unknown":
        changes["effect"] = reply.effect
    if not tool.output_schema:
        changes["inferred"] = inferred_result(reply)
    return tool.model_copy(update=changes), None
