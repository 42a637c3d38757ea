"""The generated domains: entity types, their attributes and links, and what groups are asked.

Real estate, e-commerce and healthcare are the paper's most frequent domains (ASTRA appendix);
logistics is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from astra.qa.schema import Kind, Relation
from astra.records.qa import Table

RATES = Table(
    name="rates",
    columns=("currency", "rate"),
    rows=(("crowns", 2), ("dinars", 3), ("pesos", 5), ("shillings", 4)),
)
CONVERT = Relation(
    name="amount.convert_amount",
    op="convert",
    source="amount",
    table="rates",
    key="currency",
    select="rate",
    phrase="{x} converted to {y}",
    kind=Kind.NUMBER,
    extra="currency",
)
ADD_DAYS = Relation(
    name="date.add_days",
    op="add_days",
    source="date",
    table="",
    key="date",
    select="",
    phrase="the day {y} days after {x}",
    kind=Kind.DATE,
    extra="days",
)
DAYS_BETWEEN = Relation(
    name="date.days_between",
    op="days_between",
    source="date",
    table="",
    key="start",
    select="",
    phrase="the number of days between {x}",
    kind=Kind.NUMBER,
)


@dataclass(frozen=True)
class Attribute:
    """A column. ``target`` names the entity type a link points at; ``unique`` forbids ties."""

    name: str
    kind: Kind
    low: int = 0
    high: int = 0
    unique: bool = False
    values: tuple[str, ...] = ()
    target: str = ""


@dataclass(frozen=True)
class EntityType:
    name: str
    table: str
    people: bool
    count: int
    attributes: tuple[Attribute, ...]


@dataclass(frozen=True)
class Domain:
    types: tuple[EntityType, ...]
    groups: tuple[Relation, ...]
    money: tuple[str, ...] = ()
    """Relations whose answer is an amount that can be converted."""


def _link(target: str) -> Attribute:
    return Attribute(target, Kind.ENTITY, target=target)


def _number(name: str, low: int, high: int, unique: bool = False) -> Attribute:
    return Attribute(name, Kind.NUMBER, low, high, unique)


def _day(name: str) -> Attribute:
    return Attribute(name, Kind.DATE, 0, 359)


def _word(name: str, *values: str) -> Attribute:
    return Attribute(name, Kind.CATEGORY, values=values)


def _type(name: str, table: str, who: str, count: int, *attributes: Attribute) -> EntityType:
    return EntityType(name, table, who == "person", count, attributes)


def _group(
    name: str,
    op: str,
    table: str,
    select: str,
    phrase: str,
    kind: Kind = Kind.NUMBER,
    target: str = "",
    extra: str = "",
) -> Relation:
    source = name.partition(".")[0]
    return Relation(name, op, source, table, source, select, phrase, kind, target, extra)


# fmt: off
DOMAINS: dict[str, Domain] = {
    "real_estate": Domain(
        types=(
            _type("listing", "listings", "thing", 56, _link("agent"), _link("district"),
                  _number("asking_price", 100, 999, unique=True), _number("rooms", 1, 5),
                  _day("listed_date")),
            _type("agent", "agents", "person", 24, _link("office"),
                  _number("fee", 11, 99, unique=True)),
            _type("office", "offices", "thing", 8, _link("manager")),
            _type("district", "districts", "thing", 10, _link("mayor"), _number("tax", 2, 40)),
            _type("manager", "managers", "person", 8, _number("age", 25, 69)),
            _type("mayor", "mayors", "person", 10, _number("salary", 30, 99)),
        ),
        groups=(
            _group("district.listings", "count", "listings", "",
                   "the number of listings in {x} with {y} rooms", extra="rooms"),
            _group("agent.total_asking_price", "sum", "listings", "asking_price",
                   "the total asking price of the listings of {x}"),
            _group("agent.cheapest_listing", "argmin", "listings", "listing:asking_price",
                   "the cheapest listing of {x}", Kind.ENTITY, "listing"),
            _group("office.agents", "list", "agents", "agent", "the agents of {x}", Kind.ENTITY),
        ),
        money=("listing.asking_price", "agent.fee"),
    ),
    "e_commerce": Domain(
        types=(
            _type("product", "products", "thing", 56, _link("brand"), _link("seller"),
                  _number("price", 10, 299, unique=True), _number("stock", 1, 99)),
            _type("brand", "brands", "thing", 12, _link("founder")),
            _type("seller", "sellers", "person", 24, _link("warehouse"),
                  _number("rating", 11, 99, unique=True), _day("joined_date")),
            _type("warehouse", "warehouses", "thing", 8, _link("supervisor")),
            _type("founder", "founders", "person", 12, _number("age", 25, 89)),
            _type("supervisor", "supervisors", "person", 8, _number("wage", 12, 60)),
        ),
        groups=(
            _group("brand.products", "count", "products", "", "the number of products of {x}"),
            _group("brand.highest_price", "max", "products", "price",
                   "the highest price of the products of {x}"),
            _group("seller.cheapest_product", "argmin", "products", "product:price",
                   "the cheapest product of {x}", Kind.ENTITY, "product"),
            _group("warehouse.average_rating", "mean", "sellers", "rating",
                   "the average rating of the sellers of {x}"),
        ),
        money=("product.price",),
    ),
    "healthcare": Domain(
        types=(
            _type("patient", "patients", "person", 44, _link("doctor"), _link("ward"),
                  _number("weight", 40, 120, unique=True), _day("admission_date")),
            _type("doctor", "doctors", "person", 20, _link("clinic"),
                  _number("experience", 1, 40, unique=True),
                  _word("specialty", "surgery", "dental", "cardiology", "radiology")),
            _type("clinic", "clinics", "thing", 10, _link("director")),
            _type("ward", "wards", "thing", 8, _link("nurse"), _number("floor", 1, 9)),
            _type("director", "directors", "person", 10, _number("budget", 20, 99)),
            _type("nurse", "nurses", "person", 8, _number("shift", 1, 9)),
        ),
        groups=(
            _group("clinic.doctors", "count", "doctors", "",
                   "the number of doctors in {x} with specialty {y}", extra="specialty"),
            _group("doctor.patients", "list", "patients", "patient", "the patients of {x}",
                   Kind.ENTITY),
            _group("doctor.heaviest_patient", "argmax", "patients", "patient:weight",
                   "the heaviest patient of {x}", Kind.ENTITY, "patient"),
            _group("clinic.total_experience", "sum", "doctors", "experience",
                   "the total experience of the doctors of {x}"),
        ),
    ),
    "logistics": Domain(
        types=(
            _type("parcel", "parcels", "thing", 48, _link("driver"), _link("depot"),
                  _number("load", 10, 199, unique=True), _day("shipping_date")),
            _type("driver", "drivers", "person", 20, _link("truck"),
                  _word("license", "local", "regional", "national")),
            _type("truck", "trucks", "thing", 16, _link("garage"), _number("mileage", 10, 990)),
            _type("garage", "garages", "thing", 6, _link("owner"), _number("bays", 2, 30)),
            _type("depot", "depots", "thing", 8, _number("docks", 2, 30)),
            _type("owner", "owners", "person", 6, _number("age", 25, 79)),
        ),
        groups=(
            _group("depot.parcels", "count", "parcels", "", "the number of parcels in {x}"),
            _group("driver.total_load", "sum", "parcels", "load",
                   "the total load of the parcels of {x}"),
            _group("depot.heaviest_parcel", "argmax", "parcels", "parcel:load",
                   "the heaviest parcel of {x}", Kind.ENTITY, "parcel"),
        ),
    ),
}
# fmt: on
