"""Calculations that are asked of amounts, dates and measures, whatever domain they come from."""

from __future__ import annotations

from dataclasses import dataclass

from astra.qa.knowledge.schema import CellType, Relation
from astra.records.qa import Table

RATES = Table(
    name="rates",
    columns=("currency", "rate"),
    rows=(("crowns", 2), ("dinars", 3), ("pesos", 5), ("shillings", 4)),
)
"""How many of each currency one unit of a world's money is."""
CONVERT = Relation(
    name="amount.convert_amount",
    op="convert",
    source="amount",
    table="rates",
    key="currency",
    select="rate",
    phrase="{x} converted to {y}",
    kind=CellType.NUMBER,
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
    kind=CellType.DATE,
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
    kind=CellType.NUMBER,
)
WEEKDAY = Relation(
    name="date.find_weekday",
    op="weekday",
    source="date",
    table="",
    key="date",
    select="",
    phrase="the weekday of {x}",
    kind=CellType.CATEGORY,
)
MULTIPLY = Relation(
    name="amount.multiply_amount",
    op="multiply",
    source="amount",
    table="",
    key="amount",
    select="",
    phrase="{x} multiplied by {y}",
    kind=CellType.NUMBER,
    extra="times",
    vague="{x} multiplied by another number",
)


@dataclass(frozen=True)
class Measure:
    """A dimension: the unit that tables use, and how many of other units make one of it."""

    unit: str
    table: Table
    convert: Relation


def _measure(name: str, unit: str, **factors: float) -> Measure:
    table = Table(name=f"{name}s", columns=("unit", "factor"), rows=tuple(factors.items()))
    convert = Relation(
        name=f"{name}.convert_{name}",
        op="convert",
        source=name,
        table=table.name,
        key="unit",
        select="factor",
        phrase="{x} converted to {y}",
        kind=CellType.NUMBER,
        extra="unit",
        vague="{x} converted to another unit",
    )
    return Measure(unit, table, convert)


MEASURES = {
    "length": _measure("length", "m", feet=3.28, yards=1.09, inches=39.37),
    "weight": _measure("weight", "kg", pounds=2.2, ounces=35.27, stones=0.16),
}
"""Dimension -> its units and their conversion."""
