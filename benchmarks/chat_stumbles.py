"""Gold episodes in which a call fails before the right one is made.

A gold episode shows no failure, so a policy trained on such alone ends when a call fails. Here, in
every second episode, a turn goes to a wrong tool first, as the chat model was seen to do, and the
right turn follows. The real tools answer both; what went wrong is shown and not trained.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence, Set
from itertools import groupby
from typing import Any

from astra.agent.toolcalls import parse_assistant, render_call
from astra.records.base import content_id
from astra.records.message import CallStatus, ExecutedCall
from astra.records.tool import Tool

Call = tuple[str, dict[str, Any]]
"""A tool's name and its arguments."""
FAILURES = (0, 0, 0, 1, 1, 2)
"""How often a call fails before the right turn, in equal shares of the episodes."""


def stumbling(
    arena_id: str, script: Sequence[str], tools: Sequence[Tool], max_turns: int
) -> tuple[list[str], set[int]]:
    """The turns of a gold script with up to two that go wrong before a drawn one, and the places of
    these among them. None goes wrong where nothing can or ``max_turns`` leaves no room."""
    rng = random.Random(int(content_id(["stumble", arena_id]), 16))
    turns = [calls_of_turn(text) for text in script[:-1]]
    most = min(rng.choice(FAILURES), max_turns - len(script))
    at = rng.randrange(len(turns))
    found = [way(turns, at, tools, rng) for way in rng.sample(WAYS, len(WAYS))]
    wrong = [rendered(calls) for calls in found if calls is not None]
    wrong = list(dict.fromkeys(wrong))[: max(0, most)]
    return [*script[:at], *wrong, *script[at:]], set(range(at, at + len(wrong)))


def calls_of_turn(text: str) -> list[Call]:
    return [(one.name, json.loads(one.arguments)) for one in parse_assistant(text).tool_calls]


def rendered(calls: Sequence[Call]) -> str:
    return "\n".join(
        render_call(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in calls
    )


def other_tool(
    turns: Sequence[list[Call]], at: int, tools: Sequence[Tool], rng: random.Random
) -> list[Call] | None:
    """Each call goes to one tool that this turn does not need, with what it was to look up."""
    needed = {name for name, _ in turns[at]}
    others = [(one.name, key) for one in tools if one.name not in needed and (key := text_of(one))]
    if not others:
        return None
    name, key = rng.choice(others)
    return with_values(turns[at], lambda value: (name, {key: value}))


def next_hop(
    turns: Sequence[list[Call]], at: int, tools: Sequence[Tool], rng: random.Random
) -> list[Call] | None:
    """The next turn's tool is asked for what this turn was to look up: a hop is left out."""
    if at + 1 == len(turns):
        return None
    name, arguments = turns[at + 1][0]
    key = text_key(arguments)
    if key is None:
        return None
    return with_values(turns[at], lambda value: (name, {**arguments, key: value}))


WAYS = (other_tool, next_hop)


def text_of(tool: Tool) -> str | None:
    """The first parameter of a tool that takes text."""
    properties = tool.parameters.get("properties", {})
    return next((key for key, one in properties.items() if one.get("type") == "string"), None)


def text_key(arguments: dict[str, Any]) -> str | None:
    """The first argument of a call that is text."""
    return next((key for key, one in arguments.items() if isinstance(one, str)), None)


def with_values(calls: Sequence[Call], made: Callable[[str], Call]) -> list[Call] | None:
    """A call for the first text of each one's arguments; None where one has none, or twice the
    same would be called."""
    found: list[Call] = []
    for _, arguments in calls:
        key = text_key(arguments)
        if key is None or made(arguments[key]) in found:
            return None
        found.append(made(arguments[key]))
    return found


def failed_turns(calls: Sequence[ExecutedCall]) -> set[int]:
    """The turns of an episode in which a call failed."""
    return {one.turn for one in calls if one.result.status != CallStatus.OK}


def untrained(mask: Sequence[int], turns: Set[int]) -> list[int]:
    """A mask of one conversation without the turns of these numbers, counted from 0; each turn is a
    run of ones."""
    found: list[int] = []
    turn = -1
    for trained, run in groupby(mask):
        turn += trained
        found += [trained if turn not in turns else 0 for _ in run]
    return found
