"""Generated business worlds: relational tables about made-up people and things.

A world is a pure function of domain, split, variant and seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

from astra.qa.domains import (
    ADD_DAYS,
    CONVERT,
    DAYS_BETWEEN,
    DOMAINS,
    RATES,
    Attribute,
    Domain,
    EntityType,
)
from astra.qa.schema import Kind, Source, lookup
from astra.records.base import content_id
from astra.records.qa import Split, Table
from astra.text.names import Pool, draw_names

FIRST_DAY = date(2024, 1, 1)


def build_world(name: str, split: Split, variant: int, seed: int, names_per_kind: int) -> Source:
    """One world of a split; names come from the split's pool only.

    Variants of a split share a stock of ``names_per_kind`` names per kind (person, thing).
    """
    domain = DOMAINS[name]
    rng = random.Random(int(content_id(["world", name, split, variant, seed]), 16))
    members = _draw_members(domain, split, seed, names_per_kind, rng)
    tables = {kind.table: _table(kind, members, rng) for kind in domain.types}
    kinds = {kind.table: _kinds(kind) for kind in domain.types}
    relations = [
        lookup(
            kind.name, kind.table, attribute.name, attribute.kind, _target(kind, attribute, domain)
        )
        for kind in domain.types
        for attribute in kind.attributes
    ]
    if domain.money:
        tables["rates"] = RATES
        kinds["rates"] = {"currency": Kind.CATEGORY, "rate": Kind.NUMBER}
        relations.append(CONVERT)
    return Source(
        name=f"world:{name}",
        domain=name,
        split=split,
        tables=tables,
        kinds=kinds,
        relations=(*relations, *domain.groups, ADD_DAYS, DAYS_BETWEEN),
        starts={kind: tuple(found) for kind, found in members.items()},
    )


def _target(kind: EntityType, attribute: Attribute, domain: Domain) -> str:
    """What can be asked of the answer: the linked entity, a date, an amount of money."""
    if f"{kind.name}.{attribute.name}" in domain.money:
        return "amount"
    return "date" if attribute.kind is Kind.DATE else attribute.target


def _draw_members(
    domain: Domain, split: Split, seed: int, names_per_kind: int, rng: random.Random
) -> dict[str, list[str]]:
    stocks = {who: name_stock(who, split, seed, names_per_kind) for who in ("person", "thing")}
    for stock in stocks.values():
        rng.shuffle(stock)
    return {
        kind.name: [stocks["person" if kind.people else "thing"].pop() for _ in range(kind.count)]
        for kind in domain.types
    }


def name_stock(who: str, split: Split, seed: int, count: int) -> list[str]:
    """The names of one kind that a split uses: at most ``count``, fewer if its pool is smaller."""
    rng = random.Random(int(content_id(["stock", who, split, seed]), 16))
    for size in range(count, 0, -1):
        try:
            return draw_names(who, Pool(split.value), size, rng)
        except ValueError:
            continue
    return []


def _kinds(kind: EntityType) -> dict[str, Kind]:
    return {kind.name: Kind.ENTITY, **{a.name: a.kind for a in kind.attributes}}


def _table(kind: EntityType, members: dict[str, list[str]], rng: random.Random) -> Table:
    names = members[kind.name]
    columns = [_cells(attribute, len(names), members, rng) for attribute in kind.attributes]
    return Table(
        name=kind.table,
        columns=(kind.name, *(attribute.name for attribute in kind.attributes)),
        rows=tuple(zip(names, *columns, strict=True)),
    )


def _cells(
    attribute: Attribute, count: int, members: dict[str, list[str]], rng: random.Random
) -> list[Any]:
    if attribute.unique:
        return rng.sample(range(attribute.low, attribute.high + 1), count)
    if attribute.kind is Kind.ENTITY and len(members[attribute.target]) == count:
        return rng.sample(members[attribute.target], count)  # one to one
    draws: dict[Kind, Callable[[], Any]] = {
        Kind.ENTITY: lambda: rng.choice(members[attribute.target]),
        Kind.NUMBER: lambda: rng.randint(attribute.low, attribute.high),
        Kind.DATE: lambda: (FIRST_DAY + timedelta(days=rng.randint(0, attribute.high))).isoformat(),
        Kind.CATEGORY: lambda: rng.choice(attribute.values),
    }
    return [draws[attribute.kind]() for _ in range(count)]
