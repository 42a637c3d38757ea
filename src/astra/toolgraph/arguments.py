"""Where the arguments of a chain come from (ASTRA section 3.1, check i)."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from astra.records.graph import ArgumentOrigin, ArgumentSource, ChainStep, ProposedChain
from astra.records.tool import Tool
from astra.text.paths import NoSuchPath, ResultPath, at_path, choices
from astra.text.schemas import conforms, violation
from astra.text.values import NoValue, draw_value
from astra.text.verbs import changes_state
from astra.toolgraph.linking import feeds, outputs, parameters, required_parameters

_WHERE_TYPES_STAND = ("properties", "$defs", "definitions")
STATED = ArgumentSource(origin=ArgumentOrigin.TASK)


class Unsatisfiable(ValueError):
    """An argument has no source, or a call that no values can make valid; says which."""


class Binder:
    """Sources for the arguments of walks over one server's tools.

    A walk that was proposed takes the sources of the proposal. In any other an argument takes, in
    this order: the result of the latest earlier step that fits by name and type, unless proposals
    with the same two tools mostly had the user state it; what such proposals mostly took; the
    schema's only or default value; the user's task.
    """

    def __init__(self, tools: Iterable[Tool], proposed: Sequence[ProposedChain] = ()) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._outputs = {name: outputs(tool) for name, tool in self._tools.items()}
        self._proposed: dict[tuple[str, ...], ProposedChain] = {}
        for one in proposed:
            known = self._proposed.setdefault(_tools_of(one.steps), one)
            if _strength(one) > _strength(known):
                self._proposed[_tools_of(one.steps)] = one
        self._habits = _habits(proposed)

    def bind(self, names: Sequence[str]) -> tuple[ChainStep, ...]:
        """The walk's steps: a source for each required argument and each proposed optional one."""
        proposal = self._proposed.get(tuple(names))
        steps = tuple(
            ChainStep(
                tool=name,
                arguments=self._arguments(
                    names[: index + 1], proposal.steps[index] if proposal else None
                ),
            )
            for index, name in enumerate(names)
        )
        return steps if proposal else told_apart(steps)

    def sketch(self, names: Sequence[str]) -> str:
        """The request that the walk's proposal sketched; empty for a walk nobody proposed."""
        proposal = self._proposed.get(tuple(names))
        return proposal.task if proposal else ""

    def _arguments(
        self, names: Sequence[str], proposal: ChainStep | None
    ) -> dict[str, ArgumentSource]:
        """The arguments of the last of the tools in ``names``."""
        tool = self._tools[names[-1]]
        needed = required_parameters(tool)
        sources: dict[str, ArgumentSource] = {}
        for name, schema in {**needed, **parameters(tool)}.items():
            stated = proposal.arguments.get(name) if proposal else None
            if name in needed:
                sources[name] = stated or self._source(names, name, schema)
            elif source := stated or (None if proposal else self._habit(names, name)):
                sources[name] = source
        return sources

    def _source(
        self, names: Sequence[str], parameter: str, schema: Mapping[str, Any]
    ) -> ArgumentSource:
        for step in range(len(names) - 2, -1, -1):
            if self._habits.get((names[step], names[-1], parameter), ()) is None:
                continue
            producer = self._tools[names[step]]
            for output in self._outputs[names[step]]:
                if feeds(output, producer, parameter, schema):
                    return _taken(step, output.path)
        return self._habit(names, parameter) or only_value(schema) or STATED

    def _habit(self, names: Sequence[str], parameter: str) -> ArgumentSource | None:
        """The latest earlier result that most proposals took for the last tool's parameter."""
        for step in range(len(names) - 2, -1, -1):
            habit = self._habits.get((names[step], names[-1], parameter))
            if habit is not None:
                return _taken(step, habit)
        return None


def told_apart(steps: Sequence[ChainStep]) -> tuple[ChainStep, ...]:
    """The steps, of which equal ones take the first, second ... element of what they draw on."""
    distinct: list[ChainStep] = []
    for step in steps:
        changed: ChainStep | None = step
        while changed is not None and changed in distinct:
            step, changed = changed, _next_element(changed)
        distinct.append(changed or step)
    return tuple(distinct)


def _next_element(step: ChainStep) -> ChainStep | None:
    """The step with the next element of a list in the latest result it draws on, if there is one.

    None as well if the user states a value: calls then differ in that.
    """
    sources = step.arguments
    if any(source.origin is ArgumentOrigin.TASK for source in sources.values()):
        return None
    listed = {
        name: source
        for name, source in sources.items()
        if source.step is not None and any(isinstance(part, int) for part in source.path)
    }
    if not listed:
        return None
    name = max(listed, key=lambda one: listed[one].step or 0)
    path = list(listed[name].path)
    place = max(at for at, part in enumerate(path) if isinstance(part, int))
    path[place] = int(path[place]) + 1
    moved = listed[name].model_copy(update={"path": tuple(path)})
    return step.model_copy(update={"arguments": {**sources, name: moved}})


def only_value(schema: Mapping[str, Any]) -> ArgumentSource | None:
    """The source that a required parameter's only value is, if it has but one.

    A default of a required parameter is none: listings write an example there, such as the
    keyword of a search, and a call has to give it anyway.
    """
    only = choices(schema)
    if len(only) != 1:
        return None
    return ArgumentSource(origin=ArgumentOrigin.DEFAULT, value=only[0])


def taken_from_results(steps: Sequence[ChainStep]) -> Iterator[tuple[int, str]]:
    """Each argument that an earlier result gives, as step and parameter."""
    for index, step in enumerate(steps):
        for name, source in step.arguments.items():
            if source.origin is ArgumentOrigin.OUTPUT:
                yield index, name


def _taken(step: int, path: ResultPath) -> ArgumentSource:
    return ArgumentSource(origin=ArgumentOrigin.OUTPUT, step=step, path=path)


def _tools_of(steps: Sequence[ChainStep]) -> tuple[str, ...]:
    return tuple(step.tool for step in steps)


def _strength(proposal: ProposedChain) -> tuple[int, int]:
    """The more often proposed, then the more dependent proposal of the same tools is the better."""
    return proposal.weight, sum(1 for _ in taken_from_results(proposal.steps))


def _habits(proposed: Sequence[ProposedChain]) -> dict[tuple[str, str, str], ResultPath | None]:
    """(producer, consumer, parameter) -> the path that proposals with both mostly took.

    None: in most of them the user stated it, or it was left out. A proposal that took it from yet
    another step says nothing.
    """
    taken = {
        (one.steps[source.step].tool, step.tool, name)
        for one in proposed
        for step in one.steps
        for name, source in step.arguments.items()
        if source.step is not None
    }
    by_pair: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for producer, consumer, name in sorted(taken):
        by_pair[producer, consumer].append(name)
    votes: defaultdict[tuple[str, str, str], Counter[ResultPath | None]] = defaultdict(Counter)
    for one in proposed:
        for (earlier, producer), (_, consumer) in combinations(enumerate(one.steps), 2):
            pair = producer.tool, consumer.tool
            for name in dict.fromkeys([*consumer.arguments, *by_pair.get(pair, ())]):
                source = consumer.arguments.get(name, STATED)
                if source.origin is ArgumentOrigin.TASK:
                    votes[*pair, name][None] += one.weight
                elif source.step == earlier:
                    votes[*pair, name][source.path] += one.weight
    return {
        key: max(cast, key=lambda path: (cast[path], path is not None))
        for key, cast in votes.items()
    }


def replay(
    steps: Sequence[ChainStep], tools: Mapping[str, Tool], rng: random.Random
) -> list[dict[str, Any]]:
    """Arguments of each call when the chain is walked with made-up values and results.

    A call leaves out what cannot be made up: a value that a person can state but our generator
    not draw, or one from a result that nobody described. Raises Unsatisfiable where a source is
    missing, where no earlier result has the path, for a call that the tool's schema refuses, and
    for one that repeats an earlier call for nothing.
    """
    calls: list[dict[str, Any]] = []
    for index, step in enumerate(steps):
        tool = tools[step.tool]
        missing = set(required_parameters(tool)) - set(step.arguments)
        if missing:
            raise Unsatisfiable(f"{tool.name}: no source for {sorted(missing)}")
        if _repeats(steps[: index + 1], tools):
            raise Unsatisfiable(f"{tool.name}: step {index} is an earlier step once more")
        made_up: dict[str, Any] = {}
        for name, source in step.arguments.items():
            try:
                made_up[name] = _made_up(tool, name, source, steps[:index], tools, rng)
            except NoValue:
                continue
        _check(tool, made_up, set(step.arguments) - set(made_up))
        calls.append(made_up)
    return calls


def _repeats(steps: Sequence[ChainStep], tools: Mapping[str, Tool]) -> bool:
    """Whether the last step makes an earlier call again, with no change in between.

    Values that the user states may differ from step to step.
    """
    *earlier, last = steps
    if any(source.origin is ArgumentOrigin.TASK for source in last.arguments.values()):
        return False
    for step in reversed(earlier):
        if step == last:
            return True
        if changes_state(step.tool, tools[step.tool].effect):
            return False
    return False


def _made_up(
    tool: Tool,
    name: str,
    source: ArgumentSource,
    earlier: Sequence[ChainStep],
    tools: Mapping[str, Tool],
    rng: random.Random,
) -> Any:
    """A value of an argument. Raises NoValue where none can be drawn."""
    if source.origin is ArgumentOrigin.DEFAULT:
        return source.value
    schema = parameters(tool).get(name, {})
    if source.origin is ArgumentOrigin.TASK:
        return draw_value({**schema, **tool.hints.get(name, {})}, rng, name, tool.parameters)
    if source.step is None or source.step >= len(earlier):
        raise Unsatisfiable(f"{tool.name}.{name}: no earlier step {source.step}")
    value = _found(tools[earlier[source.step].tool], source.path, rng)
    alone = {key: tool.parameters[key] for key in _WHERE_TYPES_STAND if key in tool.parameters}
    if not conforms({name: value}, alone):
        # A real result may fit: the types do, and what is made up knows no meaning.
        raise NoValue(f"{tool.name}.{name}: a made-up result does not fit")
    return value


def _found(producer: Tool, path: ResultPath, rng: random.Random) -> Any:
    """A made-up value at ``path`` of a tool's result.

    Raises NoValue if nobody described the result, and Unsatisfiable if it has no such path.
    """
    result = producer.result_schema
    if result is None:
        raise NoValue(f"{producer.name}: no schema of its result")
    try:
        _, schemas = at_path(result, path)
    except NoSuchPath as problem:
        raise Unsatisfiable(f"result of {producer.name}: {problem}") from None
    try:
        return draw_value(dict(schemas[0]), rng, str(path[-1] if path else producer.name), result)
    except NoValue:
        if producer.output_schema is not None or producer.inferred is None:
            raise
        return _at(producer.inferred.example, path)


def _at(result: Any, path: ResultPath) -> Any:
    for part in path:
        try:
            result = result[part]
        except (KeyError, IndexError, TypeError):
            raise NoValue(f"the example has nothing at {list(path)}") from None
    return result


def _check(tool: Tool, arguments: Mapping[str, Any], open_: set[str]) -> None:
    """Raise Unsatisfiable if the schema refuses the call, whatever stands for ``open_``."""
    schema, call = tool.parameters, dict(arguments)
    if open_:
        schema = {**schema, "properties": schema["properties"] | dict.fromkeys(open_, True)}
        call |= dict.fromkeys(open_, "")
    if problem := violation(call, schema):
        raise Unsatisfiable(f"{tool.name}: {problem}")
