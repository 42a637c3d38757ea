"""A boat yard as a world: two boats, three people, bookings; written by hand for tests."""

from __future__ import annotations

from typing import Any

from astra.records.qa import Split
from astra.records.state import FieldClass
from astra.records.tool import Tool
from astra.records.world import (
    ColumnType,
    Enforced,
    PolicyRule,
    ToolRole,
    World,
    WorldColumn,
    WorldShape,
    WorldTable,
    WorldTool,
)

FIND = """
def find_person(world, email):
    for row in world.tables["people"]:
        if row["email"] == email:
            return row
    raise ValueError("nobody has this email")
"""
LIST = """
def list_boats(world, seats=None):
    rows = [row for row in world.tables["boats"] if seats is None or row["seats"] >= seats]
    return {"items": rows, "page": 1, "pages": 1}
"""
BOOK = """
def book_boat(world, person_id, boat_id, day):
    boats = {row["boat_id"]: row for row in world.tables["boats"]}
    if boat_id not in boats:
        raise ValueError("there is no such boat")
    if not boats[boat_id]["free"]:
        raise ValueError("the boat is taken")
    boats[boat_id]["free"] = False
    boats[boat_id]["log"].append(day)
    booking = {"booking_id": world.new_id("bookings", person_id, boat_id), "person_id": person_id,
               "boat_id": boat_id, "day": day, "made": world.clock}
    world.tables["bookings"].append(booking)
    return booking
"""
CANCEL = """
def cancel_booking(world, booking_id):
    kept = [row for row in world.tables["bookings"] if row["booking_id"] != booking_id]
    if len(kept) == len(world.tables["bookings"]):
        raise ValueError("there is no such booking")
    world.tables["bookings"] = kept
    return {"cancelled": booking_id}
"""
DECLINE = """
def decline_request(world, reason):
    row = {"outcome_id": world.new_id("outcomes", reason), "outcome": "declined", "reason": reason}
    world.tables["outcomes"].append(row)
    return row
"""


def offer(
    name: str,
    code: str,
    role: ToolRole,
    writes: tuple[str, ...] = (),
    shows: dict[str, tuple[str, ...]] | None = None,
    **parameters: Any,
) -> WorldTool:
    optional = {key for key, schema in parameters.items() if schema.pop("optional", False)}
    schema = {"type": "object", "properties": parameters, "additionalProperties": False,
              "required": [key for key in parameters if key not in optional]}  # fmt: skip
    return WorldTool(
        tool=Tool(name=name, description=f"{name} of the yard", parameters=schema),
        code=code, role=role, reads=(), writes=writes, shows=shows or {},
    )  # fmt: skip


def column(name: str, type: ColumnType = ColumnType.STRING, **more: Any) -> WorldColumn:
    return WorldColumn(name=name, type=type, **more)


def text() -> dict[str, Any]:
    return {"type": "string"}


def table(name: str, key: str, *columns: WorldColumn, **fields: FieldClass) -> WorldTable:
    return WorldTable(
        name=name, key=key, columns=(column(key, ColumnType.ID), *columns), fields=fields
    )


BOATS = ("boat_id", "name", "seats", "price", "free", "log")
PEOPLE = ("person_id", "name", "email", "tier")
BOOKINGS = ("booking_id", "person_id", "boat_id", "day", "made")
AUTHENTICATED = {"seen": ["find_person", "person_id", {"arg": "person_id"}]}
RULES = (
    PolicyRule(id="authenticate", text="Find the person before you book for them.",
               tools=("book_boat",), require=AUTHENTICATED, enforced=Enforced.POLICY,
               reason="not_authenticated"),
    PolicyRule(id="confirm", text="Ask for a yes before you change anything.",
               tools=("book_boat", "cancel_booking"), require={"confirmed": None},
               enforced=Enforced.POLICY, reason="not_confirmed"),
    PolicyRule(id="tier", text="Big boats are for gold members.", tools=("book_boat",),
               when={"le": [6, {"field": [{"row": ["boats", {"arg": "boat_id"}]}, "seats"]}]},
               require={"eq": [{"field": [{"row": ["people", {"arg": "person_id"}]}, "tier"]},
                               "gold"]},
               enforced=Enforced.POLICY, reason="tier_too_low"),
)  # fmt: skip


def yard(extra: tuple[WorldTool, ...] = (), boats: int = 3, **more: Any) -> World:
    """The world, with further tools, more boats and other fields where asked for."""
    rows: dict[str, Any] = {
        "boats": [
            {"boat_id": f"boat-{at}", "name": f"Heron {at}", "seats": 2 * at, "price": 12.5 * at,
             "free": at != 2, "log": ["2026-01-01"]}
            for at in range(1, boats + 1)
        ],
        "people": [
            {"person_id": "p1", "name": "Ada Moss", "email": "ada@yard.example", "tier": "gold"},
            {"person_id": "p2", "name": "Ada Reed", "email": "reed@yard.example", "tier": "basic"},
        ],
        "bookings": [{"booking_id": "bookings-1", "person_id": "p2", "boat_id": "boat-2",
                      "day": "2026-03-01", "made": "2026-01-01T00:00:00"}],
        "outcomes": [],
    }  # fmt: skip
    tables = (
        table("boats", "boat_id", column("name"), column("seats", ColumnType.INTEGER),
              column("price", ColumnType.NUMBER), column("free", ColumnType.BOOLEAN),
              column("log", ColumnType.JSON)),
        table("people", "person_id", column("name"), column("email"), column("tier")),
        table("bookings", "booking_id", column("person_id"), column("boat_id"), column("day"),
              column("made"), booking_id=FieldClass.IGNORE, made=FieldClass.IGNORE),
        table("outcomes", "outcome_id", column("outcome"), column("reason"),
              outcome_id=FieldClass.IGNORE),
    )  # fmt: skip
    tools = (
        offer("find_person", FIND, ToolRole.FIND, shows={"people": PEOPLE}, email=text()),
        offer("list_boats", LIST, ToolRole.SEARCH, shows={"boats": BOATS},
              seats={"type": "integer", "optional": True}),
        offer("book_boat", BOOK, ToolRole.CREATE, ("boats", "bookings"), {"bookings": BOOKINGS},
              person_id=text(), boat_id=text(), day=text()),
        offer("cancel_booking", CANCEL, ToolRole.CANCEL, ("bookings",), booking_id=text()),
        offer("decline_request", DECLINE, ToolRole.DECLINE, ("outcomes",), reason=text()),
        *extra,
    )  # fmt: skip
    fields: dict[str, Any] = {
        "domain": "boat_yard", "title": "Boat yard", "split": Split.TRAIN, "variant": 0,
        "shape": WorldShape.SMALL, "language": "en", "clock": "2026-02-01T09:00:00",
        "tables": tables, "rows": rows, "tools": tools, "rules": RULES, "invariants": (),
        "policy": " ".join(rule.text for rule in RULES), "checks": {},
        "topics": {"complaint": "complaints"},
        "refusals": {"not_found": "there is no such thing"}, **more,
    }  # fmt: skip
    return World(**fields)
