"""The offline agent: follows its tasks' plans and reads nothing but its own conversation.

Steps whose inputs are known run together in one turn; values from earlier results are copied
by the plan's paths; calls that failed for a passing reason are retried; the final message
reports what the tools returned, failures included.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from astra.agent.prompt import MISSING_VALUE, NO_TOOL, NOT_FOUND, final_message
from astra.errors import AstraError
from astra.records.graph import ArgumentOrigin, ArgumentSource
from astra.records.message import Message, MessageRole, ToolCall
from astra.records.task import Task, TaskKind
from astra.records.tool import Tool
from astra.text.verbs import is_write, noun_of
from astra.trajectories.failures import looks_transient
from astra.trajectories.results import ReadError, answers_from, fit, follow, parse_result

MAX_ATTEMPTS = 4
"""How often a call is tried; at a failure rate of 20 % one in 600 stays without an answer."""


class PlanError(AstraError):
    """The task's plan cannot be carried out with the tools and results at hand."""


class _State(StrEnum):
    """What became of a step so far."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class _Phrases:
    """How final messages begin; ``{}`` is the noun, the reason or the parameter."""

    one: str
    several: str
    done: str
    problem: str
    no_tool: str
    missing: str


_ENGLISH = _Phrases(
    one="The {} is",
    several="The results for {} are",
    done="Done:",
    problem="There was a problem: {}.",
    no_tool="No offered tool can do this.",
    missing="Please tell me the {}.",
)
_CHINESE = _Phrases(
    one="查询的结果是",
    several="查询的结果如下：",
    done="已经完成：",
    problem="查询时出现了问题，没有得到结果。",
    no_tool="现有的工具都无法完成这个请求。",
    missing="请告诉我 {} 的值。",
)


@dataclass
class _Step:
    """A step of the plan, and the last result of its call."""

    state: _State = _State.OPEN
    attempts: int = 0
    text: str = ""
    value: Any = None


class ScriptedExpert:
    """An agent of one episode (``astra.agent.protocols.Policy``) that carries out plans.

    It carries out one task after each user message, in their order.
    """

    name = "offline:expert"

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        self._errands: list[_Errand] = []

    async def act(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
        """The next turn. Raises PlanError when a plan does not fit tools or results."""
        requests = sum(message.role == MessageRole.USER for message in messages)
        if requests > len(self._tasks):
            raise PlanError(
                f"task {self._tasks[0].id}: the scripted expert knows {len(self._tasks)} user "
                f"messages, this is the {requests}th"
            )
        if requests > len(self._errands):
            calls = sum(len(message.tool_calls) for message in messages)
            self._errands.append(_Errand(self._tasks[requests - 1], calls))
        return self._errands[-1].act(messages, tools)


class _Errand:
    """One task, from the user's message to the final one; call ids go on from ``calls``."""

    def __init__(self, task: Task, calls: int) -> None:
        self._task = task
        self._steps = [_Step() for _ in task.plan]
        self._awaited: dict[str, int] = {}
        """Call id -> step, of the calls whose results come next."""
        self._calls = calls
        self._words = _CHINESE if task.language == "zh" else _ENGLISH

    def act(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
        """The next turn: the calls that are ready, else the final message."""
        if self._task.kind not in (TaskKind.CHAIN, TaskKind.SERVER):
            return _say(self._decline(tools))
        if not self._task.plan:
            raise PlanError(f"task {self._task.id} states no plan for the scripted expert")
        self._read(messages)
        offered = {tool.name: tool for tool in tools}
        calls = tuple(self._call(index, offered) for index in self._ready())
        if calls:
            return Message(role=MessageRole.ASSISTANT, tool_calls=calls)
        return _say(self._answer())

    def _read(self, messages: Sequence[Message]) -> None:
        """Take the results of the calls of the last turn."""
        for message in messages:
            index = self._awaited.pop(message.tool_call_id or "", None)
            if index is None:
                continue
            step = self._steps[index]
            step.text = message.content
            step.value = parse_result(message.content)
            if looks_transient(message.content):
                if step.attempts >= MAX_ATTEMPTS:
                    step.state = _State.FAILED
            else:
                step.state = _State.FAILED if _reports_failure(step) else _State.DONE

    def _ready(self) -> list[int]:
        """Open steps whose inputs are known.

        A write waits for every step before it and holds back those after it, so that reads see
        the state that the plan means.
        """
        ready: list[int] = []
        for index, step in enumerate(self._steps):
            if step.state != _State.OPEN:
                continue
            sources = self._sources(index)
            if any(self._steps[source].state == _State.FAILED for source in sources):
                step.state = _State.FAILED
                continue
            writes = is_write(self._task.plan[index].tool)
            earlier_open = any(other.state == _State.OPEN for other in self._steps[:index])
            if all(self._steps[source].state == _State.DONE for source in sources) and not (
                writes and earlier_open
            ):
                ready.append(index)
            if writes:
                break
        return ready

    def _sources(self, index: int) -> list[int]:
        """The earlier steps whose results a step needs. Raises PlanError for a later one."""
        arguments = self._task.plan[index].arguments.values()
        steps = [argument.step for argument in arguments if argument.step is not None]
        if any(not 0 <= step < index for step in steps):
            raise PlanError(f"task {self._task.id} step {index} depends on a later step")
        return steps

    def _call(self, index: int, tools: dict[str, Tool]) -> ToolCall:
        planned = self._task.plan[index]
        tool = tools.get(planned.tool)
        if tool is None:
            raise PlanError(
                f"task {self._task.id} step {index}: no tool {planned.tool!r} is offered"
            )
        properties: dict[str, Any] = tool.parameters.get("properties", {})
        arguments: dict[str, Any] = {}
        for name, source in planned.arguments.items():
            schema = properties.get(name)
            arguments[name] = self._value(index, name, source, schema if schema else {})
        call = ToolCall(
            id=f"call_{self._calls}",
            name=tool.name,
            arguments=json.dumps(arguments, ensure_ascii=False),
        )
        self._calls += 1
        self._awaited[call.id] = index
        self._steps[index].attempts += 1
        return call

    def _value(self, index: int, name: str, source: ArgumentSource, schema: dict[str, Any]) -> Any:
        if source.origin != ArgumentOrigin.OUTPUT or source.step is None:
            return source.value
        try:
            return fit(follow(self._steps[source.step].value, source.path), schema)
        except ReadError as error:
            raise PlanError(
                f"task {self._task.id} step {index} argument {name}: {error} of step {source.step}"
            ) from error

    def _answer(self) -> str:
        """The final message: the results that no other step used, or the problem met."""
        used = {source for index in range(len(self._steps)) for source in self._sources(index)}
        ends = [index for index in range(len(self._steps)) if index not in used]
        answers: list[str] = []
        for index in ends:
            step, tool = self._steps[index], self._task.plan[index].tool
            if step.state == _State.DONE:
                answers += answers_from(step.value, tool, self._task.question)
            else:
                answers.append(NOT_FOUND)
        failed = [step for step in self._steps if step.state == _State.FAILED and step.text]
        if failed:
            reason = failed[0].text.removeprefix("error:").strip().rstrip(".")
            return final_message(self._words.problem.format(reason[:200]), answers)
        nouns = list(dict.fromkeys(self._noun(index) for index in ends))
        if any(is_write(self._task.plan[index].tool) for index in ends):
            return final_message(self._words.done, answers)
        if len(nouns) == 1 and len(answers) == 1:
            return final_message(self._words.one.format(nouns[0]), answers)
        return final_message(self._words.several.format(" and ".join(nouns)), answers)

    def _noun(self, index: int) -> str:
        tool = self._task.plan[index].tool
        return (noun_of(tool) or tool).replace("_", " ")

    def _decline(self, tools: Sequence[Tool]) -> str:
        if self._task.kind != TaskKind.MISSING_PARAMETER:
            return final_message(self._words.no_tool, [NO_TOOL])
        names = missing_parameters(self._task, tools)
        what = " and ".join(name.replace("_", " ") for name in names) or "value it is about"
        return final_message(self._words.missing.format(what), [MISSING_VALUE])


def missing_parameters(task: Task, tools: Sequence[Tool]) -> list[str]:
    """Required parameters that the user left out, in order, without repeats.

    The plan has no source for them, or a task value of None.
    """
    required = {tool.name: tool.parameters.get("required", []) for tool in tools}
    names: list[str] = []
    for step in task.plan:
        for name in required.get(step.tool, []):
            source = step.arguments.get(name)
            left_out = source is None or (
                source.origin == ArgumentOrigin.TASK and source.value is None
            )
            if left_out and name not in names:
                names.append(name)
    return names


def _reports_failure(step: _Step) -> bool:
    """Whether a result tells the agent of a failure: an error line, or a payload that says so."""
    if isinstance(step.value, dict):
        return (
            step.value.get("success") is False
            or step.value.get("ok") is False
            or bool(step.value.get("error"))
        )
    label = step.text.lstrip()[:40].lower()
    return label.startswith("error") or " error:" in label.split("\n")[0]


def _say(text: str) -> Message:
    return Message(role=MessageRole.ASSISTANT, content=text)
