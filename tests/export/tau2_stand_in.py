"""A stand-in for the parts of tau2-Bench that exported domains touch: by its interface, none of its
code."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict


class DB(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @classmethod
    def load(cls, path: str) -> DB:
        return cls.model_validate(json.loads(Path(path).read_text(encoding="utf-8")))


class Kind(type):
    """Collects the methods that are tools, as the package's metaclass does."""

    def __init__(cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> None:
        super().__init__(name, bases, attributes)
        cls.marked = {key: one for key, one in attributes.items() if hasattr(one, "tool_type")}


class ToolKitBase(metaclass=Kind):
    def __init__(self, db: DB) -> None:
        self.db = db


class Environment:
    def __init__(self, domain_name: str, policy: str, tools: ToolKitBase) -> None:
        self.domain_name, self.policy, self.tools = domain_name, policy, tools

    def call(self, tool: str, **arguments: Any) -> str:
        """What the package tells an agent: a result, or ``Error: `` and why."""
        try:
            return getattr(self.tools, tool)(**arguments)
        except Exception as error:
            return f"Error: {error}"

    def signature(self, tool: str) -> inspect.Signature:
        return inspect.signature(getattr(self.tools, tool))


class Registry:
    def __init__(self) -> None:
        self.domains: dict[str, Callable[..., Environment]] = {}
        self.tasks: dict[str, Callable[..., list[Any]]] = {}

    def register_domain(self, constructor: Callable[..., Environment], name: str) -> None:
        self.domains[name] = constructor

    def register_tasks(
        self, loader: Callable[..., list[Any]], name: str, get_task_splits: Any = None
    ) -> None:
        self.tasks[name] = loader


class Task(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: str
    description: dict[str, Any] | None
    user_scenario: dict[str, Any]
    initial_state: None
    evaluation_criteria: dict[str, Any]


def is_tool(kind: str) -> Callable[[Any], Any]:
    def mark(method: Any) -> Any:
        method.tool_type = kind
        return method

    return mark


def put_in_place(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Let imports of the package find the stand-in; its registry."""
    registry = Registry()
    contents: dict[str, dict[str, Any]] = {
        "tau2": {}, "tau2.data_model": {}, "tau2.environment": {},
        "tau2.data_model.tasks": {"Task": Task},
        "tau2.environment.db": {"DB": DB},
        "tau2.environment.environment": {"Environment": Environment},
        "tau2.environment.toolkit": {
            "ToolKitBase": ToolKitBase, "is_tool": is_tool,
            "ToolType": SimpleNamespace(READ="read", WRITE="write"),
        },
        "tau2.registry": {"registry": registry},
    }  # fmt: skip
    for name, held in contents.items():
        module = ModuleType(name)
        vars(module).update(held)
        monkeypatch.setitem(sys.modules, name, module)
    return registry
