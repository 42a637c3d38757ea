"""What a message of the agent asks of the user.

The act is what a linear model finds likeliest (``act_weights``): it weighs words, what the rules
find (``act_rules``), and where in the conversation the message stands. What the act is about is
read by rules. A message that says the same again and again is OTHER, which discloses nothing and
ends nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from astra.arena import told_phrases as tells
from astra.arena.act_features import FOUND, features, placed, where
from astra.arena.act_questions import put_up, questions_in, read_question
from astra.arena.act_reports import is_refusal
from astra.arena.act_rules import announces, asks_leave, findings, impending, leans, ruled_act
from astra.arena.act_weights import likeliest
from astra.arena.agreements import is_of_other
from astra.arena.asked_slots import Slot, asked_for, proposed_slots, slots_of
from astra.arena.heard_message import (
    HeardMessage,
    MessageReading,
    heard_message,
    is_babble,
    last_words,
)
from astra.arena.traces import is_success
from astra.records.world import (
    AgentAct,
    EventKind,
    FactTime,
    OutcomeKind,
    TraceEvent,
    UserAct,
    World,
    WorldGoal,
)

MOST_CHARACTERS = 6_000
"""So much of a message is read, half of it from either end; no user reads more."""


def read_message(world: World, goal: WorldGoal, trace: Sequence[TraceEvent]) -> MessageReading:
    """The act of what the agent said since the user's last turn and its last call, and what that is
    about."""
    raw = _bounded(last_words(trace))
    message = heard_message(world, raw, trace)
    if is_babble(message):
        return MessageReading(AgentAct.OTHER)
    act = likeliest(_features(world, goal, raw, message, trace))
    if act not in (AgentAct.PROPOSE, AgentAct.OFFER, AgentAct.ASK):
        return MessageReading(act)
    slots = slots_of(world, goal.script.facts if goal.script else ())
    asking = questions_in(message)
    every = [one for one, _ in message.said]
    if act == AgentAct.PROPOSE:
        reading = _proposed(world, goal, slots, message, raw, asking, trace)
    elif act == AgentAct.OFFER:
        reading = MessageReading(act, put_up(world, slots, message, "\n".join(asking or every)))
    else:
        reading = read_question(world, slots, message, asking or every)
    return reading._replace(refuses=any(is_refusal(message, one) for one in every))


def message_features(world: World, goal: WorldGoal, trace: Sequence[TraceEvent]) -> set[str]:
    """What the model weighs of the last message of a trace; the verdict of the rules among it."""
    raw = _bounded(last_words(trace))
    return _features(world, goal, raw, heard_message(world, raw, trace), trace)


def _features(
    world: World, goal: WorldGoal, raw: str, message: HeardMessage, trace: Sequence[TraceEvent]
) -> set[str]:
    verdict = ruled_act(world, raw, message, wanted_calls(world, goal, trace))
    found = {f"{FOUND}{one}" for one in (f"act {verdict}", *findings(world, raw, message))}
    places = {*where(world, trace)}
    found |= places | features(world, message, raw, trace)
    return found.union(placed(places, found))


def _bounded(raw: str) -> str:
    """So much of a message as is read."""
    if len(raw) <= MOST_CHARACTERS:
        return raw
    return f"{raw[: MOST_CHARACTERS // 2]}\n{raw[-MOST_CHARACTERS // 2 :]}"


def _proposed(
    world: World, goal: WorldGoal, slots: Sequence[Slot], message: HeardMessage, raw: str,
    asking: Sequence[str], trace: Sequence[TraceEvent],
) -> MessageReading:  # fmt: skip
    """A proposal: whether it is wanted, and what it asks for on the way."""
    told = {slot for event in trace if event.kind == EventKind.USER for slot in event.facts}
    held = [one for one in slots if one.fact.when == FactTime.ASKED and one.fact.slot not in told]
    put = proposed_slots(world, held, message.text)
    asks = "\n".join(_besides(world, message, one) for one in asking)
    asked = asked_for(world, slots, asks, message.text).slots if asks else ()
    # "Cancelling it now" in the form that proposals are told apart by, as "canceling" as well
    coming = {found for one, _ in message.said for found in impending(one)}
    coming |= {found.replace("ll", "l") for found in coming}
    text = "\n".join((raw, *(f"I will {one}." for one in sorted(coming))))
    core = "\n".join(
        one
        for one, _ in message.said
        if one in asking
        or announces(world, message, one)
        or asks_leave(message, one, True)
        or leans(world, message, one, True)
    )
    wanted = any(
        not is_of_other(world, call, text, world.rows)
        and not is_of_other(world, call, core, world.rows)
        and not _names_other_row(world, call, core)
        for call in wanted_calls(world, goal, trace)
    )
    return MessageReading(AgentAct.PROPOSE, tuple(dict.fromkeys((*put, *asked))), wanted=wanted)


def _besides(world: World, message: HeardMessage, sentence: str) -> str:
    """What a sentence of a proposal asks for besides agreement."""
    if not asks_leave(message, sentence, True) and not leans(world, message, sentence, True):
        return sentence
    found = tells.TO_KNOW.search(sentence)
    return found[0] if found else ""


def _names_other_row(world: World, call: TraceEvent, said: str) -> bool:
    """Whether a text names another row than a call does where the call's may not exist."""
    words = set(tells.NAMES.findall(said))
    for table in world.tables:
        value = str(call.arguments.get(table.key, "")).casefold()
        keys = {str(row[table.key]).casefold() for row in world.rows[table.name]}
        if value and value not in words and words & keys:
            return True
    return False


def wanted_calls(world: World, goal: WorldGoal, trace: Sequence[TraceEvent]) -> list[TraceEvent]:
    """The calls that write which the user wants now and that have not been made: those of the
    goal's trace, up to a request that is still to come; before a change of mind, and where a wish
    is declined, those of the wish."""
    writing = {one.tool.name for one in world.tools if one.changes or one.writes}
    heard = [one.act for one in trace if one.kind == EventKind.USER]
    requests = [at for at, one in enumerate(goal.trace) if one.act == UserAct.REQUEST]
    end = (*requests, len(goal.trace))[min(heard.count(UserAct.REQUEST), len(requests))]
    calls = [one for one in goal.trace[:end] if is_success(one) and one.tool in writing]
    changed = UserAct.CHANGE in heard
    if goal.wish and goal.outcome.kind != OutcomeKind.DONE:
        calls += goal.wish
    elif goal.wish and not changed:
        given_up = {one.tool for one in goal.wish}
        calls = [*goal.wish, *(one for one in calls if one.tool not in given_up)]
    if not calls:  # what holds already is wanted as well
        calls = [TraceEvent(kind=EventKind.CALL, tool=one.tool, arguments=one.arguments)
                 for one in goal.asks if one.tool]  # fmt: skip
    made = [(one.tool, one.arguments) for one in trace if is_success(one)]
    return [one for one in calls if (one.tool, one.arguments) not in made]
