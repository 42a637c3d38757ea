"""A name means one thing, and a piece of code can be read in one go."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

APART = ("src/astra/export/adapters", "src/astra/bench/suites/drivers")
"""Code that other frameworks load, under the names that those expect."""
FUNCTION, MODULE = 55, 420
"""The most lines of a function, its decorators aside, and of a module."""


@pytest.fixture(scope="module")
def sources(root: Path) -> dict[str, str]:
    files = (
        file for folder in ("src", "stages", "examples") for file in (root / folder).rglob("*.py")
    )
    return {str(file.relative_to(root)): file.read_text("utf-8") for file in sorted(files)}


def functions(text: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_no_public_class_name_means_two_things(sources: dict[str, str]) -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file, text in sources.items():
        if not file.startswith(APART):
            for node in ast.parse(text).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(file)
    twice = {name: files for name, files in places.items() if len(files) > 1 and name != "Options"}
    assert not twice
    plugins = ("formats/", "operators/", "engines/", "suites/")
    assert all(any(part in file for part in plugins) for file in places["Options"])


def test_a_function_fits_on_a_screen(sources: dict[str, str]) -> None:
    long = [
        f"{file}:{one.lineno} {one.name}: {one.end_lineno - one.lineno + 1} lines"
        for file, text in sources.items()
        for one in functions(text)
        if one.end_lineno is not None and one.end_lineno - one.lineno >= FUNCTION
    ]
    assert not long


def test_a_module_can_be_read_in_one_go(sources: dict[str, str]) -> None:
    long = {file: text.count("\n") for file, text in sources.items() if text.count("\n") > MODULE}
    assert not long
