"""Prompt templates: Jinja files in a domain's ``prompts/`` folder.

Undefined variables are errors, and values are inserted as data: a value that contains
template syntax or prompt markers is never scanned again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import jinja2

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


@cache
def _compiled(template: str) -> jinja2.Template:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "sort_keys": False}
    environment.filters["json"] = environment.filters["tojson"]
    return environment.from_string(_source(template))


def render(template: str, variables: Mapping[str, Any]) -> str:
    """Text of template ``<domain>/<name>``. Raises PromptError on an undefined variable."""
    try:
        return _compiled(template).render(**variables)
    except jinja2.UndefinedError as error:
        raise PromptError(f"prompt {template!r}: {error}") from error


def template_hash(template: str) -> str:
    """16 hex digits that change whenever the template's text does; stored with records."""
    return hashlib.sha256(_source(template).encode()).hexdigest()[:16]
