"""What the words of a user may not do: leave out what is due, tell what is not, say what is untrue.

``turn_faults`` holds any wording of a turn against the goal's script, whoever wrote it: rules, a
teacher who words scripts, or a model in the user's place. A value is found in every form that
people give it: dates in words, numbers with separators or spelled, codes with spaces, any case.
What is due has to stand there so that an agent can take it; what is held back may not even be
hinted at, such as by a date without its year or by parts of a name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from functools import lru_cache
from typing import Any

from astra.arena.statements import states
from astra.arena.traces import takes_back
from astra.records.qa import Answer, AnswerType
from astra.records.world import EventKind, FactTime, TraceEvent, UserAct, UserScript, World
from astra.text.figures import canonical, dates, is_date, plain, spelled_numbers
from astra.text.language import UNKNOWN, detect_language, same_script

_ORDINARY = re.compile(
    r"\b(?:(?:this|that|the|which|another|any|no|other|right|new|same|every|some|each) one|"
    r"one (?:more|another|of|moment|thing|way|or)|no ?one)\b",
    re.I,
)
"""Where "one" counts nothing."""
_IDENTIFIER = re.compile(r"\w+_\w+|\b[a-z]+\.[a-z]+_?[a-z]*\(|[{}`]", re.I)
"""How documents write, and people do not."""
_WORDY = re.compile(r"[^\W_]+")
_CODE = re.compile(r"[^\s;:!?()\"“”]*\d[^\s;:!?()\"“”]*")
"""A token with a digit: a number, a date, an id, an address."""
_NUMBERED = re.compile(r" \d+$")
FEWEST = 4
"""Shorter values are looked for as words alone, not inside of what is run together."""
ENOUGH_WORDS = 5
"""So many words tell languages of one script apart."""
_LEFT_OVER = re.compile(
    r"&(?:#\d+|#x[\da-f]+|amp|lt|gt|quot|nbsp|apos);|\\(?:u[\da-f]{4}|x[\da-f]{2}|[nrt\"'])|"
    r"\[[a-z][a-z ]*\]|</?[a-z][a-z ]*/?>|_{3,}|\b(?-i:X{3,})\b",
    re.I,
)
"""What was escaped, marked up, or to be filled in."""
_HEARSAY = (
    re.compile(
        r"\b(colleagues?|co-?workers?|managers?|supervisors?|boss|representatives?|operators?|"
        r"clerks?|employees?|staff|somebody|someone|lady|gentleman|friend|wife|husband|neighbou?r|"
        r"lawyer|he|she|they)\b[^.,;!?]{0,40}?\b(told|said|offered|agreed|confirmed|mentioned|"
        r"explained|informed|advised)\b",
        re.I,
    ),
    re.compile(
        r"\bi(?: was|['’]ve been| have been) (?:\w+ )?(told|informed|advised|offered)\b", re.I
    ),
)
"""How people tell of what others said."""
_CLAIMS = (
    re.compile(r"\b(?:promised|guaranteed|assured)\b", re.I),
    re.compile(r"\bi (?:\w+ )?(?:spoke|talked) (?:to|with)\b(?! you)", re.I),
    re.compile(
        r"\b(?:on|over) the phone\b|\b(?:days?|weeks?|months?|years?) ago\b|"
        r"\blast (?:night|week|month|year|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b",
        re.I,
    ),
    re.compile(
        r"\b(?:free of charge|for free|(cost)s? (?:\w+ )?nothing|money back|"
        r"(?:no|without) (?:\w+ )?(cost|charge|fee)s?|(refund|discount|compensat|waive)\w*)\b",
        re.I,
    ),
    re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof)\b\.? ([A-Z]\w+)"),
)
"""How people tell of what was promised, of earlier talks and times, of what is free or paid back,
and of somebody by name. No claim, nor hearsay, where all groups, or the whole if there are none,
stand in what was said before."""
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MAY_CLAIM = (UserAct.OPENING, UserAct.REQUEST, UserAct.CLOSE, UserAct.LEAVE)
"""Turns whose wish may be about anything, and those after which nothing comes that a claim could
mislead."""
_MAY_TAKE_BACK = (UserAct.CHANGE, UserAct.REJECT, UserAct.LEAVE)
MAY_I = TraceEvent(kind=EventKind.ASSISTANT, text="Shall I go ahead?")
"""The question to which a no takes back what was agreed to."""


def turn_faults(
    world: World,
    script: UserScript,
    turn: TraceEvent,
    text: str,
    trace: Sequence[TraceEvent],
    repeated: Sequence[str] = (),
) -> list[str]:
    """What is wrong with words for a turn of the user (``act``, ``facts``) that comes after
    ``trace`` and may name again what the agent's words ``repeated`` hold: the codes of
    ``word_faults``; ``claims:WORDS``, what looks like an event, a promise,
    money or a person of which nobody has spoken; ``takes_back``, an agreement, by a turn that is
    not to; ``rejects_nothing``, a rejection that an agent who asks whether it may cannot read as
    one."""
    said = [event.text for event in trace if event.kind == EventKind.USER]
    complains = turn.act == UserAct.LEAVE  # of what takes too long, or that there is no more time
    faults = word_faults(world, script, text, turn.facts, said, complains, repeated)
    if turn.act not in _MAY_CLAIM:
        spoken_of = [*map(_written, turn.facts.values()), *(event.text for event in trace)]
        spoken_of += [_written(fact.value) for fact in script.facts if _told(fact.value, said)]
        new_tool = turn.act == UserAct.TOOL  # of which somebody may have told the user
        faults += [f"claims:{what}" for what in _claims(world, text, spoken_of, new_tool)]
    # A confirmation is read by its act alone; what its words say counts here.
    act = UserAct.ANSWER if turn.act == UserAct.CONFIRM else turn.act
    spoken = turn.model_copy(update={"text": text, "act": act})
    if turn.act == UserAct.REJECT and not takes_back([MAY_I, spoken], 1):
        faults.append("rejects_nothing")
    if turn.act not in _MAY_TAKE_BACK and takes_back([*trace, spoken], len(trace)):
        faults.append("takes_back")
    return faults


def word_faults(
    world: World,
    script: UserScript,
    text: str,
    due: Mapping[str, Any],
    told: Iterable[str] = (),
    complains: bool = False,
    repeated: Sequence[str] = (),
) -> list[str]:
    """What is wrong with the words of a turn, as codes with what they concern after a colon.

    ``due``: the facts that the turn tells, by slot; ``told``: what the user has said before;
    ``complains``: whether words of a list or of a fact are nothing by themselves; ``repeated``:
    what is no invention, though a leak where the script holds it back.
    ``empty``; ``broken:WORD``, no word that a person writes; ``language:CODE``, clearly not the
    world's; ``untold:SLOT``, a fact that is due and is not stated; ``leaks:SLOT``, a value of
    the script that is not due and was never told; ``stale:SLOT``, a value that the user has changed
    their mind about in an earlier turn; ``invents:VALUE``, a number, date or code that
    the user has not got from the script, or another value of a closed list; ``names:WORD``, the
    identifier of a tool, table or parameter.
    """
    if not text.strip():
        return ["empty"]
    before = [*told]
    known = [*due.values(), *(fact.value for fact in script.facts if _told(fact.value, before))]
    bare = without(text, known)
    faults = [f"broken:{word}" for word in broken_words(bare)]
    faults += [f"language:{code}" for code in other_language(bare, world.language)]
    faults += [f"untold:{slot}" for slot, value in due.items() if not stated(value, text)]
    gives_away = stated if complains else hinted
    hidden = {
        fact.slot: None
        for fact in script.facts
        if not _is_part(fact.value, known) and gives_away(fact.value, bare)
    }
    faults += [f"leaks:{slot}" for slot in hidden]
    faults += [f"stale:{slot}" for slot in _stale(script, text, before)]
    faults += [f"invents:{value}" for value in _invented(bare, known, [*before, *repeated])]
    if not complains:
        others = _of_closed(world, script, bare, known, [*before, *repeated])
        faults += [f"invents:{value}" for value in others]
    return faults + [f"names:{name}" for name in _identifiers(world, bare)]


def stated(value: Any, text: str) -> bool:
    """Whether a text states a value in full, in any form. Of truth values and of nothing, no words
    can be required."""
    if isinstance(value, bool) or value is None:
        return True
    return _stated(value if isinstance(value, int | float) else str(value), text)


@lru_cache(maxsize=1 << 16)  # the wordings of users are the same in many goals
def _stated(value: float | str, text: str) -> bool:
    if isinstance(value, int | float):
        number = Answer(type=AnswerType.NUMBER, value=value)
        return states(number, text) or plain(value) in spelled_numbers(text)
    if is_date(value):
        return date.fromisoformat(value) in dates(text)
    return states(Answer(type=AnswerType.ENUM, value=value), text)


def hinted(value: Any, text: str) -> bool:
    """Whether a text gives a value away, be it in part or run together."""
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, int | float):
        counted = spelled_numbers(_ORDINARY.sub(" ", text))
        return stated(value, _ORDINARY.sub(" ", text)) or plain(value) in counted
    written = str(value)
    if is_date(written):
        return stated(written, text) or _has_day(date.fromisoformat(written), text)
    words, there = _words(written), _words(text)
    if stated(written, text) or (words and {*words} <= {*there}):
        return True
    whole, local = "".join(words), "".join(_words(written.partition("@")[0]))
    run = "".join(there)
    return any(len(one) >= FEWEST and _is_code(one) and one in run for one in (whole, local))


def _is_code(word: str) -> bool:
    """Whether a word is so odd that it cannot stand inside of others by chance."""
    return any(sign.isdigit() for sign in word) or len(word) >= 2 * FEWEST


def _has_day(day: date, text: str) -> bool:
    """Whether a text names a day and month, without the year."""
    month = rf"{day:%b}(?:{day.strftime('%B')[3:]})?\.?"
    number = rf"0?{day.day}(?:st|nd|rd|th)?"
    numeric = rf"0?{day.month}[/.-]0?{day.day}|0?{day.day}[/.-]0?{day.month}"
    either = rf"\b(?:{number} (?:of )?{month}|{month} (?:the )?{number}|{numeric})\b"
    return re.search(either, text, re.I) is not None


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORDY.findall(text)]


def _told(value: Any, before: Iterable[str]) -> bool:
    """Whether earlier turns of the user hold a value."""
    if isinstance(value, bool) or value is None:
        return True
    return any(stated(value, text) for text in before)


def _stale(script: UserScript, text: str, before: Iterable[str]) -> Iterator[str]:
    """The slots of which a text gives the value that held before a change of mind told earlier."""
    changed = {
        fact.slot
        for fact in script.facts
        if fact.when == FactTime.CHANGE and _told(fact.value, before)
    }
    now = [fact.value for fact in script.facts
           if fact.slot not in changed or fact.when == FactTime.CHANGE]  # fmt: skip
    for fact in script.facts:
        old = fact.slot in changed and fact.when != FactTime.CHANGE
        if old and not _is_part(fact.value, now) and hinted(fact.value, text):
            yield fact.slot


def _is_part(value: Any, known: Iterable[Any]) -> bool:
    """Whether what is known tells a value as well: it is one of them, or stands in one."""
    return any(value == one or stated(value, _written(one)) for one in known)


def _written(value: Any) -> str:
    return str(value).replace("_", " ")


def without(text: str, known: Iterable[Any]) -> str:
    """A text without values that are known, as they are written."""
    for value in sorted(map(str, known), key=len, reverse=True):
        for form in {value, _written(value)}:
            text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", " ", text, flags=re.I)
    return text


def _invented(text: str, known: Iterable[Any], before: Iterable[str]) -> Iterator[str]:
    """Numbers, dates and codes that stand in no fact that is known and in nothing said before."""
    sources = [*map(_written, known), *map(str, known), *before]
    days = {day for source in sources for day in dates(source)}
    yield from (day.isoformat() for day in sorted(dates(text) - days))
    figures = {one for source in sources for one in spelled_numbers(source)}
    codes = {code.lower().strip(".,'") for source in sources for code in _CODE.findall(source)}
    if not dates(text):
        for code in _CODE.findall(text):
            token = code.lower().strip(".,'")
            if token not in codes and not {*spelled_numbers(token)} <= figures:
                yield token
        counted = spelled_numbers(_ORDINARY.sub(" ", _CODE.sub(" ", text)))
        yield from sorted(counted - figures - {canonical("0")})


def _of_closed(
    world: World, script: UserScript, text: str, known: Iterable[Any], before: Iterable[str]
) -> Iterator[str]:
    """Other values of closed lists of which the script's facts are, likewise."""
    said = " ".join([*map(_written, known), *map(str, known), *before])
    for slot in dict.fromkeys(fact.slot for fact in script.facts):
        for value in _closed(world, slot):
            if stated(value, text) and not stated(value, said):
                yield value


def _closed(world: World, slot: str) -> set[str]:
    """What a slot may hold where that is a closed list: of a parameter or a column."""
    name = _NUMBERED.sub("", slot).rpartition(".")[2]
    found = {
        value
        for tool in world.tools
        for value in tool.tool.parameters.get("properties", {}).get(name, {}).get("enum", ())
        if isinstance(value, str)
    }
    columns = (column for table in world.tables for column in table.columns)
    return found.union(*(column.values for column in columns if column.name == name))


def _claims(world: World, text: str, before: Iterable[str], hearsay: bool) -> Iterator[str]:
    """Where a text tells of what is not spoken of before; ``hearsay``: whether others may have said
    so. A weekday or a yesterday may be that of a date which is given."""
    given = [*before, *_vocabulary(world)]
    heard = " ".join(given).casefold()
    for pattern in _CLAIMS if hearsay else (*_HEARSAY, *_CLAIMS):
        for found in pattern.finditer(text):
            parts = [part for part in found.groups() if part] or [found[0]]
            if not all(part.casefold() in heard for part in parts):
                yield found[0]
    today = date.fromisoformat(world.clock[:10])
    days = {today}.union(*(dates(one) for one in (*given, text)))
    named = {_DAYS[day.weekday()] for day in days}
    named |= {"yesterday"} if today - timedelta(days=1) in days else set()
    for word in _words(text):
        if word in (*_DAYS, "yesterday") and word not in named and word not in heard:
            yield word


def _vocabulary(world: World) -> Iterator[str]:
    """What the world calls its tools, tables and columns."""
    yield from (_written(tool.tool.name) for tool in world.tools)
    for table in world.tables:
        yield from map(_written, (table.name, *(column.name for column in table.columns)))


def _identifiers(world: World, text: str) -> Iterator[str]:
    names = {tool.tool.name for tool in world.tools} | {table.name for table in world.tables}
    words = {*re.findall(r"\w+", text)}
    yield from sorted(name for name in names & words if "_" in name)
    yield from (found[0] for found in _IDENTIFIER.finditer(text) if found[0] not in names)


# What no person writes ----------------------------------------------------------------------------


def other_language(text: str, language: str) -> list[str]:
    """The language that a text is clearly written in where that is not ``language``; else none."""
    written = detect_language(text)
    if written in (UNKNOWN, language):
        return []
    enough = len(_words(text)) >= ENOUGH_WORDS
    return [written] if enough or not same_script(written, language) else []


def broken_words(text: str) -> list[str]:
    """Words that were decoded wrongly, escaped, left to be filled in, or mix two scripts."""
    left_over = [found[0] for found in _LEFT_OVER.finditer(text)]
    return left_over + [word for word in text.split() if _is_garbled(word)]


def _is_garbled(word: str) -> bool:
    if word.isascii():
        return any(unicodedata.category(sign) == "Cc" for sign in word)
    if any(sign == "\ufffd" or unicodedata.category(sign) in ("Cc", "Cn", "Co") for sign in word):
        return True
    scripts = {unicodedata.name(sign, "").split(" ")[0] for sign in word if sign.isalpha()}
    return len(scripts & {"LATIN", "CYRILLIC", "GREEK"}) > 1 or _is_misread(word)


def _is_misread(word: str) -> bool:
    """Whether a word is UTF-8 that was read as a Western code page, such as a "Ã©" for an "é"."""
    for page in ("cp1252", "latin-1"):
        try:
            return word.encode(page).decode("utf-8") != word
        except UnicodeError:
            continue
    return False
