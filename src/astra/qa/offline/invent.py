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
LEAST_ROWS = 4
"""The fewest rows that a table shrinks to."""


def invent(
    domain: str, names: Mapping[str, Sequence[str]], language: Language, rng: random.Random
) -> KnowledgeSource:
    """A world of a domain whose things bear the offered names.

    An unknown domain has types of things that are drawn by its name.
    """
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
            name=thing,
            table=f"{thing}s",
            people=thing in PEOPLE,
            count=6,
            attributes=(_attribute(followed[thing], followed[thing] in linked),)
            if thing in followed
            else (),
        )
        for thing in [start, *linked]
    )
    schema = _fitted(Domain(types, groups=()), stocks)
    source = world_of(f"made:{domain}", domain, schema, Split.TRAIN, stocks, rng, language)
    return _renamed(source, start, asked)


def _renamed(source: KnowledgeSource, entity_type: str, asked: Sequence[str]) -> KnowledgeSource:
    """The same world with the first things of a type called as the question calls them."""
    table = source.tables[f"{entity_type}s"]
    old = [row[0] for row in table.rows]
    new = [*asked, *old[len(asked) :]]
    rows = tuple((name, *row[1:]) for name, row in zip(new, table.rows, strict=True))
    tables = {**source.tables, table.name: table.model_copy(update={"rows": rows})}
    return replace(source, tables=tables, starts={**source.starts, entity_type: tuple(new)})


def _unknown(domain: str) -> Domain:
    """A domain of three linked types with a few attributes, the same for the same name."""
    rng = random.Random(int(content_id(["invent", domain]), 16))
    thing, person, place = rng.choice(THINGS), rng.choice(PEOPLE), rng.choice(PLACES)
    numbers = [_attribute(column, linked=False) for column in rng.sample(NUMBERS, 4)]
    day = _attribute(rng.choice(DATES), linked=False)
    to_person, to_place = _attribute(person, linked=True), _attribute(place, linked=True)
    return Domain(
        types=(
            EntityType(thing, f"{thing}s", False, 16, (to_person, numbers[0], day)),
            EntityType(person, f"{person}s", True, 10, (to_place, numbers[1])),
            EntityType(place, f"{place}s", False, 8, (numbers[2], numbers[3])),
        ),
        groups=(),
    )


def _attribute(column: str, linked: bool) -> Attribute:
    """A link to a type of the column's name, else a date or a number, by its name."""
    if linked:
        return Attribute(column, CellType.ENTITY, target=column)
    if column.endswith("date"):
        return Attribute(column, CellType.DATE, 0, 359)
    return Attribute(column, CellType.NUMBER, 10, 999, unique=True)


def _fitted(domain: Domain, stocks: Mapping[str, Sequence[str]]) -> Domain:
    """The domain with no more members than there are names; all types shrink alike."""
    for percent in range(100, 0, -5):
        types = tuple(
            replace(entity, count=max(min(LEAST_ROWS, entity.count), entity.count * percent // 100))
            for entity in domain.types
        )
        used = {who: sum(k.count for k in types if k.people is (who == "person")) for who in stocks}
        if all(used[who] <= len(stocks[who]) for who in stocks):
            return replace(domain, types=types)
    raise ProviderError("too few names are offered for a world")
