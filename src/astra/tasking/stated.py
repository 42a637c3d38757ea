"""Where the values of a plan stand in the question, as far as rules can tell.

Users rarely say a value as a call takes it: they name the place, not its coordinates. A rule can
find words and numbers again; whether one thing follows from another is left to the judge, who is
shown every value that does not stand in the question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from astra.records.base import canonical_json
from astra.records.graph import ArgumentOrigin, ArgumentSource, ChainStep
from astra.records.tool import Tool
from astra.text.schemas import parameter_schema
from astra.text.verbs import words_of
from astra.text.words import numbers, says, stands_in

_MOMENT = re.compile(
    r"\d{4}-\d{1,2}(-\d{1,2})?([T ]\d{1,2}:\d{2}.*)?|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}"
    r"|\d{1,2}:\d{2}(:\d{2})?\s*([ap]m|Z|[+-]\d{2}:?\d{2})?"
    r"|P(?=.*\d[YMWDHS])(\d+[YMWD])*(T(\d+(\.\d+)?[HMS])+)?",
    re.IGNORECASE,
)
_MOMENT_FORMATS = frozenset({"date", "time", "date-time", "duration"})
_CODED = frozenset(
    "unit units currency currencies country timezone tz locale language languages lang".split()
)
"""Words of parameters' names whose values are codes or units, said otherwise by everyone."""
LONGEST_CODE = 3
"""How many letters a code has at most that could be an everyday word in lower case."""
_DIGITS = re.compile(r"-?\d+(\.\d+)?")


class Standing(StrEnum):
    """How a value that the user gives relates to the question."""

    STATED = "stated"  # it stands there
    DERIVED = "derived"  # the user's words for it do
    OPEN = "open"  # it does not, and need not: a yes, a choice, a date, a number in words
    ABSENT = "absent"  # neither it nor words for it do: no task


@dataclass(frozen=True)
class GivenValue:
    """A value of a plan that the user gives."""

    step: int
    argument: str
    source: ArgumentSource
    standing: Standing

    @property
    def place(self) -> str:
        """Which argument it is, for a judge to point at: ``0.location``."""
        return f"{self.step}.{self.argument}"


def given_values(
    question: str, plan: Sequence[ChainStep], tools: Mapping[str, Tool]
) -> list[GivenValue]:
    """The values that the user gives, in plan order.

    What was left out (None) is none, nor what the agent picks.
    """
    stated = numbers(question)
    return [
        GivenValue(index, name, source, _standing(source, question, stated, tools[step.tool], name))
        for index, step in enumerate(plan)
        for name, source in step.arguments.items()
        if source.origin is ArgumentOrigin.TASK and source.value is not None
    ]


def still_said(question: str, source: ArgumentSource, tool: Tool, name: str) -> bool:
    """Whether a question says anything of a value, in whatever form, or the user's words for it."""
    if says(source.said, question):
        return True
    stated = numbers(question)
    return any(
        _of_leaf(leaf, question, stated, tool, name) is Standing.STATED
        or says(_written(leaf), question)
        for leaf in _leaves(source.value)
        if leaf is not None
    )


def _written(leaf: Any) -> str:
    """A single value as text; a whole number has no decimals."""
    if isinstance(leaf, float) and leaf.is_integer():
        return str(int(leaf))
    return leaf if isinstance(leaf, str) else canonical_json(leaf)


def chosen_values(plan: Sequence[ChainStep]) -> dict[str, Any]:
    """The values that the agent picks, by place (``0.position``), in plan order."""
    return {
        f"{index}.{name}": source.value
        for index, step in enumerate(plan)
        for name, source in step.arguments.items()
        if source.origin is ArgumentOrigin.CHOSEN
    }


def settled(
    question: str, plan: Sequence[ChainStep], tools: Mapping[str, Tool]
) -> tuple[ChainStep, ...]:
    """The plan without what it need not say.

    Words for a value that stands in the question itself go; a value that nobody says and that the
    schema has as its default is of that origin.
    """
    steps = list(plan)
    for given in given_values(question, plan, tools):
        step = steps[given.step]
        schema = parameter_schema(tools[step.tool].parameters, given.argument)
        source = given.source
        if given.standing is Standing.STATED:
            source = source.model_copy(update={"said": ""})
        elif not source.said and _is_default(source.value, schema):
            source = source.model_copy(update={"origin": ArgumentOrigin.DEFAULT})
        arguments = {**step.arguments, given.argument: source}
        steps[given.step] = ChainStep(tool=step.tool, arguments=arguments)
    return tuple(steps)


def _standing(
    source: ArgumentSource, question: str, stated: set[Decimal], tool: Tool, name: str
) -> Standing:
    found = {_of_leaf(leaf, question, stated, tool, name) for leaf in _leaves(source.value)}
    if found == {Standing.STATED}:
        return Standing.STATED
    if source.said:
        return Standing.DERIVED if says(source.said, question) else Standing.ABSENT
    return Standing.ABSENT if Standing.ABSENT in found else Standing.OPEN


def _of_leaf(leaf: Any, question: str, stated: set[Decimal], tool: Tool, name: str) -> Standing:
    """How one text, number, yes or no stands; without regard to the user's words for it."""
    if leaf is None or isinstance(leaf, bool):
        return Standing.OPEN
    if isinstance(leaf, int | float):
        return Standing.STATED if Decimal(str(leaf)) in stated else Standing.OPEN
    schema = parameter_schema(tool.parameters, name)
    if canonical_json(leaf) in set(_choices(schema)):
        # Not looked for: members such as "on" or "all" stand in a question for other reasons.
        return Standing.OPEN
    # Codes such as IT and US are words as well: only their capitals tell.
    is_code = len(leaf) <= LONGEST_CODE and leaf.isupper()
    if stands_in(leaf, question) if is_code else says(leaf, question):
        return Standing.STATED
    if _DIGITS.fullmatch(leaf) and Decimal(leaf) in stated:
        return Standing.STATED
    moment = _MOMENT.fullmatch(leaf.strip()) or schema.get("format") in _MOMENT_FORMATS
    open_to_judge = moment or not leaf.strip() or _CODED & set(words_of(name))
    return Standing.OPEN if open_to_judge else Standing.ABSENT


def _leaves(value: Any) -> Iterator[Any]:
    """The single values in a value."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part)
    else:
        yield value


def _choices(schema: Any) -> Iterator[str]:
    """The members of every enumeration in a schema, and its constants, as JSON."""
    if isinstance(schema, list):
        for part in schema:
            yield from _choices(part)
    elif isinstance(schema, Mapping):
        if isinstance(members := schema.get("enum"), list):
            yield from map(canonical_json, members)
        if "const" in schema:
            yield canonical_json(schema["const"])
        for part in schema.values():
            yield from _choices(part)


def _is_default(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether the schema gives the value by itself: its default, or all that it allows."""
    members = schema.get("enum")
    own = [schema[keyword] for keyword in ("default", "const") if keyword in schema]
    own += members if isinstance(members, list) and len(members) == 1 else []
    return canonical_json(value) in map(canonical_json, own)
