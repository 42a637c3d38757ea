"""Budgets of free questions: how many sub-questions a teacher is to make."""

from __future__ import annotations

import random
from collections.abc import Mapping

from astra.records.qa import Scenario

LEAST = {
    Scenario.SINGLE_HOP: 1,
    Scenario.PARALLEL_SINGLE_HOP: 2,
    Scenario.MULTI_HOP: 2,
    Scenario.PARALLEL_MULTI_HOP: 3,
}
"""Scenario -> the fewest sub-questions that it can have; a single hop has no more than that."""


def draw_budget(
    scenario: Scenario | None, weights: Mapping[int, float], rng: random.Random
) -> int | None:
    """A number of sub-questions that the scenario can have; None where the teacher chooses.

    The teacher does without ``weights``, and where a given question has the scenario it has.
    """
    if scenario is None or not weights:
        return None
    least = LEAST[scenario]
    fitting = {steps: weight for steps, weight in sorted(weights.items()) if steps >= least}
    if scenario is Scenario.SINGLE_HOP or not any(fitting.values()):
        return least
    return rng.choices(list(fitting), list(fitting.values()))[0]


def deepest(scenario: Scenario, budget: int) -> int:
    """The most hop levels that so many sub-questions can stand on in the scenario."""
    if scenario in (Scenario.SINGLE_HOP, Scenario.PARALLEL_SINGLE_HOP):
        return 1
    # In parallel, some level holds two.
    return budget - 1 if scenario is Scenario.PARALLEL_MULTI_HOP else budget
