from __future__ import annotations

import math

import pytest

from astra.bench import statistics
from astra.bench.statistics import estimate, paired_difference


def test_a_constant_has_no_spread() -> None:
    found = estimate([0.25] * 40, resamples=200, confidence=0.95, seed=0)
    assert (found.mean, found.low, found.high, found.n) == (0.25, 0.25, 0.25, 40)


def test_two_values_by_hand() -> None:
    # Resamples of (0, 1) have mean 0, 0.5, 1 with probability 1/4, 1/2, 1/4.
    wide = estimate([0.0, 1.0], resamples=4000, confidence=0.95, seed=1)
    assert (wide.mean, wide.low, wide.high) == (0.5, 0.0, 1.0)
    # With a 60 % interval the quantiles 0.2 and 0.8 lie in the outer quarters; at 40 % inside.
    inner = estimate([0.0, 1.0], resamples=4000, confidence=0.4, seed=1)
    assert (inner.low, inner.high) == (0.5, 0.5)


def test_agrees_with_the_normal_interval_of_a_share() -> None:
    values = [1.0] * 120 + [0.0] * 280
    found = estimate(values, resamples=4000, confidence=0.95, seed=3)
    half = 1.96 * math.sqrt(0.3 * 0.7 / 400)
    assert found.low == pytest.approx(0.3 - half, abs=0.006)
    assert found.high == pytest.approx(0.3 + half, abs=0.006)


def test_pairing_removes_what_both_share() -> None:
    before = [float(n % 2) for n in range(100)]
    after = [value + 0.1 for value in before]
    found = paired_difference(after, before, 500, 0.95, 0)
    assert found.mean == pytest.approx(0.1)
    assert found.high - found.low < 1e-9
    swapped = paired_difference(before, after, 500, 0.95, 0)
    assert swapped.mean == pytest.approx(-0.1)
    with pytest.raises(ValueError, match="argument"):
        paired_difference([1.0], [1.0, 2.0], 500, 0.95, 0)


def test_the_seed_decides_and_memory_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [(n * 37 % 11) / 11 for n in range(50)]
    once = estimate(values, 500, 0.95, 7)
    assert once == estimate(values, 500, 0.95, 7)
    assert once != estimate(values, 500, 0.95, 8)
    monkeypatch.setattr(statistics, "DRAWS", 1000)  # 20 resamples at a time
    assert once == estimate(values, 500, 0.95, 7)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")]])
def test_what_was_not_measured_has_no_mean(values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        estimate(values, 500, 0.95, 0)
