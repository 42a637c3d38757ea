"""docs/code-walk.md names files and functions that exist, and leads to their places on the map."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

LINK = re.compile(r"\[`([^`]+)`\]\(([^)]+)\)")
FOLDER = re.compile(r"`((?:src/astra/)?[\w/]+/)`")


def walked(root: Path) -> list[tuple[str, Path]]:
    """Each name that the page links, and the file that it is linked to."""
    text = (root / "docs/code-walk.md").read_text("utf-8")
    return [(name, (root / "docs" / target).resolve()) for name, target in LINK.findall(text)]


def names(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """What a module defines, methods of classes by ``Class.method``."""
    for statement in body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{statement.name}"
        if isinstance(statement, ast.ClassDef):
            yield from names(statement.body, f"{prefix}{statement.name}.")
        if isinstance(statement, ast.AnnAssign | ast.Assign):
            yield from (f"{prefix}{name}" for name in re.findall(r"\w+", ast.unparse(statement)))


def test_every_file_and_name_exists(root: Path) -> None:
    links = walked(root)
    assert len({file for _, file in links}) > 40, "the page still shows the way"
    for name, file in links:
        assert file.is_file(), f"{name}: no file {file}"
        if name.endswith(".py"):
            assert str(file).endswith(f"/{name}"), f"{name} is linked to {file}"
        else:
            assert name in set(names(ast.parse(file.read_text("utf-8")).body)), f"{file}: {name}"


def test_every_folder_exists(root: Path) -> None:
    text = (root / "docs/code-walk.md").read_text("utf-8")
    for folder in FOLDER.findall(text):
        places = [root / folder, root / "src/astra" / folder, *root.glob(f"src/astra/*/{folder}")]
        assert any(place.is_dir() for place in places) or folder.startswith("data/"), folder
