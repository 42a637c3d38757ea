"""What the script of a goal's user has to hold before the goal ships; each fault has its code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from astra.records.world import (
    EventKind,
    FactTime,
    OutcomeKind,
    UserAct,
    UserScript,
    UserTurn,
    WorldGoal,
)
from astra.worlds.goal_faults import GoalFault, stated
from astra.worlds.user_scripts import FEWEST, MOST, PLAIN, facts_of, wording_fault
from astra.worlds.view import WorldView

A = UserAct
_ONCE = frozenset({*PLAIN, A.CHOOSE, A.CHANGE, A.TOOL})
_OWN = frozenset({A.CHOOSE, A.CHANGE, A.TOOL, A.REQUEST})
"""Acts that are turns of the goal's trace, and have one in the script for each."""


def script_faults(view: WorldView, goal: WorldGoal) -> Iterator[GoalFault]:
    """Everything that is wrong with a goal's script, in the order in which it is looked for."""
    script = goal.script
    if script is None:
        yield GoalFault("no_script", "nobody answers the agent")
        return
    yield from _facts(view, goal, script)
    yield from _turns(goal, script)
    for turn in script.turns:
        yield from _wordings(view, script, turn)
    yield from _opening(goal, script)
    needed = sum(event.kind == EventKind.USER for event in goal.trace) + 1
    if script.patience < 1 or script.most_turns < needed:
        borne = f"{script.patience} messages in vain and {script.most_turns} turns"
        yield GoalFault("impatient", f"{borne} are borne, and the goal takes {needed} turns")


def _facts(view: WorldView, goal: WorldGoal, script: UserScript) -> Iterator[GoalFault]:
    """The facts are those of the goal's turns and the user's own data, and come when these do."""
    known = {(fact.slot, str(fact.value), fact.when) for fact in facts_of(view, goal)}
    told = {(fact.slot, str(fact.value), fact.when) for fact in script.facts}
    for slot, value, when in sorted(known - told):
        yield GoalFault("fact_missing", f"{slot} {value} {when}")
    for slot, value, when in sorted(told - known):
        yield GoalFault("fact_invented", f"{slot} {value} {when}")


def _turns(goal: WorldGoal, script: UserScript) -> Iterator[GoalFault]:
    """There is a turn for everything that the user may have to say, and no other."""
    acts = Counter(turn.act for turn in script.turns)
    for act in PLAIN:
        if not acts[act]:
            yield GoalFault("turn_missing", f"nothing to {act}")
    for act in sorted(_ONCE):
        if acts[act] > 1:
            yield GoalFault("turn_doubled", f"{acts[act]} turns {act}")
    own = Counter(event.act for event in goal.trace if event.kind == EventKind.USER)
    for act in sorted(_OWN):
        if acts[act] != own[act]:
            reason = "turn_missing" if acts[act] < own[act] else "turn_invented"
            yield GoalFault(reason, f"{act}: {own[act]} of the goal, {acts[act]} of the script")
    given = Counter((slot, turn.changed) for turn in script.turns
                    if turn.act in (A.ANSWER, A.CHOOSE) for slot in turn.slots)  # fmt: skip
    for fact in script.facts:
        number = given[fact.slot, fact.when is FactTime.CHANGE]
        if number != 1:
            yield GoalFault("turn_doubled" if number else "turn_missing", f"to tell {fact.slot}")
    for turn in script.turns:
        if turn.act in PLAIN and (turn.slots or turn.adds_tools):
            yield GoalFault("turn_discloses", f"{turn.act} gives {turn.slots}{turn.adds_tools}")
        if (turn.act is A.ANSWER and len(turn.slots) != 1) or turn.act in (A.OPENING,):
            yield GoalFault("turn_invented", f"{turn.act} gives {turn.slots}")
    yield from _own_turns(goal, script)


def _own_turns(goal: WorldGoal, script: UserScript) -> Iterator[GoalFault]:
    """The turns of the goal give in the script what they give in the goal."""
    for act in sorted(_OWN):
        said = [event for event in goal.trace if event.act is act]
        turns = [turn for turn in script.turns if turn.act is act]
        for event, turn in zip(said, turns, strict=False):
            if {*event.facts} != {*turn.slots}:
                yield GoalFault("turn_discloses", f"{act} gives {turn.slots}")
            if {*event.adds_tools} != {*turn.adds_tools}:
                yield GoalFault("tool_not_brought", f"{act} brings {turn.adds_tools}")
    late = goal.outcome.kind is OutcomeKind.DONE and bool(goal.withheld)
    brought = {name for turn in script.turns for name in turn.adds_tools}
    if late and brought != {*goal.withheld}:
        yield GoalFault("tool_not_brought", f"{goal.withheld} are withheld, {brought} come")


def _wordings(view: WorldView, script: UserScript, turn: UserTurn) -> Iterator[GoalFault]:
    number = len({*turn.wordings})
    if not FEWEST <= number <= MOST or number != len(turn.wordings):
        yield GoalFault("few_wordings", f"{turn.act} {turn.slots} has {number}")
    for text in turn.wordings:
        if why := wording_fault(view, script, turn, text):
            yield GoalFault(why, f"{turn.act} {turn.slots}: {text!r}")


def _opening(goal: WorldGoal, script: UserScript) -> Iterator[GoalFault]:
    """The opening tells nothing of what is held back, unless it is the same as something told."""
    text = goal.trace[0].text
    told = [fact.value for fact in script.facts if fact.when is FactTime.OPENING]
    for fact in script.facts:
        held_back = fact.when is not FactTime.OPENING and fact.value not in told
        if held_back and stated(fact.value, text):
            yield GoalFault("opening_leaks", f"the opening says {fact.slot} {fact.value}")
