"""Benchmark suites as their authors ship them, read without knowing their formats.

``<folder>/<suite>/**`` holds a suite's JSON and JSON-lines files. Whatever looks like a tool
document (a name with parameters) gives a tool name and a schema, what looks like a call (a name
with arguments) a tool name, and every other string that is long enough a text: questions,
instructions, system texts, reference answers. Taking too much is the safe side.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from astra.contamination.grams import MIN_WORDS
from astra.errors import AstraError
from astra.text.words import words

_SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema")
_CALL_KEYS = ("arguments", "kwargs")
MAX_CHARS = 20_000
"""The longest text that is kept: longer ones are data files (mailboxes), not instructions."""


class SuiteFilesError(AstraError):
    """A suite's folder or file cannot be read."""


@dataclass
class SuiteTexts:
    """The texts and tools of one benchmark suite, which training data must not repeat."""

    name: str
    files: int = 0
    texts: set[str] = field(default_factory=set[str])
    tools: list[tuple[str, Mapping[str, Any]]] = field(
        default_factory=list[tuple[str, Mapping[str, Any]]]
    )
    """(name, parameters); parameters are empty where only a call is known."""


def read_suites(folder: Path) -> list[SuiteTexts]:
    """The suites of a folder, one per subfolder, by name.

    Raises SuiteFilesError naming what cannot be read.
    """
    places = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if not places:
        raise SuiteFilesError(
            f"{folder} has no subfolder; give each suite one, with its JSON files"
        )
    return [_read(place) for place in places]


def _read(place: Path) -> SuiteTexts:
    suite = SuiteTexts(place.name)
    for path in sorted(place.rglob("*")):
        if path.suffix not in (".json", ".jsonl"):
            continue
        suite.files += 1
        for document in _documents(path):
            _walk(document, suite)
    if not suite.texts:
        raise SuiteFilesError(f"suite {place} holds no text in .json or .jsonl files")
    return suite


def _documents(path: Path) -> Iterator[Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteFilesError(
            f"{path} cannot be read as UTF-8 text: {error}; convert it, or take it out of the suite"
        ) from None
    try:
        yield json.loads(text)
        return
    except ValueError:
        pass  # several suites ship JSON lines in .json files
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except ValueError as error:
            raise SuiteFilesError(f"{path} line {number} is no JSON: {error}") from None


def _walk(node: Any, suite: SuiteTexts) -> None:
    if isinstance(node, str):
        if len(node) <= MAX_CHARS and len(words(node)) >= MIN_WORDS:
            suite.texts.add(node)
    elif isinstance(node, list):
        for item in node:
            _walk(item, suite)
    elif isinstance(node, dict):
        name = node.get("name")
        if isinstance(name, str) and name:
            schema = next((node[k] for k in _SCHEMA_KEYS if isinstance(node.get(k), dict)), None)
            if schema is not None:
                # Its description is documentation that other servers may share: no text.
                suite.tools.append((name, schema))
                return
            if any(isinstance(node.get(key), dict) for key in _CALL_KEYS):
                suite.tools.append((name, {}))
        for value in node.values():
            _walk(value, suite)
