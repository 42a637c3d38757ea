"""Arenas for TRL: a data set, one environment per arena, and the reward.

    trainer = GRPOTrainer(
        model, args=config, train_dataset=dataset("train"), processing_class=tokenizer,
        environment_factory=environments("train"), reward_funcs=arena_reward(tokenizer),
    )

Each arena has its own tools, so each is an environment of its own, chosen by the data set's
column ``environment``. Tools run one after another, as TRL calls them; limits on turns and
tokens are the trainer's (``max_tool_calling_iterations``, ``max_completion_length``).

TRL ends an episode at the first message without a call. So where an arena has a user, its agent
speaks to them through the tool ``talk_to_user``; what is written beside calls, or without one, the
user does not hear, but counts as said. A tool that the user brings later is called through
``use_tool``: TRL shows the same tools from the start to the end.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from astra.agent.episode import parse_arguments
from astra.agent.thoughts import split_thought
from astra.arena.env import ArenaEnv
from astra.arena.prompt import user_message
from astra.arena.worlds import goal_of
from astra.errors import AstraError
from astra.export.episode import ArenaFault, score_row, shared_sandbox
from astra.export.rows import ROWS_FILE, ExportedArena, has_user, read_rows
from astra.records.message import CallStatus, ExecutedCall, ToolCall, ToolResult
from astra.records.tool import Tool
from astra.records.world import EventKind, TraceEvent

ROWS = Path(__file__).with_name(ROWS_FILE)
TALK = Tool(
    name="talk_to_user",
    description="Say something to the user and read their answer. Only what is said here is heard.",
    parameters={
        "type": "object",
        "properties": {"message": {"type": "string", "description": "What you say."}},
        "required": ["message"],
        "additionalProperties": False,
    },
)
USE = Tool(
    name="use_tool",
    description="Call a function that the user has told you of in the conversation.",
    parameters={
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The function."},
            "arguments": {"type": "object", "description": "Its arguments, by name."},
        },
        "required": ["name", "arguments"],
        "additionalProperties": False,
    },
)
OVER = "The user has ended the conversation: nothing that is said or done now counts."
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
        self._executed: list[ExecutedCall | None] = []
        """What each method that TRL called came to, None for words; none of what came too late."""
        self._over = False
        self._fault = ""

    def reset(self, **_: Any) -> None:
        """Start the next episode; what the last one left in its session is gone."""
        if self._env is not None:
            self._env.close_now()
        self._env = ArenaEnv(
            self._row.arena, shared_sandbox(self._row.options.sandbox), self._row.extra_tools
        )
        self._executed = []
        self._over, self._fault = False, ""

    def _called(self, name: str, arguments: Mapping[str, Any]) -> str:
        """What a method answers."""
        if self._env is None:
            raise ArenaFault("reset() comes before the first call")
        if self._over:
            return OVER
        if name not in _asides(self._row):
            return self._call(name, arguments)
        text = json.dumps(dict(arguments), ensure_ascii=False)
        tool = TALK if name == TALK.name else USE
        try:
            given = parse_arguments(tool, text)
        except ValueError as error:
            refused = ToolResult(status=CallStatus.MALFORMED, content=f"error: {error}")
            self._executed.append(ExecutedCall(turn=0, call=_call(name, text), result=refused))
            return refused.content
        if tool is USE:
            return self._call(given["name"], given["arguments"])
        self._executed.append(None)
        return self._talk(self._env, given["message"])

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        assert self._env is not None
        call = _call(name, json.dumps(dict(arguments), ensure_ascii=False))
        result = self._env.execute_now(call)
        self._executed.append(ExecutedCall(turn=0, call=call, result=result))
        limit = self._row.options.limits.max_result_chars
        return result.content[:limit]

    def _talk(self, env: ArenaEnv, message: str) -> str:
        """Say something to the user; what they answer, with the documents of tools they bring."""
        env.say(message)
        try:
            reply = env.reply()
        except AstraError as error:
            self._over, self._fault = True, f"the user failed: {error}"
            return OVER
        assert reply is not None  # only arenas with a user have the tool
        self._over = reply.ends is not None
        said = user_message(reply.turn, env.tools).content
        return f"{said}\n\n{OVER}" if self._over else said


def _call(name: str, arguments: str) -> ToolCall:
    return ToolCall(id="call", name=name, arguments=arguments)


def _asides(row: ExportedArena) -> dict[str, Tool]:
    """The tools through which an arena's agent reaches its user, and what the user brings."""
    if not has_user(row.arena):
        return {}
    return {tool.name: tool for tool in ((TALK, USE) if goal_of(row.arena).withheld else (TALK,))}


def _environment_class(row: ExportedArena) -> type[ArenaEnvironment]:
    offers = [offer.tool for offer in (*row.arena.tools, *row.extra_tools)]
    methods = {tool.name: _method(tool) for tool in (*offers, *_asides(row).values())}
    return type(f"Arena_{row.id}", (ArenaEnvironment,), {**methods, "_row": row})


def _method(tool: Tool) -> Callable[..., str]:
    """A method whose signature and docstring say what the tool's schema says."""

    def method(self: ArenaEnvironment, /, **arguments: Any) -> str:
        return self._called(tool.name, arguments)

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
    lost = any(call.result.status == CallStatus.INFRA for call in calls)
    if lost or environment._fault:
        raise ArenaFault(
            f"arena {environment._row.id}: {environment._fault or 'the sandbox failed'}; training "
            "stops rather than learn from an episode that says nothing about the policy"
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

    TRL hands over messages at the end alone, so what the environment saw is put between them here.
    What was said after the user had ended the conversation is left out.
    """
    if environment._env is None or environment._env.trace is None:
        return None
    opening, *seen = environment._env.trace
    trace, waiting = [opening], list(reversed(seen))
    for message in messages:
        if message.get("role") != "assistant":
            continue
        if environment._over and not waiting:
            break
        text = split_thought(str(message.get("content") or ""))[1]
        if text.strip():
            trace.append(TraceEvent(kind=EventKind.ASSISTANT, text=text))
        for written in message.get("tool_calls") or ():
            trace += _seen_of(written.get("function", {}), waiting)
    return trace + waiting[::-1]


def _seen_of(function: Mapping[str, Any], waiting: list[TraceEvent]) -> list[TraceEvent]:
    """What the environment saw of a written call, taken from the end of ``waiting``: the call, or
    what was said to the user with the answer."""
    arguments = function.get("arguments")
    name = function.get("name")
    if name == USE.name and isinstance(arguments, dict):
        name = arguments.get("name")
    if not waiting:
        return []
    if name == TALK.name and waiting[-1].kind == EventKind.ASSISTANT:
        said = [waiting.pop()]
        return [*said, waiting.pop()] if waiting else said
    return [waiting.pop()] if waiting[-1].tool == name else []


def _all_calls(
    environment: ArenaEnvironment, messages: Sequence[Mapping[str, Any]]
) -> list[ExecutedCall]:
    """The calls of the episode in order, but for words. What was written past the limit on turns
    never ran, and what came after the user had ended it does not count."""
    row, waiting = environment._row, list(reversed(environment._executed))
    known = {offer.tool.name for offer in (*row.arena.tools, *row.extra_tools)} | {*_asides(row)}
    calls: list[ExecutedCall] = []
    for at, message in enumerate(messages):
        answered = [one.get("role") for one in messages[at + 1 : at + 2]] == ["tool"]
        for written in message.get("tool_calls") or ():
            if not waiting and (environment._over or not answered):
                continue
            function = written.get("function", {})
            name, arguments = str(function.get("name")), function.get("arguments")
            if name in known and isinstance(arguments, dict):
                made = waiting.pop()
                calls += [made] if made is not None else []
                continue
            status = CallStatus.MALFORMED if name in known else CallStatus.UNKNOWN_TOOL
            refused = ToolResult(status=status, content="")
            calls.append(ExecutedCall(turn=0, call=_call(name, str(arguments)), result=refused))
    return calls
