"""Reads the files of source lists: documents, and the raw servers in them.

What a document holds is its format's to say, a module of ``formats`` each: ``parse(document,
base)`` gives the servers, ``read(path)``, where there is one, a document that lies in several
files. Unusable documents raise BadDocument; odd tools inside a usable document are passed on,
normalisation decides about them.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any, TextIO

import yaml

from astra.plugins import find
from astra.toolbank import formats
from astra.toolbank.raw import BadDocument, RawServer

MAX_BYTES = 64 * 2**20


def read_documents(path: Path, kind: str) -> Iterator[tuple[str, Any]]:
    """Each document of a file with its place: one, or one a line of JSON lines (``.jsonl``).

    A document that cannot be read is a BadDocument in its place; raises BadDocument for the file.
    """
    if path.suffix not in (".jsonl", ".ndjson"):
        read = getattr(find(formats, kind), "read", read_document)
        yield "", read(path)
        return
    with _opened(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield f"#{number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                yield f"#{number}", BadDocument(f"line {number} is no JSON: {_first_line(error)}")


def read_document(path: Path) -> Any:
    """Parse JSON, JSON lines or YAML, by content where the extension lies. Raises BadDocument."""
    with _opened(path) as file:
        text = file.read()
    return parsed_text(text, path)


def parsed_text(text: str, path: PurePath) -> Any:
    """The document that a file or a member of an archive holds. Raises BadDocument."""
    try:
        if path.suffix in (".yaml", ".yml"):
            return yaml.safe_load(text)
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise BadDocument(
            f"{path} is neither JSON, JSON lines nor YAML: {_first_line(error)}"
        ) from None


@contextmanager
def _opened(path: Path) -> Generator[TextIO]:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES and path.suffix not in (".jsonl", ".ndjson"):
            raise BadDocument(f"{path} is larger than {MAX_BYTES} bytes")
        with path.open(encoding="utf-8-sig") as file:
            yield file
    except (OSError, UnicodeDecodeError) as error:
        raise BadDocument(f"{path} cannot be read: {error}") from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def parse_document(kind: str, document: Any, base: RawServer) -> list[RawServer]:
    """Raw servers of a document in format ``kind``. Raises BadDocument."""
    return list(parsed_servers(kind, document, base))


def parsed_servers(kind: str, document: Any, base: RawServer) -> Iterator[RawServer]:
    """Those of ``parse_document`` one by one; BadDocument may come after some of them."""
    yield from find(formats, kind).parse(document, base)
