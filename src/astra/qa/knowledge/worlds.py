"""Generated business worlds: relational tables about made-up people and things.

A world is a pure function of domain, split, variant and seed.
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
from astra.qa.knowledge.domains import DOMAINS, Attribute, Domain, EntityType, Holding
from astra.qa.knowledge.operations import join
from astra.qa.knowledge.schema import CellType, KnowledgeSource, Relation, lookup
from astra.records.base import content_id
from astra.records.qa import Split, Table
from astra.text.names import Pool, draw_names

FIRST_DAY = date(2024, 1, 1)


def build_world(
    name: str,
    split: Split,
    variant: int,
    seed: int,
    names_per_kind: int,
    language: str = "en",
    extended: bool = False,
) -> KnowledgeSource:
    """One world of a split; names come from the split's pool only.

    Variants of a split share a stock of ``names_per_kind`` names per kind (person, thing).
    ``extended`` adds what ``Domain.more`` asks, and measures, to the same tables.
    """
    domain = DOMAINS[name]
    label = (
        [name, split, variant, seed] if language == "en" else [name, split, variant, seed, language]
    )
    rng = random.Random(int(content_id(["world", *label]), 16))
    stocks = {
        who: name_stock(who, split, seed, names_per_kind)
        if language == "en"
        else chinese.name_stock(who, Pool(split.value), seed, names_per_kind)
        for who in ("person", "thing")
    }
    return world_of(f"world:{name}", name, domain, split, stocks, rng, language, extended)


def world_of(
    name: str,
    label: str,
    domain: Domain,
    split: Split,
    stocks: Mapping[str, list[str]],
    rng: random.Random,
    language: str = "en",
    extended: bool = False,
) -> KnowledgeSource:
    """A world of a domain, called ``label``; ``stocks`` hold names of ``person`` and ``thing``."""
    members = _draw_members(domain, stocks, rng)
    tables = {kind.table: _table(kind, members, rng) for kind in domain.types}
    kinds = {kind.table: _kinds(kind) for kind in domain.types}
    relations = [
        lookup(
            kind.name, kind.table, attribute.name, attribute.kind, _target(kind, attribute, domain)
        )
        for kind in domain.types
        for attribute in kind.attributes
    ]
    for held in domain.holdings:
        tables[held.table] = _holding_table(held, members, rng)
        kinds[held.table] = {held.thing: CellType.ENTITY, held.holder: CellType.ENTITY}
        relations.append(lookup(held.thing, held.table, held.holder, CellType.ENTITY, held.holder))
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
        starts={kind: tuple(found) for kind, found in members.items()},
    )
    if extended:
        source = _extended(source, domain)
    return in_chinese(source) if language == "zh" else source


def _extended(source: KnowledgeSource, domain: Domain) -> KnowledgeSource:
    """The same knowledge with joins, measures and the relations over them."""
    tables, kinds = dict(source.tables), dict(source.kinds)
    for view in domain.views:
        parts = view.split("+")
        tables[view] = join(view, [tables[part] for part in parts])
        kinds[view] = {c: kind for part in parts for c, kind in kinds[part].items()}
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


def _target(kind: EntityType, attribute: Attribute, domain: Domain) -> str:
    """What can be asked of the answer: the linked entity, a date, an amount of money."""
    if f"{kind.name}.{attribute.name}" in domain.money:
        return "amount"
    return "date" if attribute.kind is CellType.DATE else attribute.target


def _draw_members(
    domain: Domain, stocks: Mapping[str, list[str]], rng: random.Random
) -> dict[str, list[str]]:
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


def _kinds(kind: EntityType) -> dict[str, CellType]:
    return {kind.name: CellType.ENTITY, **{a.name: a.kind for a in kind.attributes}}


def _table(kind: EntityType, members: dict[str, list[str]], rng: random.Random) -> Table:
    names = members[kind.name]
    columns = [_cells(attribute, len(names), members, rng) for attribute in kind.attributes]
    return Table(
        name=kind.table,
        columns=(kind.name, *(attribute.name for attribute in kind.attributes)),
        rows=tuple(zip(names, *columns, strict=True)),
    )


def _holding_table(held: Holding, members: dict[str, list[str]], rng: random.Random) -> Table:
    things = members[held.thing]
    taken = rng.sample(things, int(len(things) * held.share))
    rows = tuple((thing, rng.choice(members[held.holder])) for thing in taken)
    return Table(name=held.table, columns=(held.thing, held.holder), rows=rows)


def _cells(
    attribute: Attribute, count: int, members: dict[str, list[str]], rng: random.Random
) -> list[Any]:
    if attribute.unique:
        return rng.sample(range(attribute.low, attribute.high + 1), count)
    if attribute.kind is CellType.ENTITY and len(members[attribute.target]) == count:
        return rng.sample(members[attribute.target], count)  # one to one
    draws: dict[CellType, Callable[[], Any]] = {
        CellType.ENTITY: lambda: rng.choice(members[attribute.target]),
        CellType.NUMBER: lambda: rng.randint(attribute.low, attribute.high),
        CellType.DATE: lambda: (
            FIRST_DAY + timedelta(days=rng.randint(0, attribute.high))
        ).isoformat(),
        CellType.CATEGORY: lambda: rng.choice(attribute.values),
    }
    return [draws[attribute.kind]() for _ in range(count)]
