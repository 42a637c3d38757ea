"""Typed parameters: each stage validates its own block of params.yaml before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

PARAMS = Path("params.yaml")


class ParamsError(Exception):
    """A parameter is missing, unknown or ill-typed; the message names it and the repair."""


class StageConfig(BaseModel):
    """Base of every block: frozen, unknown keys refused, no silent coercion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)


Config = TypeVar("Config", bound=BaseModel)


def load(block: str, model: type[Config], path: Path = PARAMS) -> Config:
    """Read one block of ``params.yaml``. Raises ParamsError with one line per bad parameter."""
    if not path.is_file():
        raise ParamsError(f"{path} not found in {Path.cwd()}; run `make params` to write it")
    document: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict) or block not in document:
        raise ParamsError(f"{path} has no block `{block}`; run `make params` to rewrite it")
    try:
        return model.model_validate(document[block])
    except ValidationError as error:
        raise ParamsError(_explain(block, error)) from None


def _explain(block: str, error: ValidationError) -> str:
    lines = [f"parameters of `{block}` are not usable:"]
    for problem in error.errors():
        where = ".".join([block, *map(str, problem["loc"])])
        got = "" if problem["type"] == "missing" else f" (got {problem['input']!r})"
        lines.append(f"  {where}: {problem['msg']}{got}")
    lines.append("Change the value in conf/ (or with -S NAME=VALUE), then run `make params`.")
    return "\n".join(lines)
