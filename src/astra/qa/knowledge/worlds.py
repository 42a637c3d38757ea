"""Worlds: the tables of a generated domain, filled with made-up people, things, numbers and dates.

domains.py says which types of things a domain has and how they are linked; here names are dealt
out to them and cells are drawn. A world of one split is a function of its domain, variant and
seed, and all its names come from the split's own pool.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

from astra.qa.knowledge import chinese
from astra.qa.knowledge.calculations import (
    ADD_DAYS,
    CONVERT,
    DAYS_BETWEEN,
    MEASURES,
    MULTIPLY,
    RATES,
    WEEKDAY,
)
from astra.qa.knowledge.choices import choosing
from astra.qa.knowledge.domains import DOMAINS, Attribute, Domain, EntityType, Holding
from astra.qa.knowledge.operations import join
from astra.qa.knowledge.schema import CellType, KnowledgeSource, Relation, lookup
from astra.records.base import content_id
from astra.records.qa import Split, Table
from astra.text.names import Pool, draw_names

PLACES = 4
"""One of so many names of things is kept for places."""
FIRST_DAY = date(2024, 1, 1)
"""The earliest date of a cell."""


def build_world(
    name: str,
    split: Split,
    variant: int,
    seed: int,
    names_per_kind: int,
    language: str = "en",
    extended: bool = False,
    pages: int = 0,
) -> KnowledgeSource:
    """One world of a split.

    All variants of a split draw from the same ``names_per_kind`` names of people and as many of
    things. ``extended`` adds the relations of ``Domain.more``, and measures, to the same tables;
    ``pages`` above 0 those of choices.py, with so many pages at most.
    """
    domain = DOMAINS[name]
    identity: list[Any] = [name, split, variant, seed]
    if language != "en":
        identity.append(language)
    rng = random.Random(int(content_id(["world", *identity]), 16))
    stocks = {
        who: name_stock(who, split, seed, names_per_kind)
        if language == "en"
        else chinese.name_stock(who, Pool(split.value), seed, names_per_kind)
        for who in ("person", "thing")
    }
    # A hotel and a room of one name would make two readings of a question: places have their own.
    kept = len(stocks["thing"]) // PLACES
    stocks |= {"place": stocks["thing"][:kept], "thing": stocks["thing"][kept:]}
    return world_of(f"world:{name}", name, domain, split, stocks, rng, language, extended, pages)


def world_of(
    name: str,
    label: str,
    domain: Domain,
    split: Split,
    stocks: Mapping[str, list[str]],
    rng: random.Random,
    language: str = "en",
    extended: bool = False,
    pages: int = 0,
) -> KnowledgeSource:
    """A world of ``domain``, which its questions call ``label``.

    ``stocks`` hold the names of ``person`` and ``thing``, and of ``place`` where places do not
    share those of things; they are shuffled and used up.
    """
    members = _draw_members(domain, stocks, rng)
    tables = {entity.table: _table(entity, members, rng) for entity in domain.types}
    kinds = {entity.table: _kinds(entity) for entity in domain.types}
    relations = [
        lookup(
            entity.name,
            entity.table,
            attribute.name,
            attribute.kind,
            _target(entity, attribute, domain),
        )
        for entity in domain.types
        for attribute in entity.attributes
    ]
    for holding in domain.holdings:
        thing, holder = holding.thing, holding.holder
        tables[holding.table] = _holding_table(holding, members, rng)
        kinds[holding.table] = {thing: CellType.ENTITY, holder: CellType.ENTITY}
        relations.append(lookup(thing, holding.table, holder, CellType.ENTITY, holder))
    if domain.money:
        tables["rates"] = RATES
        kinds["rates"] = {"currency": CellType.CATEGORY, "rate": CellType.NUMBER}
        relations.append(CONVERT)
    relations += [*domain.groups, ADD_DAYS, DAYS_BETWEEN]
    source = KnowledgeSource(
        name=name,
        domain=label,
        split=split,
        tables=tables,
        kinds=kinds,
        relations=tuple(relations),
        starts={entity: tuple(names) for entity, names in members.items()},
    )
    if extended:
        source = _extended(source, domain)
    if pages:
        source = replace(source, relations=(*source.relations, *choosing(domain, pages)))
    return in_chinese(source) if language == "zh" else source


def _extended(source: KnowledgeSource, domain: Domain) -> KnowledgeSource:
    """The same knowledge with joins, measures and the relations over them."""
    tables, kinds = dict(source.tables), dict(source.kinds)
    for name in domain.joins:
        parts = name.split("+")
        tables[name] = join(name, [tables[part] for part in parts])
        kinds[name] = {column: kind for part in parts for column, kind in kinds[part].items()}
    relations: list[Relation] = []
    for relation in source.relations:
        dimension = domain.measures.get(relation.name, "")
        unit = MEASURES[dimension].unit if dimension else ""
        relations.append(replace(relation, target=dimension or relation.target, unit=unit))
    for dimension in sorted(set(domain.measures.values())):
        measure = MEASURES[dimension]
        tables[measure.table.name] = measure.table
        kinds[measure.table.name] = {"unit": CellType.CATEGORY, "factor": CellType.NUMBER}
        relations.append(measure.convert)
    relations += [*domain.more, WEEKDAY, *([MULTIPLY] if domain.money else [])]
    return replace(source, tables=tables, kinds=kinds, relations=tuple(relations))


def in_chinese(source: KnowledgeSource) -> KnowledgeSource:
    """The same knowledge asked in Chinese: phrases and category words; names stay as they are.

    Relations without a Chinese phrase are left out.
    """
    relations: list[Relation] = []
    for relation in source.relations:
        try:
            relations.append(replace(relation, **chinese.translated(relation)))
        except chinese.NoWord:
            continue
    tables = {
        name: table.model_copy(
            update={
                "rows": tuple(
                    tuple(chinese.CATEGORIES.get(cell, cell) for cell in row) for row in table.rows
                )
            }
        )
        for name, table in source.tables.items()
    }
    return replace(source, tables=tables, relations=tuple(relations), language="zh")


def _target(entity: EntityType, attribute: Attribute, domain: Domain) -> str:
    """The ``target`` of an attribute's look-up: the linked entity type, ``date`` or ``amount``."""
    if f"{entity.name}.{attribute.name}" in domain.money:
        return "amount"
    return "date" if attribute.kind is CellType.DATE else attribute.target


def _draw_members(
    domain: Domain, stocks: Mapping[str, list[str]], rng: random.Random
) -> dict[str, list[str]]:
    """Entity type -> the names of its members; no name is dealt out twice."""
    for stock in stocks.values():
        rng.shuffle(stock)
    return {
        entity.name: [stocks[_stock(entity, stocks)].pop() for _ in range(entity.count)]
        for entity in domain.types
    }


def _stock(entity: EntityType, stocks: Mapping[str, list[str]]) -> str:
    if entity.people:
        return "person"
    return "place" if entity.place and "place" in stocks else "thing"


def name_stock(who: str, split: Split, seed: int, count: int) -> list[str]:
    """The names of ``person`` or ``thing`` that a split uses: ``count``, or all its pool has."""
    rng = random.Random(int(content_id(["stock", who, split, seed]), 16))
    for size in range(count, 0, -1):
        try:
            return draw_names(who, Pool(split.value), size, rng)
        except ValueError:
            continue
    return []


def _kinds(entity: EntityType) -> dict[str, CellType]:
    return {entity.name: CellType.ENTITY, **{a.name: a.kind for a in entity.attributes}}


def _table(entity: EntityType, members: dict[str, list[str]], rng: random.Random) -> Table:
    names = members[entity.name]
    columns = [_cells(attribute, len(names), members, rng) for attribute in entity.attributes]
    return Table(
        name=entity.table,
        columns=(entity.name, *(attribute.name for attribute in entity.attributes)),
        rows=tuple(zip(names, *columns, strict=True)),
    )


def _holding_table(holding: Holding, members: dict[str, list[str]], rng: random.Random) -> Table:
    things = members[holding.thing]
    held = rng.sample(things, int(len(things) * holding.share))
    rows = tuple((thing, rng.choice(members[holding.holder])) for thing in held)
    return Table(name=holding.table, columns=(holding.thing, holding.holder), rows=rows)


def _cells(
    attribute: Attribute, count: int, members: dict[str, list[str]], rng: random.Random
) -> list[Any]:
    if attribute.unique:
        return rng.sample(range(attribute.low, attribute.high + 1), count)
    if attribute.kind is CellType.ENTITY and len(members[attribute.target]) == count:
        # As many rows as there are things to link to: each is linked to once.
        return rng.sample(members[attribute.target], count)
    draws: dict[CellType, Callable[[], Any]] = {
        CellType.ENTITY: lambda: rng.choice(members[attribute.target]),
        CellType.NUMBER: lambda: rng.randint(attribute.low, attribute.high),
        CellType.DATE: lambda: (
            FIRST_DAY + timedelta(days=rng.randint(0, attribute.high))
        ).isoformat(),
        CellType.CATEGORY: lambda: rng.choice(attribute.values),
    }
    return [draws[attribute.kind]() for _ in range(count)]
