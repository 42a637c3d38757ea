"""A name that begins with an underscore stays in its module: no other module of ours takes it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def ours(node: ast.ImportFrom) -> bool:
    return node.level > 0 or (node.module or "").split(".")[0] == "astra"


def crossings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every private name of another module: imported, or read from it."""
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and ours(node):
            for alias in node.names:
                if private(alias.name):
                    yield node.lineno, f"from {node.module} import {alias.name}"
                else:
                    modules.add(alias.asname or alias.name)
        elif isinstance(node, ast.Import):
            modules |= {
                alias.asname or alias.name
                for alias in node.names
                if alias.name.split(".")[0] == "astra"
            }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr):
            owner = ast.unparse(node.value)
            if owner in modules:
                yield node.lineno, f"{owner}.{node.attr}"


def test_no_module_takes_a_private_name_of_another(root: Path) -> None:
    taken = [
        f"{path.relative_to(root)}:{line}: {text}"
        for folder in ("src/astra", "stages")
        for path in sorted((root / folder).rglob("*.py"))
        for line, text in crossings(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not taken, "\n".join(taken)


def test_both_ways_to_take_one_are_seen() -> None:
    source = """
from astra.sandbox import zygote_kernel as kernel
from astra.sandbox.filters import _library, program
import astra.settings
from os import _exit

kernel._mount()
astra.settings._explain()
kernel.mount()
program._cache
self._own
"""
    assert {text for _, text in crossings(ast.parse(source))} == {
        "from astra.sandbox.filters import _library",
        "kernel._mount",
        "astra.settings._explain",
        "program._cache",
    }
