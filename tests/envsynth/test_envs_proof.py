"""Verdicts on what sessions returned, where no program is sure to return it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planted import GOLD, GOOD, tool

from astra.envsynth.candidates import CandidateTool, GoldCall, Observed, Ran, schedules
from astra.envsynth.perturb import Perturbation, PerturbationKind
from astra.envsynth.proof import prove
from astra.sandbox.protocol import SandboxResult, SandboxStatus

PRICES = {"Amber Cove": 812, "Jade Mill": 455, "Pine Gate": 633}
WRONG = tuple(
    Perturbation(PerturbationKind.OTHER, "listing", {"listing": name})
    for name in ("Jade Mill", "Pine Gate", "Nowhere")
)
CALL = GoldCall({"listing": "Amber Cove"}, GOLD, WRONG)


def returned(value: Any, status: SandboxStatus = SandboxStatus.OK, error: str = "") -> Ran:
    return Ran(SandboxResult(status, value, error, "", 0.0), "")


def answered(listing: str) -> Ran:
    if listing in PRICES:
        return returned(PRICES[listing])
    return returned(None, SandboxStatus.EXCEPTION, f"ValueError: no listing named {listing}")


def run(call: GoldCall = CALL) -> Observed:
    """Both sessions of a true tool."""
    candidate = CandidateTool(tool(), GOOD, (call,))
    first, second = schedules(candidate)
    return Observed(
        candidate,
        [answered(trial.arguments["listing"]) for trial in first],
        [answered(trial.arguments["listing"]) for trial in second],
    )


def reason(made: Observed) -> str | None:
    problem = prove(made).problem
    return problem and problem[0]


def test_a_true_tool_passes() -> None:
    assert reason(run()) is None


@pytest.mark.parametrize(
    ("session", "at", "expected"),
    [
        ("second", slice(None), "nondeterministic"),
        ("second", slice(3, None), "not_repeatable"),
        ("first", slice(-1, None), "order_dependent"),
        ("first", slice(0, 1), "wrong_answer"),
    ],
)
def test_an_answer_that_changes_is_named_after_when_it_does(
    session: str, at: slice, expected: str
) -> None:
    made = run()
    changed = list(getattr(made, session))
    changed[at] = [returned(813) for _ in changed[at]]
    assert reason(replace(made, **{session: changed})) == expected


def test_an_outage_of_the_sandbox_is_no_fault_of_the_tool() -> None:
    made = run()
    lost = [made.first[0], returned(None, SandboxStatus.INFRA, "worker gone"), *made.first[2:]]
    assert reason(replace(made, first=lost)) == "sandbox_infra"


def test_two_wrong_calls_prove_too_little() -> None:
    assert reason(run(replace(CALL, perturbed=WRONG[:2]))) == "too_few_perturbations"
