"""An estimate in words: the lines that a stage logs first, and the table of the command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from astra.estimate.asks import Amount, RoleCost, total
from astra.settings import BudgetConfig, Caps

UNTOLD = "repairs, retries and what a model thinks come on top; answers in the cache come off"
"""What no estimate knows."""


def rounded(number: float) -> str:
    """A number as exactly as an estimate can be, to three digits."""
    if number >= 1000:
        return f"{float(f'{number:.3g}'):,.0f}"
    return f"{number:.3g}" if number != round(number) else f"{number:.0f}"


def _range(amount: Amount, unit: str = "") -> str:
    about, most = rounded(amount.about), rounded(amount.most)
    sure = "" if amount.counted and about == most else "about "
    return f"{sure}{about}{unit}" + (f" (at most {most})" if about != most else "")


def cost_line(one: RoleCost) -> str:
    """What one role costs, in one line."""
    asks = f"{one.role} {one.model}: {_range(whole(one.asks), ' asks')}"
    tokens = f"{rounded(one.prompt_tokens.about)} + {rounded(one.completion_tokens.about)} tokens"
    money = "no price is known" if one.money is None else f"cost {_range(one.money)}"
    return f"{asks}, about {tokens}, {money}"


def whole(amount: Amount) -> Amount:
    """Asks are whole."""
    return Amount(round(amount.about), round(amount.most), amount.counted)


def stage_lines(costs: Sequence[RoleCost], budget: BudgetConfig) -> list[str]:
    """What a stage is going to ask, a line for each role, then its caps; no line for no ask."""
    if not costs:
        return []
    return [*(f"to be asked: {cost_line(one)}" for one in costs), caps_line(budget)]


def price_lines(costs: Iterable[RoleCost]) -> list[str]:
    """Which models have no price, if any: their cost is not told."""
    unpriced = sorted({one.model for one in costs if one.money is None})
    return [f"no price in runtime.prices: {', '.join(unpriced)}"] if unpriced else []


def caps_line(budget: BudgetConfig) -> str:
    """What may be spent, and what happens then."""
    told = [f"{scope} {cap}" for scope, caps in _scopes(budget) for cap in _caps(caps)]
    if not told:
        return f"no cap is set (runtime.budget); {UNTOLD}"
    return (
        f"caps (runtime.budget): {', '.join(told)}; a stage that reaches one stops and "
        f"keeps every answer; {UNTOLD}"
    )


def _scopes(budget: BudgetConfig) -> Iterable[tuple[str, Caps]]:
    return ("each stage", budget.stage), ("the run", budget.run)


def _caps(caps: Caps) -> list[str]:
    given = (("requests", caps.requests), ("tokens", caps.tokens), ("money", caps.money))
    return [f"{cap:,} {unit}" for unit, cap in given if cap is not None]


COLUMNS = (
    "stage", "role", "model", "asks", "at most", "prompt tokens", "completion tokens", "cost",
    "at most", "input rows",
)  # fmt: skip


def table(stages: Iterable[tuple[str, Sequence[RoleCost]]]) -> list[list[str]]:
    """A row for each stage and role, and one for all of them; the first row is the heading."""
    rows: list[list[str]] = [list(COLUMNS)]
    everything: list[RoleCost] = []
    for stage, costs in stages:
        for one in costs:
            rows.append([stage, one.role, one.model, *_figures(one)])
            everything.append(one)
    rows.append(["all", "", "", *_figures(_all(everything))])
    return rows


def _all(costs: Sequence[RoleCost]) -> RoleCost:
    priced = [one.money for one in costs if one.money is not None]
    return RoleCost(
        role="",
        model="",
        asks=total(one.asks for one in costs),
        prompt_tokens=total(one.prompt_tokens for one in costs),
        completion_tokens=total(one.completion_tokens for one in costs),
        money=total(priced) if len(priced) == len(costs) else None,
    )


def _figures(one: RoleCost) -> list[str]:
    asks = whole(one.asks)
    money = ("", "") if one.money is None else (rounded(one.money.about), rounded(one.money.most))
    return [
        rounded(asks.about),
        rounded(asks.most),
        rounded(one.prompt_tokens.about),
        rounded(one.completion_tokens.about),
        *money,
        "counted" if one.asks.counted else "guessed",
    ]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows of a table as lines of equal columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
