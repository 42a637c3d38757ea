"""The code that an exported package carries: what runs and scores an arena, sandbox included.

Frameworks pin versions that this project's dependencies contradict, so a package does not
require the project: it holds the import closure of ``export/episode.py`` under its own name,
with imports rewritten. Needed besides: pydantic, jsonschema, pyyaml, pyseccomp.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import astra

ROOT = Path(astra.__file__).parent
RUNTIME = "runtime"
"""The folder of a package that holds this project's code."""
REQUIREMENTS = ("pydantic>=2.12", "jsonschema>=4.23", "pyyaml>=6", "pyseccomp>=0.1.2")
"""What that code needs besides the framework."""
_STARTED_BY_PATH = ("sandbox/zygote*.py",)
"""Files of sandboxed processes: started or loaded by path, so no import leads to them."""
_IMPORT = re.compile(r"^(\s*)from astra(?=[.\s])", re.MULTILINE)


def closure(entries: Iterable[str]) -> list[Path]:
    """Every first-party file that the entries (relative to the package) import, sorted."""
    waiting = [ROOT / entry for entry in entries]
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            waiting += [file for name in _imports(path) for file in _files(name)]
    return sorted(seen)


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return {name for name in names if name.startswith("astra.")}


def _files(name: str) -> list[Path]:
    """The file of a module and of each package above it; empty for names inside a module."""
    parts = name.split(".")[1:]
    files = [ROOT.joinpath(*parts[:depth], "__init__.py") for depth in range(len(parts) + 1)]
    files.append(ROOT.joinpath(*parts).with_suffix(".py"))
    return [file for file in files if file.is_file()]


def write_package(package: Path, modules: Mapping[str, str]) -> None:
    """Write the runtime, and each adapter as the package's module that ``modules`` names."""
    adapters = ROOT / "export" / "adapters"
    files = closure(["export/episode.py", *(f"export/adapters/{name}.py" for name in modules)])
    files += [file for pattern in _STARTED_BY_PATH for file in sorted(ROOT.glob(pattern))]
    targets = {file: package / RUNTIME / file.relative_to(ROOT) for file in files}
    targets |= {adapters / f"{name}.py": package / module for name, module in modules.items()}
    targets.pop(adapters / "__init__.py", None)
    for file, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        text = file.read_text(encoding="utf-8")
        target.write_text(rewritten(text, package.name, modules), encoding="utf-8")
        if target.parent != package:
            (target.parent / "__init__.py").touch()


def rewritten(source: str, package: str, modules: Mapping[str, str]) -> str:
    """The source with first-party imports pointing into the package itself.

    What an adapter says to this project's type checker stays behind.
    """
    lines = source.splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("# pyright:"))
    for name, module in modules.items():
        dotted = module.removesuffix(".py").replace("/", ".")
        adapter = f"from astra.export.adapters.{name} "
        text = text.replace(adapter, f"from {package}.{dotted} ")
    return _IMPORT.sub(rf"\1from {package}.{RUNTIME}", text)
