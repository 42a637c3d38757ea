"""Services made up from word lists: format ``catalogue``.

Each service has a subject (a hotel, a painting), a role linked to it, a place linked to that, and
tools that ask for attributes of the three. Some tools return a record, of which one field leads on,
and the names of some say little: what they are about stands in their descriptions. Service n is
drawn by a generator seeded with n alone: asking for more services leaves the earlier ones as they
are.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic import Field, ValidationError

from astra.settings import StageConfig
from astra.toolbank.raw import BadDocument, RawServer, RawTool

MIN_ATTRIBUTES, MAX_ATTRIBUTES = 2, 4


class Catalogue(StageConfig):
    """The word lists. Nouns of two words are written with ``_``."""

    servers: int
    subjects: dict[str, tuple[str, ...]]
    """Domain -> subjects; a subject is a thing with a name."""
    roles: tuple[str, ...]
    links: tuple[str, ...]
    modifiers: tuple[str, ...]
    numbers: tuple[str, ...]
    choices: dict[str, tuple[str, ...]]
    dates: tuple[str, ...]
    counted: tuple[str, ...]
    records: float = Field(ge=0.0, le=1.0)
    """The share of services in which a record tells the link that a plain tool tells elsewhere."""
    vague: float = Field(ge=0.0, le=1.0)
    """The share of tools whose name is made of ``vague_verbs`` and ``vague_nouns``."""
    vague_verbs: tuple[str, ...]
    vague_nouns: tuple[str, ...]


def parse(document: Any, base: RawServer) -> Iterator[RawServer]:
    """The services of a catalogue. Raises BadDocument naming the first bad list."""
    try:
        words = Catalogue.model_validate(document)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise BadDocument(f"no catalogue: {where}: {problem['msg']}") from None
    for index in range(words.servers):
        yield _service(words, index, base)


def _service(words: Catalogue, index: int, base: RawServer) -> RawServer:
    rng = random.Random(f"catalogue {index}")
    domain = rng.choice(sorted(words.subjects))
    subject, role = rng.choice(words.subjects[domain]), rng.choice(words.roles)
    link = rng.choice([word for word in words.links if word != subject])
    entities = {subject: "thing", role: "person", link: "thing"}
    holder = rng.choice((subject, role))
    tools = [
        _tool(f"find_{role}", role, subject, entities, {"type": "string", "x-entity": "person"}),
        _tool(f"get_{link}", link, holder, entities, {"type": "string", "x-entity": "thing"}),
    ]
    for _ in range(rng.randint(MIN_ATTRIBUTES, MAX_ATTRIBUTES)):
        asked = rng.choice((subject, role, link))
        tools.append(_attribute(words, asked, entities, rng))
    if rng.random() < 0.5:
        tools.append(_count(words, rng.choice((subject, link)), entities, rng))
    if rng.random() < words.records:
        at = rng.randrange(2)
        tools[at] = _record(words, tools[at], entities, rng)
    tools = [_vague(words, tool, rng) if rng.random() < words.vague else tool for tool in tools]
    rng.shuffle(tools)
    unique = {str(tool.name): tool for tool in tools}
    title = " ".join(part.capitalize() for part in (subject, role, link)).replace("_", " ")
    return replace(
        base,
        name=f"{subject}_{role}_{link}_{index}",
        source=f"{base.source}#{index}",
        title=f"{title} Service",
        description=f"About a {_said(subject)}, its {_said(role)} and the {_said(link)}.",
        domain=domain,
        tools=tuple(unique.values()),
    )


def _said(word: str) -> str:
    return word.replace("_", " ")


def _parameter(name: str, entities: dict[str, str]) -> dict[str, Any]:
    return {name: {"type": "string", "x-entity": entities[name]}}


def _document(name: str, said: str, properties: dict[str, Any], output: dict[str, Any]) -> RawTool:
    return RawTool(
        name=name,
        description=said,
        parameters={
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        },
        output=output,
    )


def _tool(
    name: str, title: str, asked: str, entities: dict[str, str], output: dict[str, Any]
) -> RawTool:
    said = f"Get the {_said(title)} of a {_said(asked)}."
    return _document(name, said, _parameter(asked, entities), {"title": title, **output})


def _record(
    words: Catalogue, link: RawTool, entities: dict[str, str], rng: random.Random
) -> RawTool:
    """The tool that tells what ``link`` does in a record with other attributes of the same."""
    (asked,) = link.parameters["properties"]
    others = [_attribute(words, asked, entities, rng) for _ in range(rng.randint(1, 2))]
    outputs = {str(tool.output["title"]): tool.output for tool in (link, *others) if tool.output}
    noun = rng.choice(words.vague_nouns)
    *most, last = map(_said, outputs)
    fields = f"{', '.join(most)} and {last}" if most else last
    said = f"Get the {noun} of a {_said(asked)}: {fields}."
    output = {"title": noun, "type": "object", "properties": outputs, "required": list(outputs)}
    return _document(f"get_{noun}", said, _parameter(asked, entities), output)


def _vague(words: Catalogue, tool: RawTool, rng: random.Random) -> RawTool:
    """The tool under a name that does not say what it is about."""
    return replace(tool, name=f"{rng.choice(words.vague_verbs)}_{rng.choice(words.vague_nouns)}")


def _attribute(
    words: Catalogue, asked: str, entities: dict[str, str], rng: random.Random
) -> RawTool:
    kind = rng.random()
    if kind < 0.55:
        noun = rng.choice(words.numbers)
        output: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": 999}
    elif kind < 0.8:
        noun = rng.choice(sorted(words.choices))
        output = {"type": "string", "enum": list(words.choices[noun])}
    else:
        noun = f"{rng.choice(words.dates)}_date"
        output = {"type": "string", "format": "date"}
    if kind < 0.8 and rng.random() < 0.6:
        noun = f"{rng.choice(words.modifiers)}_{noun}"
    return _tool(f"get_{noun}", noun, asked, entities, output)


def _count(words: Catalogue, asked: str, entities: dict[str, str], rng: random.Random) -> RawTool:
    counted, by = rng.choice(words.counted), rng.choice(sorted(words.choices))
    properties = {
        **_parameter(asked, entities),
        by: {"type": "string", "enum": list(words.choices[by])},
    }
    said = f"Count the {counted} of a {_said(asked)} with a given {by}."
    output = {"title": counted, "type": "integer", "minimum": 0, "maximum": 40}
    return _document(f"count_{counted}", said, properties, output)
