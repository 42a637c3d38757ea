"""What a message of the agent asks of the user, by rules alone, and what they find on the way.

A message is taken apart into sentences, each of which does one thing; of the acts of all of them
the first in the order of ``AgentAct`` counts. What the message repeats of the user's own words, its
pleasantries and what looks like thoughts or calls do nothing. In doubt a message is OTHER: that
discloses nothing and ends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    puts_up_options,
    questions_in,
)
from astra.arena.act_reports import holds_value, is_no_telling, is_refusal, is_report
from astra.arena.claims import stems
from astra.arena.heard_message import (
    KEY,
    HeardMessage,
    changes_in,
    deeds_in,
    names_change,
    names_deed,
    names_tool,
)
from astra.arena.statements import places_of
from astra.records.world import AgentAct, TraceEvent, World

_TAIL = 10
"""So many words at most ask for agreement and for nothing else."""
_ENDS = 30
"""So many sentences at either end of a message are searched for what rules find."""


def ruled_act(
    world: World, raw: str, message: HeardMessage, wanted: Sequence[TraceEvent]
) -> AgentAct:
    """The act of a message by rules. ``wanted``: the calls that the user wants."""
    asking = questions_in(message)
    offers = puts_up_options(world, message, asking)
    if _proposes(world, message, wanted, offers):
        return AgentAct.PROPOSE
    if offers:
        return AgentAct.OFFER
    made_up = is_no_telling(raw, message)
    if any(not made_up or is_question(one) for one in asking):
        return AgentAct.ASK
    for act, does in ((AgentAct.REFUSE, is_refusal), (AgentAct.REPORT, is_report)):
        if not made_up and any(does(message, sentence) for sentence, _ in message.said):
            return act
    return AgentAct.OTHER


def findings(world: World, raw: str, message: HeardMessage) -> Iterator[str]:
    """What the rules find in a message, sentence by sentence; what the last one holds also apart.
    Of many sentences those at either end count."""
    said = [one for one, _ in message.said]
    said = said if len(said) <= 2 * _ENDS else [*said[:_ENDS], *said[-_ENDS:]]
    for at, one in enumerate(said):
        found = {
            "asks": is_asking(one), "orders": is_ordered(one),
            "announces": announces(world, message, one), "options": has_options(message, one),
            "leave": asks_leave(message, one, True), "leans": leans(world, message, one, True),
            "refuses": is_refusal(message, one), "reports": is_report(message, one),
            "hands": tells.HANDED.search(one), "done": tells.DONE.search(one),
            "told": tells.TOLD.search(one), "pick": phrases.PICK.search(one),
            "assent": phrases.ASSENT.search(one), "value": holds_value(one),
            "many": count_options(world, one) > 1,
        }  # fmt: skip
        for name, holds in found.items():
            if holds:
                yield name
                if at == len(said) - 1:
                    yield f"last {name}"
    if not said:
        yield "nothing"
    if is_no_telling(raw, message):
        yield "made up"
    if count_options(world, message.text) > 1:
        yield "many in all"


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
        if not later and announces(world, message, one):
            return True
    named = any(_sums_up(one, message.text) for one in wanted)
    for one, _ in message.said:
        if not named and not (is_question(one) and phrases.WH.match(one)):
            named = names_change(world, message, one)
        if asks_leave(message, one, named):
            return True
        if not offers and leans(world, message, one, named):
            return True
    return not offers and _could_do(message)


def leans(world: World, message: HeardMessage, sentence: str, named: bool) -> bool:
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


def announces(world: World, message: HeardMessage, sentence: str) -> bool:
    """Whether a sentence says that a change is going to be made, and waits for nothing to know."""
    said = phrases.NO_CHANGE.sub(" ", sentence)
    asked = phrases.WH.search(said) if is_question(said) else None
    asked = None if tells.HOW_ABOUT.search(said) else asked
    said = said[: asked.start()] if asked else said
    offered = ["".join(found) for found in phrases.IF_YOU_LIKE.findall(said)]
    verbs = [*phrases.ANNOUNCED.findall(said), *impending(said), *offered]
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


def impending(sentence: str) -> list[str]:
    """What a sentence says is being done, or is going to be, without saying by whom."""
    return [verb for pattern in phrases.IMPENDING for verb in pattern.findall(sentence)]


def asks_leave(message: HeardMessage, sentence: str, named: bool) -> bool:
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
