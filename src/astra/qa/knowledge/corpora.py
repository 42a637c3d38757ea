"""Items of corpora: the texts, domains, questions and taxonomy leaves that a teacher starts from.

A corpus is a file of JSON lines (``domain``, ``knowledge_corpus``, ``question``,
``description``, ``examples``; what a mode does not use may be missing), a text file with one
domain or question per line, or a folder of .txt and .md files, one text each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from astra.qa.config import Corpus, Mode
from astra.qa.knowledge.schema import KnowledgeError

NEEDS = {
    Mode.KNOWLEDGE_BASE: ("domain", "text"),
    Mode.CONTEXT: ("domain", "text"),
    Mode.BASE: ("domain",),
    Mode.QUESTION: ("domain", "question"),
    Mode.TAXONOMY: ("domain", "description"),
}
"""Mode -> attributes that its items must have."""
FIELDS = {
    "domain": "domain",
    "text": "knowledge_corpus",
    "question": "question",
    "description": "description",
}
"""Attribute -> its name in a JSON line."""
MOST_CHARS = 20_000
"""The longest text that a prompt holds beside the rest; a longer one has to be cut up."""


@dataclass(frozen=True)
class Item:
    """What questions are made of: a text, a domain, a question or a leaf, as the mode takes."""

    domain: str
    text: str = ""
    question: str = ""
    description: str = ""
    examples: tuple[str, ...] = ()
    place: str = ""
    """Where in the corpus: a line, or a file of a folder."""


def items_of(name: str, corpus: Corpus, folder: Path) -> Iterator[Item]:
    """The items of a corpus, in file order. Raises KnowledgeError with file, line and repair."""
    path = folder / corpus.path
    where = f"knowledge corpus {name} ({path})"
    if path.is_dir():
        rows = _from_folder(path)
    elif not path.is_file():
        raise KnowledgeError(_absent(name, corpus, where))
    elif path.suffix == ".jsonl":
        rows = _from_lines(path, where)
    elif path.suffix == ".txt":
        rows = _from_text(path, corpus.mode, where)
    else:
        raise KnowledgeError(f"{where}: give a .jsonl or .txt file, or a folder of texts")
    for place, values in islice(rows, corpus.limit):
        values["domain"] = values.get("domain") or corpus.domain
        lacking = [FIELDS[need] for need in NEEDS[corpus.mode] if not values.get(need)]
        if lacking:
            raise KnowledgeError(f"{where} {place}: mode {corpus.mode} needs {lacking}")
        item = Item(**values, place=place)
        if len(item.text) > MOST_CHARS:
            raise KnowledgeError(f"{where} {place}: more than {MOST_CHARS} characters; cut it up")
        yield item


def _absent(name: str, corpus: Corpus, where: str) -> str:
    """What to say of a corpus that is not there: what it has to hold, and how to go on."""
    held = " and ".join(FIELDS[need] for need in NEEDS[corpus.mode])
    return (
        f"{where}: no such file. Mode {corpus.mode} takes a .jsonl file whose lines hold {held}. "
        f"Put one there (or a link to it), or change qa.corpora.{name}. docs/knowledge.md says "
        "what each mode takes, and where the paper's corpora come from"
    )


def _from_lines(path: Path, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open(encoding="utf-8") as handle:
        for number, line in enumerate(handle, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                values = {name: row.get(field) or "" for name, field in FIELDS.items()}
                values["examples"] = tuple(row.get("examples") or ())
            except (ValueError, AttributeError, TypeError) as error:
                raise KnowledgeError(f"{where} line {number}: no JSON object ({error})") from error
            texts = [*(values[name] for name in FIELDS), *values["examples"]]
            if not all(isinstance(text, str) for text in texts):
                raise KnowledgeError(f"{where} line {number}: every field is text")
            yield f"line {number}", values


def _from_text(path: Path, mode: Mode, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    field = {Mode.BASE: "domain", Mode.QUESTION: "question"}.get(mode)
    if field is None:
        raise KnowledgeError(f"{where}: mode {mode} takes .jsonl or a folder, not lines of text")
    with path.open(encoding="utf-8") as handle:
        lines = (line for text in handle for line in text.splitlines())
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield f"line {number}", {field: line.strip()}


def _from_folder(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(path.iterdir()):
        if file.suffix in (".txt", ".md"):
            yield file.name, {"text": file.read_text(encoding="utf-8").strip()}
