"""The map of the code: packages by layer, their modules, and what each of them offers.

Everything is read from the sources, so that a module that needs torch or another framework is
on the map without it.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BESIDE = {
    "stages": "One thin file per stage: it opens the stage and calls one domain.",
    "examples": "Scripts to read from top to bottom.",
}
"""Folders beside ``src`` that are on the map, and what is said of them."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z`'\"(])")
_CODE = re.compile(r"(`[^`]*`)")


@dataclass(frozen=True)
class Definition:
    """Something that a module or a class offers: its name, and the first sentence about it."""

    name: str
    sentence: str
    methods: tuple[Definition, ...] = ()


def code_map(root: Path) -> str:
    """The page: packages in the order of the layers, highest first, then stages and examples."""
    source = root / "src/astra"
    parts = [
        "# Modules\n",
        "Each package with what it holds, each module with what it offers. Packages stand in the "
        "order of their layers: one imports only from those below it. Names that start with an "
        "underscore, and methods without a docstring, are left out.\n",
    ]
    for name in layered(root):
        place = source / name
        file = place.with_suffix(".py")
        parts += _package(source, place) if place.is_dir() else _module(source, file, level=2)
    for folder, sentence in BESIDE.items():
        parts += [f"## {folder} {{#{folder}}}\n", f"{sentence}\n"]
        for file in sorted((root / folder).glob("*.py")):
            parts += _module(root, file)
    return "\n".join(parts)


def layered(root: Path) -> list[str]:
    """Packages and modules right below ``src/astra`` by layer, highest first, then the rest."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one.get("containers") == ["astra"])
    names = [name for layer in layers for name in re.findall(r"\w+", layer)]
    present = sorted(
        path.stem
        for path in (root / "src/astra").iterdir()
        if (path.is_dir() and (path / "__init__.py").is_file()) or path.suffix == ".py"
    )
    return [*names, *(name for name in present if name not in {*names, "__init__"})]


def anchor(module: Path) -> str:
    """The place of a module or package on the page, by its path below ``src/astra``."""
    return "-".join(module.with_suffix("").parts)


def _package(source: Path, place: Path) -> Iterator[str]:
    """A package with its modules, then the packages inside it."""
    inner = place.relative_to(source)
    yield f"## {inner} {{#{anchor(inner)}}}\n"
    yield f"{_prose(docstring(place / '__init__.py'))}\n"
    for file in sorted(place.glob("*.py")):
        if file.name != "__init__.py":
            yield from _module(source, file)
    for folder in sorted(path.parent for path in place.glob("*/__init__.py")):
        yield from _package(source, folder)


def _module(source: Path, file: Path, level: int = 3) -> Iterator[str]:
    inner = file.relative_to(source)
    yield f"{'#' * level} {inner} {{#{anchor(inner)}}}\n"
    yield f"{_prose(first_sentence(docstring(file)))}\n"
    offered = list(definitions(ast.parse(file.read_text(encoding="utf-8")).body))
    for definition in offered:
        yield _item(definition)
        yield from (f"    {_item(method)}" for method in definition.methods)
    if offered:
        yield ""


def _item(definition: Definition) -> str:
    said = f": {_prose(definition.sentence)}" if definition.sentence else ""
    return f"- `{definition.name}`{said}"


def definitions(body: list[ast.stmt]) -> Iterator[Definition]:
    """Public classes and functions of a module, and its constants that have a docstring."""
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.ClassDef | Function) and not statement.name.startswith("_"):
            methods = tuple(_methods(statement)) if isinstance(statement, ast.ClassDef) else ()
            said = first_sentence(ast.get_docstring(statement) or "")
            yield Definition(statement.name, said, methods)
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and (text := _text(following)):
            names = _assigned(statement)
            if not names.startswith("_"):
                yield Definition(names, first_sentence(text))


def _methods(node: ast.ClassDef) -> Iterator[Definition]:
    for method in node.body:
        if isinstance(method, Function) and not method.name.startswith("_"):
            said = first_sentence(ast.get_docstring(method) or "")
            if said:
                yield Definition(method.name, said)


def _assigned(statement: ast.Assign | ast.AnnAssign) -> str:
    target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
    return ast.unparse(target).strip("()")


def _text(statement: ast.stmt | None) -> str:
    """The text of a docstring below a constant; empty for any other statement."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return str(statement.value.value)
    return ""


def docstring(file: Path) -> str:
    """A module's docstring; empty where it has none."""
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


def first_sentence(text: str) -> str:
    """The first sentence of a docstring's first paragraph, on one line."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return _SENTENCE.split(paragraph, maxsplit=1)[0]


def _prose(text: str) -> str:
    """A docstring as Markdown: names between two backticks are code, ``<`` is itself."""
    pieces = _CODE.split(text.replace("``", "`"))
    return "".join(
        piece if piece.startswith("`") else piece.replace("<", "&lt;") for piece in pieces
    )
