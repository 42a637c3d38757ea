"""What asks add up to: amounts, tokens, money, and the lines that tell them."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from astra.estimate.asks import (
    NONE,
    Amount,
    AskForm,
    costs,
    counted,
    expected,
    fixed_bytes,
    online_models,
    total,
)
from astra.estimate.told import aligned, caps_line, cost_line, rounded, stage_lines, table
from astra.llm.budget import BYTES_PER_TOKEN
from astra.llm.protocol import ModelConfig
from astra.qa.replies import NecessityReport, StepReport
from astra.settings import BudgetConfig, Caps, Price

ONLINE = ModelConfig(backend="openai", model="m", max_tokens=1000)
RULES = ModelConfig(backend="offline", model="v1")
PRICES = {"m": Price(prompt=1.0, completion=10.0)}
KILO = 1000 * BYTES_PER_TOKEN
"""Bytes of a thousand tokens."""


def test_a_guess_stays_a_guess_and_never_exceeds_its_most() -> None:
    rows = counted(10).times(2, 5)
    assert rows == Amount(20, 50, counted=True)
    passed = rows.guessed(0.5)
    assert passed == Amount(10, 50, counted=False)
    assert passed.times(3) == Amount(30, 150, counted=False)
    assert counted(10).times(2, 1) == Amount(20, 20, counted=True), "the most is no less"
    assert total([rows, passed]) == Amount(30, 100, counted=False)
    assert total([rows, counted(1)]).counted
    assert total([]) == NONE


def test_money_is_that_of_the_tokens_at_the_models_price() -> None:
    asks = Amount(10, 20)
    (one,) = costs([expected("judge", ONLINE, "x/y", asks, KILO, KILO / 10)], PRICES)
    assert (one.role, one.model, one.asks) == ("judge", "m", asks)
    assert one.prompt_tokens == Amount(10_000, 20_000)
    assert one.completion_tokens == Amount(1000, 2000)
    assert one.money is not None
    assert one.money.about == pytest.approx(10_000 * 1e-6 + 1000 * 10e-6)
    assert one.money.most == pytest.approx(2 * one.money.about)


def test_a_reply_is_no_longer_than_its_model_may_write() -> None:
    long = expected("teacher", ONLINE, "x/y", counted(1), 0, 50 * KILO)
    assert long.completion_tokens == ONLINE.max_tokens


def test_roles_are_told_apart_and_rules_are_left_out() -> None:
    asked = [
        expected("teacher", ONLINE, "x/a", counted(2), KILO, KILO),
        expected("judge", ONLINE, "x/b", counted(3), KILO, KILO),
        expected("judge", ONLINE, "x/c", counted(4), KILO, KILO),
        expected("user", RULES, "x/d", counted(5), KILO, KILO),
        expected("emulator", ONLINE, "x/e", counted(0), KILO, KILO),
    ]
    found = {(one.role, one.asks.about) for one in costs(asked, {})}
    assert found == {("teacher", 2), ("judge", 7)}
    assert all(one.money is None for one in costs(asked, {})), "no price, no money"


def test_a_prompt_has_its_template_the_replys_schema_and_what_is_shown() -> None:
    form = AskForm("qa/necessity", NecessityReport, 300)
    one = form.asked("judge", ONLINE, counted(1), 600)
    fixed = fixed_bytes("qa/necessity", NecessityReport)
    assert one.prompt_tokens == (fixed + 600) / BYTES_PER_TOKEN
    assert one.completion_tokens == 300 / BYTES_PER_TOKEN
    assert fixed > 1500
    assert fixed != fixed_bytes("qa/necessity", StepReport)


class Block(BaseModel):
    teacher: ModelConfig
    operators: dict[str, dict[str, tuple[ModelConfig, ...]]]


def test_models_are_found_wherever_they_stand() -> None:
    block = Block(teacher=RULES, operators={"vote": {"models": (ONLINE, RULES, ONLINE)}})
    assert online_models(block.model_dump()) == [ONLINE]
    assert online_models(Block(teacher=RULES, operators={}).model_dump()) == []
    assert online_models({"backend": "openai", "model": "an embedder"}) == []


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (7, "7"), (0.01234, "0.0123"), (12.34, "12.3"), (999, "999"), (1234, "1,230"),
     (1_234_567, "1,230,000")],
)  # fmt: skip
def test_numbers_have_three_digits(number: float, text: str) -> None:
    assert rounded(number) == text


def test_a_line_says_what_is_sure_and_what_is_not() -> None:
    (sure,) = costs([expected("judge", ONLINE, "x/y", counted(12), KILO, KILO)], PRICES)
    assert cost_line(sure).startswith("judge m: 12 asks, about 12,000 + 12,000 tokens, cost 0.132")
    guess = Amount(12.4, 40)
    (unsure,) = costs([expected("judge", ONLINE, "x/y", guess, KILO, KILO)], {})
    assert cost_line(unsure).startswith("judge m: about 12 asks (at most 40), about 12,400 + ")
    assert cost_line(unsure).endswith("no price is known")


def test_lines_end_with_the_caps_and_what_happens_at_one() -> None:
    found = costs([expected("judge", ONLINE, "x/y", counted(12), KILO, KILO)], PRICES)
    told = stage_lines(found, BudgetConfig())
    assert len(told) == 2
    assert told[-1].startswith("no cap is set (runtime.budget)")
    capped = BudgetConfig(stage=Caps(tokens=2_000_000), run=Caps(requests=5000, money=2.5))
    line = stage_lines(found, capped)[-1]
    assert "each stage 2,000,000 tokens, the run 5,000 requests, the run 2.5 money;" in line
    assert "stops and keeps every answer" in line
    assert all("come on top" in told for told in (line, caps_line(BudgetConfig())))
    assert stage_lines([], capped) == [], "who asks nothing says nothing"


def test_the_table_ends_with_the_sum() -> None:
    known = costs([expected("judge", ONLINE, "x/y", counted(12), KILO, KILO)], PRICES)
    other = ONLINE.model_copy(update={"model": "n"})
    unpriced = costs([expected("teacher", other, "x/y", Amount(3, 4), KILO, 0)], PRICES)
    rows = table([("qa", known), ("envs", unpriced)])
    assert [row[0] for row in rows] == ["stage", "qa", "envs", "all"]
    assert rows[1][-3:] == ["0.132", "0.132", "counted"]
    assert rows[2][-3:] == ["", "", "guessed"]
    assert rows[3][3:5] == ["15", "16"]
    assert rows[3][-3:] == ["", "", "guessed"], "a part has no price, so the whole has none"
    lines = aligned(rows)
    assert len({line.index("  ") for line in lines[:1]}) == 1
    assert lines[1].index("judge") == lines[2].index("teacher")
