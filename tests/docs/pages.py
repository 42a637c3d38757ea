"""Fenced blocks of the documentation, for the tests of this folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^( *)```([a-z]*)([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    title: str
    text: str


def pages(root: Path) -> list[Path]:
    """Everything that a reader is told to follow."""
    top = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "problems/README.md"]
    return [*(root / name for name in top), *sorted((root / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        indent, language, after, body = found.groups()
        title = re.search(r'title="([^"]+)"', after)
        line = text.count("\n", 0, found.start()) + 1
        lines = (one.removeprefix(indent) for one in body.splitlines())
        yield Block(page, line, language, title.group(1) if title else "", "\n".join(lines) + "\n")
