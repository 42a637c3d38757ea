"""Whether a yes of the user is to the call that the agent then makes.

A yes is to what the agent proposed last. It is none to a call whose proposal names another tool,
another row, or another value of one of the call's arguments, and not the call's own. Where nothing
is proposed ("Are you still there?"), a yes agrees to nothing new.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from astra.arena.answers import normalise
from astra.arena.claims import name_stems, stems
from astra.arena.statements import dates_in, day, number, numbers_in, places_of, plain_text
from astra.arena.traces import is_success, proposal, takes_back
from astra.records.world import EventKind, TraceEvent, UserAct, World, WorldTool

_PROPOSED = re.compile(
    r"\b(?:going to|will|shall i|should i|may i|can i|could i|i can|i could|would|let me|like to|"
    r"like me to|want me to|about to|(?:i|we)['’]ll|(?:i|we)['’]d(?: like to)?)\s+"
    r"(?:now |then |also |just |please )?([a-z]+)"
)
_MAKE_IT = re.compile(r"\bmake (?:it|(?:the|that|this|these|those|any) (?:change|update)s?)\b")
"""Does whatever was said, and makes nothing new."""
_IDLE = frozenset({"ask", "assist", "be", "check", "find", "get", "have", "help", "know", "look",
                   "need", "see", "tell", "wait"})  # fmt: skip
"""What an agent offers to do that changes nothing."""
_AGREEABLE = re.compile(
    r"\b(?:may|shall|should|can|could) (?:i|we)\W*(?:\?|$)|"
    r"\b(?:agree|agreed|proceed|confirm|consent|approve|accept|go (?:ahead|on)|yes)\b|"
    r"\b(?:do you want|would you like|does that (?:work|suit|sound)|sounds? good)\b|"
    r"\b(?:ok|okay|all right|alright|fine|right|correct|good|happy with (?:it|that|this))\W*\?"
)
_NAMES = re.compile(r"[^\s|()\[\]{},;:\"'’“”!?#/]+")
_VAGUE = frozenset({"other", "none", "any", "all", "yes", "no"})
"""Options that are words of any sentence."""


def without_other_agreements(
    world: World, events: Sequence[TraceEvent], call: TraceEvent, tables: Mapping[str, Any]
) -> Sequence[TraceEvent]:
    """The events before a call, where the last yes that is to something else is a wish for that,
    and a later one to nothing an answer like any."""
    heard = list(events)
    for at in range(len(events) - 1, -1, -1):
        if events[at].kind != EventKind.USER or events[at].act != UserAct.CONFIRM:
            continue
        text = _proposed(world, call, events, at, tables)
        if text is None:
            heard[at] = events[at].model_copy(update={"act": UserAct.ANSWER})
            continue
        if is_of_other(world, call, text, tables):
            heard[at] = events[at].model_copy(update={"act": UserAct.CHANGE})
        break  # what was proposed last
    return heard


def _proposed(
    world: World, call: TraceEvent, events: Sequence[TraceEvent], at: int,
    tables: Mapping[str, Any],
) -> str | None:  # fmt: skip
    """What a yes is to: the last messages before it that propose something, as long as nothing was
    changed or taken back since. Empty where the agent said nothing; None where it proposed
    nothing."""
    text = proposal(events, at)
    if not text or _names_change(world, call, normalise(events[at].text), tables):
        return text  # agreed to in the user's own words
    tools = {one.tool.name for one in world.tools if one.changes or one.writes}
    while not _proposes(world, call, text, tables):
        before = range(at - 1, -1, -1)
        turn = next((one for one in before if events[one].kind == EventKind.USER), -1)
        written = any(is_success(one) and one.tool in tools for one in events[turn + 1 : at])
        if turn < 0 or written or takes_back(events, turn):
            return None
        at, text = turn, proposal(events, turn)
    return text


def _proposes(world: World, call: TraceEvent, text: str, tables: Mapping[str, Any]) -> bool:
    """Whether a message proposes something: asks whether it may, says what it is going to do, or
    names what a tool does or what this call is about."""
    return asks_consent(text) or _names_change(world, call, normalise(plain_text(text)), tables)


def asks_consent(text: str) -> bool:
    """Whether a message asks whether the agent may do something, or says that it is going to."""
    said = normalise(plain_text(text))
    return bool(_AGREEABLE.search(said) or set(_PROPOSED.findall(said)) - _IDLE)


def _names_change(
    world: World, call: TraceEvent, said: str, tables: Mapping[str, Any]
) -> bool:  # fmt: skip
    """Whether a text has what some tool that writes does, a value of the call, or one of the rows
    that it names and of those that they refer to."""
    writing = [one for one in world.tools if one.changes or one.writes]
    done = stems(said) | {word.removesuffix("ing") for word in _NAMES.findall(said)}
    for one in writing:
        verbs = verbs_of(one)
        if _stands(one.tool.name, said) or done & (verbs | {v.removesuffix("e") for v in verbs}):
            return True
    keys = {table.name: table.key for table in world.tables}
    near = _cells(tables, keys, call.arguments)
    wide = _cells(tables, keys, {cell: cell for cell in near})
    about = {*map(str, call.arguments.values()), *near, *wide}
    return any(_stands(value, said) for value in sorted(about))


def is_of_other(world: World, call: TraceEvent, text: str, tables: Mapping[str, Any]) -> bool:
    """Whether a proposal is of another call than this."""
    if not text:
        return False  # agreed to in the user's own words
    said = normalise(plain_text(text))
    tool = next(one for one in world.tools if one.tool.name == call.tool)
    rivals = [one for one in world.tools if one.changes or one.writes]
    return (
        _names_other_tool(tool, rivals, said)
        or _names_other_value(world, tool, call.arguments, said, tables)
        or _offers_other(tool, rivals, call.arguments, said)
    )


def _names_other_tool(tool: WorldTool, rivals: Sequence[WorldTool], said: str) -> bool:
    """Whether a tool is named, or what is to be done, and it is not this."""
    named = {one.tool.name for one in rivals if _stands(one.tool.name, said)}
    if named:
        return tool.tool.name not in named
    verbs = stems(" ".join(_PROPOSED.findall(_MAKE_IT.sub("do it", said))))
    other = frozenset[str]().union(*(verbs_of(one) for one in rivals if one is not tool))
    return bool(verbs & (other - verbs_of(tool))) and not stems(said) & verbs_of(tool)


def verbs_of(tool: WorldTool) -> frozenset[str]:
    """What a tool does, as its name and its document begin."""
    words = [tool.tool.name.split("_")[0], *tool.tool.description.split()[:1]]
    return name_stems(" ".join(words))


def _names_other_value(
    world: World, tool: WorldTool, arguments: Mapping[str, Any], said: str,
    tables: Mapping[str, Any],
) -> bool:  # fmt: skip
    """Whether the proposal has another value for an argument, and not the call's."""
    words = {word.strip(".") for word in _NAMES.findall(said)}
    keys = {table.name: table.key for table in world.tables}
    near = {day(cell) for cell in _cells(tables, keys, arguments)}
    for name, value in arguments.items():
        if _stands(str(value), said):
            continue
        options = [one for one in options_of(tool).get(name, ()) if one != value]
        if any(_stands(one, said) for one in options):
            return True
        rows = next((rows for table, rows in tables.items()
                     if any(row[keys[table]] == value for row in rows)), ())  # fmt: skip
        column = next((keys[table] for table, them in tables.items() if them is rows), "")
        if any(normalise(row[column]) in words for row in rows):
            return True
        if isinstance(value, str) and (own := day(value)) is not None and len(value) == 10:
            days = {found for one in dates_in(said) if (found := day(one.text)) is not None}
            if own not in days and days - near:
                return True
        if isinstance(value, int | float) and not isinstance(value, bool):
            told = set(numbers_of(name, said))
            if told and float(value) not in told:
                return True
    return False


def numbers_of(name: str, said: str) -> Iterator[float]:
    """The numbers that stand beside a parameter's name."""
    own = stems(name)
    for one in numbers_in(said):
        before = said[: one.start].split()[-3:]
        after = said[one.end :].split()[:1]
        value = number(one.text)
        if value is not None and own & stems(" ".join((*before, *after))):
            yield value


def _offers_other(
    tool: WorldTool, rivals: Sequence[WorldTool], arguments: Mapping[str, Any], said: str
) -> bool:
    """Whether the proposal has an option of another tool alone, and nothing of this call."""
    if stems(said) & verbs_of(tool) or any(_stands(str(one), said) for one in arguments.values()):
        return False
    own = {option for options in options_of(tool).values() for option in options}
    foreign = {
        option for one in rivals if one.role not in ("decline", "hand_over")
        for options in options_of(one).values() for option in options
    }  # fmt: skip
    return any(_stands(option, said) for option in sorted(foreign - own))


def options_of(tool: WorldTool) -> dict[str, list[str]]:
    """What each parameter of a tool may be, where its document lists it."""
    shapes = cast("dict[str, Any]", tool.tool.parameters.get("properties", {}))
    return {
        name: [one for one in shape.get("enum", ()) if isinstance(one, str) and one not in _VAGUE]
        for name, shape in shapes.items()
    }


def _cells(
    tables: Mapping[str, Any], keys: Mapping[str, str], arguments: Mapping[str, Any]
) -> set[str]:
    """The texts in the rows that a call names."""
    named = {value for value in arguments.values() if isinstance(value, str)}
    return {
        cell
        for table, rows in tables.items()
        for row in rows
        if row[keys[table]] in named
        for cell in row.values()
        if isinstance(cell, str)
    }


def _stands(value: str, said: str) -> bool:
    return next(places_of(value, said, True), None) is not None
