"""What a message of the agent asks of the user, read by rules.

A message is taken apart into sentences, each of which does one thing; of the acts of all of them
the first in the order of ``AgentAct`` counts. What the message repeats of the user's own words, its
pleasantries and what looks like thoughts or calls do nothing. In doubt a message is OTHER: that
discloses nothing and ends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from astra.arena import act_phrases as phrases
from astra.arena.agreements import is_of_other, options_of, verbs_of
from astra.arena.answers import normalise
from astra.arena.asked_slots import Slot, asked_for, offered_slots, proposed_slots, says, slots_of
from astra.arena.claims import name_stems, sentences, stems
from astra.arena.statements import dates_in, number, numbers_in, places_of
from astra.arena.traces import is_success, proposal
from astra.records.world import (
    AgentAct,
    ColumnType,
    EventKind,
    FactTime,
    OutcomeKind,
    ToolRole,
    TraceEvent,
    UserAct,
    World,
    WorldColumn,
    WorldGoal,
    WorldTool,
)

MOST_CHARACTERS = 8_000
"""So much of a message is read, half of it from either end; no user reads more."""
_ECHO = 4
"""A sentence of so many words that the user has said as well is theirs."""
_KEY = re.compile(r"\b[a-z]{1,4}-?\d{2,}\b")
"""What looks like a key."""
_PLEASANTRY = 15
"""A sentence of fewer words that begins like a pleasantry tells nothing but what was done."""
_YOU = re.compile(r"\byou\W*$")
_HAVE = re.compile(r"(?:have|had)\b(?!.* been\b)")
"""What *you* have done, which is no deed of the agent; *you have been charged* is."""
_NEAR = 200
"""So many characters before what was done may say that it was not."""
_TAIL = 10
"""So many words at most ask for agreement and for nothing else."""
_SHORT = 6
"""A question of so few words needs no verb: the number of days?"""


class MessageReading(NamedTuple):
    """What a message asks of the user."""

    act: AgentAct
    slots: tuple[str, ...] = ()
    """Slots of the script's facts that an ASK, OFFER or PROPOSE asks for or puts up. A
    proposal that names a value for one that is held back asks for it."""
    unknown: bool = False
    """Whether an ASK is for something that no fact of the script answers, besides slots."""
    wanted: bool | None = None
    """Whether the change that a PROPOSE names is one that the user wants now; None otherwise."""


class _Message(NamedTuple):
    """A message as it is read: normalised sentences, and which stand under the one before."""

    said: tuple[tuple[str, bool], ...]
    text: str
    changing: frozenset[str]
    """Stems of what the tools of the world do, and of what agents call it."""
    nouns: frozenset[str]
    """Stems of what the world's tables and columns are called."""
    names: frozenset[str]
    """The words of these, as they are."""
    states: tuple[str, ...]
    """What the cells of columns with options may be."""
    cells: frozenset[str]
    """The texts in the world's other cells, normalised."""


def read_message(world: World, goal: WorldGoal, trace: Sequence[TraceEvent]) -> MessageReading:
    """The act of what the agent said since the user's last turn and its last call, and what that is
    about."""
    raw = _bounded(_last_words(trace))
    message = _message(world, raw, trace)
    facts = goal.script.facts if goal.script else ()
    slots = slots_of(world, facts)
    if _is_babble(message):
        return MessageReading(AgentAct.OTHER)
    asking = _asking(message)
    offers = _offers(world, message, asking)
    if _proposes(world, message, wanted_calls(world, goal, trace), offers):
        return _proposed(world, goal, slots, message, asking, trace)
    if offers:
        return MessageReading(AgentAct.OFFER, _put_up(world, slots, message, "\n".join(asking)))
    made_up = _is_no_telling(raw, message)
    if made_up:
        asking = [one for one in asking if _is_question(one)]
    if asking:
        return _asked(world, slots, message, asking)
    if made_up:
        return MessageReading(AgentAct.OTHER)
    for act, does in ((AgentAct.REFUSE, _refuses), (AgentAct.REPORT, _reports)):
        if any(does(message, sentence) for sentence, _ in message.said):
            return MessageReading(act)
    return MessageReading(AgentAct.OTHER)


def _last_words(trace: Sequence[TraceEvent]) -> str:
    """What the agent said after its last call. What it said before waited for nobody: a change
    that was announced and made is no proposal any more."""
    calls = (at for at in reversed(range(len(trace))) if trace[at].kind == EventKind.CALL)
    since = trace[next(calls, -1) + 1 :]
    return proposal(since, len(since)) or proposal(trace, len(trace))


def _is_babble(message: _Message) -> bool:
    """Whether a message says the same again and again, as broken models do."""
    long = [one for one, _ in message.said if len(one.split()) > _ECHO]
    return len(long) > len(set(long)) or phrases.STUTTER.search(message.text) is not None


def _bounded(raw: str) -> str:
    """So much of a message as is read."""
    if len(raw) <= MOST_CHARACTERS:
        return raw
    return f"{raw[: MOST_CHARACTERS // 2]}\n{raw[-MOST_CHARACTERS // 2 :]}"


def _message(world: World, raw: str, trace: Sequence[TraceEvent]) -> _Message:
    """A message without what is not said to the user, what the user said, and pleasantries."""
    for pattern in phrases.UNSPOKEN:
        raw = pattern.sub("\n", raw)
    for pattern, shorter in phrases.SHORTER:
        raw = pattern.sub(shorter, raw)
    heard = {
        one
        for event in trace
        if event.kind == EventKind.USER
        for one, _ in sentences(event.text)
        if len(one.split()) >= _ECHO
    }
    said = tuple(
        (one, nested)
        for sentence, nested in sentences(raw)
        if (one := phrases.NOTHING_ELSE.sub("", sentence))
        and phrases.WORD.search(one)
        and one not in heard
        and not phrases.CLOSING.search(one)
        and not _is_users(world, one)
    )
    tools = _changing_tools(world)
    verbs = phrases.CHANGING.union(*(verbs_of(one) for one in tools)) - phrases.IDLE
    changing = verbs | {one.removesuffix("e") for one in verbs}
    names = (name for table in world.tables for name in (table.name, *map(_name, table.columns)))
    nouns = frozenset[str]().union(*map(name_stems, names))
    return _Message(
        said, "\n".join(one for one, _ in said), changing, nouns, _words_of_names(world),
        _states(world), _cells(world),
    )  # fmt: skip


def _words_of_names(world: World) -> frozenset[str]:
    """The words of what tables and columns are called: an order, and no *ordering*."""
    columns = (column.name for table in world.tables for column in table.columns)
    tables = (name for table in world.tables for name in (table.name, table.name.rstrip("s")))
    return frozenset(word for name in (*columns, *tables) for word in name.split("_"))


def _states(world: World) -> tuple[str, ...]:
    """What the cells of columns with options may be."""
    columns = (column for table in world.tables for column in table.columns)
    values = {one.replace("_", " ") for column in columns for one in column.values}
    return tuple(normalise(one) for one in sorted(values))


def _cells(world: World) -> frozenset[str]:
    """The texts in the cells of other columns, long enough to be told from words."""
    cells = (
        str(row[column.name])
        for table in world.tables
        for column in table.columns
        if column.type == ColumnType.STRING
        for row in world.rows[table.name]
    )
    return frozenset(normalise(one) for one in cells if len(one) > _SHORT)


def _is_users(world: World, sentence: str) -> bool:
    """Whether a sentence is in the voice of a user: of what is mine."""
    nouns = {table.key.removesuffix("_id").replace("_", " ") for table in world.tables}
    mine = (*phrases.MINE, *nouns)
    return any(
        told.startswith(mine)
        for found in phrases.MY.finditer(sentence)
        for told in found.groups("")
    )


def _changing_tools(world: World) -> list[WorldTool]:
    """The tools that change what the user has, not those that end a request."""
    ending = (ToolRole.DECLINE, ToolRole.HAND_OVER)
    return [one for one in world.tools if (one.changes or one.writes) and one.role not in ending]


# Proposals ----------------------------------------------------------------------------------


def _proposes(world: World, message: _Message, wanted: Sequence[TraceEvent], offers: bool) -> bool:
    """Whether a message says which change is going to be made, or asks whether it may be.
    ``offers``: it puts up several things, of which a vague question picks none."""
    seeks = [_is_asking(one) and (not _is_question(one) or phrases.WH.search(one) is not None)
             for one, _ in message.said]  # fmt: skip
    for at, (one, _) in enumerate(message.said):
        later = (any(seeks[:at]) and phrases.AFTERWARDS.search(one)) or (
            any(seeks) and phrases.EAGER.search(one)
        )
        if not later and _announces(world, message, one):
            return True
    named = any(_sums_up(one, message.text) for one in wanted)
    for one, _ in message.said:
        if not named and not (_is_question(one) and phrases.WH.match(one)):
            named = _names_change(world, message, one)
        if _asks_leave(message, one, named):
            return True
        if not offers and _leans(world, message, one, named):
            return True
    return not offers and _could_do(message)


def _names_change(world: World, message: _Message, said: str) -> bool:
    """Whether a text says what tools do, names one, or a wish."""
    return (
        bool(_deeds(message, said))
        or _names_tool(world, said)
        or phrases.WISH.search(said) is not None
    )


def _deeds(message: _Message, said: str) -> frozenset[str]:
    """The stems of a text that are of changes, and not what tables and columns are called."""
    words = phrases.WORD.findall(said)
    return _changes(message, " ".join(one for one in words if one not in message.names))


def _changes(message: _Message, said: str) -> frozenset[str]:
    """The stems of a text that are of changes, whatever their form: annulled, withdrawn."""
    words = stems(phrases.PARTICIPLE.sub(r"\1", said))
    words |= {one[:-1] for one in words if one[-2:-1] == one[-1:]}
    return words & message.changing


def _leans(world: World, message: _Message, sentence: str, named: bool) -> bool:
    """Whether a sentence makes a change hang on a yes, in whatever words: its last clause asks for
    agreement and nothing else, it asks whether a change or a value would do, or awaits consent."""
    if phrases.HANDED.search(sentence) or phrases.CONFIRM_VALUE.search(sentence):
        return False
    if phrases.LOST.search(message.text):
        return False
    if not _is_question(sentence):
        return named and _awaits(sentence)
    if _has_options(message, sentence):
        return False
    bare = phrases.BEFORE.sub(" ", sentence)
    agreed = named and not phrases.WH.search(bare) and phrases.GO_ON.search(bare)
    if agreed or (_is_consent(sentence) and (named or _KEY.search(message.text))):
        return not phrases.HANDED.search(message.text)
    if phrases.WH.search(bare) or phrases.KNOWING.search(bare) or _is_wish(message, sentence):
        return False
    if named and _may_do(bare):
        return True
    if _is_ordered(sentence) or _offers_reading(message, sentence):
        return False
    if _deeds(message, bare):
        return True
    if phrases.WOULD_YOU_LIKE.search(bare) and (_counts(world, bare) or _names_deed(world, bare)):
        return True
    if phrases.ACCEPT.search(bare):
        return True
    return phrases.SUITS.search(bare) is not None and (named or _holds_value(bare))


def _may_do(sentence: str) -> bool:
    """Whether a question asks leave to do something that is not to read or to ask."""
    return any(
        (phrases.IDLE - phrases.LIGHT).isdisjoint({found[1], *stems(found[1])})
        for found in phrases.MAY_I.finditer(sentence)
    )


def _awaits(sentence: str) -> bool:
    """Whether what is no question asks for agreement."""
    if any(one.search(sentence) for one in (phrases.WAITING, phrases.REFUSED, phrases.ANY_ROW)):
        return False
    return phrases.ASSENT.search(sentence) is not None or phrases.DO_IT.search(sentence) is not None


def _is_consent(sentence: str) -> bool:
    """Whether the last clause of a question has no words but those that ask for agreement."""
    words = phrases.WORD.findall(phrases.CLAUSE.split(sentence.rstrip("?!\"')*_ "))[-1])
    return (
        0 < len(words) <= _TAIL
        and not phrases.WH.match(words[0])
        and not phrases.CONSENT.isdisjoint(words)
        and phrases.CONSENT.union(phrases.FILLING).issuperset(words)
    )


def _names_deed(world: World, said: str) -> bool:
    """Whether a text has a word of the name of a tool that changes something."""
    words = stems(said)
    tables = frozenset[str]().union(*(name_stems(one.name) for one in world.tables))
    return any(words & (name_stems(one.tool.name) - tables) for one in _changing_tools(world))


def _could_do(message: _Message) -> bool:
    """Whether a message says what change could be made, with its values, and nothing besides."""
    if any(
        _is_asking(one) or _refuses(message, one) or phrases.DONE.search(one)
        for one, _ in message.said
    ):
        return False
    return any(
        stems(" ".join(phrases.CAN_DO.findall(one))) & message.changing
        and _holds_value(one) and not phrases.WAITING.search(one)
        for one, _ in message.said
    )  # fmt: skip


def _names_tool(world: World, said: str) -> bool:
    return any(
        next(places_of(one.tool.name, said, False), None) is not None
        for one in _changing_tools(world)
    )


def _name(column: WorldColumn) -> str:
    return column.name


def _sums_up(call: TraceEvent, said: str) -> bool:
    """Whether a text has two of a call's values at least."""
    values = {str(one) for one in call.arguments.values()}
    return sum(next(places_of(one, said, True), None) is not None for one in values) > 1


def _announces(world: World, message: _Message, sentence: str) -> bool:
    """Whether a sentence says that a change is going to be made, and waits for nothing to know."""
    said = phrases.NO_CHANGE.sub(" ", sentence)
    asked = phrases.WH.search(said) if _is_question(said) else None
    asked = None if phrases.HOW_ABOUT.search(said) else asked
    said = said[: asked.start()] if asked else said
    offered = ["".join(found) for found in phrases.IF_YOU_LIKE.findall(said)]
    verbs = [*phrases.ANNOUNCED.findall(said), *_impending(said), *offered]
    if phrases.WAITING.search(said) or phrases.HANDED.search(said) or _is_ordered(said):
        return False
    if phrases.BUT.search(said) and phrases.REFUSED.search(said):
        return False
    if phrases.UNDER_WAY.search(said) or phrases.NEXT.search(said):
        return True
    for found in phrases.ANNOUNCED.finditer(said):
        rest = phrases.NO_CHANGE.sub(" ", said[found.start(1) :])
        idle = phrases.HELP.search(rest) or not phrases.IDLE.isdisjoint(
            {found[1], *stems(found[1])}
        )
        got = phrases.GET_DONE.search(rest)
        if (got or not idle) and _deeds(message, phrases.REST.split(rest)[0]):
            return True
    verbs += phrases.PRESENT.findall(said)
    return bool(_changes(message, " ".join(verbs))) or (bool(verbs) and _names_tool(world, said))


def _impending(sentence: str) -> list[str]:
    """What a sentence says is being done, or is going to be, without saying by whom."""
    found = (verb for pattern in phrases.IMPENDING for verb in pattern.findall(sentence))
    return [verb.replace("ll", "l") for verb in found]


def _asks_leave(message: _Message, sentence: str, named: bool) -> bool:
    """Whether a sentence asks whether a change may be made. ``named``: the message names one."""
    asks = _is_question(sentence) or phrases.IF_WANTED.search(sentence) is not None
    for found in phrases.MAY_I.finditer(sentence) if asks else ():
        verb = stems(found[1])
        if not phrases.WH.search(sentence[: found.start()]) and verb & message.changing:
            return not phrases.HANDED.search(sentence) and not _has_options(message, sentence)
    agreed = phrases.DO_YOU_AGREE.search(sentence)
    named = named or agreed is not None
    agreed = agreed or phrases.AGREE.search(sentence)
    if agreed is None or not named or phrases.CONFIRM_VALUE.search(sentence):
        return False
    if phrases.WH.search(sentence[: agreed.start()]):
        return False
    return not phrases.HANDED.search(message.text)


def _proposed(
    world: World, goal: WorldGoal, slots: Sequence[Slot], message: _Message,
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
    text = "\n".join((_last_words(trace), *(f"I will {one}." for one in impending)))
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


def _besides(world: World, message: _Message, sentence: str) -> str:
    """What a sentence of a proposal asks for besides agreement."""
    if not _asks_leave(message, sentence, True) and not _leans(world, message, sentence, True):
        return sentence
    found = phrases.TO_KNOW.search(sentence)
    return found[0] if found else ""


def _names_other_row(world: World, call: TraceEvent, said: str) -> bool:
    """Whether a text names another row than a call does where the call's may not exist."""
    words = set(phrases.NAMES.findall(said))
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


# Questions ----------------------------------------------------------------------------------


def _asking(message: _Message) -> list[str]:
    """The sentences that ask for something that the user is to tell, with the items below them."""
    found: list[str] = []
    below = False
    for one, nested in message.said:
        if _is_wish(message, one):
            below = False
        elif _is_asking(one) and (_has_options(message, one) or not _offers_reading(message, one)):
            found.append(one)
            below = one.endswith(":")
        elif below and nested:
            found.append(one)
        else:
            below = False
    return found


def _is_asking(sentence: str) -> bool:
    return _is_question(sentence) or _is_ordered(sentence)


def _is_wish(message: _Message, sentence: str) -> bool:
    """Whether a question asks the user for a change, as users ask agents: could you renew it."""
    found = phrases.COULD_YOU.search(sentence)
    return found is not None and bool(
        stems(found[1]) & message.changing and stems(found[0]) & message.nouns
    )


def _is_question(sentence: str) -> bool:
    return sentence.rstrip("\"')*_ ").endswith("?")


def _is_ordered(sentence: str) -> bool:
    """Whether a sentence that is no question asks for something: please tell me, I need."""
    if len(sentence.split()) <= _SHORT and phrases.PLEASE.search(sentence):
        return True
    sentence = phrases.NONE_NEEDED.sub(" ", sentence)
    return any(found.search(sentence) for found in (phrases.ORDERED, phrases.NEEDED))


def _offers_reading(message: _Message, sentence: str) -> bool:
    """Whether a question only offers to look something up."""
    found = [*phrases.MAY_I.finditer(sentence)]
    return any(
        not found[0].startswith("you") and found[1] in phrases.IDLE
        and not (found[1] in ("have", "get", "know", "ask") and " i " in found[0])
        and not phrases.WH.search(sentence[: found.start()])
        and not phrases.ANY.search(sentence[: found.start()])
        for found in found
    )  # fmt: skip


def _asked(
    world: World, slots: Sequence[Slot], message: _Message, asking: Sequence[str]
) -> MessageReading:
    request = asked_for(world, slots, "\n".join(asking), message.text)
    return MessageReading(AgentAct.ASK, request.slots, request.unknown)


# Options ------------------------------------------------------------------------------------


def _offers(world: World, message: _Message, asking: Sequence[str]) -> bool:
    """Whether the user is to pick one of several things that the message puts up."""
    listed = [one for one, nested in message.said if nested and one not in asking]
    if asking and any(phrases.ONE_OF.search(one) for one, _ in message.said):
        return True
    for one in asking:
        if _has_options(message, one):
            return True
        if phrases.OR.search(phrases.NO_OPTIONS.sub(" ", one)) and _counts(world, one) > 1:
            return True
        if not phrases.WH_OR_ONE_OF.search(one) and _is_question(one) and _counts(world, one) == 1:
            continue  # this one?
        if phrases.PICK.search(one) and (
            len(listed) > 1
            or phrases.EITHER.search(message.text)
            or _counts(world, message.text) > 1
        ):
            return True
    return False


def _put_up(world: World, slots: Sequence[Slot], message: _Message, asking: str) -> tuple[str, ...]:
    """The slots whose values are options: those of the question, else those of the message."""
    if _are_ways(world, message, asking):
        return ()
    found = offered_slots(world, slots, asking) or asked_for(world, slots, asking, "").slots
    found = found or offered_slots(world, slots, message.text)
    if not found and (_counts(world, message.text) > 1 or len(list(dates_in(asking))) > 1):
        found = asked_for(world, slots, asking, message.text).slots
    return tuple(dict.fromkeys(found))


def _are_ways(world: World, message: _Message, asking: str) -> bool:
    """Whether what is put up is one thing to do or another, and no values."""
    for one in asking.splitlines():
        parts = [stems(part) & message.changing for part in phrases.OR.split(one)[-2:]]
        if phrases.OR_SHALL.search(one) or (
            len(parts) > 1 and all(parts) and not parts[0] & parts[1]
        ):
            return True
    items = [one for one, nested in message.said if nested]
    ways = sum(bool(_deeds(message, " ".join(one.split()[:_SHORT]))) for one in items)
    return ways > 0 and _counts(world, "\n".join(items)) < 2


def _has_options(message: _Message, sentence: str) -> bool:
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


def _counts(world: World, said: str) -> int:
    """How many rows of one table, or options of one parameter, a text names; the most of any."""
    words = set(phrases.NAMES.findall(said))
    most = 0
    for table in world.tables:
        most = max(
            most, len(words & {str(r[table.key]).casefold() for r in world.rows[table.name]})
        )
    for one in _changing_tools(world):
        for options in options_of(one).values():
            named = sum(says(option, said) for option in options)
            most = max(most, named)
    return most


# What is said -------------------------------------------------------------------------------


def _refuses(message: _Message, sentence: str) -> bool:
    """Whether a sentence says that something is not going to be done, for good."""
    if phrases.HANDED.search(sentence):
        return True
    if phrases.UNVERIFIED.search(sentence) or phrases.YOU_LATER.match(sentence):
        return False
    return phrases.REFUSED.search(sentence) is not None


def _is_no_telling(raw: str, message: _Message) -> bool:
    """Whether a message is about programs, a template, or instructs somebody."""
    made_up = phrases.CODE.search(raw) or phrases.BLANK.search(raw)
    return made_up is not None or phrases.HOW_TO.search(message.text) is not None


def _reports(message: _Message, sentence: str) -> bool:
    """Whether a sentence tells something, and no plan or pleasantry."""
    if _is_question(sentence) or phrases.I_SEE.match(sentence):
        return False
    sentence = phrases.I_CAN_TELL.sub(" ", sentence).strip()
    if any(_is_done(message, sentence, found) for found in phrases.DONE.finditer(sentence)):
        return True
    if phrases.NOT_NOW.search(sentence):
        return False
    short = len(sentence.split()) < _PLEASANTRY
    if short and phrases.CHATTER.match(sentence) and not _holds_value(sentence):
        return False
    keys = _KEY.findall(sentence)
    about = stems(sentence) & message.nouns or keys
    if phrases.TOLD.search(sentence):
        if not about:
            told = _holds_value(sentence) or _holds_state(message, sentence)
            return told and len(sentence.split()) <= _SHORT
        return bool(keys) or _holds_value(sentence) or _holds_cell(message, sentence)
    return bool(about) and _holds_value(sentence) and (":" in sentence or bool(keys))


def _is_done(message: _Message, sentence: str, found: re.Match[str]) -> bool:
    """Whether something was done that agents do or that becomes of the tables, and neither could be
    nor was by others."""
    before = phrases.BREAK.split(sentence[: found.start()][-_NEAR:])[-1]
    if phrases.SUPPOSED.search(before) or (_YOU.search(before) and _HAVE.match(found[0])):
        return False
    bare = found["bare"] or found["undone"]
    if bare:
        return bool(_changes(message, bare))
    verb = found["verb"] or found["past"]
    done = message.changing | phrases.FOUND | name_stems(" ".join(message.states))
    if verb is None or stems(verb) & done:
        return True
    about = stems(sentence) & (message.nouns | message.changing) or _KEY.search(sentence)
    return bool(about) and verb != "been" and phrases.PERFECT.search(found[0]) is not None


def _holds_cell(message: _Message, sentence: str) -> bool:
    """Whether a sentence has a word of what the cells of the world may be, or says that something
    is there, or not."""
    if phrases.NOTHING.search(sentence) or _holds_state(message, sentence):
        return True
    return any(one in sentence for one in message.cells)


def _holds_state(message: _Message, sentence: str) -> bool:
    """Whether a sentence has one of the words that the cells with options may be."""
    words = f" {' '.join(phrases.NAMES.findall(sentence))} "
    return any(f" {one} " in words for one in message.states)


def _holds_value(sentence: str) -> bool:
    if next(dates_in(sentence), None) is not None:
        return True
    return any(number(one.text) is not None for one in numbers_in(sentence))
