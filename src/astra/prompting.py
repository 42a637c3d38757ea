"""Prompt templates: Jinja files in a domain's ``prompts/`` folder.

Undefined variables are errors, and values are inserted as data: a value that contains template
syntax is never scanned again, and one that spans lines, or would open a heading or a fence, is
quoted line by line, so that no tool's description, question or answer can end its own block and
go on as instructions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

import jinja2
import jinja2.meta

from astra.errors import AstraError


class PromptError(AstraError):
    """A template is missing, or a variable it needs was not given."""


@cache
def _source(template: str) -> str:
    domain, _, name = template.partition("/")
    file = resources.files("astra").joinpath(domain, "prompts", f"{name}.md.j2")
    if not file.is_file():
        raise PromptError(f"prompt {template!r}: no file src/astra/{domain}/prompts/{name}.md.j2")
    return file.read_text(encoding="utf-8")


def _json(value: Any) -> str:
    # Jinja's own filter writes for HTML: an apostrophe would reach the model as \u0027.
    return json.dumps(value, ensure_ascii=False, default=_shown)


def _shown(value: Any) -> str:
    if isinstance(value, Placeholder):
        return str(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LITERAL = ("enum", "const", "default", "examples", "required")


def without_keywords(schema: Any, dropped: Callable[[str], bool]) -> Any:
    """A JSON Schema, in its own order, without some keywords; names and literal values stay."""
    if isinstance(schema, list):
        return [without_keywords(part, dropped) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            kept[key] = {name: without_keywords(part, dropped) for name, part in value.items()}
        elif not dropped(key):
            kept[key] = value if key in _LITERAL else without_keywords(value, dropped)
    return kept


def _schema(value: Any) -> str:
    """A tool's schema as JSON without extensions (``x-...``), which say nothing to most readers."""
    return _json(without_keywords(value, lambda keyword: keyword.startswith("x-")))


def _sources(arguments: Any) -> str:
    """The arguments of a planned call as JSON: per source what its origin gives, without nulls."""
    if not isinstance(arguments, Mapping):
        return _json(arguments)
    return _json(
        {
            name: {
                field: value
                for field, value in source.items()
                if value is not None and (field != "path" or source["step"] is not None)
            }
            for name, source in arguments.items()
        }
    )


_LINES = re.compile(r"\r\n|[\n\r\v\f]")
_MARKS = ("#", "```", "~~~", "---", "===", "|")
"""What a heading, a fence, a rule or a quotation of our own begins with."""


def _quoted(value: Any) -> Any:
    """The text that is inserted for a value.

    JSON passes unchanged: it has no line breaks of its own.
    """
    text = str(value)  # raises for an undefined value
    lines = _LINES.split(text.rstrip("\r\n"))
    if len(lines) == 1 and not text.lstrip().startswith(_MARKS):
        return lines[0]
    return "".join(f"\n| {line}" for line in lines)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        finalize=_quoted,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )
    environment.filters["json"] = environment.filters["tojson"] = _json
    environment.filters["schema"] = _schema
    environment.filters["sources"] = _sources
    return environment


@cache
def _compiled(template: str) -> jinja2.Template:
    return _environment().from_string(_source(template))


def render(template: str, variables: Mapping[str, Any]) -> str:
    """The text of template ``<domain>/<name>``. Raises PromptError on an undefined variable."""
    try:
        return _compiled(template).render(**variables).rstrip("\n")
    except jinja2.UndefinedError as error:
        raise PromptError(f"prompt {template!r}: {error}") from error


def variables_of(template: str) -> list[str]:
    """Names that the template reads, sorted."""
    syntax = _environment().parse(_source(template))
    return sorted(jinja2.meta.find_undeclared_variables(syntax))


class Placeholder:
    """Stands for any value when a template is shown without data: ``<name>``, ``<name.field>``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __str__(self) -> str:
        return f"<{self._name}>"

    def __getattr__(self, field: str) -> Placeholder:
        if field.startswith("__"):
            raise AttributeError(field)
        return Placeholder(f"{self._name}.{field}")

    def __getitem__(self, key: object) -> Placeholder:
        return Placeholder(f"{self._name}.{key}")

    def __iter__(self) -> Iterator[Placeholder]:
        return iter([Placeholder(f"{self._name}[0]")])

    def __len__(self) -> int:
        return 1

    def __gt__(self, other: object) -> bool:
        return True

    __ge__ = __lt__ = __le__ = __gt__


def example(template: str) -> str:
    """The template with a placeholder for every variable, lists shown with one item."""
    return render(template, {name: Placeholder(name) for name in variables_of(template)})


def templates() -> list[str]:
    """The names of all templates, sorted."""
    return sorted(
        f"{domain.name}/{file.name.removesuffix('.md.j2')}"
        for domain in resources.files("astra").iterdir()
        if (folder := domain.joinpath("prompts")).is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".md.j2")
    )


def template_hash(template: str) -> str:
    """16 hex digits that change whenever the template's text does; stored with records."""
    return hashlib.sha256(_source(template).encode()).hexdigest()[:16]


def joined_hashes(*hashes: str) -> str:
    """One text for all the templates behind a record: each hash once, sorted, joined by ``+``."""
    return "+".join(sorted({part for text in hashes for part in text.split("+") if part}))
