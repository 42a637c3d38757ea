"""Code that makes a stage stale: the stage file's import closure, and dvc.yaml's record of it.

Its parameters (``params`` in dvc.yaml) and its input tables make a stage stale as well.

python -m astra.devtools.closure          rewrite the code dependencies in dvc.yaml
python -m astra.devtools.closure --check  name what is missing or stale, exit 1
"""

from __future__ import annotations

import ast
import logging
import re
import sys
from collections.abc import Set
from pathlib import Path

from ruamel.yaml import YAML

from astra.errors import AstraError
from astra.stage import run_stage

log = logging.getLogger("astra")
SOURCE = Path("src")
PLUGINS = (
    "astra.bench.suites", "astra.rollout.engines", "astra.toolbank.formats",
    "astra.toolgraph.operators",
)  # fmt: skip
"""Packages whose modules are imported or run by name: importing one means all of them."""
FORMER_PLUGINS = (
    "astra.bench.suites.known", "astra.rollout.known", "astra.toolbank.known",
    "astra.toolgraph.known",
)  # fmt: skip
"""Such packages of older commits. The policies of dvc.lock may come from one, and there `astra
train same` has to find the same code as when they were trained."""
FOLDER = 0.55
"""The share of a package, or of one inside it, from which on it is one dependency: the folder.
Fewer names to read and to compare, for a rerun now and then that would not have been needed."""
_MODULE = re.compile(r"astra(\.\w+)*")
_FILE = re.compile(r"\w+\.py$")


def imports(tree: ast.Module) -> set[str]:
    """Absolute names of everything a file imports anywhere in it, lazily imported names too.

    So are modules that it names in a string, to start them as processes of their own.
    """
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return {name for name in names if _MODULE.fullmatch(name)}


def siblings(path: Path, tree: ast.Module) -> set[Path]:
    """The modules beside a file that it names as files, to start or load them by path."""
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    named = {path.with_name(text) for text in texts if isinstance(text, str) and _FILE.match(text)}
    return {file for file in named if file.name != "__init__.py" and file.is_file()}


def module_files(name: str) -> list[Path]:
    """The file of a module and of each package above it; empty for names inside a module."""
    parts = name.split(".")
    files = [SOURCE.joinpath(*parts[:depth], "__init__.py") for depth in range(1, len(parts) + 1)]
    files.append(SOURCE.joinpath(*parts).with_suffix(".py"))
    if name in plugin_packages():
        files.extend(sorted(module_folder(name).rglob("*.py")))
    return [file for file in files if file.is_file()]


def plugin_packages() -> tuple[str, ...]:
    """The packages of plug-ins in the source tree that is the working directory."""
    former = any(module_folder(name).is_dir() for name in FORMER_PLUGINS)
    return FORMER_PLUGINS if former else PLUGINS


def module_folder(name: str) -> Path:
    """Where the modules of a package lie."""
    return SOURCE.joinpath(*name.split("."))


def closure(stage_file: Path) -> set[Path]:
    """Every first-party file that importing ``stage_file`` can execute, prompts included."""
    seen: set[Path] = set()
    waiting = [stage_file]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name in imports(tree):
            waiting.extend(module_files(name))
        waiting.extend(siblings(path, tree))
    for folder in {path.parent for path in seen}:
        seen.update(folder.glob("prompts/*.j2"))
        seen.update(folder.glob("templates/*.jinja"))
    return seen


def dependencies(stage_file: Path) -> list[str]:
    """The closure as dvc dependencies: packages that it mostly holds are named as folders."""
    reached = {path for path in closure(stage_file) if is_code(path)}
    chosen: set[str] = set()
    for path in reached:
        packages = [parent for parent in path.parents if SOURCE / "astra" in parent.parents]
        folders = (package for package in reversed(packages) if share(package, reached) >= FOLDER)
        chosen.add(str(next(folders, path)))
    return sorted(chosen, key=lambda name: (not name.startswith("stages/"), name))


def is_code(path: Path) -> bool:
    """Whether a file can change a result: a package's docstring alone cannot, nor an empty file."""
    text = path.read_text(encoding="utf-8")
    if path.name != "__init__.py":
        return bool(text)
    return any(not _is_text(statement) for statement in ast.parse(text).body)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def share(package: Path, reached: Set[Path]) -> float:
    """How much of a package's code, by files, is ``reached``."""
    patterns = ("*.py", "*.j2", "*.jinja")
    files = {path for pattern in patterns for path in package.rglob(pattern)}
    code = {path for path in files if is_code(path)}
    return len(code & reached) / len(code) if code else 0.0


def main() -> None:
    yaml = YAML()
    yaml.width = 120
    document = yaml.load(Path("dvc.yaml"))
    stale: list[str] = []
    count = 0
    for name, stage in document["stages"].items():
        listed = [str(dep) for dep in stage["deps"]]
        kept = [dep for dep in listed if not dep.startswith(("src/", "stages/"))]
        wanted = [*dependencies(Path("stages") / f"{name}.py"), *kept]
        count += len(wanted) - len(kept)
        if listed != wanted:
            stale.append(f"{name}: {sorted(set(listed) ^ set(wanted))}")
            stage["deps"] = wanted
    if "--check" in sys.argv:
        if stale:
            raise AstraError(
                "dvc.yaml lists other code than it runs; run `make deps`:\n" + "\n".join(stale)
            )
        return
    yaml.dump(document, Path("dvc.yaml"))
    log.info("%d code dependencies of %d stages", count, len(document["stages"]))


if __name__ == "__main__":
    run_stage("closure", main)
