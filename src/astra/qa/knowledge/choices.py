"""Relations that leave it to the asker to choose: lists of records, pages of them, and twins.

They are made of a domain's types alone. Wherever things of one type link to a holder (the rooms
of a hotel), the holder is asked for records of its things, at once or page by page, of which a
later step uses one; and for the same with one parameter more (only those with three beds).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from astra.qa.knowledge.domains import Domain, EntityType
from astra.qa.knowledge.schema import CellType, Relation, RowChoice

SUPERLATIVES: Mapping[str, tuple[str, str]] = {
    "asking_price": ("cheapest", "dearest"),
    "price": ("cheapest", "dearest"),
    "fee": ("cheapest", "dearest"),
    "rating": ("worst", "best"),
    "weight": ("lightest", "heaviest"),
    "load": ("lightest", "heaviest"),
    "experience": ("newest", "most experienced"),
    "pages": ("shortest", "longest"),
    "height": ("lowest", "tallest"),
}
"""Measure -> what the thing with the lowest and the highest is called."""
FILTERED: Mapping[str, str] = {
    "rooms": "with {y} rooms",
    "beds": "with {y} beds",
    "colors": "with {y} colors",
    "floor": "on floor {y}",
    "zone": "in zone {y}",
    "specialty": "with specialty {y}",
    "license": "with license {y}",
}
"""Column of few values -> how a question says which of its values is meant."""


@dataclass(frozen=True)
class _Held:
    """Things of one type and what they link to, with the columns that they are told apart by."""

    holder: str
    thing: EntityType
    measure: str
    """A number that no two of them share."""
    filter: str
    """A column of few values; empty where they have none."""

    @property
    def fields(self) -> str:
        """The columns of their records, as ``Operation.select`` has them."""
        return ":".join(filter(None, (self.thing.name, self.measure, self.filter)))


def choosing(domain: Domain, most_pages: int) -> tuple[Relation, ...]:
    """Every relation of a domain whose answer holds more than what is asked for, and the twins.

    Each way to choose is a relation of its own; the tool is the same.
    """
    known = {relation.name for relation in (*domain.groups, *domain.more)}
    made = [
        relation
        for held in _held(domain)
        for relation in (*_listed(held, domain, most_pages), *_twins(held))
        if relation.name not in known
    ]
    return (*made, *_records(domain))


def _held(domain: Domain) -> Iterator[_Held]:
    for thing in domain.types:
        measure = next((a.name for a in thing.attributes if a.unique), "")
        few = next((a.name for a in thing.attributes if a.name in FILTERED), "")
        for link in thing.attributes:
            if measure and link.target:
                yield _Held(link.target, thing, measure, few)


def _listed(held: _Held, domain: Domain, most_pages: int) -> Iterator[Relation]:
    """Records of all the things, and pages of them, each with every way to choose one."""
    whole = Relation(
        name=f"{held.holder}.{held.thing.name}_records",
        op="rows",
        source=held.holder,
        table=held.thing.table,
        key=held.holder,
        select=held.fields,
        phrase=f"the {held.thing.table} of {{x}}",
        kind=CellType.ENTITY,
    )
    for choice, target in _choices(held, domain):
        at_once = replace(whole, choice=choice, target=target)
        yield at_once
        if held.filter and not choice.where:
            yield from _narrowed(
                at_once, f"{held.thing.name}_records_by_{held.filter}", held.filter
            )
        for pages in range(2, most_pages + 1):
            yield replace(
                at_once,
                name=f"{held.holder}.{held.thing.name}_pages",
                op="page",
                choice=replace(choice, pages=pages),
            )


def _choices(held: _Held, domain: Domain) -> Iterator[tuple[RowChoice, str]]:
    """Each way to choose one of the things, or its measure, and what can be asked of that."""
    thing, measure = held.thing.name, held.measure
    low, high = SUPERLATIVES[measure]
    amount = "amount" if f"{thing}.{measure}" in domain.money else ""
    entity, number = CellType.ENTITY, CellType.NUMBER
    yield RowChoice(thing, f"the {low} {thing} of {{x}}", entity, lowest=measure), thing
    yield RowChoice(thing, f"the {high} {thing} of {{x}}", entity, highest=measure), thing
    words = measure.replace("_", " ")
    phrase = f"the {words} of the {low} {thing} of {{x}}"
    yield RowChoice(measure, phrase, number, lowest=measure), amount
    if held.filter:
        only = f"the {thing} {FILTERED[held.filter]} of {{x}}"
        yield RowChoice(thing, only, entity, where=held.filter), thing
        yield RowChoice(measure, f"the {words} of {only}", number, where=held.filter), amount


def _twins(held: _Held) -> Iterator[Relation]:
    """Pairs of relations of which the second takes one parameter more."""
    if not held.filter:
        return
    thing, things = held.thing.name, held.thing.table
    low, _ = SUPERLATIVES[held.measure]
    count = Relation(
        name=f"{held.holder}.all_{things}",
        op="count",
        source=held.holder,
        table=things,
        key=held.holder,
        select="",
        phrase=f"the number of all {things} of {{x}}",
        kind=CellType.NUMBER,
    )
    yield count
    yield from _narrowed(count, f"{things}_by_{held.filter}", held.filter)
    extreme = replace(
        count,
        name=f"{held.holder}.{low}_{thing}",
        op="argmin",
        select=f"{thing}:{held.measure}",
        phrase=f"the {low} {thing} of {{x}}",
        kind=CellType.ENTITY,
        target=thing,
    )
    yield extreme
    yield from _narrowed(extreme, f"{low}_{thing}_by_{held.filter}", held.filter)


def _narrowed(relation: Relation, tail: str, extra: str) -> Iterator[Relation]:
    """The twin that takes the parameter ``extra`` besides."""
    choice = relation.choice

    def worded(phrase: str) -> str:
        return phrase.replace(" all ", " ").replace(" of {x}", f" {FILTERED[extra]} of {{x}}")

    yield replace(
        relation,
        name=f"{relation.source}.{tail}",
        phrase=worded(relation.phrase),
        extra=extra,
        twin=relation.name,
        choice=choice and replace(choice, phrase=worded(choice.phrase)),
    )


def _records(domain: Domain) -> Iterator[Relation]:
    """A record of each thing that has several attributes, of which one leads on."""
    for thing in domain.types:
        links = [a.name for a in thing.attributes if a.target]
        cells = [a.name for a in thing.attributes if not a.target][:2]
        if links and cells:
            link = links[0]
            yield Relation(
                name=f"{thing.name}.summary",
                op="record",
                source=thing.name,
                table=thing.table,
                key=thing.name,
                select=":".join([link, *cells]),
                phrase="the summary of {x}",
                kind=CellType.ENTITY,
                target=link,
                choice=RowChoice(link, f"the {link} of {{x}}", CellType.ENTITY),
            )
