"""Goals with a user who talks, as exported rows, and agents that talk with them or do not."""

from __future__ import annotations

from collections.abc import Sequence

from scripted import Script, turn

from astra.arena.worlds import goal_of, resolve, world_texts
from astra.export.rows import EpisodeOptions, ExportedArena, export_row
from astra.records.base import compact_json
from astra.records.environment import Arena
from astra.records.world import (
    EventKind,
    FactTime,
    TraceEvent,
    UserAct,
    UserFact,
    UserScript,
    UserTurn,
    WorldGoal,
)
from world_goals import worlds_and_goals

PLAIN = {
    UserAct.CONFIRM: "Yes, please do.",
    UserAct.REJECT: "No, that is not what I want.",
    UserAct.UNKNOWN: "I do not know.",
    UserAct.NUDGE: "Could you go on, please?",
    UserAct.CLOSE: "Thank you, goodbye.",
    UserAct.LEAVE: "This leads nowhere, goodbye.",
}
"""What a user says without telling anything."""


def talking_arenas() -> list[Arena]:
    """Arenas whose goals need a user, one that brings a tool among them."""
    found: list[Arena] = []
    for world, arenas in (worlds_and_goals(), worlds_and_goals(goals=3, late_tools=True)):
        texts = world_texts([world])
        found += [resolve(with_script(one), texts) for one in arenas if goal_of(one).needs_user]
    return found


def talking_rows() -> list[ExportedArena]:
    return [export_row(one, EpisodeOptions()) for one in talking_arenas()]


def without_script(arena: Arena) -> Arena:
    """The arena with nobody who talks."""
    text = compact_json(goal_of(arena).model_copy(update={"script": None}).model_dump(mode="json"))
    return Arena.model_validate({**arena.model_dump(), "goal": text, "id": ""})


def with_script(arena: Arena) -> Arena:
    """The arena with a script for its user: what they say in the goal's trace, where and when."""
    goal = goal_of(arena)
    if goal.script is None:
        goal = goal.model_copy(update={"script": _script(goal)})
    text = compact_json(goal.model_dump(mode="json"))
    return Arena.model_validate({**arena.model_dump(), "goal": text, "id": ""})


def _script(goal: WorldGoal) -> UserScript:
    said = [event for event in goal.trace if event.kind == EventKind.USER]
    facts = [UserFact(slot=slot, value=value, when=_when(event))
             for event in said for slot, value in event.facts.items()]  # fmt: skip
    turns = [
        UserTurn(act=event.act, slots=tuple(event.facts), wordings=(event.text,),
                 adds_tools=event.adds_tools)
        for event in said[1:]
        if event.act is not None and event.act not in PLAIN
    ]  # fmt: skip
    turns += [UserTurn(act=act, wordings=(text,)) for act, text in PLAIN.items()]
    return UserScript(facts=tuple(facts), turns=tuple(turns), patience=2, most_turns=10)


def _when(event: TraceEvent) -> FactTime:
    times = {UserAct.OPENING: FactTime.OPENING, UserAct.CHANGE: FactTime.CHANGE}
    return times.get(event.act or UserAct.ANSWER, FactTime.ASKED)


def turns_of(events: Sequence[TraceEvent]) -> Script:
    """What the agent does in a trace, as messages: a call or the user's turn ends one."""
    messages: list[dict[str, object]] = []
    said: list[str] = []
    for event in events[1:]:
        if event.kind == EventKind.ASSISTANT:
            said.append(event.text)
            continue
        calls = [(event.tool, event.arguments)] if event.kind == EventKind.CALL else []
        if said or calls:
            messages.append(turn("\n".join(said), *calls))
        said = []
    return [*messages, turn("\n".join(said) or "All of that is done.")]


def talking_scripts(row: ExportedArena) -> dict[str, Script]:
    """Agents by name, each of whom would go on for longer than any user."""
    reference = list(turns_of(goal_of(row.arena).trace))
    calls = [message for message in reference if message.get("tool_calls")]
    done = turn("All of that is done.")
    longer = [done] * 14
    return {
        "reference": [*reference, *longer],
        "never talks": [*[{**one, "content": ""} for one in calls], *longer],
        "says nothing": [turn(" ")] * 14,
        "greets first": [turn("Hello, one moment."), *reference, *longer],
        "stops half way": [*reference[: len(reference) // 2], *longer],
    }
