"""The script of a goal's user, derived from the goal: what they know, and how they say it.

What the goal's own turns hold back comes only when it is asked for; the words are those of the
goal's turns and others that say as much. ``wording_fault`` says what no wording may do.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from astra.arena.user_words import MAY_I, turn_faults
from astra.records.state import Row
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
from astra.worlds import turns
from astra.worlds.program import NoProgram
from astra.worlds.view import WorldView

A = UserAct
FEWEST, MOST = 4, 8
"""Wordings of a turn."""
PATIENCE, MOST_TURNS = 2, 10
"""Ours, as in the reference on worlds with a user."""
PLAIN: Mapping[UserAct, tuple[str, ...]] = {
    A.CONFIRM: ("Yes, please do.", "Yes, that is right.", "That is fine, go ahead.",
                "Correct, I agree.", "Yes, I agree.", "Yes, go ahead."),
    A.REJECT: ("No, that is not what I want. Please keep to what I asked for.",
               "No, I did not ask for that. I want what I told you.",
               "No, please do only what I asked for.",
               "No, that is something else than I want.",
               "No, not that. What I want is what I said before."),
    A.UNKNOWN: ("I do not know more than that.", "I am afraid I cannot tell you more.",
                "Beyond that I have no idea, I have told you what I know.",
                "Sorry, I do not know anything else.", "More I do not know, sorry."),
    A.NUDGE: ("Please see to what I asked for, one way or the other.",
              "And where does that leave my request?",
              "Please settle my request, whichever way it is.",
              "Could you please settle what I asked for, one way or the other?",
              "For me my request is still open. Please settle it.",
              "So what is to become of it?"),
    A.CLOSE: ("Thank you, that is all. Goodbye.", "All right, thanks. Bye.",
              "Thanks, I need nothing else. Goodbye.", "Very well, that was it. Goodbye.",
              "Thank you for your time. Bye."),
    A.LEAVE: ("This leads nowhere. Goodbye.", "I have no more time for this. Goodbye.",
              "I give up. Goodbye.", "Let us leave it there. Bye.", "This takes too long. Bye."),
}  # fmt: skip
"""What discloses nothing. That more is not known may follow an answer, and a nudge may follow a
refusal or a report."""
_TOOL = ("There is a new tool for you now. Please go on with it.",
         "You have got a new tool for that now. Please try again.",
         "I see that you were given another tool. Please use it.",
         "They have just added a tool for you. Please go on.",
         "A further tool is there for you now. Please see to it.")  # fmt: skip
_CHOICES = ("I mean {it}.", "It is {it}.", "{it}, please.", "That would be {it}.",
            "Please take {it}.", "The right one is {it}.")  # fmt: skip
_CHANGES = ("Wait, I changed my mind about that: {it} instead.",
            "Hold on, I would rather have something else: {it}.",
            "Sorry, I changed my mind. Please make it {it} instead.",
            "On second thought, I want it otherwise: {it} instead.",
            "Stop, not like that. I now want {it} instead.")  # fmt: skip
_ANSWERS = ("The {slot}: {value}.", "The {slot} is {value}.", "It is {value}.",
            "That would be {value}.", "{value}, please.", "{slot}: {value}.")  # fmt: skip
_KEYS = ("I mean {value}.", "It is {value}.", "It is about {value}.", "{value}, please.",
         "That would be {value}.")  # fmt: skip
_OWN = ("My {slot} is {value}.", "It is {value}.", "The {slot} is {value}.", "That is {value}.",
        "{slot}: {value}.")  # fmt: skip
_NEXT = ("", "Thank you. ", "Good. ", "Fine, thanks. ", "And one more thing. ", "All right. ")


def user_script(view: WorldView, goal: WorldGoal, rng: random.Random) -> UserScript:
    """The script of a goal whose trace has all turns of its user. Raises NoProgram where too few
    wordings of a turn say what they must and nothing else."""
    facts, own = facts_of(view, goal), [*_own_turns(view, goal, rng)]
    chosen = {slot for turn in own if turn.act is A.CHOOSE for slot in turn.slots}
    made = [*_answers(view, [one for one in facts if one.slot not in chosen], rng), *own]
    made += [UserTurn(act=act, wordings=wordings) for act, wordings in PLAIN.items()]
    script = UserScript(
        facts=facts, turns=tuple(made), patience=PATIENCE, most_turns=MOST_TURNS
    )  # fmt: skip
    sifted = tuple(_sifted(view, script, turn, rng) for turn in made)
    return script.model_copy(update={"turns": sifted})


def facts_of(view: WorldView, goal: WorldGoal) -> tuple[UserFact, ...]:
    """What the user knows: what their turns disclose, and what the finding tool takes of their own
    row besides."""
    said = [
        UserFact(slot=slot, value=value, when=_time(event) if at else FactTime.OPENING)
        for at, event in enumerate(goal.trace) if event.kind == EventKind.USER
        for slot, value in event.facts.items()
    ]  # fmt: skip
    known = turns.own(_own_row(view, goal))
    slots = {fact.slot for fact in said}
    return (*said, *(UserFact(slot=slot, value=value, when=FactTime.ASKED)
                     for slot, value in known.items() if slot not in slots))  # fmt: skip


def _time(event: TraceEvent) -> FactTime:
    """When the user tells the facts of a turn after the opening."""
    times = {A.CHANGE: FactTime.CHANGE, A.REQUEST: FactTime.REQUEST}
    return times.get(event.act or A.ANSWER, FactTime.ASKED)


def _own_row(view: WorldView, goal: WorldGoal) -> Row:
    """The cells of the user's own row by which the finding tool finds it."""
    find = view.find.tool.name
    given = next((event.arguments for event in goal.trace if event.tool == find), {})
    rows = view.rows[view.party.name].values()
    mine = next((row for row in rows if given and given.items() <= row.items()), {})
    return {name: mine[name] for name in view.parameters(find) if mine.get(name) is not None}


# Turns -------------------------------------------------------------------------------------------


def _answers(
    view: WorldView, facts: Iterable[UserFact], rng: random.Random
) -> Iterator[UserTurn]:  # fmt: skip
    """What gives each fact."""
    for fact in facts:
        yield UserTurn(
            act=A.ANSWER, slots=(fact.slot,), changed=fact.when is FactTime.CHANGE,
            wordings=tuple(_worded(view, fact, rng)),
        )  # fmt: skip


def _worded(view: WorldView, fact: UserFact, rng: random.Random) -> Iterator[str]:
    """The ways to give a fact."""
    own, _, name = fact.slot.rpartition("own ")
    parameter, _, number = name.partition(" ")
    name = parameter if number.isdigit() else name
    table = view.table_of(name) if "." not in name else None
    slot = turns.words(name.rpartition(".")[2])
    templates = _OWN if fact.slot.startswith("own ") and not own else _ANSWERS
    if table is not None and isinstance(fact.value, str):
        templates = _KEYS
    for template in templates:
        value = turns.form(fact.value, rng)
        if templates is _OWN:
            value = str(fact.value)
        elif templates is _KEYS and table is not None:
            value = turns.key_phrase(view, table.name, fact.value)
        yield _sentence(template.format(slot=slot, value=value))


def _own_turns(view: WorldView, goal: WorldGoal, rng: random.Random) -> Iterator[UserTurn]:
    """The turns of the goal's own that are no plain answers, in its words first."""
    written = {tool.tool.name for tool in view.world.tools if tool.writes}
    for at, event in enumerate(goal.trace):
        slots = tuple(event.facts)
        match event.act:
            case A.CHOOSE:
                it = event.text.removeprefix("I mean ").removesuffix(".")
                others = (_sentence(one.format(it=it)) for one in _CHOICES)
                yield UserTurn(act=A.CHOOSE, slots=slots, wordings=(event.text, *others))
            case A.CHANGE:
                it = event.text.partition(": ")[2].removesuffix(" instead.")
                others = (one.format(it=it) for one in _CHANGES)
                yield UserTurn(act=A.CHANGE, slots=slots, wordings=(event.text, *others))
            case A.TOOL:
                adds = event.adds_tools
                yield UserTurn(act=A.TOOL, wordings=(event.text, *_TOOL), adds_tools=adds)
            case A.REQUEST:
                yield UserTurn(
                    act=A.REQUEST, slots=slots, wordings=tuple(_requests(goal, at, rng)),
                    after=sum(one.tool in written for one in goal.trace[:at]),
                )  # fmt: skip
            case _:
                pass


def _requests(goal: WorldGoal, at: int, rng: random.Random) -> Iterator[str]:
    """Ways to come with a further wish: the goal's, and its first sentence in other words."""
    text = goal.trace[at].text
    yield text
    asked = next((ask.text for ask in goal.asks if ask.at == at), text)
    ways = turns.rephrased(asked)
    starts = [*_NEXT]
    rng.shuffle(starts)
    for number, start in enumerate(starts):
        yield start + text.replace(asked, ways[number % len(ways)])


def _sentence(text: str) -> str:
    """A sentence begins with a capital, but for an address."""
    if "@" in text.split()[0]:
        return text
    return text[:1].upper() + text[1:]


def _sifted(view: WorldView, script: UserScript, turn: UserTurn, rng: random.Random) -> UserTurn:
    """The turn with those of its wordings that pass, so many at most."""
    right = [
        text for text in dict.fromkeys(turn.wordings) if not wording_fault(view, script, turn, text)
    ]
    if len(right) < FEWEST:
        raise NoProgram("few_wordings")
    first, rest = right[0], right[1:]
    rng.shuffle(rest)
    return turn.model_copy(update={"wordings": (first, *rest[: MOST - 1])})


# What a wording may not do ------------------------------------------------------------------------


def due_facts(script: UserScript, turn: UserTurn) -> dict[str, Any]:
    """What a turn has to tell, by slot."""
    changed = turn.changed or turn.act is A.CHANGE
    return {fact.slot: fact.value for fact in script.facts
            if fact.slot in turn.slots and changed is (fact.when is FactTime.CHANGE)}  # fmt: skip


def wording_fault(view: WorldView, script: UserScript, turn: UserTurn, text: str) -> str:
    """The code of what is wrong with a wording of a turn first; empty where nothing is.

    Anything may have been said before it, and it may have to answer whether the agent may go on:
    what ``arena.user_words.turn_faults`` finds then. A turn that discloses nothing names no tool
    and no table by its identifier, be it an ordinary word.
    """
    spoken = TraceEvent(kind=EventKind.USER, act=turn.act, facts=due_facts(script, turn))
    faults = turn_faults(view.world, script, spoken, text, [MAY_I])
    names = {tool.tool.name for tool in view.world.tools} | {*view.tables}
    if turn.act in PLAIN and any(name in text for name in names):
        faults.append("names")
    return f"wording_{faults[0].partition(':')[0]}" if faults else ""
