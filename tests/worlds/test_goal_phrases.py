"""How users speak of rows and values: words that an agent can take one way alone."""

from __future__ import annotations

import random

import pytest

from astra.records.world import ToolRole, WorldShape
from astra.worlds import turns
from astra.worlds.domain import load_domains
from astra.worlds.generator import generate
from astra.worlds.references import naming
from astra.worlds.view import WorldView


def small(domain: str) -> WorldView:
    return WorldView(generate(load_domains()[domain], 0, WorldShape.SMALL, 0))


def said(view: WorldView, role: ToolRole, **phrases: str) -> str:
    tool = next(tool for tool in view.world.tools if tool.role is role)
    return turns.wish_phrase(view, tool, phrases, random.Random(0)).partition(" ")[2]


def test_what_is_to_become_of_a_row_does_not_describe_it() -> None:
    row = "the one of my ticket orders with the highest heads"
    assert said(small("museum_ticketing"), ToolRole.UPDATE, ticket_order_id=row, heads="3") == (
        f"the number of places of {row}, with heads 3 from now on"
    )


@pytest.mark.parametrize(("days", "told"), [("1", "1 day"), ("11", "11 days"), ("21", "21 days")])
def test_one_day_is_no_days(days: str, told: str) -> None:
    view = small("utility_metering")
    said_so = said(view, ToolRole.EXTEND, supply_id="my supply SU1", days=days)
    assert said_so == f"my supply SU1 by {told}"


def test_counts_are_asked_for_by_number() -> None:
    view = small("museum_ticketing")
    for column, told in (("heads", "number of heads"), ("order_status", "order status")):
        asked = turns.question(view, "ticket_orders", column, "my order", random.Random(0))
        assert f" the {told} of my order" in asked


def test_the_only_row_is_not_the_highest_of_them() -> None:
    view = small("museum_ticketing")
    meant = view.world.rows["ticket_orders"][0]
    key = {"ticket_order_id": "TO1", "entry_window_id": "EW1"}
    other = {**meant, **key, "heads": meant["heads"] + 1}
    found = [naming(view, "ticket_orders", meant, [meant], random.Random(at)) for at in range(60)]
    assert not [one for one in found if one is None or one.least or one.most]
    among = [naming(view, "ticket_orders", meant, [meant, other], random.Random(at))
             for at in range(60)]  # fmt: skip
    assert [one for one in among if one is not None and one.least == "heads"]
