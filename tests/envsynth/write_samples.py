"""A little guest house whose bookings can be made, changed and removed, for tests of writes."""

from __future__ import annotations

from typing import Any

from env_samples import answer

from astra.records.qa import (
    Answer,
    Operation,
    QAInstance,
    QuestionKind,
    Scenario,
    Split,
    SubQuestion,
    Table,
)
from astra.records.state import FieldClass, Write, WriteAction

ROOMS = Table(
    name="rooms",
    columns=("room", "price", "floor"),
    rows=(
        ("Amber Cove", 120, 11),
        ("Jade Mill", 95, 12),
        ("Pine Gate", 140, 12),
        ("Ruby Lake", 80, 13),
        ("Opal Dale", 110, 14),
        ("Onyx Pass", 150, 15),
    ),
)
BOOKINGS = Table(
    name="bookings",
    columns=("booking", "room", "guest", "nights", "status", "made"),
    rows=(
        ("bookings-1", "Jade Mill", "Lena Orr", 4, "active", "2023-12-30T10:00:00"),
        ("bookings-2", "Amber Cove", "Hugo Penn", 5, "active", "2023-12-31T11:00:00"),
        ("bookings-3", "Pine Gate", "Rosa Dahl", 6, "active", "2023-12-31T12:00:00"),
    ),
    fields={"booking": FieldClass.IGNORE, "made": FieldClass.IGNORE},
)
GUESTS = Table(
    name="guests",
    columns=("guest", "city"),
    rows=(
        ("Nora Holt", "Oslo"),
        ("Lena Orr", "Bern"),
        ("Hugo Penn", "Kyiv"),
        ("Rosa Dahl", "Nice"),
    ),
)
NEW = {"room": "Amber Cove", "guest": "Nora Holt", "nights": 3}


def step(
    number: int, op: str, relation: str, table: str, arguments: dict[str, Any], gold: Answer,
    *writes: Write, select: str = "", dependencies: tuple[int, ...] = (), hop: int = 1,
) -> SubQuestion:  # fmt: skip
    return SubQuestion(
        id=number, hop_level=hop, question=f"{op} {relation} with {arguments}?", answer=gold,
        dependencies=dependencies, tool_necessity=True, writes=writes,
        operation=Operation(
            op=op, relation=relation, table=table, arguments=arguments, select=select
        ),
    )  # fmt: skip


DONE = answer("boolean", True)
PRICE = step(1, "lookup", "room.price", "rooms", {"room": "Amber Cove"}, answer("number", 120),
             select="price")  # fmt: skip
RESERVE = step(
    2, "insert", "room.reserve_room", "bookings", NEW, DONE,
    Write(action=WriteAction.INSERT, table="bookings", values={**NEW, "status": "active"}),
)  # fmt: skip
CANCEL = step(
    3, "update", "booking.cancel_booking", "bookings", {"guest": "Lena Orr", "room": "Jade Mill"},
    DONE,
    Write(action=WriteAction.UPDATE, table="bookings",
          where={"guest": "Lena Orr", "room": "Jade Mill"}, values={"status": "cancelled"}),
)  # fmt: skip
REMOVE = step(
    4, "delete", "guest.remove_guest", "guests", {"guest": "Rosa Dahl"}, answer("string", "Nice"),
    Write(action=WriteAction.DELETE, table="guests", where={"guest": "Rosa Dahl"}), select="city",
)  # fmt: skip
COUNT = step(5, "count", "room.bookings", "bookings", {"room": "Amber Cove"},
             answer("number", 2, domain_size=9), dependencies=(2,), hop=2)  # fmt: skip
EVERY_WRITE = (PRICE, RESERVE, CANCEL, REMOVE, COUNT)


def house(
    *questions: SubQuestion,
    kind: QuestionKind = QuestionKind.MIXED,
    knowledge: tuple[Table, ...] = (ROOMS, BOOKINGS, GUESTS),
    domain: str = "hospitality",
    final: Answer | None = None,
) -> QAInstance:
    return QAInstance(
        split=Split.TRAIN, domain=domain, language="en", source="test", kind=kind,
        scenario=Scenario.PARALLEL_MULTI_HOP,
        main_question=" And ".join(question.question for question in questions),
        final_answer=final or questions[-1].answer, sub_questions=questions,
        knowledge=knowledge, entities=("Amber Cove", "Jade Mill"), composition=f"{domain}:writes",
    )  # fmt: skip
