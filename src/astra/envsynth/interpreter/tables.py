"""Problems over the tables of checked questions: the tool holds a table, the prompt does not.

Answers need a calculation over many rows, so no look-up and no guess finds them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from astra.records.qa import Answer, AnswerType, Table

LEAST_ROWS = 8
"""The fewest rows of a table that is asked about: fewer need no calculation; our choice."""
DECIMALS = 2
"""Places that answers are rounded to where they are not whole."""
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Posed:
    """A question about a table, its answer computed here, and a program that finds it."""

    question: str
    answer: Answer
    solution: str


@dataclass(frozen=True)
class TableShape:
    """What a table offers: its key column, its numbers, and columns whose values repeat."""

    name: str
    rows: list[Row]
    key: str
    """The first column, whose cells are distinct."""
    numbers: tuple[str, ...]
    """Columns of numbers; at least one."""
    groups: tuple[str, ...]
    """Columns of text whose values repeat."""

    @property
    def opening(self) -> str:
        """The first sentence of every question about the table."""
        columns = ", ".join(self.rows[0])
        return (
            f"The variable {self.name} holds a table: a list of {len(self.rows)} dicts with the "
            f"keys {columns}."
        )


def shape_of(table: Table) -> TableShape | None:
    """What the table offers; None if it has too few rows, no numbers, or a first column that
    repeats."""
    rows: list[Row] = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    key = table.columns[0]
    if len(rows) < LEAST_ROWS or len({str(row[key]) for row in rows}) < len(rows):
        return None
    numbers = tuple(c for c in table.columns[1:] if all(_is_number(row[c]) for row in rows))
    groups = tuple(
        c for c in table.columns[1:]
        if all(isinstance(row[c], str) for row in rows)
        and 2 <= len({row[c] for row in rows}) <= len(rows) // 2
    )  # fmt: skip
    return TableShape(table.name, rows, key, numbers, groups) if numbers else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: float) -> Answer:
    """Whole numbers exactly; others to a unit of the second decimal, however they are summed."""
    if isinstance(value, float) and not value.is_integer():
        return Answer(type=AnswerType.NUMBER, value=round(value, DECIMALS), tolerance=0.01)
    return Answer(type=AnswerType.NUMBER, value=int(value))


def _pose(shape: TableShape, asked: str, value: Any, program: str) -> Posed:
    answer = (
        Answer(type=AnswerType.STRING, value=value) if isinstance(value, str) else _number(value)
    )
    rounding = f" Round to {DECIMALS} decimals." if answer.tolerance else ""
    if answer.tolerance:
        program = program.replace("print(", "print(round(", 1) + f", {DECIMALS}))"
    else:
        program += ")"
    return Posed(f"{shape.opening} {asked}{rounding}", answer, program)


def total_of_group(shape: TableShape, rng: Random) -> Posed | None:
    """The sum of a column over the rows of one group."""
    if not shape.groups:
        return None
    number, group = rng.choice(shape.numbers), rng.choice(shape.groups)
    chosen = rng.choice(sorted({str(row[group]) for row in shape.rows}))
    values = [row[number] for row in shape.rows if row[group] == chosen]
    return _pose(
        shape,
        rng.choice((f"What is the sum of {number} where {group} is {chosen}?",
                    f"Add up {number} over the rows whose {group} is {chosen}.")),
        sum(values),
        f"print(sum(r[{number!r}] for r in {shape.name} if r[{group!r}] == {chosen!r})",
    )  # fmt: skip


def largest_group(shape: TableShape, rng: Random) -> Posed | None:
    """The group with the largest sum of a column; None where two share it."""
    if not shape.groups:
        return None
    number, group = rng.choice(shape.numbers), rng.choice(shape.groups)
    totals: dict[str, float] = {}
    for row in shape.rows:
        totals[row[group]] = totals.get(row[group], 0) + row[number]
    best = max(totals.values())
    if sum(value == best for value in totals.values()) > 1:
        return None
    return _pose(
        shape,
        rng.choice((f"Which {group} has the largest total {number}?",
                    f"Group the rows by {group}: which one's {number} adds up to most?")),
        next(name for name, value in totals.items() if value == best),
        f"t = {{}}\nfor r in {shape.name}:\n    t[r[{group!r}]] = t.get(r[{group!r}], 0) + "
        f"r[{number!r}]\nprint(max(t, key=t.get)",
    )  # fmt: skip


def total_above_mean(shape: TableShape, rng: Random) -> Posed:
    """The sum of those cells of a column that exceed its mean."""
    number = rng.choice(shape.numbers)
    values = [row[number] for row in shape.rows]
    mean = sum(values) / len(values)
    return _pose(
        shape,
        rng.choice((f"What is the sum of those values of {number} that exceed its mean?",
                    f"Take every {number} above the column's average; what do they add up to?")),
        sum(value for value in values if value > mean),
        f"v = [r[{number!r}] for r in {shape.name}]\nmean = sum(v) / len(v)\n"
        "print(sum(x for x in v if x > mean)",
    )  # fmt: skip


def weighted_total(shape: TableShape, rng: Random) -> Posed | None:
    """The sum of the products of two columns."""
    if len(shape.numbers) < 2:
        return None
    one, other = rng.sample(sorted(shape.numbers), 2)
    return _pose(
        shape,
        rng.choice((f"Multiply {one} by {other} in every row: what is the sum of the products?",
                    f"What is the sum over all rows of {one} times {other}?")),
        sum(row[one] * row[other] for row in shape.rows),
        f"print(sum(r[{one!r}] * r[{other!r}] for r in {shape.name})",
    )  # fmt: skip


def spread(shape: TableShape, rng: Random) -> Posed:
    """How far the largest cell of a column exceeds its median."""
    number = rng.choice(shape.numbers)
    values = sorted(row[number] for row in shape.rows)
    return _pose(
        shape,
        rng.choice((f"By how much does the largest {number} exceed the median {number}?",
                    f"What is the maximum of {number} minus its median?")),
        values[-1] - statistics.median(values),
        f"import statistics\nv = [r[{number!r}] for r in {shape.name}]\n"
        "print(max(v) - statistics.median(v)",
    )  # fmt: skip


def ranked(shape: TableShape, rng: Random) -> Posed | None:
    """The row in a given place by a column; None where a tie leaves the place open."""
    number, place = rng.choice(shape.numbers), rng.randint(2, 5)
    ordered = sorted(shape.rows, key=lambda row: -row[number])
    near = [row[number] for row in ordered[place - 2 : place + 1]]
    if len(set(near)) < len(near):
        return None  # a tie: the place is not one row's
    return _pose(
        shape,
        rng.choice((f"Which {shape.key} is number {place} by {number}, largest first?",
                    f"Sort by {number} from high to low: which {shape.key} is in place {place}?")),
        str(ordered[place - 1][shape.key]),
        f"print(sorted({shape.name}, key=lambda r: -r[{number!r}])[{place - 1}][{shape.key!r}]",
    )  # fmt: skip


_POSERS: tuple[Callable[[TableShape, Random], Posed | None], ...] = (
    total_of_group, largest_group, total_above_mean, weighted_total, spread, ranked,
)  # fmt: skip
FAMILIES = {poser.__name__: poser for poser in _POSERS}
"""The families by name. One gives None for a table that it does not fit."""


def as_data(shape: TableShape) -> dict[str, Sequence[Row]]:
    """The variables of the tool."""
    return {shape.name: [dict(row) for row in shape.rows]}
