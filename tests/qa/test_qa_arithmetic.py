"""Operations that make one number of two."""

from __future__ import annotations

from typing import Any

import pytest

from astra.qa.knowledge.operations import EvaluationError, evaluate
from astra.records.qa import Operation


def result(op: str, answers: dict[int, Any] | None = None, **arguments: Any) -> Any:
    operation = Operation(op=op, relation="x.y", table="", arguments=arguments)
    return evaluate(operation, (), answers or {})


@pytest.mark.parametrize(
    ("op", "arguments", "expected"),
    [
        ("multiply", {"amount": 2.5, "times": 3}, 7.5),
        ("subtract", {"amount": 293.98, "minus": 136.96}, 157.02),
        ("subtract", {"amount": 3, "minus": 5}, -2),
        ("divide", {"amount": 10, "by": 4}, 2.5),
        ("divide", {"amount": 10, "by": 3}, 3.33),
        ("divide", {"amount": 12, "by": 3}, 4),
        ("share", {"part": 1, "whole": 3}, 33.33),
        ("share", {"part": 3, "whole": 4}, 75),
    ],
)
def test_numbers_by_hand(op: str, arguments: dict[str, Any], expected: float) -> None:
    answer = result(op, **arguments)
    assert answer == expected
    assert type(answer) is type(expected)


def test_an_earlier_answer_is_an_operand() -> None:
    answers = {1: 293.98, 2: 136.96}
    assert result("subtract", answers, amount={"from": 1}, minus={"from": 2}) == 157.02


@pytest.mark.parametrize(
    ("op", "arguments"),
    [
        ("divide", {"amount": 10, "by": 0}),
        ("share", {"part": 10, "whole": 0}),
        ("divide", {"amount": 10}),
        ("subtract", {"amount": "ten", "minus": 1}),
        ("subtract", {"amount": None, "minus": 1}),
        ("share", {"part": 1e308, "whole": 1e-308}),
        ("power", {"amount": 1, "by": 2}),
    ],
)
def test_what_has_no_answer_says_so(op: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(EvaluationError):
        result(op, **arguments)
