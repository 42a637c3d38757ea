"""What a message of the agent asks of the user: its act, and which of the user's facts it is about.

Rules over words; they read the messages that goals themselves hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from astra.arena.answers import normalise
from astra.arena.statements import places_of, plain_text
from astra.records.world import AgentAct, EventKind, TraceEvent, UserAct, World, WorldGoal

_PROPOSE = re.compile(r"\b(?:am going to|will now|shall i|may i|do you agree)\b")
_REFUSE = re.compile(r"\b(?:cannot|can['’]t|no tool|not able to|unable)\b")
_REPORT = re.compile(r"\b(?:done|colleague|the [\w -]+ is)\b")


class Reading(NamedTuple):
    """A message as the user takes it."""

    act: AgentAct
    slots: tuple[str, ...] = ()
    """Slots of the script's facts that an ASK, OFFER or PROPOSE asks for or puts up; a proposal
    that names a value for one held back asks for it."""
    unknown: bool = False
    """Whether an ASK asks for something that no fact of the script answers, besides ``slots``."""
    wanted: bool | None = None
    """Whether the change that is proposed is one that the user wants now; None: no proposal."""


def read_message(world: World, goal: WorldGoal, trace: Sequence[TraceEvent]) -> Reading:
    """The reading of the last message of the agent in a trace; OTHER where there is none."""
    last = next((one for one in reversed(trace) if one.kind == EventKind.ASSISTANT), None)
    text = normalise(plain_text(last.text)) if last is not None else ""
    if _PROPOSE.search(text):
        return Reading(AgentAct.PROPOSE, wanted=_is_wanted(world, goal, text))
    script = goal.script
    facts = dict.fromkeys(fact.slot for fact in script.facts) if script is not None else {}
    if "?" in text:
        turns = script.turns if script is not None else ()
        chosen = [turn.slots for turn in turns if turn.act == UserAct.CHOOSE]
        if " or " in text and chosen:
            return Reading(AgentAct.OFFER, chosen[0])
        slots = tuple(slot for slot in facts if _names(slot, text))
        return Reading(AgentAct.ASK, slots, unknown=not slots)
    if _REFUSE.search(text):
        return Reading(AgentAct.REFUSE)
    return Reading(AgentAct.REPORT if _REPORT.search(text) else AgentAct.OTHER)


def _names(slot: str, text: str) -> bool:
    name = re.sub(r"^own | \d+$", "", slot).rpartition(".")[2]
    return _stands(name.removesuffix("_id"), text)


def _is_wanted(world: World, goal: WorldGoal, text: str) -> bool:
    """Whether a message names a writing tool and all arguments of a call that the goal makes."""
    writing = {tool.tool.name for tool in world.tools if tool.writes}
    return any(
        _stands(call.tool, text) and _all_stand(map(str, call.arguments.values()), text)
        for call in goal.trace
        if call.tool in writing
    )


def _all_stand(values: Iterable[str], text: str) -> bool:
    return all(_stands(value, text) for value in values)


def _stands(value: str, text: str) -> bool:
    return next(places_of(value, text, True), None) is not None
