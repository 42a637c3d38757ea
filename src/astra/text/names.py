"""Names of made-up entities, in pools that never meet.

A name is two capitalised words (Chinese: written as one). The pool of a name is decided by a hash
of the name, so the servers' data, training arenas, development arenas and held-out arenas share
single words but never a name, whoever draws and whatever the seed.

Rules draw from few words, which a small policy can learn to copy. What is suggested to a model
comes from many more: a strong one stamps a set with any word that recurs.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Any, Literal

from astra.records.base import content_id
from astra.text.name_words import (
    FAMILY,
    GIVEN,
    GIVEN_ZH,
    NOUNS,
    NOUNS_ZH,
    QUALIFIERS,
    QUALIFIERS_ZH,
    SURNAMES_ZH,
)

NameKind = Literal["person", "thing"]
KINDS: tuple[NameKind, ...] = ("person", "thing")
ENTITY = "x-entity"
"""Annotation of a string property: the kind of made-up name it holds."""


class Pool(StrEnum):
    SERVERS = "servers"  # tool servers of the SFT track
    TRAIN = "train"  # training arenas
    DEV = "dev"
    HELDOUT = "heldout"


_SHARES = {Pool.SERVERS: 35, Pool.TRAIN: 35, Pool.DEV: 5, Pool.HELDOUT: 25}

_FIRST = (
    "Alba Brin Cato Dara Edda Faro Gala Hugo Iris Juno Kato Lena Milo Nora Otto Pia Quin Rosa "
    "Sven Tara Ugo Vera Wim Xena Yara Zeno Amos Bela Cleo Dion Elke Finn Greta Hana Ivan Jana "
    "Kira Lars Mona Nils Olga Piet Rita Saul Toni Uma"
).split()
_LAST = (
    "Abel Borg Cruz Dahl Eklund Frost Grant Holt Ibsen Joss Kemp Lund Marsh Nash Oaks Penn Quill "
    "Reed Stone Thorn Usher Vance Wolf York Zorn Ashby Birch Croft Drake Ellis Flynn Gray Hale "
    "Ivers Jarvis Knox Lark Moss North Orr Pike Rand Shaw Tate Vale West"
).split()
_QUALIFIER = (
    "Amber Azure Bold Brass Bright Calm Cedar Clear Coral Crisp Dawn Delta Dusk Ember Fern Flint "
    "Frosty Gold Grand Hazel Honey Indigo Iron Ivory Jade Keen Lilac Lunar Maple Misty Noble Nova "
    "Ocean Olive Onyx Opal Pearl Pine Quartz Rapid Royal Ruby Sage Silver Solar Teal"
).split()
_NOUN = (
    "Arbor Bay Beacon Bluff Bridge Brook Canyon Castle Cliff Cove Crest Dale Dock Field Forge "
    "Garden Gate Glen Grove Harbor Haven Heath Hill Hollow Isle Lake Lane Ledge Manor Meadow Mill "
    "Park Pass Peak Plaza Point Port Ridge River Rock Shore Spring Square Tower Trail Valley"
).split()

WORDS = {"person": (_FIRST, _LAST), "thing": (_QUALIFIER, _NOUN)}

_SUGGESTED = {"person": (GIVEN, FAMILY, " "), "thing": (QUALIFIERS, NOUNS, " ")}
_SUGGESTED_ZH = {"person": (SURNAMES_ZH, GIVEN_ZH, ""), "thing": (QUALIFIERS_ZH, NOUNS_ZH, "")}
_PERSONS = frozenset(
    "assignee attendee author buyer colleague contact customer doctor driver employee guest "
    "guardian instructor lawyer manager member nurse owner participant passenger patient person "
    "recipient reporter reviewer seller sender speaker student supplier teacher tutor visitor "
    "winner firstname lastname fullname surname".split()
)
_THINGS = frozenset(
    "album board brand campaign club collection company event organisation organization playlist "
    "product project recipe startup task team title workspace".split()
)
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_BOUND = ("enum", "const", "format", "pattern")
"""Keywords of a text that is no free name."""


def pool_of(name: str) -> Pool:
    """The pool that owns ``name``: stable for ever, independent of seeds."""
    ticket = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % 100
    for pool, share in _SHARES.items():
        if ticket < share:
            return pool
        ticket -= share
    raise AssertionError("shares add up to 100")


@cache
def _members(kind: str, pool: Pool) -> tuple[str, ...]:
    first, second = WORDS[kind]
    names = (f"{a} {b}" for a in first for b in second)
    return tuple(name for name in names if pool_of(name) == pool)


def draw_names(kind: str, pool: Pool, count: int, rng: random.Random) -> list[str]:
    """``count`` distinct names of kind ``person`` or ``thing``. ValueError if too many."""
    members = _members(kind, pool)
    if count > len(members):
        raise ValueError(f"pool {pool} has {len(members)} {kind} names, {count} asked for")
    return rng.sample(members, count)


def kinds_of_names(parameters: Iterable[tuple[str, Any]]) -> tuple[NameKind, ...]:
    """The kinds of made-up names that parameters (name and schema) want, people first.

    A text wants one if its schema is marked so, or if its name ends like one of a person or a
    thing (``assignee``, ``project_name``). A name of the real world (``city_name``) is none.
    """
    wanted = {
        kind
        for parameter, schema in parameters
        if (kind := _kind_of_name(parameter, schema)) is not None
    }
    return tuple(kind for kind in KINDS if kind in wanted)


def _kind_of_name(parameter: str, schema: Any) -> NameKind | None:
    if not isinstance(schema, Mapping):
        return None
    if schema.get("type") == "array":
        return _kind_of_name(parameter.removesuffix("s"), schema.get("items"))
    if schema.get(ENTITY) in KINDS:
        return schema[ENTITY]
    types = schema.get("type", "string")
    if "string" not in ([types] if isinstance(types, str) else types):
        return None
    if not schema.keys().isdisjoint(_BOUND):
        return None
    before, _, last = "_".join(_PARTS.findall(parameter)).lower().rpartition("_")
    if last in ("name", "title"):
        last = before.rpartition("_")[2] or "title"
    if last in _PERSONS:
        return "person"
    return "thing" if last in _THINGS else None


def suggested_names(
    *key: Any, kinds: Collection[NameKind] = KINDS, language: str = "en"
) -> tuple[str, ...]:
    """Names for a model to use in the SFT track, people first; others for every other ``key``.

    Three of each of the ``kinds`` that have to be invented; none where nothing has to. Models
    left to themselves come back to a handful of names, or to those of their example, and know
    nothing of the pools that training arenas keep for themselves.
    """
    rng = random.Random(int(content_id(["names", *key]), 16))
    words = _SUGGESTED_ZH if language == "zh" else _SUGGESTED
    return tuple(_suggested(words[kind], rng) for kind in KINDS if kind in kinds for _ in range(3))


def _suggested(words: tuple[Sequence[str], Sequence[str], str], rng: random.Random) -> str:
    """A name of the servers' pool, drawn word by word: there are too many to list."""
    first, second, between = words
    while True:
        name = f"{rng.choice(first)}{between}{rng.choice(second)}"
        if pool_of(name) is Pool.SERVERS:
            return name
