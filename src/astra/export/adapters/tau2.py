# pyright: basic, reportMissingImports=false
"""Persistent worlds as domains of tau2-Bench.

    import PACKAGE
    PACKAGE.register()                 # then: tau2.run.run_domain, or python -m PACKAGE run ...

Each folder of the package that has a ``db.json`` is a domain: tables as its database, the world's
tools as its toolkit, goals as its tasks. The tools' code runs in tau2's own process, as every
domain's does: play worlds that a model wrote in a container.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, Literal

from jsonschema import Draft202012Validator
from pydantic import create_model
from tau2.data_model.tasks import Task
from tau2.environment.db import DB
from tau2.environment.environment import Environment
from tau2.environment.toolkit import ToolKitBase, ToolType, is_tool
from tau2.registry import registry

from astra.sandbox.delta_session import derived_id

FOLDER = Path(__file__).parent
SPLIT = "base"
_TYPES: dict[str, Any] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict,
}  # fmt: skip


def register() -> list[str]:
    """Put the package's domains and task sets into tau2's registry; their names."""
    names = domains()
    for name in names:
        registry.register_domain(partial(get_environment, name), name)
        registry.register_tasks(
            partial(get_tasks, name), name, get_task_splits=partial(get_tasks_split, name)
        )
    return names


def domains() -> list[str]:
    """The domains that the package holds."""
    return sorted(path.parent.name for path in FOLDER.glob("*/db.json"))


def get_environment(name: str, db: DB | None = None, solo_mode: bool = False) -> Environment:
    """A domain with a database of its own."""
    if solo_mode:
        raise ValueError(f"domain {name} needs a user: it does not support solo mode")
    world = _read(name, "world.json")
    database = db if db is not None else _database(world).load(str(FOLDER / name / "db.json"))
    policy = (FOLDER / name / "policy.md").read_text(encoding="utf-8")
    return Environment(domain_name=name, policy=policy, tools=_toolkit(world)(database))


def get_tasks(name: str, task_split_name: str | None = SPLIT) -> list[Task]:
    """The tasks of a split, or all."""
    tasks = [Task.model_validate(task) for task in _read(name, "tasks.json")]
    if task_split_name is None:
        return tasks
    splits = get_tasks_split(name)
    if task_split_name not in splits:
        raise ValueError(f"{name} has no split {task_split_name!r}, only {', '.join(splits)}")
    return [task for task in tasks if task.id in splits[task_split_name]]


def get_tasks_split(name: str) -> dict[str, list[str]]:
    """The ids of the tasks by split."""
    return _read(name, "split_tasks.json")


def _read(name: str, file: str) -> Any:
    return json.loads((FOLDER / name / file).read_text(encoding="utf-8"))


def _database(world: Mapping[str, Any]) -> type[DB]:
    """A database with a field for each table: rows by key, so that their order does not count."""
    fields: dict[str, Any] = dict.fromkeys(world["keys"], (dict[str, dict[str, Any]], ...))
    return create_model("WorldDB", __base__=DB, **fields)


class _World:
    """What a tool's code gets as its first argument; what it does to the tables is its own copy."""

    def __init__(self, clock: str, keys: Mapping[str, str], db: DB) -> None:
        self.clock, self._keys, self._made = clock, keys, set[str]()
        self.tables = {name: list(deepcopy(getattr(db, name)).values()) for name in keys}

    def new_id(self, table: str, *parts: Any) -> str:
        key, rows = self._keys[table], self.tables[table]

        def is_taken(made: str) -> bool:
            return made in self._made or any(row.get(key) == made for row in rows)

        self._made.add(made := derived_id(table, parts, is_taken))
        return made


def _toolkit(world: Mapping[str, Any]) -> type[ToolKitBase]:
    return type(ToolKitBase)(
        "WorldTools",
        (ToolKitBase,),
        {tool["name"]: _method(tool, world) for tool in world["tools"]},
    )


def _method(tool: Mapping[str, Any], world: Mapping[str, Any]) -> Callable[..., str]:
    """A method whose signature and docstring say what the tool's document says."""
    source: dict[str, Any] = {}
    exec(compile(tool["code"], f"<{tool['name']}>", "exec"), source)  # ours: see the package's head
    code, name = source[tool["name"]], tool["name"]
    schema = Draft202012Validator(tool["parameters"])

    def method(self: ToolKitBase, **arguments: Any) -> str:
        problem = next(iter(schema.iter_errors(arguments)), None)
        if problem is not None:
            raise ValueError(f"arguments of {name}: {problem.message}")
        seen = _World(world["clock"], world["keys"], self.db)
        value = code(seen, **arguments)
        for table in tool["writes"]:  # a call that fails has changed nothing
            key = world["keys"][table]
            setattr(self.db, table, {row[key]: row for row in seen.tables[table]})
        # As text, for tau2 writes bare numbers as texts.
        return json.dumps(value, ensure_ascii=False)

    lines, parameters = [tool["description"], "", "Args:"], list(_parameters(tool["parameters"]))
    properties = tool["parameters"].get("properties", {})
    lines += [f"    {one.name}: {properties[one.name].get('description') or one.name}"
              for one in parameters]  # fmt: skip
    method.__name__, method.__doc__ = name, "\n".join(lines if parameters else lines[:1])
    itself = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    method.__signature__ = Signature([itself, *parameters], return_annotation=str)
    return is_tool(ToolType.WRITE if tool["writes"] else ToolType.READ)(method)


def _parameters(schema: Mapping[str, Any]) -> Iterator[Parameter]:
    required = schema.get("required", ())
    for name, told in schema.get("properties", {}).items():
        choices = told.get("enum")
        kind: Any = Literal[tuple(choices)] if choices else _TYPES.get(str(told.get("type")), Any)
        empty = name in required
        yield Parameter(
            name, Parameter.KEYWORD_ONLY, default=Parameter.empty if empty else None,
            annotation=kind if empty else kind | None,
        )  # fmt: skip
