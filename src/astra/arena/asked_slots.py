"""Which facts of a user's script a message asks for.

A slot is a parameter of a tool (``days``), a column of a table or of a row that a parameter takes
(``loans.title``, ``loan_id.due_date``), or a datum of the user's own (``own email``). It is asked
for by its name, by words of its document, by its options, or by what its type is asked with: when,
how many, which one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from astra.arena.agreements import numbers_of
from astra.arena.claims import name_stems, stems
from astra.arena.statements import dates_in, places_of
from astra.records.world import ColumnType, UserFact, World, WorldTable
from astra.text.keys import key_of

_NUMBERED = re.compile(r" \d+$")
_FILLING = stems(
    "a an and any are as at be by for from how in is it key more now of on one only or said say "
    "says some that the this those to user what which who whom why with you your id"
)
_DATE = re.compile(
    r"\bwhen\b|\b(?:what|which|preferred|new|exact|start|starting|first) (?:\w+ )?(?:date|day)s?\b|"
    r"\bdates?\b|\bfrom which day\b"
)
_START = re.compile(
    r"\b(?:start|starting|begin|beginning|first)\b.{0,20}\b(?:date|day)\b|"
    r"\b(?:when|which (?:date|day)|what (?:date|day))\b.{0,40}\b(?:start|begin)\b"
)
_HOW_MANY = re.compile(
    r"\bhow many(?: more| additional| extra)?(?: would| do| should| did|\W*$)", re.M
)
_DAYS = re.compile(
    r"\bhow (?:many|much|long)\b.{0,20}\b(?:days?|longer|time|weeks?)\b|\bhow long\b|\bdays\b|"
    r"\bhow much (?:longer|time|more time)\b|\b(?:duration|length|extension period)\b|"
    r"\buntil (?:when|what|which)\b|\bhow many\W*$"
)
_SOME_DAYS = re.compile(r"\b(\d{1,4})(?: more| extra| additional)? days?\b")
_COUNT = re.compile(r"\bhow many\b|\bquantity\b|\b(?:what|which|the) (?:number|amount)\b|"
                    r"\bnumber of\b")  # fmt: skip
_WHY = re.compile(r"\bwhy\b|\breasons?\b|\bwhat (?:made|makes|is the cause)\b|\bmotive\b")
_PAY = re.compile(
    r"\bpay(?:ment|ing)?\b|\bpaid\b|\bcharged?\b|\bbilled\b|\b(?:which|what) (?:\w+ )?card\b"
)
_HOW_MUCH = re.compile(r"\bamounts?\b|\bhow (?:much|many)\b|\bsums?\b")
_OF_OTHERS = re.compile(r"\b(?:why|how|when|what)\b")
"""Asks for no row, whichever it names."""
_WHICH_ONE = re.compile(
    r"\bwhich (?:one|of (?:these|those|them|the))\b|\bwhich (?:one )?(?:do|did|would|should)\b"
    r"(?!.*\b(?:prefer|rather)\b)|"
    r"\bwhich\W*$|\bone (?:do|did|would) you (?:mean|want|like|wish|prefer)\b|"
    r"\b(?:do|did) you mean\b|\byou (?:are|['’]re) referring to\b|\bchoose (?:one|from)\b|"
    r"\bpick one\b|\b(?:the|its|that|a) (?:(?:right|correct|exact|full|valid) )?"
    r"(?:id|number|reference|identifier)\b(?! of)|"
    r"\bselect one\b|\bwhich\b.{0,30}\b(?:refer|mean)"
)
_IDENTITY = re.compile(
    r"\b(?:verif|identif|authenticat|confirm)\w*\b.{0,25}\b(?:identity|you\b(?! (?:want|would|wish|"
    r"like|mean|are|need))|yourself|account)|\bwho (?:am i|are you|i am|you are)\b|"
    r"\bidentifying (?:information|details)\b|"
    r"\b(?:your|personal|account|contact) (?:account )?(?:details|information|info|credentials)\b|"
    r"\bfind(?:ing)? (?:you|your account)\b|\blocate your (?:account|profile|record)\b"
)
_OWN = {
    "email": re.compile(r"\be-?mails?\b|\bmail address\b"),
    "name": re.compile(r"\b(?:your|full|first|last|customer|complete|account holder['’]?s?) "
                       r"(?:and last |full |first |last )?names?\b|"
                       r"\bname (?:on|and|in which|under)\b|\bwhat name\b|\bwhich name\b"),
    "postcode": re.compile(r"\bpost(?:al)? ?codes?\b|\bzip(?: ?codes?)?\b"),
    "phone": re.compile(r"\b(?:tele)?phone\b|\bmobile number\b"),
}  # fmt: skip
"""What a user says of themselves, by the parameter of the tool that finds them."""

_NEW = re.compile(
    r"\b(?:new|updated|to be|would you like|instead|"
    r"(?:you want|you'd like) (?:it|to (?:use|have|set|change|register|update))|replace\w*)\b"
)
"""Asks for what such a datum is to become."""


class Request(NamedTuple):
    """What a message asks for."""

    slots: tuple[str, ...]
    unknown: bool
    """Whether something is asked for that no fact answers."""


class Slot(NamedTuple):
    """A fact as messages ask for it."""

    fact: UserFact
    table: str
    """The table of the row that it tells of; empty for a value."""
    name: str
    """The parameter or column."""
    shapes: tuple[Mapping[str, Any], ...]
    """What documents say of the parameter."""


def slots_of(world: World, facts: Sequence[UserFact]) -> tuple[Slot, ...]:
    """The facts of a script, each with what the world says about it."""
    keys = {table.key: table for table in world.tables}
    tables = {table.name: table for table in world.tables}
    found: list[Slot] = []
    for fact in facts:
        name = _NUMBERED.sub("", fact.slot)
        owner, _, column = name.partition(".")
        table = tables.get(owner) or _table_of(keys, owner)
        shapes = tuple(_shapes(world, table.key if table else name))
        found.append(Slot(fact, table.name if table else "", column or name, shapes))
    return tuple(found)


def _table_of(keys: Mapping[str, WorldTable], name: str) -> WorldTable | None:
    """The table whose rows a parameter takes: it has the name of its key, or ends in it."""
    return keys.get(key_of(name, keys))


def _shapes(world: World, name: str) -> Iterator[Mapping[str, Any]]:
    for one in world.tools:
        shapes = cast("dict[str, Any]", one.tool.parameters.get("properties", {}))
        if name in shapes and (one.changes or one.writes):
            yield shapes[name]


def asked_for(world: World, slots: Sequence[Slot], asking: str, text: str) -> Request:
    """The facts that the asking part of a message is about. Both texts are normalised; ``text`` is
    all that the message says, where *which one?* may be about it."""
    asking = asking.replace("e-mail", "email")
    words = stems(asking)
    found = [one for one in slots if _is_asked(world, one, asking, words)]
    if not found and not _OF_OTHERS.search(asking):
        found = [one for one in slots if one.table and _values_said(world, one, asking)]
    if text and not found and _WHICH_ONE.search(asking):
        found = _rows_meant(world, slots, text)
    if not found:
        found = _by_type(slots, asking)
    names = tuple(dict.fromkeys(one.fact.slot for one in found))
    return Request(names, not names or _asks_more(world, slots, found, asking))


def _is_asked(world: World, slot: Slot, asking: str, words: frozenset[str]) -> bool:
    """Whether a text names a slot: by its name, its document's words or one of its options."""
    if slot.fact.slot.startswith("own "):
        pattern = _OWN.get(slot.name.rpartition("_")[2].removeprefix("own "))
        own = name_stems(slot.name) - name_stems("own")
        named = pattern.search(asking) is not None if pattern else own <= words
        renewed = _NEW.search(asking) is not None
        if named or any(one.search(asking) for one in _OWN.values()):
            return named and not renewed
        return _IDENTITY.search(asking) is not None
    if slot.table:
        return _is_row_asked(world, slot, asking)
    if any(one.get("format") == "date" for one in slot.shapes) and _START.search(asking):
        return True
    if slot.name == "days":
        return _DAYS.search(asking) is not None
    if slot.name in ("email", "name", "postcode") and _NEW.search(asking) is None:
        return False
    own = name_stems(slot.name) - _FILLING
    if own and own <= words:
        return True
    if _options_said(slot, asking):
        return True
    described = [name_stems(str(one.get("description", ""))) - _FILLING for one in slot.shapes]
    if any(one and one <= words for one in described):
        return True
    return "reason" in own and _WHY.search(asking) is not None


def _options_said(slot: Slot, asking: str) -> bool:
    options = {option for one in slot.shapes for option in one.get("enum", ())}
    return any(says(str(one), asking) for one in sorted(options))


def _is_row_asked(world: World, slot: Slot, asking: str) -> bool:
    """Whether a row is asked for: which loan, the loan's number, one loan or another; or the cell
    by which the user knows it."""
    table = next(one for one in world.tables if one.name == slot.table)
    noun = table.key.removesuffix("_id").replace("_", " ")
    which = rf"\b(?:which|what) (?:\w+ ){{0,3}}{noun}"
    named = rf"\b{noun}s?(?:['’]s)? (?:\w+ )?(?:id\b|ids\b|number|key\b|reference|identifier|code)"
    asked = (
        rf"{which}|{named}|\b(?:id|number|key|reference|identifier)s? (?:of|for) (?:\w+ )?{noun}"
    )
    if re.search(asked, asking):
        return True
    if any("paid with" in str(one.get("description")) for one in slot.shapes):
        return _PAY.search(asking) is not None and _HOW_MUCH.search(asking) is None
    column = name_stems(slot.name) - _FILLING - name_stems(noun)
    return "." in slot.fact.slot and bool(column) and column <= stems(asking)


def _rows_meant(world: World, slots: Sequence[Slot], text: str) -> list[Slot]:
    """The rows that *which one?* is about: those of the table that the message speaks of last, or
    of the only one there is."""
    rows = [one for one in slots if one.table]
    last: dict[str, int] = {}
    for table in {one.table for one in rows}:
        shape = next(one for one in world.tables if one.name == table)
        noun = shape.key.removesuffix("_id").replace("_", " ")
        keys = (str(row[shape.key]).casefold() for row in world.rows[table])
        named = any(key in text for key in keys)
        at = text.rfind(noun)
        if at >= 0 or named:
            last[table] = max(at, len(text) if named else at)
    if not last:
        return rows if len({one.table for one in rows}) == 1 else []
    best = max(last, key=lambda one: (last[one], one))
    return [one for one in rows if one.table == best]


def _by_type(slots: Sequence[Slot], asking: str) -> list[Slot]:
    """The only slot whose type is asked with such words."""
    dates = [one for one in slots if any(shape.get("format") == "date" for shape in one.shapes)]
    counts = [one for one in slots if one.name != "days"
              and any(shape.get("type") == "integer" for shape in one.shapes)]  # fmt: skip
    days = [one for one in slots if one.name == "days"]
    for pattern, typed in ((_DATE, dates), (_HOW_MANY, [*counts, *days]), (_COUNT, counts)):
        if len(typed) == 1 and pattern.search(asking):
            return typed
    return []


def _asks_more(
    world: World, slots: Sequence[Slot], found: Sequence[Slot], asking: str
) -> bool:  # fmt: skip
    """Whether a text names a datum of the user's own, or a column, that is none of those found."""
    own = {one.fact.slot for one in slots}
    known = {one.rpartition("_")[2].removeprefix("own ") for one in own}
    if any(pattern.search(asking) for name, pattern in _OWN.items() if name not in known):
        return True
    covered = frozenset[str]().union(
        *(name_stems(one.name) | name_stems(one.table) for one in found)
    )
    words = stems(asking) - covered - _FILLING
    names = {column.name for table in world.tables for column in table.columns
             if column.type != ColumnType.ID and f"own {column.name}" not in own
             and column.name not in _OWN}  # fmt: skip
    stated = (name_stems(name) - _FILLING for name in sorted(names))
    return any(len(one) > 1 and one <= words for one in stated)


def proposed_slots(world: World, held: Sequence[Slot], said: str) -> tuple[str, ...]:
    """The slots that a user holds back and for which a proposal names a value of whatever kind: a
    row by its key, an option, a date, a number beside the parameter's name."""
    return tuple(one.fact.slot for one in held if _is_named(world, one, said))


def _is_named(world: World, slot: Slot, said: str) -> bool:
    if slot.table:
        table = next(one for one in world.tables if one.name == slot.table)
        keys = (str(row[table.key]) for row in world.rows[slot.table])
        return any(next(places_of(key, said, False), None) is not None for key in keys)
    if _options_said(slot, said):
        return True
    types = {shape.get("format") or shape.get("type") for shape in slot.shapes}
    if "date" in types:
        return next(dates_in(said), None) is not None
    if slot.name == "days" and _SOME_DAYS.search(said):
        return True
    if "integer" not in types:
        return False
    return next(numbers_of(slot.name, said), None) is not None or _counts_item(world, slot, said)


def _counts_item(world: World, slot: Slot, said: str) -> bool:
    """Whether a number stands before an option of a tool that takes the slot: two book lights."""
    for one in world.tools:
        shapes = cast("dict[str, Any]", one.tool.parameters.get("properties", {}))
        options = [str(o) for shape in shapes.values() for o in shape.get("enum", ())]
        for option in options if slot.name in shapes else ():
            word = re.escape(option.replace("_", " ").casefold())
            if re.search(rf"\b(?:\d+|one|two|three|four|five|six)\s*[x×]?\s+{word}", said):
                return True
    return False


def offered_slots(world: World, slots: Sequence[Slot], said: str) -> tuple[str, ...]:
    """The slots for which a text names two values or more: options, or keys of rows."""
    return tuple(one.fact.slot for one in slots if _values_said(world, one, said) > 1)


def _values_said(world: World, slot: Slot, said: str) -> int:
    if slot.table:
        table = next(one for one in world.tables if one.name == slot.table)
        values = [str(row[table.key]) for row in world.rows[slot.table]]
        return sum(next(places_of(one, said, False), None) is not None for one in values)
    if slot.name == "days":
        return len(set(_SOME_DAYS.findall(said)))
    options = {str(option) for one in slot.shapes for option in one.get("enum", ())}
    return sum(says(one, said) for one in options)


def says(option: str, said: str) -> bool:
    """Whether a text has an option as a word of its own, or several of it."""
    return any(next(places_of(one, said, True), None) is not None for one in (option, f"{option}s"))
