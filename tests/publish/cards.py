"""Reads a published card as a stranger with its folder would, and follows every number."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import yaml

from astra.publish.evidence import read_document, shown, shown_share

SOURCE = re.compile(r"`(build/[^#`]+)#([^`]*)`")
CITED = re.compile(r"\[([^\]]*)\]\((build/[^#)]+)#([^)]*)\)")
QUOTED = re.compile(
    r"^`(build/[^#`]+)#([^`]*)`:\n\n(`{3,})text\n(.*?)\n\3$", re.DOTALL | re.MULTILINE
)
SHA256 = re.compile(r"[0-9a-f]{64}")


def front_matter(folder: Path) -> dict[str, Any]:
    return yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])


def body(folder: Path) -> str:
    return (folder / "README.md").read_text().split("---\n", 2)[2]


def code_block(folder: Path, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", body(folder), re.DOTALL)
    assert found
    return found[1]


def place(folder: Path, file: str, pointer: str) -> Any:
    found = read_document(folder / file)
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found[int(key)] if isinstance(found, list) else found[key]
    return found


def tables(text: str) -> list[list[list[str]]]:
    """Every Markdown table as rows of cells, its header first."""
    found: list[list[list[str]]] = []
    open_table = False
    for line in text.splitlines():
        if not line.startswith("|"):
            open_table = False
            continue
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not open_table:
            found.append([])
            open_table = True
        if set("".join(cells)) - set("-: "):
            found[-1].append(cells)
    return found


def follow(folder: Path) -> int:
    """Check each value of tables, sentences and quotations against the file that it names; how many
    were checked."""
    checked = _follow_prose(folder)
    for header, *rows in tables(body(folder)):
        if header == ["file", "SHA-256"]:
            for name, digest in rows:
                path = folder / name.strip("`")
                assert hashlib.sha256(path.read_bytes()).hexdigest() == digest.strip("`"), path
            continue
        assert header[-1] == "source", header
        for cells in rows:
            match = SOURCE.fullmatch(cells[-1])
            assert match, cells
            found = place(folder, match[1], match[2])
            named = dict(zip(header[:-1], cells[:-1], strict=True))
            values = {"value": found} if "value" in named else found
            keys = [key for key in named if isinstance(values, dict) and key in values]
            assert keys, (header, values)
            for key in keys:
                assert named[key] in {shown(values[key], True), shown(values[key], False)}, cells
                checked += 1
    return checked


def _follow_prose(folder: Path) -> int:
    cited = CITED.findall(body(folder))
    for text, file, pointer in cited:
        found = place(folder, file, pointer)
        shares = {shown_share(found)} if isinstance(found, int | float) else set()
        assert text in {shown(found, True), *shares}, (text, file, pointer)
    quoted = QUOTED.findall(body(folder))
    for file, pointer, _, text in quoted:
        assert text == place(folder, file, pointer), (file, pointer)
    assert body(folder).count("```text") == len(quoted)
    return len(cited) + len(quoted)


def untraced(folder: Path) -> list[str]:
    """Digits that stand outside of tables, code and links."""
    text = re.sub(r"```.*?```", "", body(folder), flags=re.DOTALL)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    text = CITED.sub("", text)
    text = re.sub(r"`[^`]*`", "", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return re.findall(r"\S*\d\S*", text)


def cited_files(folder: Path) -> set[str]:
    """Files below ``build/`` whose hashes the card states."""
    for header, *rows in tables(body(folder)):
        if header == ["file", "SHA-256"]:
            return {name.strip("`") for name, digest in rows if SHA256.search(digest)}
    return set()
