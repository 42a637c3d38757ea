"""A tool of a world before it is code: parameters, checks, changes and result, as data.

Its document and its Python source are both made of it (``documents.py``, ``sources.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from astra.records.world import Change, Expr, ToolRole


@dataclass(frozen=True)
class Parameter:
    """One parameter. ``table`` names the table whose key it is; that row then has to exist."""

    name: str
    type: Literal["string", "integer", "number", "boolean", "date"]
    description: str
    values: tuple[str, ...] = ()
    table: str = ""
    optional: bool = False
    least: float | None = None
    most: float | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        schema: dict[str, Any] = {"type": "string" if self.type == "date" else self.type}
        if self.type == "date":
            schema["format"] = "date"
        if self.values:
            schema["enum"] = list(self.values)
        if self.least is not None:
            schema["minimum"] = self.least
        if self.most is not None:
            schema["maximum"] = self.most
        return schema | {"description": self.description}


@dataclass(frozen=True)
class Check:
    """A call is refused with ``message`` unless ``require`` holds; a rule's has its code."""

    require: Expr
    message: str


@dataclass(frozen=True)
class Filter:
    """Rows whose ``column`` is as the argument says; one that is left out filters nothing."""

    column: str
    argument: str
    how: Literal["eq", "most", "least"] = "eq"


@dataclass(frozen=True)
class RowResult:
    """The row with that key, as it is after the call."""

    table: str
    key: Expr
    columns: tuple[str, ...]


@dataclass(frozen=True)
class ListResult:
    """The rows that pass all filters, sorted by key: all, the only one, or a page of ten."""

    table: str
    filters: tuple[Filter, ...]
    columns: tuple[str, ...]
    how: Literal["all", "only", "page"]


@dataclass(frozen=True)
class RecordResult:
    """Values computed before any change."""

    values: dict[str, Expr]


@dataclass(frozen=True)
class ToolSpec:
    """A tool: it refuses what a check refuses, else makes its changes and gives its result."""

    operation: str
    """What it does in words that all domains share; domains give it its name."""
    name: str
    role: ToolRole
    description: str
    parameters: tuple[Parameter, ...]
    result: RowResult | ListResult | RecordResult
    checks: tuple[Check, ...] = ()
    changes: tuple[Change, ...] = ()
