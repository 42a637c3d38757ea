"""What a message of the agent asks of the user, read by rules.

A message is taken apart into sentences, each of which does one thing; of the acts of all of them
the first in the order of ``AgentAct`` counts. What the message repeats of the user's own words, its
pleasantries and what looks like thoughts or calls do nothing. In doubt a message is OTHER: that
discloses nothing and ends nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from astra.arena import act_phrases as phrases
from astra.arena import told_phrases as tells
from astra.arena.act_questions import (
    count_options,
    has_options,
    is_asking,
    is_ordered,
    is_question,
    is_wish,
    offers_reading,
    put_up,
    puts_up_options,
    questions_in,
    read_question,
)
from astra.arena.act_reports import holds_value, is_no_telling, is_refusal, is_report
from astra.arena.agreements import is_of_other
from astra.arena.asked_slots import Slot, asked_for, proposed_slots, slots_of
from astra.arena.claims import stems
from astra.arena.heard_message import (
    KEY,
    HeardMessage,
    MessageReading,
    changes_in,
    deeds_in,
    heard_message,
    is_babble,
    last_words,
    names_change,
    names_deed,
    names_tool,
)
from astra.arena.statements import places_of
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

MOST_CHARACTERS = 8_000
"""So much of a message is read, half of it from either end; no user reads more."""
_TAIL = 10
"""So many words at most ask for agreement and for nothing else."""


def read_message(world: World, goal: WorldGoal, trace: Sequence[TraceEvent]) -> MessageReading:
    """The act of what the agent said since the user's last turn and its last call, and what that is
    about."""
    raw = _bounded(last_words(trace))
    message = heard_message(world, raw, trace)
    facts = goal.script.facts if goal.script else ()
    slots = slots_of(world, facts)
    if is_babble(message):
        return MessageReading(AgentAct.OTHER)
    asking = questions_in(message)
    offers = puts_up_options(world, message, asking)
    if _proposes(world, message, wanted_calls(world, goal, trace), offers):
        return _proposed(world, goal, slots, message, asking, trace)
    if offers:
        return MessageReading(AgentAct.OFFER, put_up(world, slots, message, "\n".join(asking)))
    made_up = is_no_telling(raw, message)
    if made_up:
        asking = [one for one in asking if is_question(one)]
    if asking:
        return read_question(world, slots, message, asking)
    if made_up:
        return MessageReading(AgentAct.OTHER)
    for act, does in ((AgentAct.REFUSE, is_refusal), (AgentAct.REPORT, is_report)):
        if any(does(message, sentence) for sentence, _ in message.said):
            return MessageReading(act)
    return MessageReading(AgentAct.OTHER)


def _bounded(raw: str) -> str:
    """So much of a message as is read."""
    if len(raw) <= MOST_CHARACTERS:
        return raw
    return f"{raw[: MOST_CHARACTERS // 2]}\n{raw[-MOST_CHARACTERS // 2 :]}"


def _proposes(
    world: World, message: HeardMessage, wanted: Sequence[TraceEvent], offers: bool
) -> bool:
    """Whether a message says which change is going to be made, or asks whether it may be.
    ``offers``: it puts up several things, of which a vague question picks none."""
    seeks = [is_asking(one) and (not is_question(one) or phrases.WH.search(one) is not None)
             for one, _ in message.said]  # fmt: skip
    for at, (one, _) in enumerate(message.said):
        later = (any(seeks[:at]) and tells.AFTERWARDS.search(one)) or (
            any(seeks) and tells.EAGER.search(one)
        )
        if not later and _announces(world, message, one):
            return True
    named = any(_sums_up(one, message.text) for one in wanted)
    for one, _ in message.said:
        if not named and not (is_question(one) and phrases.WH.match(one)):
            named = names_change(world, message, one)
        if _asks_leave(message, one, named):
            return True
        if not offers and _leans(world, message, one, named):
            return True
    return not offers and _could_do(message)


def _leans(world: World, message: HeardMessage, sentence: str, named: bool) -> bool:
    """Whether a sentence makes a change hang on a yes, in whatever words: its last clause asks for
    agreement and nothing else, it asks whether a change or a value would do, or awaits consent."""
    if tells.HANDED.search(sentence) or phrases.CONFIRM_VALUE.search(sentence):
        return False
    if tells.LOST.search(message.text):
        return False
    if not is_question(sentence):
        return named and _awaits(sentence)
    if has_options(message, sentence):
        return False
    bare = phrases.BEFORE.sub(" ", sentence)
    agreed = named and not phrases.WH.search(bare) and tells.GO_ON.search(bare)
    if agreed or (_is_consent(sentence) and (named or KEY.search(message.text))):
        return not tells.HANDED.search(message.text)
    if phrases.WH.search(bare) or phrases.KNOWING.search(bare) or is_wish(message, sentence):
        return False
    if named and _may_do(bare):
        return True
    if is_ordered(sentence) or offers_reading(message, sentence):
        return False
    if deeds_in(message, bare):
        return True
    if phrases.WOULD_YOU_LIKE.search(bare) and (
        count_options(world, bare) or names_deed(world, bare)
    ):
        return True
    if tells.ACCEPT.search(bare):
        return True
    return phrases.SUITS.search(bare) is not None and (named or holds_value(bare))


def _may_do(sentence: str) -> bool:
    """Whether a question asks leave to do something that is not to read or to ask."""
    return any(
        (phrases.IDLE - tells.LIGHT).isdisjoint({found[1], *stems(found[1])})
        for found in phrases.MAY_I.finditer(sentence)
    )


def _awaits(sentence: str) -> bool:
    """Whether what is no question asks for agreement."""
    if any(one.search(sentence) for one in (phrases.WAITING, tells.REFUSED, tells.ANY_ROW)):
        return False
    return phrases.ASSENT.search(sentence) is not None or phrases.DO_IT.search(sentence) is not None


def _is_consent(sentence: str) -> bool:
    """Whether the last clause of a question has no words but those that ask for agreement."""
    words = tells.WORD.findall(tells.CLAUSE.split(sentence.rstrip("?!\"')*_ "))[-1])
    return (
        0 < len(words) <= _TAIL
        and not phrases.WH.match(words[0])
        and not phrases.CONSENT.isdisjoint(words)
        and phrases.CONSENT.union(phrases.FILLING).issuperset(words)
    )


def _could_do(message: HeardMessage) -> bool:
    """Whether a message says what change could be made, with its values, and nothing besides."""
    if any(
        is_asking(one) or is_refusal(message, one) or tells.DONE.search(one)
        for one, _ in message.said
    ):
        return False
    return any(
        stems(" ".join(phrases.CAN_DO.findall(one))) & message.changing
        and holds_value(one) and not phrases.WAITING.search(one)
        for one, _ in message.said
    )  # fmt: skip


def _sums_up(call: TraceEvent, said: str) -> bool:
    """Whether a text has two of a call's values at least."""
    values = {str(one) for one in call.arguments.values()}
    return sum(next(places_of(one, said, True), None) is not None for one in values) > 1


def _announces(world: World, message: HeardMessage, sentence: str) -> bool:
    """Whether a sentence says that a change is going to be made, and waits for nothing to know."""
    said = phrases.NO_CHANGE.sub(" ", sentence)
    asked = phrases.WH.search(said) if is_question(said) else None
    asked = None if tells.HOW_ABOUT.search(said) else asked
    said = said[: asked.start()] if asked else said
    offered = ["".join(found) for found in phrases.IF_YOU_LIKE.findall(said)]
    verbs = [*phrases.ANNOUNCED.findall(said), *_impending(said), *offered]
    if phrases.WAITING.search(said) or tells.HANDED.search(said) or is_ordered(said):
        return False
    if tells.BUT.search(said) and tells.REFUSED.search(said):
        return False
    if phrases.UNDER_WAY.search(said) or phrases.NEXT.search(said):
        return True
    for found in phrases.ANNOUNCED.finditer(said):
        rest = phrases.NO_CHANGE.sub(" ", said[found.start(1) :])
        idle = tells.HELP.search(rest) or not phrases.IDLE.isdisjoint({found[1], *stems(found[1])})
        got = tells.GET_DONE.search(rest)
        if (got or not idle) and deeds_in(message, tells.REST.split(rest)[0]):
            return True
    verbs += tells.PRESENT.findall(said)
    return bool(changes_in(message, " ".join(verbs))) or (bool(verbs) and names_tool(world, said))


def _impending(sentence: str) -> list[str]:
    """What a sentence says is being done, or is going to be, without saying by whom."""
    found = (verb for pattern in phrases.IMPENDING for verb in pattern.findall(sentence))
    return [verb.replace("ll", "l") for verb in found]


def _asks_leave(message: HeardMessage, sentence: str, named: bool) -> bool:
    """Whether a sentence asks whether a change may be made. ``named``: the message names one."""
    asks = is_question(sentence) or phrases.IF_WANTED.search(sentence) is not None
    for found in phrases.MAY_I.finditer(sentence) if asks else ():
        verb = stems(found[1])
        if not phrases.WH.search(sentence[: found.start()]) and verb & message.changing:
            return not tells.HANDED.search(sentence) and not has_options(message, sentence)
    agreed = phrases.DO_YOU_AGREE.search(sentence)
    named = named or agreed is not None
    agreed = agreed or phrases.AGREE.search(sentence)
    if agreed is None or not named or phrases.CONFIRM_VALUE.search(sentence):
        return False
    if phrases.WH.search(sentence[: agreed.start()]):
        return False
    return not tells.HANDED.search(message.text)


def _proposed(
    world: World, goal: WorldGoal, slots: Sequence[Slot], message: HeardMessage,
    asking: Sequence[str], trace: Sequence[TraceEvent],
) -> MessageReading:  # fmt: skip
    """A proposal: whether it is wanted, and what it asks for on the way."""
    told = {slot for event in trace if event.kind == EventKind.USER for slot in event.facts}
    held = [one for one in slots if one.fact.when == FactTime.ASKED and one.fact.slot not in told]
    put = proposed_slots(world, held, message.text)
    asks = "\n".join(_besides(world, message, one) for one in asking)
    asked = asked_for(world, slots, asks, message.text).slots if asks else ()
    impending = (found for one, _ in message.said for found in _impending(one))
    # "Cancelling it now" in the form that proposals are told apart by
    text = "\n".join((last_words(trace), *(f"I will {one}." for one in impending)))
    core = "\n".join(
        one
        for one, _ in message.said
        if one in asking
        or _announces(world, message, one)
        or _asks_leave(message, one, True)
        or _leans(world, message, one, True)
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
    if not _asks_leave(message, sentence, True) and not _leans(world, message, sentence, True):
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
