"""Worlds that the offline teacher makes up where it is given a domain or a question alone."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from astra.llm.protocol import ProviderError
from astra.qa.config import Language
from astra.qa.knowledge.domains import DOMAINS, Attribute, Domain, EntityType
from astra.qa.knowledge.schema import CellType, KnowledgeSource
from astra.qa.knowledge.worlds import world_of
from astra.records.base import content_id
from astra.records.qa import Split

PLACES = ("hotel", "branch", "warehouse", "clinic", "garage", "office", "depot", "ward")
THINGS = ("product", "parcel", "room", "book", "listing", "truck")
PEOPLE = ("agent", "manager", "owner", "director", "driver", "doctor", "seller", "librarian")
NOUNS = (*PEOPLE, *PLACES, *THINGS)
NUMBERS = ("price", "age", "budget", "stock", "load", "bonus", "rating", "fee")
DATES = ("joined_date", "shipping_date", "arrival_date", "listed_date")
LEAST = 4
"""Rows per table."""


def invent(
    domain: str, names: Mapping[str, Sequence[str]], language: Language, rng: random.Random
) -> KnowledgeSource:
    """A world of a domain, known or not, whose things bear the offered names."""
    known = DOMAINS.get(domain.strip().lower().replace(" ", "_").replace("-", "_"))
    schema = known or _unknown(domain)
    stocks = {who: list(offered) for who, offered in names.items()}
    return world_of(
        f"made:{domain}", domain, _fitted(schema, stocks), Split.TRAIN, stocks, rng, language
    )


def invent_for(
    domain: str,
    path: Sequence[str],
    asked: Sequence[str],
    names: Mapping[str, Sequence[str]],
    language: Language,
    rng: random.Random,
) -> KnowledgeSource:
    """A world in which ``asked`` things have what a question asks of them.

    ``path`` names the columns to follow; the last holds what is wanted, the others lead on.
    """
    start = next(thing for thing in THINGS if thing not in path)
    spare = [name for name in names["thing"] if name not in asked]
    rng.shuffle(spare)
    stocks = {"person": list(names["person"]), "thing": spare}
    # What is wanted last may be a thing as well; it then needs a table of its own to be one.
    linked = list(dict.fromkeys([*path[:-1], *(c for c in path if c in NOUNS)]))
    followed = dict(zip([start, *path[:-1]], path, strict=True))
    types = tuple(
        EntityType(
            kind,
            f"{kind}s",
            kind in PEOPLE,
            6,
            (_attribute(followed[kind], followed[kind] in linked),) if kind in followed else (),
        )
        for kind in [start, *linked]
    )
    source = world_of(
        f"made:{domain}", domain, _fitted(Domain(types, ()), stocks), Split.TRAIN, stocks, rng,
        language,
    )  # fmt: skip
    return _renamed(source, start, asked)


def _renamed(source: KnowledgeSource, kind: str, asked: Sequence[str]) -> KnowledgeSource:
    """The same world with the first things of a type called as the question calls them."""
    table = source.tables[f"{kind}s"]
    old = [row[0] for row in table.rows]
    new = [*asked, *old[len(asked) :]]
    rows = tuple((name, *row[1:]) for name, row in zip(new, table.rows, strict=True))
    tables = {**source.tables, table.name: table.model_copy(update={"rows": rows})}
    return replace(source, tables=tables, starts={**source.starts, kind: tuple(new)})


def _unknown(domain: str) -> Domain:
    """Three linked types and a few attributes: the same ones whenever the domain is asked for."""
    rng = random.Random(int(content_id(["invent", domain]), 16))
    thing, person, place = rng.choice(THINGS), rng.choice(PEOPLE), rng.choice(PLACES)
    one, two, three, four = rng.sample(NUMBERS, 4)
    return Domain(
        types=(
            EntityType(
                thing,
                f"{thing}s",
                False,
                16,
                (
                    Attribute(person, CellType.ENTITY, target=person),
                    Attribute(one, CellType.NUMBER, 10, 999, unique=True),
                    Attribute(rng.choice(DATES), CellType.DATE, 0, 359),
                ),
            ),
            EntityType(
                person,
                f"{person}s",
                True,
                10,
                (
                    Attribute(place, CellType.ENTITY, target=place),
                    Attribute(two, CellType.NUMBER, 10, 999, unique=True),
                ),
            ),
            EntityType(
                place,
                f"{place}s",
                False,
                8,
                (
                    Attribute(three, CellType.NUMBER, 10, 999, unique=True),
                    Attribute(four, CellType.NUMBER, 10, 999, unique=True),
                ),
            ),
        ),
        groups=(),
    )


def _attribute(column: str, linked: bool) -> Attribute:
    if linked:
        return Attribute(column, CellType.ENTITY, target=column)
    if column.endswith("date"):
        return Attribute(column, CellType.DATE, 0, 359)
    return Attribute(column, CellType.NUMBER, 10, 999, unique=True)


def _fitted(domain: Domain, stocks: Mapping[str, Sequence[str]]) -> Domain:
    """The domain with no more rows than there are names: all types shrink alike."""
    for percent in range(100, 0, -5):
        types = tuple(
            replace(kind, count=max(min(LEAST, kind.count), kind.count * percent // 100))
            for kind in domain.types
        )
        used = {who: sum(k.count for k in types if k.people is (who == "person")) for who in stocks}
        if all(used[who] <= len(stocks[who]) for who in stocks):
            return replace(domain, types=types)
    raise ProviderError("too few names are offered for a world")
