"""Conversations between an agent by rule and a goal's user, until one of them ends it.

The agent follows events that somebody wrote: those of the goal's own trace, or a floor's. It does
not assume what the user says, but hears it: what follows a turn of these events is played when the
user has said that much. Where the user says something else, the agent says its last words again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from astra.arena.user import User
from astra.arena.verdict import GoalVerdict, judge
from astra.arena.world_runner import WorldRunner
from astra.arena.world_scripts import SpokenTurn
from astra.records.state import Tables
from astra.records.trajectory import StopReason
from astra.records.world import EventKind, TraceEvent, World, WorldGoal

Execute = Callable[[Sequence[TraceEvent]], tuple[Sequence[TraceEvent], Tables]]
"""Executes the calls of a trace from the start: the trace with their results, and the rows."""


class PlayedConversation(NamedTuple):
    """An executed conversation, the rows at its end, the verdict, and how it ended."""

    trace: tuple[TraceEvent, ...]
    rows: Tables
    verdict: GoalVerdict
    ends: StopReason

    @property
    def success(self) -> bool:
        """Whether the goal is reached and the user has closed the conversation."""
        return self.verdict.success and self.ends == StopReason.ANSWERED


class ScriptedAgent:
    """The agent's side of some events, whose first is the opening."""

    def __init__(self, events: Sequence[TraceEvent]) -> None:
        self._parts: list[tuple[TraceEvent, list[SpokenTurn]]] = []
        starts = [at for at, event in enumerate(events) if event.kind == EventKind.USER]
        for start, end in zip(starts, [*starts[1:], len(events)], strict=True):
            self._parts.append((events[start], _spoken(events[start + 1 : end])))
        self._at = 0

    def opened(self) -> list[SpokenTurn]:
        """What the agent does after the opening: the last of its turns has no calls."""
        return self._parts[0][1]

    def heard(self, turn: TraceEvent) -> list[SpokenTurn]:
        """What the agent does after a later turn of the user."""
        for at in range(self._at + 1, len(self._parts)):
            if _says(turn, self._parts[at][0]):
                self._at = at
                return self._parts[at][1]
        return self._parts[self._at][1][-1:]


def _says(turn: TraceEvent, wanted: TraceEvent) -> bool:
    """Whether a turn does what another does, and gives at least as much."""
    facts, tools = turn.facts.items() >= wanted.facts.items(), {*turn.adds_tools}
    return turn.act == wanted.act and facts and tools >= {*wanted.adds_tools}


def _spoken(events: Iterable[TraceEvent]) -> list[SpokenTurn]:
    """Messages and calls as turns: a call ends its turn, the last one has none."""
    spoken: list[SpokenTurn] = []
    said: list[str] = []
    for event in events:
        if event.kind == EventKind.ASSISTANT:
            said.append(event.text)
        else:
            spoken.append(SpokenTurn("\n".join(said), ((event.tool, event.arguments),)))
            said = []
    return [*spoken, SpokenTurn("\n".join(said), ())]


def converse(
    world: World, goal: WorldGoal, events: Sequence[TraceEvent], user: User, execute: Execute
) -> PlayedConversation:
    """Play events against a user until the user ends the conversation. Raises what ``user`` does.

    A tool that is withheld fails until the user has brought it.
    """
    expert = ScriptedAgent(events)
    trace, rows = execute(events[:1])
    spoken = expert.opened()
    while True:
        trace, rows = execute([*trace, *_events(spoken)])
        turn, ends = user.reply(trace, rows)
        trace = [*trace, turn]
        if ends is not None:
            return PlayedConversation(tuple(trace), rows, judge(world, goal, trace, rows), ends)
        spoken = expert.heard(turn)


def converse_by_script(
    runner: WorldRunner, goal: WorldGoal, user: User, events: Sequence[TraceEvent] = ()
) -> PlayedConversation:
    """Play the goal's own trace, or other events, against a user in a runner's world."""

    def execute(all_of: Sequence[TraceEvent]) -> tuple[Sequence[TraceEvent], Tables]:
        away = {*goal.withheld}
        if not runner.trace:
            runner.reset()
        for event in all_of[: len(runner.trace)]:
            away -= {*event.adds_tools}
        for event in all_of[len(runner.trace) :]:
            away -= {*event.adds_tools}
            if event.kind != EventKind.CALL:
                runner.add(event)
            elif event.tool in away:
                runner.add(event.model_copy(update={"failed": f"there is no tool {event.tool!r}"}))
            else:
                runner.call(event.tool, event.arguments)
        return tuple(runner.trace), runner.tables

    runner.reset()
    return converse(runner.base.world, goal, events or goal.trace, user, execute)


def _events(spoken: Iterable[SpokenTurn]) -> list[TraceEvent]:
    events: list[TraceEvent] = []
    for turn in spoken:
        if turn.text:
            events.append(TraceEvent(kind=EventKind.ASSISTANT, text=turn.text))
        for tool, arguments in turn.calls:
            events.append(TraceEvent(kind=EventKind.CALL, tool=tool, arguments={**arguments}))
    return events
