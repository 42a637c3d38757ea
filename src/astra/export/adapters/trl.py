"""Arenas for TRL: a data set, one environment per arena, and the reward.

    trainer = GRPOTrainer(
        model, args=config, train_dataset=dataset("train"), processing_class=tokenizer,
        environment_factory=environments("train"), reward_funcs=arena_reward(tokenizer),
    )

Each arena has its own tools, so each is an environment of its own, chosen by the data set's
column ``environment``. Tools run one after another, as TRL calls them; limits on turns and
tokens are the trainer's (``max_tool_calling_iterations``, ``max_completion_length``).
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from astra.agent.thoughts import split_thought
from astra.arena.env import ArenaEnv
from astra.export.episode import ArenaFault, score_row, shared_sandbox
from astra.export.rows import ROWS_FILE, ExportedArena, read_rows
from astra.records.message import CallStatus, ExecutedCall, ToolCall, ToolResult
from astra.records.tool import Tool
from astra.records.world import EventKind, TraceEvent

ROWS = Path(__file__).with_name(ROWS_FILE)
_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


def rows(split: str = "train") -> list[ExportedArena]:
    """The arenas of a split."""
    return [row for row in read_rows(ROWS) if row.split.value == split]


def dataset(split: str = "train") -> list[dict[str, Any]]:
    """Rows of the trainer's data set: ``datasets.Dataset.from_list(dataset())``."""
    return [{"prompt": list(row.prompt), "environment": row.id} for row in rows(split)]


def environments(split: str = "train") -> dict[str, Callable[[], "ArenaEnvironment"]]:
    """A factory per arena, for ``environment_factory``."""
    return {row.id: _environment_class(row) for row in rows(split)}


class ArenaEnvironment:
    """One episode at a time. Public methods of a subclass are its arena's tools."""

    _row: ExportedArena

    def __init__(self) -> None:
        self._env: ArenaEnv | None = None
        self._executed: list[ExecutedCall] = []

    def reset(self, **_: Any) -> None:
        """Start the next episode; what the last one left in its session is gone."""
        if self._env is not None:
            self._env.close_now()
        self._env = ArenaEnv(
            self._row.arena, shared_sandbox(self._row.options.sandbox), self._row.extra_tools
        )
        self._executed = []

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        if self._env is None:
            raise ArenaFault("reset() comes before the first call")
        text = json.dumps(dict(arguments), ensure_ascii=False)
        call = ToolCall(id=f"call_{len(self._executed)}", name=name, arguments=text)
        result = self._env.execute_now(call)
        self._executed.append(ExecutedCall(turn=0, call=call, result=result))
        limit = self._row.options.limits.max_result_chars
        return result.content[:limit]


def _environment_class(row: ExportedArena) -> type[ArenaEnvironment]:
    offers = (*row.arena.tools, *row.extra_tools)
    methods = {offer.tool.name: _method(offer.tool) for offer in offers}
    return type(f"Arena_{row.id}", (ArenaEnvironment,), {**methods, "_row": row})


def _method(tool: Tool) -> Callable[..., str]:
    """A method whose signature and docstring say what the tool's schema says."""

    def method(self: ArenaEnvironment, /, **arguments: Any) -> str:
        return self._call(tool.name, arguments)

    properties: dict[str, Any] = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", ())
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    lines = [tool.description, "", "Args:"]
    annotations: dict[str, Any] = {"return": str}
    for name, schema in properties.items():
        default = inspect.Parameter.empty if name in required else None
        annotations[name] = _annotation(schema, name in required)
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotations[name]
            )
        )
        lines.append(f"    {name}: {schema.get('description') or name}")
    method.__name__ = method.__qualname__ = tool.name
    method.__doc__ = "\n".join(lines)
    method.__annotations__ = annotations
    method.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    return method


def _annotation(schema: Mapping[str, Any], required: bool) -> Any:
    choices = schema.get("enum")
    if choices and all(isinstance(choice, str) for choice in choices):
        kind: Any = Literal[tuple(choices)]  # type: ignore[valid-type]
    else:
        kind = _TYPES.get(str(schema.get("type")), str)
    return kind if required else kind | None


def arena_reward(tokenizer: Any) -> Callable[..., list[float]]:
    """The reward function; the tokenizer tells which completions were cut before their end."""
    ends = {tokenizer.eos_token_id, tokenizer.pad_token_id}

    def reward(
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        environments: Sequence[ArenaEnvironment],
        **_: Any,
    ) -> list[float]:
        return [
            _score(environment, messages, bool(ids) and ids[-1] in ends)
            for environment, messages, ids in zip(
                environments, completions, completion_ids, strict=True
            )
        ]

    reward.__name__ = "arena_reward"
    return reward


def _score(
    environment: ArenaEnvironment, messages: Sequence[Mapping[str, Any]], ended: bool
) -> float:
    """The reward of an episode; calls that never reached the environment count too."""
    calls = _all_calls(environment, messages)
    if any(call.result.status == CallStatus.INFRA for call in calls):
        raise ArenaFault(
            f"arena {environment._row.id}: the sandbox failed; training stops rather than learn "
            "from an episode that says nothing about the policy"
        )
    last = messages[-1] if messages else {}
    answered = ended and last.get("role") == "assistant" and not last.get("tool_calls")
    text = str(last.get("content") or "") if answered else None
    end_state = environment._env.tables if environment._env else None
    trace = _trace(environment, messages if ended else messages[:-1])
    return score_row(environment._row, calls, text, end_state, trace).reward


def _trace(
    environment: ArenaEnvironment, messages: Sequence[Mapping[str, Any]]
) -> list[TraceEvent] | None:
    """What happened in a world, what the agent said in its place; None for any other arena.

    TRL hands over messages at the end alone, so the calls are put between them here.
    """
    if environment._env is None or environment._env.trace is None:
        return None
    opening, *calls = environment._env.trace
    trace, waiting = [opening], list(reversed(calls))
    for message in messages:
        if message.get("role") != "assistant":
            continue
        text = split_thought(str(message.get("content") or ""))[1]
        if text.strip():
            trace.append(TraceEvent(kind=EventKind.ASSISTANT, text=text))
        for written in message.get("tool_calls") or ():
            if waiting and waiting[-1].tool == written.get("function", {}).get("name"):
                trace.append(waiting.pop())
    return trace + waiting[::-1]


def _all_calls(
    environment: ArenaEnvironment, messages: Sequence[Mapping[str, Any]]
) -> list[ExecutedCall]:
    """The calls of the episode in order. What was written past the limit on turns never ran."""
    row, waiting = environment._row, list(reversed(environment._executed))
    known = {offer.tool.name for offer in (*row.arena.tools, *row.extra_tools)}
    calls: list[ExecutedCall] = []
    for at, message in enumerate(messages):
        answered = [one.get("role") for one in messages[at + 1 : at + 2]] == ["tool"]
        for written in message.get("tool_calls") or ():
            if not answered and not waiting:
                continue
            function = written.get("function", {})
            name, arguments = str(function.get("name")), function.get("arguments")
            if name in known and isinstance(arguments, dict):
                calls.append(waiting.pop())
                continue
            status = CallStatus.MALFORMED if name in known else CallStatus.UNKNOWN_TOOL
            call = ToolCall(id=f"call_{len(calls)}", name=name, arguments=str(arguments))
            refused = ToolResult(status=status, content="")
            calls.append(ExecutedCall(turn=0, call=call, result=refused))
    return calls
