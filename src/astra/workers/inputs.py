"""What a stage is made of, as a machine has it: a worker must have the same as its owner."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from astra.errors import StageStop
from astra.settings import PARAMS

PIPELINE = Path("dvc.yaml")
_INTERPOLATED = re.compile(r"\$\{([\w.]+)\}")
MOST_NAMED = 10
"""How many of the inputs that differ an error names."""


class WorkersError(StageStop):
    """Workers cannot be had, are not fit for the stage, or are lost with their items."""


def stage_inputs(stage: str, block: str) -> dict[str, str]:
    """SHA-256 of everything that ``dvc.yaml`` says the stage reads, by path, and of its ``block``
    of parameters. What is not there counts as missing. Raises WorkersError without such a stage.
    """
    document = _yaml(PIPELINE)
    known = (document.get("stages") or {}).get(stage)
    if known is None:
        raise WorkersError(
            f"{PIPELINE.resolve()} has no stage {stage!r}, so workers cannot be held to what it "
            "reads; run in a checkout of the repository, or set runtime.stage_workers to 0"
        )
    values = _values(document.get("vars") or ())
    deps = (_INTERPOLATED.sub(lambda name: _found(values, name[1]), dep) for dep in known["deps"])
    return {f"{PARAMS}: {stage}": _digest(block.encode())} | {
        dep: _path_digest(Path(dep)) for dep in deps
    }


def require_same(owner: Mapping[str, str], worker: Mapping[str, str], where: str) -> None:
    """Raise WorkersError naming each input that differs between the owner and a worker."""
    differing = sorted(
        name for name in owner.keys() | worker.keys() if owner.get(name) != worker.get(name)
    )
    if differing:
        named = ", ".join(differing[:MOST_NAMED])
        raise WorkersError(
            f"the worker at {where} does not have the stage's inputs as this machine has them: "
            f"{named} ({len(differing)} in all). Bring its checkout to the same commit and "
            "parameters, `dvc pull` or copy the tables, and run the same command again"
        )


def _yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {}


def _values(sources: Any) -> dict[str, Any]:
    """What ``${...}`` in dvc.yaml may name: parameters, and its ``vars``."""
    values = _yaml(PARAMS)
    for source in sources:
        values |= source if isinstance(source, dict) else _yaml(Path(source))
    return values


def _found(values: Mapping[str, Any], name: str) -> str:
    value: Any = values
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return str(value)


def _path_digest(path: Path) -> str:
    if not path.exists():
        return "missing"
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    parts = [
        f"{file.relative_to(path)} {_digest(file.read_bytes())}"
        for file in files
        if "__pycache__" not in file.parts
    ]
    return _digest("\n".join(parts).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
