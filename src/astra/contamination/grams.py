"""What two texts or two tool documents have in common, as hashes that do not give the text away.

Texts are compared by word n-grams (a Chinese character is a word), tools by their names, and
schemas by a tool's name with the names and types of its parameters.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from astra.records.base import canonical_json
from astra.text.verbs import words_of
from astra.text.words import words

MIN_WORDS = 6
"""A shorter text says too little to be told from chance."""


def digest(kind: str, text: str) -> int:
    """64 bits of a keyed hash, as an unsigned integer."""
    raw = hashlib.blake2b(text.encode(errors="replace"), digest_size=8, person=kind.encode())
    return int.from_bytes(raw.digest())


def text_hashes(text: str, size: int) -> set[int]:
    """The hashes of all ``size``-grams of a text; a shorter one of MIN_WORDS is one gram."""
    folded = [word.casefold() for word in words(unicodedata.normalize("NFKC", text))]
    if len(folded) < MIN_WORDS:
        return set()
    spans = range(max(1, len(folded) - size + 1))
    return {digest("text", " ".join(folded[start : start + size])) for start in spans}


def name_hash(name: str) -> int:
    """The hash of a tool's name, whatever its case and separators (``getPrice``, ``get_price``)."""
    return digest("name", "_".join(words_of(name)))


def schema_hash(name: str, parameters: Mapping[str, Any]) -> int | None:
    """The hash of a tool's name and parameters.

    None for a tool with fewer than two parameters: there an equal schema may be chance.
    """
    properties = parameters.get("properties")
    if not isinstance(properties, Mapping) or len(properties) < 2:
        return None
    return digest("schema", canonical_json([list(words_of(name)), sorted(map(str, properties))]))


def tool_hashes(tools: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[set[int], set[int]]:
    """Name hashes and schema hashes of (name, parameters) pairs."""
    names: set[int] = set()
    schemas: set[int] = set()
    for name, parameters in tools:
        names.add(name_hash(name))
        schema = schema_hash(name, parameters)
        if schema is not None:
            schemas.add(schema)
    return names, schemas
