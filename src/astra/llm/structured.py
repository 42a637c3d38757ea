"""One strict parser from a model's text to the reply an ask expects.

Accepted around the object: a thinking block, one code fence, prose, also prose with names in
braces (``{"city"}``) and fences of other things. Refused: two different objects that both fit,
a broken or cut object wherever it stands, duplicate keys, NaN, a value of the wrong JSON type
(``"true"`` is no boolean, ``"0.9"`` no number), and anything the response model refuses. Nothing
is filled in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ValidationError

from astra.llm.protocol import ParseError, Reply
from astra.prompting import without_keywords
from astra.records.base import canonical_json
from astra.text.strict_json import STRICT

_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL)
_THINKING_END = re.compile(r"^.*</(?:think|thinking|reasoning)>", re.DOTALL)
_THINKING_START = re.compile(r"<(?:think|thinking|reasoning)>")
_OPENING = re.compile(
    r"\s*(?:<(think|thinking|reasoning)>)?(.*?)</(?:think|thinking|reasoning)>", re.DOTALL
)
_FENCE = re.compile(r"```(?:[a-zA-Z0-9_-]*)[ \t]*\n(.*?)```", re.DOTALL)
_STRING = r'"(?:[^{}"\\]|\\.)*"'
_START = re.compile(rf'\{{(?=\s*["}}])(?!\s*{_STRING}(?:[^{{}}":]|{_STRING})*\}})')
"""Where an object begins. Braces around strings without a colon are prose, or a set: no object,
not even a broken one."""
_TAG = re.compile(r"<(?=/?(?:think|thinking|reasoning)>)")
_ANY = json.JSONDecoder()
_MAX_PROBLEMS = 5


def parse_reply(text: str, response: type[Reply]) -> Reply:
    """The one object in ``text`` that is a valid ``response``. Raises ParseError saying why not.

    What stands in code fences comes first. Prose is looked at only if no fence holds a try at the
    reply, that is an object with one of its fields.
    """
    whole = _decoded(text)
    body = text if whole is not None else without_thinking(_tags_escaped(text))
    problem = ""
    for candidates in [[whole]] if whole is not None else _objects(body):
        valid: dict[str, Reply] = {}
        for candidate in candidates:
            try:
                valid[canonical_json(candidate)] = _validated(candidate, response)
            except ValueError as error:
                problem = problem or str(error)
        if len(valid) > 1:
            raise ParseError(f"the reply holds {len(valid)} different objects that fit; give one")
        if valid:
            return next(iter(valid.values()))
        if any(response.model_fields.keys() & one.keys() for one in candidates):
            break
    if problem:
        raise ParseError(f"the JSON object is not the one asked for: {problem}")
    raise ParseError(
        "the reply is empty" if not body.strip() else "the reply holds no complete JSON object"
    )


def without_thinking(text: str) -> str:
    """``text`` after its thinking; a block that never ends leaves nothing."""
    body = _THINKING.sub("", text)
    # Chat templates that open the block themselves leave only its end in the reply.
    body = _THINKING_END.sub("", body)
    if start := _THINKING_START.search(body):
        body = body[: start.start()]
    return body


def opening_thought(text: str) -> str:
    """What stands in the thinking block that ``text`` begins with; empty without one."""
    block = _OPENING.match(text)
    if block is None or (block[1] is None and _THINKING_START.search(block[2])):
        return ""
    return block[2].strip()


def is_object(text: str) -> bool:
    """Whether nothing but one JSON object follows the thinking: what enforced decoding writes."""
    return _decoded(text) is not None or _decoded(without_thinking(_tags_escaped(text))) is not None


def _tags_escaped(text: str) -> str:
    """``text`` with the thinking tags in its complete objects as JSON escapes: a string that
    mentions one begins or ends no thinking.
    """
    parts, at = list[str](), 0
    start = _START.search(text) if _TAG.search(text) else None
    while start:
        try:
            _, end = _ANY.raw_decode(text, start.start())
        except ValueError as error:  # only what the decoder itself refuses has a place
            end = max(getattr(error, "pos", 0), start.end())
        except RecursionError:
            break
        else:
            escaped = _TAG.sub(r"\\u003c", text[start.start() : end])
            parts += [text[at : start.start()], escaped]
            at = end
        start = _START.search(text, end)
    return "".join(parts) + text[at:]


def _objects(body: str) -> Iterator[list[Any]]:
    """The outermost JSON objects: the whole text, or those in fences, then those in prose.

    A broken object in prose ends the search: what is nested in it was not the reply, and it may
    have been the reply itself.
    """
    for parts in ([body.strip()], _FENCE.findall(body)):
        decoded = [value for part in parts if (value := _decoded(part)) is not None]
        if decoded:
            yield decoded
            break
    objects: list[Any] = []
    start = _START.search(body)
    while start:
        try:
            value, end = STRICT.raw_decode(body, start.start())
        except (ValueError, RecursionError):
            return
        objects.append(value)
        start = _START.search(body, end)
    yield objects


def _decoded(text: str) -> Any | None:
    try:
        value = STRICT.decode(text.strip())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _validated(value: Any, response: type[Reply]) -> Reply:
    try:
        return response.model_validate_json(json.dumps(value, allow_nan=False), strict=True)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc'])) or 'object'}: {problem['msg']}"
            for problem in error.errors(include_input=False, include_url=False)
        ]
        more = len(problems) - _MAX_PROBLEMS
        unsaid = f"; and {more} more" if more > 0 else ""
        raise ValueError("; ".join(problems[:_MAX_PROBLEMS]) + unsaid) from None


@lru_cache(maxsize=256)
def schema_text(response: type[BaseModel]) -> str:
    """The response model's JSON Schema as JSON (part of an answer's identity).

    Properties stand in the order of the model's fields: a reason that is declared before its
    verdict is written before it.
    """
    return json.dumps(_schema(response), ensure_ascii=False, separators=(",", ":"))


def _schema(response: type[BaseModel]) -> dict[str, Any]:
    """The schema without titles and docstrings, which speak of the code."""
    return without_keywords(
        response.model_json_schema(), lambda keyword: keyword in ("title", "description")
    )


def instructions(response: type[BaseModel]) -> str:
    """What the model is told when no server enforces the schema."""
    return (
        "Write the JSON object and nothing else. It must satisfy this JSON Schema:\n"
        f"{schema_text(response)}"
    )


def repair_request(problem: str, response: type[BaseModel]) -> str:
    """The follow-up to a reply that could not be used."""
    return f"That reply cannot be used: {problem.rstrip('.')}.\n{instructions(response)}"


@lru_cache(maxsize=256)
def response_format(response: type[BaseModel]) -> tuple[dict[str, Any], str, bool]:
    """The ``response_format`` field (not to be changed), its JSON text, and whether a server that
    takes it will enforce it.

    Strict decoding needs closed objects whose properties are all required; a schema with
    free-form parts is sent as a hint, and the prompt then shows it as well.
    """
    schema = _schema(response)
    strict = _closable(schema)
    if strict:
        _close(schema)
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", response.__name__)[:64]
    field = {
        "type": "json_schema",
        "json_schema": {"name": name, "schema": schema, "strict": strict},
    }
    return field, json.dumps(field, ensure_ascii=False), strict


def _children(schema: dict[str, Any]) -> Iterator[Any]:
    for keyword in ("properties", "$defs"):
        yield from schema.get(keyword, {}).values()
    for keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
        yield from schema.get(keyword, [])
    if "items" in schema:
        yield schema["items"]


def _closable(schema: Any) -> bool:
    """Whether every part states its type, no object takes free keys, and all keys are known."""
    if not isinstance(schema, dict):
        return False
    stated = {"type", "$ref", "anyOf", "enum", "const"} & schema.keys()
    if not stated or {"oneOf", "allOf", "prefixItems", "patternProperties"} & schema.keys():
        return False
    if schema.get("type") == "object" and (
        not schema.get("properties") or schema.get("additionalProperties", False) is not False
    ):
        return False
    if schema.get("type") == "array" and "items" not in schema:
        return False
    return all(_closable(child) for child in _children(schema))


def _close(schema: dict[str, Any]) -> None:
    schema.pop("default", None)
    if schema.get("type") == "object":
        schema["additionalProperties"] = False
        schema["required"] = list(schema["properties"])
    for child in _children(schema):
        _close(child)
