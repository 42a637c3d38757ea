"""The generated domains: types of things, their attributes and links, and what is asked of groups.

Real estate, e-commerce and healthcare are the paper's most frequent domains (ASTRA appendix);
the others are ours. Hotels and libraries have things that tools can take and give back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from astra.qa.knowledge.schema import CellType, Relation


@dataclass(frozen=True)
class Attribute:
    """A column of an entity type's table."""

    name: str
    kind: CellType
    low: int = 0
    """The least number."""
    high: int = 0
    """The largest number; of a date, the most days after the first."""
    unique: bool = False
    """Whether no two rows have the same number, so that none tie."""
    values: tuple[str, ...] = ()
    """The words of a category."""
    target: str = ""
    """The entity type that a link leads to."""


@dataclass(frozen=True)
class EntityType:
    """A type of people or things, with one row each in its table."""

    name: str
    table: str
    people: bool
    """Whether its members bear names of people."""
    count: int
    """How many members it has."""
    attributes: tuple[Attribute, ...]
    place: bool = False
    """Whether its members bear names kept for places, which no other thing has."""


@dataclass(frozen=True)
class Holding:
    """A table of who has which thing, whose rows actions insert and delete."""

    table: str
    thing: str
    """The entity type of what is held; its name is the table's key."""
    holder: str
    """The entity type of who holds it."""
    share: float
    """The share of things that somebody holds at first."""


@dataclass(frozen=True)
class Domain:
    """What worlds of one business are made of. Every attribute can be looked up besides."""

    types: tuple[EntityType, ...]
    groups: tuple[Relation, ...]
    """Relations that are asked of all rows that link to one thing."""
    money: tuple[str, ...] = ()
    """Relations whose answer is an amount that can be converted."""
    more: tuple[Relation, ...] = ()
    """Relations of ``extended`` worlds only: joins, sorting, filters, records, checks, writes."""
    holdings: tuple[Holding, ...] = ()
    joins: tuple[str, ...] = ()
    """The joined tables that ``more`` reads, for example ``listings+agents``."""
    measures: Mapping[str, str] = field(default_factory=dict[str, str])
    """Relation -> the dimension of its answer, which ``extended`` worlds convert."""


def _link(target: str) -> Attribute:
    """A link to a thing of type ``target``, in a column of that name."""
    return Attribute(target, CellType.ENTITY, target=target)


def _number(name: str, low: int, high: int, unique: bool = False) -> Attribute:
    return Attribute(name, CellType.NUMBER, low, high, unique)


def _day(name: str) -> Attribute:
    return Attribute(name, CellType.DATE, 0, 359)


def _word(name: str, *values: str) -> Attribute:
    return Attribute(name, CellType.CATEGORY, values=values)


def _type(name: str, table: str, who: str, count: int, *attributes: Attribute) -> EntityType:
    return EntityType(name, table, who == "person", count, attributes, who == "place")


def _group(
    name: str,
    op: str,
    table: str,
    select: str,
    phrase: str,
    kind: CellType = CellType.NUMBER,
    target: str = "",
    extra: str = "",
) -> Relation:
    source = name.partition(".")[0]
    return Relation(
        name=name,
        op=op,
        source=source,
        table=table,
        key=source,
        select=select,
        phrase=phrase,
        kind=kind,
        target=target,
        extra=extra,
    )


def _above(name: str, table: str, select: str, phrase: str) -> Relation:
    """The rows whose measure is above a bound, which the phrase calls ``{y}``."""
    return _group(name, "above", table, select, phrase, CellType.ENTITY, extra="bound")


def _check(name: str, table: str) -> Relation:
    """Whether the link ``name`` holds between two named things."""
    source, _, column = name.partition(".")
    phrase = f"{{y}} is the {column} of {{x}}"
    return _group(
        f"{source}.check_{column}", "check", table, column, phrase, CellType.CATEGORY, extra=column
    )


def _write(
    name: str, op: str, table: str, select: str, phrase: str, extra: str = "", vague: str = ""
) -> Relation:
    """An action on the cell ``select``; ``extra`` is its new value where it has one."""
    source = name.partition(".")[0]
    return Relation(
        name=name,
        op=op,
        source=source,
        table=table,
        key=source,
        select=select,
        phrase=phrase,
        kind=CellType.NUMBER if op == "update" else CellType.ENTITY,
        extra=extra,
        draws=extra if op == "insert" else "",
        vague=vague,
    )


# A line per attribute or relation, so that domains can be read side by side.
# fmt: off
DOMAINS: dict[str, Domain] = {
    "real_estate": Domain(
        types=(
            _type("listing", "listings", "thing", 56, _link("agent"), _link("district"),
                  _number("asking_price", 100, 999, unique=True), _number("rooms", 1, 5),
                  _day("listed_date")),
            _type("agent", "agents", "person", 24, _link("office"),
                  _number("fee", 11, 99, unique=True)),
            _type("office", "offices", "place", 8, _link("manager")),
            _type("district", "districts", "place", 10, _link("mayor"), _number("tax", 2, 40)),
            _type("manager", "managers", "person", 8, _number("age", 25, 69)),
            _type("mayor", "mayors", "person", 10, _number("salary", 30, 99)),
        ),
        groups=(
            _group("district.listings", "count", "listings", "",
                   "the number of listings in {x} with {y} rooms", extra="rooms"),
            _group("agent.total_asking_price", "sum", "listings", "asking_price",
                   "the total asking price of the listings of {x}"),
            _group("agent.cheapest_listing", "argmin", "listings", "listing:asking_price",
                   "the cheapest listing of {x}", CellType.ENTITY, "listing"),
            _group("office.agents", "list", "agents", "agent", "the agents of {x}",
                   CellType.ENTITY),
        ),
        money=("listing.asking_price", "agent.fee"),
        joins=("listings+agents",),
        more=(
            _group("office.listings", "count", "listings+agents", "",
                   "the number of listings of the agents of {x}"),
            _group("office.total_asking_price", "sum", "listings+agents", "asking_price",
                   "the total asking price of the listings of the agents of {x}"),
            _above("agent.listings_above", "listings", "listing:asking_price",
                   "the listings of {x} with an asking price above {y}"),
            _group("agent.listings_by_price", "sort", "listings", "listing:asking_price",
                   "the listings of {x} sorted by asking price", CellType.ENTITY),
            _group("listing.details", "record", "listings", "asking_price:rooms",
                   "the details (asking price and rooms) of {x}"),
            _check("listing.agent", "listings"),
        ),
    ),
    "e_commerce": Domain(
        types=(
            _type("product", "products", "thing", 56, _link("brand"), _link("seller"),
                  _number("price", 10, 299, unique=True), _number("stock", 1, 99),
                  _number("colors", 1, 5)),
            _type("brand", "brands", "place", 12, _link("founder")),
            _type("seller", "sellers", "person", 24, _link("warehouse"),
                  _number("rating", 11, 99, unique=True), _day("joined_date")),
            _type("warehouse", "warehouses", "place", 8, _link("supervisor")),
            _type("founder", "founders", "person", 12, _number("age", 25, 89)),
            _type("supervisor", "supervisors", "person", 8, _number("wage", 12, 60)),
        ),
        groups=(
            _group("brand.products", "count", "products", "", "the number of products of {x}"),
            _group("brand.highest_price", "max", "products", "price",
                   "the highest price of the products of {x}"),
            _group("seller.cheapest_product", "argmin", "products", "product:price",
                   "the cheapest product of {x}", CellType.ENTITY, "product"),
            _group("warehouse.average_rating", "mean", "sellers", "rating",
                   "the average rating of the sellers of {x}"),
        ),
        money=("product.price",),
        joins=("products+sellers",),
        more=(
            _group("warehouse.products", "list", "products+sellers", "product",
                   "the products of the sellers of {x}", CellType.ENTITY),
            _above("seller.products_above", "products", "product:price",
                   "the products of {x} with a price above {y}"),
            _group("seller.products_by_price", "sort", "products", "product:price",
                   "the products of {x} sorted by price", CellType.ENTITY),
            _group("product.details", "record", "products", "price:stock",
                   "the details (price and stock) of {x}"),
            _check("product.seller", "products"),
        ),
    ),
    "healthcare": Domain(
        types=(
            _type("patient", "patients", "person", 44, _link("doctor"), _link("ward"),
                  _number("weight", 40, 120, unique=True), _day("admission_date")),
            _type("doctor", "doctors", "person", 20, _link("clinic"),
                  _number("experience", 1, 40, unique=True),
                  _word("specialty", "surgery", "dental", "cardiology", "radiology")),
            _type("clinic", "clinics", "place", 10, _link("director")),
            _type("ward", "wards", "place", 8, _link("nurse"), _number("floor", 1, 9)),
            _type("director", "directors", "person", 10, _number("budget", 20, 99)),
            _type("nurse", "nurses", "person", 8, _number("shift", 1, 9)),
        ),
        groups=(
            _group("clinic.doctors", "count", "doctors", "",
                   "the number of doctors in {x} with specialty {y}", extra="specialty"),
            _group("doctor.patients", "list", "patients", "patient", "the patients of {x}",
                   CellType.ENTITY),
            _group("doctor.heaviest_patient", "argmax", "patients", "patient:weight",
                   "the heaviest patient of {x}", CellType.ENTITY, "patient"),
            _group("clinic.total_experience", "sum", "doctors", "experience",
                   "the total experience of the doctors of {x}"),
        ),
        measures={"patient.weight": "weight"},
        joins=("patients+doctors",),
        more=(
            _group("clinic.patients", "count", "patients+doctors", "",
                   "the number of patients of the doctors of {x}"),
            _above("doctor.patients_above", "patients", "patient:weight",
                   "the patients of {x} with a weight above {y}"),
            _group("doctor.patients_by_weight", "sort", "patients", "patient:weight",
                   "the patients of {x} sorted by weight", CellType.ENTITY),
            _check("patient.doctor", "patients"),
        ),
    ),
    "logistics": Domain(
        types=(
            _type("parcel", "parcels", "thing", 48, _link("driver"), _link("depot"),
                  _number("load", 10, 199, unique=True), _number("zone", 1, 4),
                  _day("shipping_date")),
            _type("driver", "drivers", "person", 20, _link("truck"),
                  _word("license", "local", "regional", "national")),
            _type("truck", "trucks", "thing", 16, _link("garage"), _number("mileage", 10, 990)),
            _type("garage", "garages", "place", 6, _link("owner"), _number("bays", 2, 30)),
            _type("depot", "depots", "place", 8, _number("docks", 2, 30)),
            _type("owner", "owners", "person", 6, _number("age", 25, 79)),
        ),
        groups=(
            _group("depot.parcels", "count", "parcels", "", "the number of parcels in {x}"),
            _group("driver.total_load", "sum", "parcels", "load",
                   "the total load of the parcels of {x}"),
            _group("depot.heaviest_parcel", "argmax", "parcels", "parcel:load",
                   "the heaviest parcel of {x}", CellType.ENTITY, "parcel"),
        ),
        measures={"parcel.load": "weight"},
        joins=("parcels+drivers",),
        more=(
            _group("truck.parcels", "count", "parcels+drivers", "",
                   "the number of parcels of the driver of {x}"),
            _above("driver.parcels_above", "parcels", "parcel:load",
                   "the parcels of {x} with a load above {y}"),
            _group("driver.parcels_by_load", "sort", "parcels", "parcel:load",
                   "the parcels of {x} sorted by load", CellType.ENTITY),
        ),
    ),
    "hotels": Domain(
        types=(
            _type("room", "rooms", "thing", 40, _link("hotel"),
                  _number("price", 40, 399, unique=True), _number("beds", 1, 6)),
            _type("guest", "guests", "person", 24, _number("age", 18, 89), _day("arrival_date")),
            _type("hotel", "hotels", "place", 9, _link("manager"), _link("chain"),
                  _number("height", 8, 90, unique=True)),
            _type("manager", "managers", "person", 9, _number("bonus", 10, 99)),
            _type("chain", "chains", "place", 5, _link("owner")),
            _type("owner", "owners", "person", 5, _number("age", 25, 79)),
        ),
        groups=(
            _group("hotel.cheapest_room", "argmin", "rooms", "room:price",
                   "the cheapest room of {x}", CellType.ENTITY, "room"),
            _group("hotel.total_price", "sum", "rooms", "price",
                   "the total price of the rooms of {x}"),
        ),
        holdings=(Holding("bookings", "room", "guest", 0.6),),
        money=("room.price",),
        measures={"hotel.height": "length"},
        joins=("rooms+hotels",),
        more=(
            _group("manager.rooms", "count", "rooms+hotels", "",
                   "the number of rooms in the hotel of {x}"),
            _above("hotel.rooms_above", "rooms", "room:price",
                   "the rooms of {x} with a price above {y}"),
            _group("hotel.rooms_by_price", "sort", "rooms", "room:price",
                   "the rooms of {x} sorted by price", CellType.ENTITY),
            _group("room.details", "record", "rooms", "price:beds",
                   "the details (price and beds) of {x}"),
            _check("room.hotel", "rooms"),
            _group("guest.rooms", "count", "bookings", "", "the number of rooms of {x}"),
            _write("room.reserve_room", "insert", "bookings", "guest",
                   "reserve {x} for {y}", "guest", "reserve {x}"),
            _write("room.cancel_room", "delete", "bookings", "guest", "cancel the booking of {x}"),
            _write("room.set_price", "update", "rooms", "price",
                   "set the price of {x} to {y}", "price", "set a new price of {x}"),
        ),
    ),
    "library": Domain(
        types=(
            _type("book", "books", "thing", 48, _link("branch"),
                  _number("pages", 60, 899, unique=True), _number("shelf", 1, 60),
                  _number("floor", 1, 4)),
            _type("member", "members", "person", 24, _day("joined_date"), _number("fines", 1, 40)),
            _type("branch", "branches", "place", 10, _link("librarian"), _link("district")),
            _type("librarian", "librarians", "person", 10, _number("age", 22, 68)),
            _type("district", "districts", "place", 6, _link("mayor"), _number("tax", 2, 40)),
            _type("mayor", "mayors", "person", 6, _number("salary", 30, 99)),
        ),
        groups=(
            _group("branch.longest_book", "argmax", "books", "book:pages",
                   "the longest book of {x}", CellType.ENTITY, "book"),
            _group("branch.total_pages", "sum", "books", "pages",
                   "the total pages of the books of {x}"),
        ),
        holdings=(Holding("loans", "book", "member", 0.6),),
        joins=("books+branches",),
        more=(
            _group("librarian.books", "count", "books+branches", "",
                   "the number of books in the branch of {x}"),
            _above("branch.books_above", "books", "book:pages",
                   "the books of {x} with pages above {y}"),
            _group("branch.books_by_pages", "sort", "books", "book:pages",
                   "the books of {x} sorted by pages", CellType.ENTITY),
            _group("book.details", "record", "books", "pages:shelf",
                   "the details (pages and shelf) of {x}"),
            _group("member.books", "count", "loans", "", "the number of books of {x}"),
            _write("book.borrow_book", "insert", "loans", "member",
                   "borrow {x} for {y}", "member", "borrow {x}"),
            _write("book.return_book", "delete", "loans", "member", "return {x}"),
            _write("book.move_book", "update", "books", "shelf",
                   "move {x} to shelf {y}", "shelf", "move {x} to another shelf"),
        ),
    ),
}
# fmt: on
