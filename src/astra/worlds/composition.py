"""Domains put together at random: archetypes of several training domains in other words.

How things work, prices and rules come from the donors, which are of one family; nouns, columns,
states, titles and the names of tools are drawn from the lexicon in ``composition.yaml``. So what an
agent meets in hundreds of them is never called the same for long.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from astra.records.base import content_id
from astra.records.qa import Split
from astra.worlds.domain import Archetype, Noun, WorldDomain, load_domains

_FILE = Path(__file__).parent / "composition.yaml"
_QUALIFIED = 0.35
"""How often a noun has a word before it."""
_TITLES = 10


@cache
def lexicon() -> dict[str, Any]:
    """The lexicon with its lists split: texts below the keys of the file."""

    def split(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: split(one) for key, one in value.items()}
        if isinstance(value, list):
            return [split(one) for one in value]
        return [one.strip() for one in value.split(",")]

    return split(yaml.safe_load(_FILE.read_text(encoding="utf-8")))


def compose(number: int, seed: int) -> WorldDomain:
    """The composed domain of that number, of split ``train``."""
    rng = random.Random(int(content_id(["composed", number, seed]), 16))
    family = rng.choice(("stay", "slot"))
    donors = [d for d in load_domains().values() if d.split is Split.TRAIN and d.family == family]
    # A contract's cells mean what the rules of its donor say, so asset, kind and contract go
    # together; parties, money, lines and tickets come from anywhere.
    centre = rng.choice(donors)
    nouns: dict[Archetype, Noun] = {}
    prefixes: set[str] = set()
    for archetype in Archetype:
        together = archetype in (Archetype.KIND, Archetype.ASSET, Archetype.CONTRACT)
        donor = centre if together else rng.choice(donors)
        if archetype in donor.nouns:
            renamed = _renamed(donor.nouns[archetype], archetype, family, prefixes, rng)
            nouns[archetype] = renamed
            prefixes.add(renamed.prefix)
    contract = nouns[Archetype.CONTRACT]
    firsts, seconds = lexicon()["titles"]
    titles = [f"{a} {b}" for a, b in zip(rng.sample(firsts, _TITLES), rng.sample(seconds, _TITLES),
                                         strict=True)]  # fmt: skip
    seats = contract.columns.get("seats", "size")
    return centre.model_copy(
        update={
            "name": f"composed_{number}",
            "title": f"{contract.plural.capitalize()} of {nouns[Archetype.PARTY].plural}",
            "place": f"the front desk of {rng.choice(lexicon()['places'])}",
            "nouns": nouns,
            "titles": tuple(titles),
            "verbs": {operation: tuple(name.replace("{seats}", seats) for name in names)
                      for operation, names in lexicon()["verbs"].items()},
        }
    )  # fmt: skip


def _renamed(
    noun: Noun, archetype: Archetype, family: str, taken: set[str], rng: random.Random
) -> Noun:
    """The donor's archetype in words of the lexicon, with a prefix that is not ``taken``."""
    words = lexicon()
    of = family if archetype is Archetype.ASSET else archetype.value
    word, _, plural = rng.choice(words["nouns"][of]).partition("/")
    before = f"{rng.choice(words['before'])} " if rng.random() < _QUALIFIED else ""
    columns = {name: rng.choice(choices).replace(" ", "_")
               for name, choices in words["columns"].get(archetype.value, {}).items()}  # fmt: skip
    values = {name: tuple(rng.choice(choices).split())
              for name, choices in words["values"].get(archetype.value, {}).items()
              if name in noun.values}  # fmt: skip
    return noun.model_copy(
        update={
            "noun": before + word,
            "plural": before + (plural or f"{word}s"),
            "prefix": _prefix(before + word, taken),
            "columns": noun.columns | columns,
            "values": noun.values | values,
        }
    )


def _prefix(noun: str, taken: set[str]) -> str:
    """The noun's first letter with the first later one that makes a pair of its own."""
    letters = noun.replace(" ", "").upper()
    pairs = [letters[0] + other for other in (*letters[1:], *"XZQ")]
    return next(pair for pair in pairs if pair not in taken)
