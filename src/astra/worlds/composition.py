"""Domains put together at random: archetypes of several training domains under other nouns.

Columns, states, prices and rules come from the donors, which are of one family; the nouns are from
``composition.yaml``. So schemas recur in other company, never under a known name.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from astra.records.base import content_id
from astra.records.qa import Split
from astra.worlds.domain import Archetype, Noun, WorldDomain, load_domains

_FILE = Path(__file__).parent / "composition.yaml"


@cache
def _words() -> dict[str, Any]:
    return yaml.safe_load(_FILE.read_text(encoding="utf-8"))


def compose(number: int, seed: int) -> WorldDomain:
    """The composed domain of that number, of split ``train``."""
    rng = random.Random(int(content_id(["composed", number, seed]), 16))
    family = rng.choice(("stay", "slot"))
    donors = [d for d in load_domains().values() if d.split is Split.TRAIN and d.family == family]
    # A contract's cells mean what the rules of its donor say, so asset, kind and contract go
    # together; parties, money, lines and tickets come from anywhere.
    centre = rng.choice(donors)
    nouns: dict[Archetype, Noun] = {}
    for archetype in Archetype:
        together = archetype in (Archetype.KIND, Archetype.ASSET, Archetype.CONTRACT)
        donor = centre if together else rng.choice(donors)
        if archetype in donor.nouns:
            nouns[archetype] = _renamed(donor.nouns[archetype], archetype, family, rng)
    titles = rng.sample(centre.titles, len(centre.titles))
    contract = nouns[Archetype.CONTRACT].plural
    return centre.model_copy(
        update={
            "name": f"composed_{number}",
            "title": f"{contract.capitalize()} of {nouns[Archetype.PARTY].plural}",
            "place": f"the front desk of {rng.choice(_words()['places'])}",
            "nouns": nouns,
            "titles": tuple(titles),
            "verbs": {},
        }
    )


def _renamed(noun: Noun, archetype: Archetype, family: str, rng: random.Random) -> Noun:
    of = family if archetype is Archetype.ASSET else archetype.value
    word, plural = rng.choice(_words()["nouns"][of])
    return noun.model_copy(update={"noun": word, "plural": plural, "prefix": word[:2].upper()})
