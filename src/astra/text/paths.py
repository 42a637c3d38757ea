"""Paths into JSON results, by schema alone: what stands at a path, and which parameters take it.

A schema that says nothing of a value allows any. One that lists the parts of an object allows no
others, unless it says so: whoever describes a result names what can be built on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from astra.text.values import NoValue, resolve

ResultPath = tuple[str | int, ...]
_COMBINED = ("anyOf", "oneOf", "allOf")


class NoSuchPath(ValueError):
    """A path that leads nowhere in a result; says where it ends and what is there instead."""


def at_path(
    result: Mapping[str, Any], path: Sequence[str | int]
) -> tuple[ResultPath, list[Mapping[str, Any]]]:
    """``path`` with its positions as numbers, and the alternative schemas of the value there.

    Raises NoSuchPath if the schema ``result`` names the parts of a result and this is none.
    """
    nodes: list[Mapping[str, Any]] = list(alternatives(result, result))
    walked: list[str | int] = []
    for part in path:
        step, inner, problems = part, list[Mapping[str, Any]](), list[str]()
        for node in nodes:
            try:
                step, found = _inside(node, part)
            except NoSuchPath as problem:
                problems.append(str(problem))
                continue
            inner += alternatives(found, result)
        if not inner:
            raise NoSuchPath(f"at {walked}: {problems[0] if problems else 'no value'}")
        walked.append(step)
        nodes = inner
    return tuple(walked), nodes


def alternatives(
    schema: Any, root: Any, followed: frozenset[str] = frozenset()
) -> Iterator[Mapping[str, Any]]:
    """The plain schemas that ``schema`` stands for: references followed, alternatives listed.

    A reference that leads back to itself stands for none.
    """
    if not isinstance(schema, Mapping):
        if schema is not False:
            yield {}
        return
    pointer = schema.get("$ref")
    if pointer is not None:
        try:
            target = resolve(pointer, root)
        except NoValue:
            yield {}
            return
        if pointer not in followed:
            yield from alternatives(target, root, followed | {pointer})
        return
    inner = [part for word in _COMBINED for part in schema.get(word) or ()]
    if not inner or _plain(schema):
        yield schema
    for part in inner:
        yield from alternatives(part, root, followed)


def _plain(schema: Mapping[str, Any]) -> bool:
    """Whether a schema says something of its value beside its alternatives."""
    return any(word in schema for word in ("properties", "items", "enum", "const"))


def _inside(node: Mapping[str, Any], part: str | int) -> tuple[str | int, Any]:
    """One step of a path, and the schema behind it. Raises NoSuchPath."""
    possible = kinds(node)
    if node.get("type") == "null":
        raise NoSuchPath(f"null has no {part!r}")
    if possible and not possible & {"object", "array"}:
        raise NoSuchPath(f"a {' or '.join(sorted(possible))} has no {part!r}")
    if "array" in possible and "object" not in possible:
        return _element(node, part)
    if isinstance(part, int):
        if "object" in possible and "array" not in possible:
            raise NoSuchPath(f"an object has no position {part}")
        return _element(node, part)
    properties = node.get("properties") or {}
    if part in properties:
        return part, properties[part]
    others = node.get("additionalProperties", not properties)
    if others is False:
        raise NoSuchPath(f"no {part!r}, there are: {', '.join(properties) or 'none'}")
    return part, others


def _element(node: Mapping[str, Any], part: str | int) -> tuple[int, Any]:
    try:
        position = int(part)
    except ValueError:
        raise NoSuchPath(f"a list has no {part!r}, only positions, the first of them 0") from None
    listed = node.get("prefixItems") or ()
    inner = listed[position] if 0 <= position < len(listed) else node.get("items", {})
    if position < 0 or inner is False:
        raise NoSuchPath(f"no position {position}")
    return position, inner


def kinds(schema: Mapping[str, Any]) -> frozenset[str]:
    """The JSON types that a plain schema allows, null left out; empty: any."""
    stated = schema.get("type")
    if isinstance(stated, str):
        named = {stated}
    elif isinstance(stated, list):
        named = {kind for kind in stated if isinstance(kind, str)}
    elif listed := choices(schema):
        named = {_kind_of(value) for value in listed}
    else:
        named = {
            kind
            for word, kind in (("properties", "object"), ("items", "array"))
            if word in schema
        }  # fmt: skip
    return frozenset(named - {"null"})


def choices(schema: Mapping[str, Any]) -> list[Any]:
    """The only values that a schema allows; empty: it lists none."""
    if "const" in schema:
        return [schema["const"]]
    listed = schema.get("enum")
    return listed if isinstance(listed, list) else []


def _kind_of(value: Any) -> str:
    for type_, kind in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string")):
        if isinstance(value, type_):
            return kind
    return "null" if value is None else "array" if isinstance(value, list) else "object"


def takes(
    parameter: Any,
    tool: Any,
    given: Sequence[Mapping[str, Any]],
    result: Any,
    converted: bool = False,
) -> bool:
    """Whether a parameter can take some value that one of the plain schemas ``given`` allows.

    Types must be compatible, of lists those of their items too, and a parameter with listed
    values takes only an output that lists some of them. ``tool`` and ``result`` are the documents
    that references resolve in. ``converted``: a number may be written as text and text read as a
    number, as whoever calls the tool would do it: the id 42 is the text "42" elsewhere.
    """
    types = _scalar if converted else _numeric
    wanted = list(alternatives(parameter, tool))
    pairs = [(mine, theirs) for mine in wanted for theirs in given if _alike(mine, theirs, types)]
    return any(_items_alike(mine, tool, theirs, result, types) for mine, theirs in pairs)


Types = Callable[[frozenset[str]], frozenset[str]]
"""Names as one the JSON types whose values can stand for each other."""


def _alike(mine: Mapping[str, Any], theirs: Mapping[str, Any], types: Types) -> bool:
    if listed := choices(mine):
        return any(value in listed for value in choices(theirs))
    wanted, found = types(kinds(mine)), types(kinds(theirs))
    return not wanted or not found or bool(wanted & found)


def _items_alike(
    mine: Mapping[str, Any], tool: Any, theirs: Mapping[str, Any], result: Any, types: Types
) -> bool:
    if "array" not in kinds(mine) & kinds(theirs):
        return True
    wanted = list(alternatives(mine.get("items", {}), tool))
    return any(
        _alike(one, other, types)
        for one in wanted
        for other in alternatives(theirs.get("items", {}), result)
    )


def _numeric(types: frozenset[str]) -> frozenset[str]:
    """``types`` with one word for numbers: many publishers call every integer a number."""
    return frozenset("number" if kind == "integer" else kind for kind in types)


def _scalar(types: frozenset[str]) -> frozenset[str]:
    """``types`` with one word for numbers and text."""
    return frozenset("text" if kind in ("integer", "number", "string") else kind for kind in types)
