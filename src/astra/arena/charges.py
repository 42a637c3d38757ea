"""What the calls of an episode cost: 1 each, with two exceptions of our own.

The paper counts calls. Counted so, an agent that makes every gold call three times keeps up to two
thirds of the reward, and one that looks whether its booking stands pays for the care. Therefore

- a call that repeats an answered one, tool and arguments the same, costs ``REPEATED``, unless it
  reads and something was written in between: every gold call three times earns at most 1/2;
- a read that checks a write costs nothing, once per write: a successful call of a tool that reads
  the world, made after the write, in whose arguments or result stands a value of that write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, cast

from astra.arena.answers import normalise
from astra.arena.state import state_of
from astra.records.base import canonical_json, compact_json
from astra.records.environment import Arena
from astra.records.message import CallStatus, ExecutedCall
from astra.text.strict_json import STRICT

REPEATED = 2
"""What a repeated call costs; the smallest whole number that keeps the bound above."""
_UNANSWERED = (CallStatus.TIMEOUT, CallStatus.REFUSED)
"""A call that ended so told the agent nothing: making it again is no repetition."""
_Key = tuple[str, str]


def cost(arena: Arena, calls: Sequence[ExecutedCall], useful: Collection[int]) -> int:
    """What the calls cost together. ``useful`` are the positions of those that solve a step."""
    state = state_of(arena)
    stateful = state.writes if state else {}
    gold = Counter(
        _key(step.tool_name, compact_json(step.arguments))
        for step in arena.steps
        if step.tool_name is not None
    )
    answered: Counter[_Key] = Counter()
    unchecked: list[set[str | float]] = []
    total = 0
    for at, executed in enumerate(calls):
        name, key = executed.call.name, _key(executed.call.name, executed.call.arguments)
        repeated = answered[key] >= max(1, gold[key])
        succeeded = executed.result.status == CallStatus.OK
        if repeated:
            total += REPEATED
        elif at in useful or not (
            succeeded
            and name in stateful
            and not stateful[name]
            and _checks(unchecked, _values(executed))
        ):
            total += 1
        if succeeded and not repeated and stateful.get(name):
            # What was read before may be otherwise now; what was written is written.
            for earlier in [key for key in answered if not stateful.get(key[0])]:
                del answered[earlier]
            unchecked.append(_values(executed))
        if executed.result.status not in _UNANSWERED:
            answered[key] += 1
    return total


def _checks(unchecked: list[set[str | float]], seen: set[str | float]) -> bool:
    """Whether values that a read shows are of a write not checked so far; it is checked then."""
    at = next((at for at, written in enumerate(unchecked) if written & seen), None)
    if at is None:
        return False
    del unchecked[at]
    return True


def _key(name: str, arguments: str) -> _Key:
    """The same for calls that differ in spelling alone: case, spaces, order of keys."""
    try:
        return name, canonical_json(_folded(STRICT.decode(arguments)))
    except (ValueError, RecursionError):
        return name, arguments


def _folded(value: Any) -> Any:
    if isinstance(value, str):
        return normalise(value)
    if isinstance(value, list):
        return [_folded(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: _folded(item) for name, item in cast("dict[str, Any]", value).items()}
    return value


def _values(executed: ExecutedCall) -> set[str | float]:
    """Texts and numbers in what a successful call was given and returned.

    Truth values and nothing at all are in too many calls to tell them apart.
    """
    found: set[str | float] = set()
    waiting: list[Any] = [STRICT.decode(executed.call.arguments), executed.result.value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += cast("dict[str, Any]", value).values()
        elif isinstance(value, list):
            waiting += cast("list[Any]", value)
        elif isinstance(value, str):
            found.add(normalise(value))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.add(value)
    return found
