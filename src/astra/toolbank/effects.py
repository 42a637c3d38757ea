"""Whether a call changes anything, as the publisher's document says: annotations, HTTP method.

What a name alone suggests is not decided here but in ``text.verbs``. It is a poor guess: of the
public tools that their publishers mark as writing, every second has a name that begins with
another word than a verb of writing.
"""

from __future__ import annotations

import re
from typing import Any

from astra.records.tool import Effect
from astra.text.verbs import WRITES, singular, words_of

_READING_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
_WRITING_METHODS = frozenset(("PUT", "PATCH", "DELETE"))
_READING = frozenset(
    "analyse analyze calculate compare compute convert count decode describe detect estimate "
    "extract fetch find get inspect list lookup parse poll predict query read recognize retrieve "
    "return search show translate view".split()
)
"""Verbs of asking and of working something out from the input."""
_SEARCHING = frozenset(("lookup", "query", "search"))
"""Words that say so wherever they end a name or an address."""
_SKIPPED = re.compile(r"post|api|using|json|xml|v\d*|\d+")
"""Words of names and addresses that tell nothing: the method itself, types, versions."""
_UNSAID = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
"""What the MCP specification assumes of a tool without annotations. Some SDKs write all of it out
for a publisher who set nothing, look-ups included."""
_PLACEHOLDER = re.compile(r"\{[^}]*\}")


def stated_effect(annotations: Any) -> Effect:
    """What the annotations of an MCP tool say.

    A tool that is marked as destructive and not as read-only writes. ``destructiveHint: false``
    alone says nothing: adding something is not destructive either. Nor do annotations that all
    stand at the specification's defaults.
    """
    if not isinstance(annotations, dict) or _UNSAID.items() <= annotations.items():
        return ""
    if annotations.get("readOnlyHint") is True:
        return "reads"
    writing = annotations.get("readOnlyHint") is False or annotations.get("destructiveHint") is True
    return "writes" if writing else ""


def method_effect(method: Any, name: Any, path: Any, description: Any) -> Effect:
    """What an HTTP operation does, by its method; empty if there is none.

    POST writes, unless name, address or description begin with a verb of reading, or name or
    address end with a word of searching: many an API takes long queries that way.
    """
    verb = method.strip().upper() if isinstance(method, str) else ""
    if verb in _READING_METHODS:
        return "reads"
    if verb in _WRITING_METHODS:
        return "writes"
    if verb != "POST":
        return ""
    address = path.partition("?")[0] if isinstance(path, str) else ""
    last = _PLACEHOLDER.sub("", address).rstrip("/").split("/")[-1]
    named, addressed = _told(name), _told(last)
    said = {singular(word) for word in _told(description)[:1]}  # "Retrieves ..." is retrieve
    if {*named[:1], *said} & WRITES:
        return "writes"
    reading = {*named[:1], *addressed[:1], *said} & _READING
    searching = {*named[-1:], *addressed[-1:]} & _SEARCHING
    return "reads" if reading or searching else "writes"


def _told(text: Any) -> list[str]:
    words = words_of(text) if isinstance(text, str) else ()
    return [word for word in words if not _SKIPPED.fullmatch(word)]
