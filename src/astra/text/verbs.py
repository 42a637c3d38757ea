"""What a snake_case ``verb_noun`` tool name says: its verb, its noun, whether it writes."""

from __future__ import annotations

import re

_CREATES = (
    "create add book insert register schedule open place make record log submit send post "
    "reserve append write save store upload import copy start hire order buy"
)
_UPDATES = (
    "set update change edit rename move assign mark modify replace apply format merge "
    "adjust raise lower extend patch put toggle enable disable transfer"
)
_DELETES = "delete remove cancel drop clear close erase reset unassign stop"
CREATES = frozenset(_CREATES.split())
UPDATES = frozenset(_UPDATES.split())
DELETES = frozenset(_DELETES.split())
WRITES = CREATES | UPDATES | DELETES
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\x00-\x7f]+")


def words_of(name: str) -> tuple[str, ...]:
    """Lower-case words of an identifier in snake, kebab or camel case."""
    return tuple(word.lower() for word in _WORD.findall(name))


def singular(word: str) -> str:
    """The singular of a regular English noun; other words unchanged."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        return word[:-1]
    return word


def verb_of(name: str) -> str:
    """The first word of a tool's name; empty if it has none."""
    words = words_of(name)
    return words[0] if words else ""


def noun_of(name: str) -> str:
    """The words after the verb joined by ``_``, the last one singular."""
    words = words_of(name)[1:]
    return "_".join([*words[:-1], singular(words[-1])]) if words else ""


def is_write(name: str) -> bool:
    """Whether the tool changes state, as far as its verb tells."""
    return verb_of(name) in WRITES


def changes_state(name: str, effect: str) -> bool:
    """Whether a call changes state: by the tool's ``effect`` where known, else by its verb."""
    return effect == "writes" if effect else is_write(name)
