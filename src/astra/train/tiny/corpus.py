"""Generic text that the tiny policy is pretrained on: copying, recall, identifiers, JSON.

No arena, tool server or tool of theirs is read. Words are everyday words in random order and
pairs; names are made of the same single words as entity names, but pair a first with a noun or a
qualifier with a surname, which no entity name does. A document is a list of spans; a span is
trained when what it says follows from what stands before it, because loss on text that cannot be
predicted drowns the skill (with loss on all tokens copying never emerged).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from astra.text.names import WORDS
from astra.train.tiny.tokenizer import common_words

Span = tuple[str, bool]
"""Text, and whether it is trained."""

_SYLLABLES = (
    "ba be bi bo bu ca ce co da de di do fa fe fi ga go gu ha he hi ja jo ka ke ki ko la le li lo "
    "lu ma me mi mo mu na ne ni no pa pe po ra re ri ro ru sa se si so ta te ti to va ve vi wa we "
    "ya yo za zu an ar el en er il in is on or um us"
).split()


@cache
def _words() -> tuple[str, ...]:
    return tuple(word for word in common_words() if len(word) > 2)


def name(rng: random.Random) -> str:
    """A capitalised name: two known words of kinds that entity names never pair, or made up."""
    (first, last), (qualifier, noun) = WORDS["person"], WORDS["thing"]
    kind = rng.random()
    if kind < 0.35:
        return f"{rng.choice(first)} {rng.choice(noun)}"
    if kind < 0.7:
        return f"{rng.choice(qualifier)} {rng.choice(last)}"
    made = ["".join(rng.choices(_SYLLABLES, k=rng.randint(2, 4))).capitalize() for _ in "ab"]
    return " ".join(made[: rng.randint(1, 2)])


def phrase(rng: random.Random, longest: int = 3) -> str:
    """One to ``longest`` everyday words in random order."""
    return " ".join(rng.sample(_words(), rng.randint(1, longest)))


def value(rng: random.Random) -> str:
    """A name, word, number or date."""
    match rng.randrange(5):
        case 0 | 1:
            return name(rng)
        case 2:
            return rng.choice(_words())
        case 3:
            return str(rng.randrange(10 ** rng.randint(1, 4)))
        case _:
            return f"20{rng.randrange(10, 30)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"


def repeat(rng: random.Random) -> list[Span]:
    """A random list, said twice."""
    items = [value(rng) for _ in range(rng.randint(3, 10))]
    text = "; ".join(items)
    return [(f"\n{text} >", False), (f"{text}.", True)]


def ledger(rng: random.Random) -> list[Span]:
    """Entries of a ledger, then some of them looked up in another order."""
    keys = [rng.choice([name, phrase])(rng) for _ in range(rng.randint(3, 7))]
    entries = {key: value(rng) for key in keys}
    spans: list[Span] = [("".join(f"\n{key}: {entries[key]}" for key in entries), False)]
    for key in rng.sample(sorted(entries), min(len(entries), rng.randint(2, 4))):
        spans += [(f"\nThe {key} is", False), (f" {entries[key]}.", True)]
    return spans


def identifiers(rng: random.Random) -> list[Span]:
    """Phrases said in words, found again as identifiers with their bracketed note."""
    phrases = [phrase(rng) for _ in range(rng.randint(3, 9))]
    notes = [rng.choice(_words()) for _ in phrases]
    lines = [
        f"\n{rng.choice(_words())}_{words.replace(' ', '_')}({note})"
        for words, note in zip(phrases, notes, strict=True)
    ]
    spans: list[Span] = [("".join(lines), False)]
    for index in rng.sample(range(len(lines)), min(len(lines), rng.randint(2, 4))):
        spans += [(f"\nMark the {phrases[index]} here:", False), (f" {lines[index][1:]}.", True)]
    return spans


def _json(record: dict[str, str]) -> str:
    """One JSON object; values of digits alone become numbers."""
    return json.dumps({key: int(v) if v.isdigit() else v for key, v in record.items()})


def fields(rng: random.Random) -> list[Span]:
    """A sentence that gives values to words, then the same as a JSON object."""
    keys = rng.sample(_words(), rng.randint(1, 4))
    values = [value(rng) for _ in keys]
    said = [f"{key} {text}" for key, text in zip(keys, values, strict=True)]
    record = dict(zip(keys, values, strict=True))
    return [
        (f"\nWith {' and '.join(said)} {phrase(rng)}:", False),
        (f" {_json(record)}", True),
    ]


def relay(rng: random.Random) -> list[Span]:
    """Who passes to whom; then the way from one name, two or three steps long."""
    people = list(dict.fromkeys(name(rng) for _ in range(rng.randint(4, 7))))
    links = list(pairwise(people))
    shown = rng.sample(links, len(links))
    start = rng.randrange(max(1, len(people) - 3))
    way = people[start : start + rng.randint(3, 4)]
    return [
        ("".join(f"\n{giver} hands to {taker}." for giver, taker in shown), False),
        (f"\nFrom {way[0]}:", False),
        ("".join(f" {stop};" for stop in way[1:]), True),
    ]


def gathered(rng: random.Random) -> list[Span]:
    """Entries asked for by several keys at once, answered in the order of the keys."""
    keys = list(dict.fromkeys(name(rng) for _ in range(rng.randint(3, 7))))
    entries = {key: value(rng) for key in keys}
    asked = rng.sample(keys, rng.randint(2, min(4, len(keys))))
    return [
        ("".join(f"\n{key} has {entries[key]}." for key in keys), False),
        (f"\nThose of {', '.join(asked[:-1])} and {asked[-1]}:", False),
        (f" {'; '.join(entries[key] for key in asked)}.", True),
    ]


@dataclass(frozen=True)
class _Entry:
    """A line of a register: its identifier, the words that ask for it, the keys to fill in."""

    identifier: str
    asked: str
    keys: tuple[str, ...]


def _register(rng: random.Random) -> tuple[str, list[_Entry]]:
    """A field's name and three to six entries over different words, sorted like a listing."""
    count = rng.randint(3, 6)
    words = rng.sample(_words(), 4 * count + 1)
    verbs = rng.sample(_words(), 3)
    entries: list[_Entry] = []
    for index in range(count):
        noun, adjective, *keys = words[4 * index : 4 * index + 4]
        asked = noun if rng.random() < 0.4 else f"{adjective} {noun}"
        identifier = f"{rng.choice(verbs)}_{asked.replace(' ', '_')}"
        entries.append(_Entry(identifier, asked, tuple(keys[: rng.choice([1, 1, 2])])))
    return words[-1], sorted(entries, key=lambda entry: entry.identifier)


def _listing(entries: Sequence[_Entry]) -> str:
    return "".join(f"\n{entry.identifier}({', '.join(entry.keys)})" for entry in entries)


def _filled(field: str, entry: _Entry, *values: str) -> str:
    record = {field: entry.identifier} | dict(zip(entry.keys, values, strict=False))
    return f"\n{_json(record)}"


def forms(rng: random.Random) -> list[Span]:
    """A register; then requests for an entry, answered by its record with the keys filled in."""
    field, entries = _register(rng)
    spans: list[Span] = [(_listing(entries), False)]
    for entry in rng.sample(entries, 2):
        whose = [name(rng) for _ in range(rng.choice([1, 1, 2, 3]))]
        extra = value(rng)
        said = "".join(f", {key} {extra}" for key in entry.keys[1:])
        spans.append((f"\n{field} by {entry.asked} for {' plus '.join(whose)}{said}:", False))
        spans.append(("".join(_filled(field, entry, owner, extra) for owner in whose), True))
    return spans


def errands(rng: random.Random) -> list[Span]:
    """A register; then records in a row, each filled with what the one before it brought."""
    field, entries = _register(rng)
    way = rng.sample(entries, rng.choice([2, 2, 3]))
    holder, extra = name(rng), value(rng)
    asked = " under ".join(entry.asked for entry in reversed(way))
    said = "".join(f", {key} {extra}" for entry in way for key in entry.keys[1:])
    spans: list[Span] = [(f"{_listing(entries)}\n{field} by {asked} under {holder}{said}:", False)]
    for step, entry in enumerate(way):
        spans.append((_filled(field, entry, holder, extra), True))
        holder = name(rng) if step < len(way) - 1 else value(rng)
        spans.append((f"\n= {holder}", False))
    return [*spans, ("\n>", False), (f" {holder}.", True)]


KINDS: Sequence[tuple[Callable[[random.Random], list[Span]], int]] = (
    (repeat, 2),
    (ledger, 1),
    (identifiers, 2),
    (fields, 1),
    (relay, 1),
    (gathered, 2),
    (forms, 5),
    (errands, 5),
)


def documents(seed: int) -> Iterator[list[Span]]:
    """Documents without end, the same for the same seed."""
    rng = random.Random(f"tiny corpus {seed}")
    makers = [maker for maker, _ in KINDS]
    weights = [weight for _, weight in KINDS]
    while True:
        (maker,) = rng.choices(makers, weights)
        yield maker(rng)
