"""Ways through a goal without a model: the reference, and five floors that must not pay.

An agent that does nothing, one that declines or hands over whatever it is asked, one that takes the
first row it sees wherever the user's words leave a row to be found, and one that takes the first
row or value that there is instead of asking for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from astra.arena.statements import states
from astra.arena.traces import is_success, records_in
from astra.arena.verdict import GoalVerdict, judge
from astra.arena.world_runner import WorldRunner
from astra.records.state import Tables
from astra.records.world import (
    EventKind,
    OutcomeKind,
    ToolRole,
    TraceEvent,
    UserAct,
    World,
    WorldGoal,
)


class WorldScript(StrEnum):
    """How a goal is played by rule."""

    REFERENCE = "reference"  # the goal's own trace
    MUTE = "mute"  # nothing
    DECLINE = "decline"  # declines at once, always with the same code
    HAND_OVER = "hand_over"  # hands over at once, likewise
    FIRST_CANDIDATE = "first_candidate"  # the reference with the first of the rows that it saw
    NEVER_ASKS = "never_asks"  # the reference without its questions, with what comes first


_ENDINGS = {
    WorldScript.DECLINE: (ToolRole.DECLINE, OutcomeKind.DECLINED),
    WorldScript.HAND_OVER: (ToolRole.HAND_OVER, OutcomeKind.HANDED_OVER),
}


class PlayedGoal(NamedTuple):
    """An executed trace, the rows at its end, and the verdict."""

    trace: tuple[TraceEvent, ...]
    rows: Tables
    verdict: GoalVerdict


def play_goal(runner: WorldRunner, goal: WorldGoal, events: Sequence[TraceEvent]) -> PlayedGoal:
    """Execute events from the start of the runner's world, and judge them."""
    trace = runner.replay(events)
    return PlayedGoal(trace, runner.tables, judge(runner.base.world, goal, trace, runner.tables))


def best_codes(goals: Iterable[WorldGoal]) -> dict[OutcomeKind, str]:
    """The code with which most declined, and most handed over, goals end; ties by name."""
    counts: dict[OutcomeKind, Counter[str]] = {}
    for goal in goals:
        counts.setdefault(goal.outcome.kind, Counter())[goal.outcome.reason] += 1
    return {kind: min(one, key=lambda code: (-one[code], code)) for kind, one in counts.items()}


def goal_script(
    script: WorldScript, runner: WorldRunner, goal: WorldGoal, codes: Mapping[OutcomeKind, str]
) -> tuple[TraceEvent, ...] | None:
    """The events of a script, turns of the user included; None where it does not apply.

    ``codes``: with which an agent declines and hands over that always does. FIRST_CANDIDATE
    executes the reference, whose results say what an agent would see first.
    """
    if script == WorldScript.REFERENCE:
        return goal.trace
    if script == WorldScript.MUTE:
        return goal.trace[:1]
    if script == WorldScript.FIRST_CANDIDATE:
        return first_candidate(runner.base.world, goal, runner.replay(goal.trace))
    if script == WorldScript.NEVER_ASKS:
        return never_asks(runner.base.world, goal)
    role, outcome = _ENDINGS[script]
    tool = next((tool for tool in runner.base.world.tools if tool.role == role), None)
    if tool is None:
        return None
    required = tool.tool.parameters.get("required", ())
    given = dict.fromkeys(required, codes.get(outcome, "as asked"))
    call = TraceEvent(kind=EventKind.CALL, tool=tool.tool.name, arguments=given)
    return (goal.trace[0], call, TraceEvent(kind=EventKind.ASSISTANT, text="I cannot do that."))


class _Swap(NamedTuple):
    """A row taken for another from an event on."""

    start: int
    table: str
    meant: str
    taken: str


def first_candidate(
    world: World, goal: WorldGoal, reference: Sequence[TraceEvent]
) -> tuple[TraceEvent, ...] | None:
    """The goal's trace with the first row in place of the one that is meant.

    ``reference`` is the executed trace. The first of ``candidates`` is the one that comes first in
    the world's rows; that of a row named implicitly, the first in the result that showed it. None
    where nothing that the agent does or says is about such a row.
    """
    swaps = [swap for swap in _swaps(world, goal, reference) if _matters(goal, swap)]
    if not swaps:
        return None
    return tuple(_swapped(world, goal, at, one, swaps) for at, one in enumerate(goal.trace))


def _swaps(world: World, goal: WorldGoal, reference: Sequence[TraceEvent]) -> Iterator[_Swap]:
    tables = {table.name: table for table in world.tables}
    if goal.candidates:
        yield _chosen(world, goal)
    shows = {tool.tool.name: tool.shows for tool in world.tools}
    for one in goal.references:
        for event in reversed(reference[: one.at]):
            column = tables[one.table].key
            if not is_success(event) or one.table not in shows[event.tool]:
                continue
            keys = [row[column] for row in records_in(event.result) if column in row]
            if one.key in keys and len(set(keys)) > 1:
                yield _Swap(one.at, one.table, one.key, keys[0])
                break


def _chosen(world: World, goal: WorldGoal) -> _Swap:
    """The first of the rows that the wording fits, for the one that is meant."""
    columns = goal.candidates[0].keys()
    table = next(one for one in world.tables if {c.name for c in one.columns} == columns)
    keys = [row[table.key] for row in goal.candidates]
    taken = next(key for row in world.rows[table.name] if (key := row[table.key]) in keys)
    return _Swap(0, table.name, keys[0], taken)


def never_asks(world: World, goal: WorldGoal) -> tuple[TraceEvent, ...] | None:
    """The goal's trace without the questions that the user answers, and with the first row or value
    that there is in place of what the answers tell. None where the user is asked for nothing."""
    answers = [at for at, event in enumerate(goal.trace)
               if event.act in (UserAct.ANSWER, UserAct.CHOOSE)]  # fmt: skip
    if not answers:
        return None
    guesses: dict[Any, Any] = {}
    for at in answers:
        if goal.trace[at].act == UserAct.CHOOSE:
            swap = _chosen(world, goal)
            guesses[swap.meant] = swap.taken
            continue
        for slot, value in goal.trace[at].facts.items():
            guesses[value] = _guess(world, goal, slot, value)
    gone = {*answers, *(at - 1 for at in answers)}
    return tuple(_guessed(event, guesses) for at, event in enumerate(goal.trace) if at not in gone)


def _guess(world: World, goal: WorldGoal, slot: str, value: Any) -> Any:
    """The first value that the document of the call's tool has for a parameter."""
    taking = {event.tool for event in goal.trace if event.arguments.get(slot) == value}
    tool = next(one.tool for one in world.tools if one.tool.name in taking)
    schema = tool.parameters["properties"][slot]
    if options := schema.get("enum"):
        return options[0]
    if schema.get("type") in ("integer", "number"):
        return schema.get("minimum", 1)
    return world.clock[:10]


def _guessed(event: TraceEvent, guesses: Mapping[Any, Any]) -> TraceEvent:
    text = event.text
    for value, guess in guesses.items() if event.kind == EventKind.ASSISTANT else ():
        told = re.escape(str(value).replace("_", " "))
        said = str(guess).replace("_", " ")
        text = re.sub(rf"(?<![\w-]){told}(?![\w-])", lambda _, said=said: said, text)
    given = {name: guesses.get(value, value) if isinstance(value, str | int | float) else value
             for name, value in event.arguments.items()}  # fmt: skip
    return event.model_copy(update={"text": text, "arguments": given})


def _matters(goal: WorldGoal, swap: _Swap) -> bool:
    """Whether a later call takes the row, or the agent has to say something of it."""
    calls = goal.trace[swap.start :]
    taken = any(swap.meant in call.arguments.values() for call in calls if call.tool)
    return taken or any(proof.key == swap.meant for say in goal.say for proof in say.read)


def _swapped(
    world: World, goal: WorldGoal, at: int, event: TraceEvent, swaps: Sequence[_Swap]
) -> TraceEvent:
    if event.kind == EventKind.ASSISTANT:
        return event.model_copy(update={"text": _said(world, goal, event.text, swaps)})
    arguments = dict(event.arguments)
    for swap in swaps:
        if event.kind == EventKind.CALL and at >= swap.start:
            same = [name for name, value in arguments.items() if value == swap.meant]
            arguments |= dict.fromkeys(same, swap.taken)
    return event.model_copy(update={"arguments": arguments})


def _said(world: World, goal: WorldGoal, text: str, swaps: Sequence[_Swap]) -> str:
    """A message with the cell of the row that was taken, where it states that of the one meant."""
    keys = {table.name: table.key for table in world.tables}
    for say in goal.say:
        for swap in swaps:
            cells = [
                row.get(proof.column)
                for proof in say.read
                if (proof.table, proof.key) == (swap.table, swap.meant)
                for row in world.rows[swap.table]
                if row[keys[swap.table]] == swap.taken
            ]
            if cells and states(say.answer, text):
                text = f"It is {cells[0]}."
    return text


class SpokenTurn(NamedTuple):
    """A turn of the agent: what it says and the calls that it makes, by tool and arguments."""

    text: str
    calls: tuple[tuple[str, Mapping[str, Any]], ...]


def agent_turns(events: Sequence[TraceEvent]) -> list[SpokenTurn]:
    """Events after the opening as the agent's turns of a chat: a call ends its turn, and so does
    a turn of the user, which the user of the chat says. The last one has no call."""
    turns: list[SpokenTurn] = []
    said: list[str] = []
    for event in events[1:]:
        if event.kind == EventKind.USER:
            turns.append(SpokenTurn("\n".join(said), ()))
            said = []
        elif event.kind == EventKind.ASSISTANT:
            said.append(event.text)
        else:
            turns.append(SpokenTurn("\n".join(said), ((event.tool, event.arguments),)))
            said = []
    if said or not turns or turns[-1].calls:
        turns.append(SpokenTurn("\n".join(said), ()))
    return turns
