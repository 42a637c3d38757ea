"""Names of made-up entities, in pools that never meet.

A name is two capitalised words. The pool of a name is decided by a hash of the name, so the
servers' data, training arenas, development arenas and held-out arenas share single words but
never a name, whoever draws and whatever the seed.
"""

from __future__ import annotations

import hashlib
import random
from enum import StrEnum
from functools import cache
from typing import Any

from astra.records.base import content_id


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


def suggested_names(*key: Any) -> tuple[str, ...]:
    """Names for a model to use in the SFT track, people first; others for every other ``key``.

    Models left to themselves come back to a handful of names, or to those of their example, and
    know nothing of the pools that training arenas keep for themselves.
    """
    rng = random.Random(int(content_id(["names", *key]), 16))
    return tuple(
        name for kind in ("person", "thing") for name in draw_names(kind, Pool.SERVERS, 3, rng)
    )
