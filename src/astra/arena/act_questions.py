"""What a message of the agent asks of the user, and which options it puts before them."""

from __future__ import annotations

from collections.abc import Sequence

from astra.arena import act_phrases as phrases
from astra.arena import told_phrases as tells
from astra.arena.asked_slots import Slot, asked_for, offered_slots, says
from astra.arena.claims import stems
from astra.arena.heard_message import SHORT, HeardMessage, MessageReading, deeds_in
from astra.arena.statements import dates_in, numbers_in
from astra.arena.world_words import world_words
from astra.records.world import (
    AgentAct,
    World,
)


def questions_in(message: HeardMessage) -> list[str]:
    """The sentences that ask for something that the user is to tell, with the items below them."""
    found: list[str] = []
    below = False
    for one, nested in message.said:
        if is_wish(message, one):
            below = False
        elif is_asking(one) and (has_options(message, one) or not offers_reading(message, one)):
            found.append(one)
            below = one.endswith(":")
        elif below and nested:
            found.append(one)
        else:
            below = False
    return found


def is_asking(sentence: str) -> bool:
    return is_question(sentence) or is_ordered(sentence)


def is_wish(message: HeardMessage, sentence: str) -> bool:
    """Whether a question asks the user for a change, as users ask agents: could you renew it."""
    found = tells.COULD_YOU.search(sentence)
    return found is not None and bool(
        stems(found[1]) & message.changing and stems(found[0]) & message.nouns
    )


def is_question(sentence: str) -> bool:
    return sentence.rstrip("\"')*_ ").endswith("?")


def is_ordered(sentence: str) -> bool:
    """Whether a sentence that is no question asks for something: please tell me, I need."""
    if len(sentence.split()) <= SHORT and phrases.PLEASE.search(sentence):
        return True
    sentence = phrases.NONE_NEEDED.sub(" ", sentence)
    return any(found.search(sentence) for found in (phrases.ORDERED, phrases.NEEDED))


def offers_reading(message: HeardMessage, sentence: str) -> bool:
    """Whether a question only offers to look something up."""
    found = [*phrases.MAY_I.finditer(sentence)]
    return any(
        not found[0].startswith("you") and found[1] in phrases.IDLE
        and not (found[1] in ("have", "get", "know", "ask") and " i " in found[0])
        and not phrases.WH.search(sentence[: found.start()])
        and not phrases.ANY.search(sentence[: found.start()])
        for found in found
    )  # fmt: skip


def read_question(
    world: World, slots: Sequence[Slot], message: HeardMessage, asking: Sequence[str]
) -> MessageReading:
    request = asked_for(world, slots, "\n".join(asking), message.text)
    return MessageReading(AgentAct.ASK, request.slots, request.unknown)


def puts_up_options(world: World, message: HeardMessage, asking: Sequence[str]) -> bool:
    """Whether the user is to pick one of several things that the message puts up."""
    listed = [one for one, nested in message.said if nested and one not in asking]
    if asking and any(tells.ONE_OF.search(one) for one, _ in message.said):
        return True
    for one in asking:
        if has_options(message, one):
            return True
        if phrases.OR.search(phrases.NO_OPTIONS.sub(" ", one)) and count_options(world, one) > 1:
            return True
        if (
            not tells.WH_OR_ONE_OF.search(one)
            and is_question(one)
            and count_options(world, one) == 1
        ):
            continue  # this one?
        if phrases.PICK.search(one) and (
            len(listed) > 1
            or phrases.EITHER.search(message.text)
            or count_options(world, message.text) > 1
        ):
            return True
    return False


def put_up(
    world: World, slots: Sequence[Slot], message: HeardMessage, asking: str
) -> tuple[str, ...]:
    """The slots whose values are options: those of the question, else those of the message."""
    if _are_ways(world, message, asking):
        return ()
    found = offered_slots(world, slots, asking) or asked_for(world, slots, asking, "").slots
    found = found or offered_slots(world, slots, message.text)
    if not found and (count_options(world, message.text) > 1 or len(list(dates_in(asking))) > 1):
        found = asked_for(world, slots, asking, message.text).slots
    return tuple(dict.fromkeys(found))


def _are_ways(world: World, message: HeardMessage, asking: str) -> bool:
    """Whether what is put up is one thing to do or another, and no values."""
    for one in asking.splitlines():
        parts = [stems(part) & message.changing for part in phrases.OR.split(one)[-2:]]
        if tells.OR_SHALL.search(one) or (
            len(parts) > 1 and all(parts) and not parts[0] & parts[1]
        ):
            return True
    items = [one for one, nested in message.said if nested]
    ways = sum(bool(deeds_in(message, " ".join(one.split()[:SHORT]))) for one in items)
    return ways > 0 and count_options(world, "\n".join(items)) < 2


def has_options(message: HeardMessage, sentence: str) -> bool:
    """Whether a question puts up one thing or another, and not one datum or another."""
    left = phrases.NO_OPTIONS.sub(" ", sentence)
    parts = phrases.OR.split(left)
    if len(parts) < 2 or phrases.GIVE.search(left):
        return False
    if phrases.ONE_OR_OTHER.search(left) or phrases.IS_IT.match(left):
        return True
    if phrases.MAY_I.search(left) and not phrases.WH.search(left):
        return True
    if all(stems(part) & message.changing for part in parts[-2:]):
        return True
    return all(next(numbers_in(part), None) or next(dates_in(part), None) for part in parts[-2:])


def count_options(world: World, said: str) -> int:
    """How many rows of one table, or options of one parameter, a text names; the most of any."""
    known = world_words(world)
    words = set(tells.NAMES.findall(said))
    rows = (len(words & keys) for keys in known.keys)
    options = (sum(says(option, said) for option in each) for each in known.options)
    return max(*rows, *options, 0)
