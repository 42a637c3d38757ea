"""Near-duplicates by what is asked of what, and the share of a split that one shape may hold."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from astra.qa.gates import FreshSlots
from astra.qa.selection import JudgedInstance, JudgedShelf
from astra.qa.variety import ShapeCounts, limit
from astra.records.qa import QAInstance, Split
from astra.records.score import Rejection


def booking(hotel: str, guest: str, build: Any, **changes: Any) -> QAInstance:
    """The cheapest room of a hotel is reserved for a guest."""
    steps = [
        {
            "id": 1,
            "hop_level": 1,
            "question": f"What is the cheapest room of {hotel}?",
            "answer": {"type": "string", "value": "Room"},
            "operation": {
                "op": "argmin", "relation": "hotel.cheapest_room", "table": "rooms",
                "arguments": {"hotel": hotel}, "select": "room:price",
            },
        },
        {
            "id": 2,
            "hop_level": 2,
            "question": f"Reserve it for {guest}.",
            "answer": {"type": "string", "value": guest},
            "dependencies": [1],
            "operation": {
                "op": "insert", "relation": "room.reserve_room", "table": "bookings",
                "arguments": {"room": {"from": 1}, "guest": guest}, "select": "guest",
            },
        },
    ]  # fmt: skip
    return build(
        {
            "split": "train", "domain": "hotels", "language": "en", "source": "world:hotels",
            "kind": "write", "scenario": "multi_hop", "composition": "hotels:act:book",
            "main_question": f"Please reserve the cheapest room of {hotel} for {guest}.",
            "final_answer": {"type": "enum", "value": "done"}, "sub_questions": steps,
            "entities": [hotel, guest], "scores": {"qs": {"kind": "scored", "value": 1.0}},
            **changes,
        }
    )  # fmt: skip


def test_the_same_room_for_another_guest_is_a_near_duplicate(build: Any) -> None:
    gate = FreshSlots(2)
    assert gate(booking("Ember Port", "Lena Penn", build)) is None
    problem = gate(booking("Ember Port", "Ivo Hall", build))
    assert problem is not None
    assert problem[0] == "near_duplicate_slots"
    assert "Ivo Hall" in problem[1]
    assert gate(booking("Opal Harbor", "Lena Penn", build)) is not None, "one slot differs"
    assert gate(booking("Opal Harbor", "Ivo Hall", build)) is None, "both slots differ"


def test_a_number_in_common_makes_no_duplicate(build: Any) -> None:
    """Only what is not among the entities differs in kind: months, numbers, categories."""

    def of(hotel: str, nights: str) -> QAInstance:
        return booking(hotel, nights, build, entities=[hotel])

    gate = FreshSlots(2)
    assert gate(of("Ember Port", "7")) is None
    assert gate(of("Opal Harbor", "7")) is None
    assert gate(of("Opal Harbor", "7")) is not None
    assert gate(of("Opal Harbor", "9")) is not None


def test_without_names_only_the_same_is_a_duplicate(build: Any) -> None:
    gate = FreshSlots(2)
    assert gate(booking("5", "7", build, entities=[])) is None
    assert gate(booking("5", "9", build, entities=[])) is None
    assert gate(booking("5", "7", build, entities=[])) is not None


@pytest.mark.parametrize(
    "other",
    [{"split": "heldout"}, {"composition": "hotels:act:other"}, {"language": "zh"}],
)
def test_other_shapes_and_splits_are_no_duplicates(other: dict[str, Any], build: Any) -> None:
    gate = FreshSlots(2)
    assert gate(booking("Ember Port", "Lena Penn", build)) is None
    assert gate(booking("Ember Port", "Lena Penn", build, **other)) is None


def test_of_one_slot_only_the_same_is_a_duplicate(documents: Any, build: Any) -> None:
    def of(boat: str, wording: str) -> QAInstance:
        document = documents["chain"]()
        document["main_question"] = wording.format(boat)
        document["sub_questions"][0]["operation"]["arguments"]["boat"] = boat
        return build(document)

    gate = FreshSlots(3)
    assert gate(of("Blue Heron", "What is the age of the captain of {}?")) is None
    assert gate(of("Red Kite", "What is the age of the captain of {}?")) is None
    assert gate(of("Red Kite", "How old is the man who commands {}?")) is not None


def test_the_order_of_names_makes_no_new_question(documents: Any, build: Any) -> None:
    first, second = documents["comparison"](), documents["comparison"]()
    steps = second["sub_questions"]
    for step, boat in zip(steps[:2], ("Red Kite", "Blue Heron"), strict=True):
        step["operation"]["arguments"] = {"boat": boat}
    gate = FreshSlots(1)
    assert gate(build(first)) is None
    assert gate(build(second)) is not None


def test_without_operations_words_alone_decide(documents: Any, build: Any) -> None:
    document = documents["chain"]()
    for step in document["sub_questions"]:
        step["operation"] = None
    gate = FreshSlots(2)
    assert gate(build(document)) is None
    assert gate(build(document)) is None


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ([40] + [5] * 200, 0.02, 20),
        ([5] * 200, 0.02, 5),
        ([400], 0.02, 400),
        ([300, 50, 50, 50], 0.02, 150),
        ([1] * 400, 0.001, 1),
    ],
)
def test_limits_by_hand(counts: list[int], share: float, expected: int) -> None:
    most = limit(counts, share)
    assert most == expected
    left = [min(count, most) for count in counts]
    assert most == 1 or max(left) / sum(left) <= max(share, 2 / len(counts))


def select(instances: list[QAInstance], config: Any) -> list[QAInstance | Rejection]:
    with JudgedShelf() as shelf:
        for instance in instances:
            shelf.add(JudgedInstance(item=instance.id, instance=instance, against=""))
        return list(shelf.select(config, []))


def test_no_shape_holds_more_than_its_share_of_a_large_split(build: Any, valid_config: Any) -> None:
    frequent = [
        booking(f"Inn {number}", f"Guest {number}", build, split=split)
        for number in range(60)
        for split in ("train", "dev")
    ]
    others = [
        booking(f"Inn {number}", f"Guest {number}", build, composition=f"shape {number % 200}")
        for number in range(1000, 1940)
    ]
    outcomes = select([*frequent, *others], valid_config())
    kept = [outcome for outcome in outcomes if isinstance(outcome, QAInstance)]
    dropped = [outcome for outcome in outcomes if isinstance(outcome, Rejection)]
    shapes = Counter((instance.split, instance.composition) for instance in kept)
    train = sum(instance.split is Split.TRAIN for instance in kept)
    assert max(n for (split, _), n in shapes.items() if split is Split.TRAIN) / train <= 0.02
    assert shapes[Split.TRAIN, "hotels:act:book"] == 19
    assert shapes[Split.DEV, "hotels:act:book"] == 60, "a small split is not cut"
    assert {rejection.reason for rejection in dropped} == {"frequent_shape"}
    assert {rejection.item for rejection in dropped} <= {instance.id for instance in frequent}
    assert len(kept) + len(dropped) == len(frequent) + len(others)
    assert outcomes == select([*others, *frequent], valid_config())


def test_shares_are_reported_by_split(build: Any) -> None:
    counts = ShapeCounts()
    assert counts.largest_shares() == {}
    for composition, split in (("a", "train"), ("a", "train"), ("b", "train"), ("a", "dev")):
        counts.add(booking("Inn", "Guest", build, composition=composition, split=split))
    assert counts.largest_shares() == {
        "train": {"count": 2, "largest_share": 0.6667}, "dev": {"count": 1, "largest_share": 1.0},
    }  # fmt: skip
