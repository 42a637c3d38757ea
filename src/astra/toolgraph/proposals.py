"""Proposed chains, read: which of their tools exist and which sources of arguments hold.

Rules decide about structure only: an earlier step, a path that its result can have, a type that the
parameter takes. Whether a source makes sense is for the judges of stage ``chains``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from astra.records.graph import ArgumentOrigin, ArgumentSource, ChainStep, ProposedChain
from astra.records.score import Rejection
from astra.records.tool import Tool, ToolServer
from astra.text.paths import NoSuchPath, at_path, choices, takes
from astra.toolgraph.arguments import STATED, only_value
from astra.toolgraph.asks import ChainProposal, ProposedArgument
from astra.toolgraph.linking import parameters, required_parameters


class SourceProblem(ValueError):
    """A part of a proposal that cannot be; ``reason`` is a short code."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True)
class Reading:
    """What of a proposal holds, and the rejections that say what does not."""

    tools: tuple[str, ...]
    """The names as proposed, unknown ones too."""
    task: str
    steps: tuple[ChainStep, ...]
    """Empty where a tool is unknown."""
    rejections: tuple[Rejection, ...]


def read_proposal(server: ToolServer, proposal: ChainProposal, part: str) -> Reading:
    """``proposal`` as far as it holds; a rejection names the part ``part`` and what is wrong."""
    known = {tool.name: tool for tool in server.tools}
    names = tuple(step.tool for step in proposal.steps)
    rejections: list[Rejection] = []

    def refuse(place: str, problem: SourceProblem) -> None:
        rejections.append(
            Rejection(
                item=server.id, part=f"{part}, {place}", reason=problem.reason,
                detail=str(problem), said=proposal.task,
            )
        )  # fmt: skip

    for index, name in enumerate(names):
        if name not in known:
            refuse(f"step {index}", SourceProblem("unknown_tool", name))
    if rejections:
        return Reading(names, proposal.task, (), tuple(rejections))
    tools = [known[name] for name in names]
    steps: list[ChainStep] = []
    for index, step in enumerate(proposal.steps):
        arguments: dict[str, ArgumentSource] = {}
        for argument in step.arguments:
            try:
                source = _source(tools[: index + 1], argument)
            except SourceProblem as problem:
                refuse(f"step {index}, argument {argument.name}", problem)
                continue
            if source is not None:
                arguments[argument.name] = source
        steps.append(ChainStep(tool=step.tool, arguments=arguments))
    return Reading(names, proposal.task, tuple(steps), tuple(rejections))


def _source(tools: Sequence[Tool], argument: ProposedArgument) -> ArgumentSource | None:
    """The source of an argument of the last of ``tools``; None: it can be left out.

    Raises SourceProblem.
    """
    tool = tools[-1]
    schema = parameters(tool).get(argument.name)
    if schema is None:
        there = ", ".join(parameters(tool)) or "none"
        raise SourceProblem(
            "unknown_parameter", f"{tool.name} has no {argument.name!r}, only {there}"
        )
    if argument.origin is ArgumentOrigin.OUTPUT:
        return _output(tools, argument)
    if argument.origin is ArgumentOrigin.TASK and len(choices(schema)) != 1:
        return STATED
    if argument.name not in required_parameters(tool):
        return None
    source = only_value(schema)
    if source is None and "default" not in schema:
        raise SourceProblem("no_default", f"{tool.name}.{argument.name} has no default value")
    return source or STATED


def _output(tools: Sequence[Tool], argument: ProposedArgument) -> ArgumentSource:
    consumer, step = tools[-1], argument.step
    if step is None or not 0 <= step < len(tools) - 1:
        detail = f"{consumer.name} is step {len(tools) - 1}, the source is step {step}"
        raise SourceProblem("source_not_earlier", detail)
    producer, path = tools[step], argument.path
    result = producer.result_schema
    if result is not None:
        schema = parameters(consumer)[argument.name]
        try:
            path, found = at_path(result, argument.path)
        except NoSuchPath as problem:
            raise SourceProblem("source_path_unknown", f"{producer.name}: {problem}") from None
        if not takes(schema, consumer.parameters, found, result, converted=True):
            detail = f"{producer.name} at {list(path)} is no {consumer.name}.{argument.name}"
            raise SourceProblem("source_type_differs", detail)
    return ArgumentSource(origin=ArgumentOrigin.OUTPUT, step=step, path=path)


def proposed_chains(readings: Iterable[Reading]) -> tuple[ProposedChain, ...]:
    """The chains whose tools all exist, equal ones counted, the first of them first."""
    counted: Counter[tuple[str, ...]] = Counter()
    first: dict[tuple[str, ...], Reading] = {}
    for reading in readings:
        if reading.steps:
            key = tuple(step.model_dump_json() for step in reading.steps)
            counted[key] += 1
            first.setdefault(key, reading)
    return tuple(
        ProposedChain(steps=reading.steps, task=reading.task, weight=counted[key])
        for key, reading in first.items()
    )
