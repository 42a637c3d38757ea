"""Proofs from what sessions returned, where no program is sure to return it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from planted import GOLD, GOOD, tool

from astra.envsynth.candidates import CandidateTool, GoldCall
from astra.envsynth.perturb import Perturbation, PerturbationKind
from astra.envsynth.proof import prove
from astra.envsynth.schedule import Observed, Purpose, Trial, TrialRun, schedules
from astra.records.state import WorldState
from astra.sandbox.protocol import SandboxResult, SandboxStatus

PRICES = {"Amber Cove": 812, "Jade Mill": 455, "Pine Gate": 633}
WRONG = tuple(
    Perturbation(PerturbationKind.OTHER, "listing", {"listing": name})
    for name in ("Jade Mill", "Pine Gate", "Nowhere")
)
CALL = GoldCall({"listing": "Amber Cove"}, GOLD, WRONG)


def returned(
    trial: Trial, value: Any, status: SandboxStatus = SandboxStatus.OK, error: str = ""
) -> TrialRun:
    return TrialRun(trial, SandboxResult(status, value, error, "", 0.0), "")


def true_tool(trial: Trial) -> TrialRun:
    listing = trial.arguments["listing"]
    if listing in PRICES:
        return returned(trial, PRICES[listing])
    error = f"ValueError: no listing named {listing}"
    return returned(trial, None, SandboxStatus.EXCEPTION, error)


def observed(call: GoldCall = CALL) -> Observed:
    """Both sessions of a true tool."""
    candidate = CandidateTool(tool(), GOOD, (call,))
    first, second = schedules(candidate)
    return Observed(candidate, [*map(true_tool, first)], [*map(true_tool, second)])


def changed(
    sessions: Observed, purposes: Sequence[Purpose], value: Any, **failure: Any
) -> Observed:
    """The same sessions, except that calls of some purposes return something else."""

    def other(run: TrialRun) -> TrialRun:
        return returned(run.trial, value, **failure) if run.trial.purpose in purposes else run

    return replace(
        sessions, first=[*map(other, sessions.first)], second=[*map(other, sessions.second)]
    )


def reason(sessions: Observed) -> str | None:
    problem = prove(sessions).problem
    return problem and problem[0]


def test_a_true_tool_passes_and_its_checks_are_counted() -> None:
    assert prove(observed()).problem is None
    assert prove(observed()).checks == {
        "fresh_sessions": 2, "gold_calls": 8, "perturbed_calls": 3, "perturbed_answered": 2,
        "known_truths": 0, "optional_calls": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("purposes", "expected"),
    [
        ([Purpose.OTHER_SESSION, Purpose.REPEATED], "nondeterministic"),
        ([Purpose.REPEATED], "not_repeatable"),
        ([Purpose.AGAIN], "order_dependent"),
        ([Purpose.FRESH], "wrong_answer"),
    ],
)
def test_an_answer_that_changes_is_named_after_when_it_does(
    purposes: list[Purpose], expected: str
) -> None:
    assert reason(changed(observed(), purposes, 813)) == expected


def test_a_candidate_without_gold_calls_is_an_error_and_no_pass() -> None:
    with pytest.raises(ValueError, match="no gold call"):
        prove(Observed(CandidateTool(tool(), GOOD, ()), [], []))


def test_the_gold_call_is_judged_before_wrong_calls() -> None:
    everything_constant = changed(observed(), list(Purpose), 813)
    assert reason(everything_constant) == "wrong_answer"
    assert reason(changed(observed(), [Purpose.PERTURBED], 812)) == "constant"


def test_an_outage_of_the_sandbox_is_no_fault_of_the_tool() -> None:
    lost = changed(
        observed(), [Purpose.PERTURBED], None, status=SandboxStatus.INFRA, error="worker gone"
    )
    assert reason(lost) == "sandbox_infra"


def test_two_wrong_calls_prove_too_little() -> None:
    assert reason(observed(replace(CALL, perturbed=WRONG[:2]))) == "too_few_perturbations"


def test_schedules_name_the_purpose_of_each_call_in_their_order() -> None:
    world = WorldState(tables={"listings": [{"listing": "Amber Cove"}, {"listing": "Jade Mill"}]},
                  clock="2024-01-01T09:00:00")  # fmt: skip
    optional = Perturbation(PerturbationKind.OPTIONAL, "district", {"district": "Nowhere"})
    stateful = replace(CALL, optional=(optional,), before=world, taken=world)
    first, second = schedules(CandidateTool(tool(), GOOD, (CALL, stateful)))
    assert [(trial.gold, trial.purpose) for trial in first] == [
        (0, Purpose.FRESH), (1, Purpose.FRESH),
        *[(0, Purpose.PERTURBED)] * 3,
        *[(1, Purpose.PERTURBED)] * 3, (1, Purpose.OPTIONAL),
        (1, Purpose.REVERSED), (1, Purpose.EMPTY), (1, Purpose.TAKEN),
        (0, Purpose.AGAIN), (1, Purpose.AGAIN),
    ]  # fmt: skip
    assert [(trial.gold, trial.purpose) for trial in second] == [
        (0, Purpose.OTHER_SESSION), (1, Purpose.OTHER_SESSION),
        *[(0, Purpose.REPEATED), (1, Purpose.REPEATED)] * 5,
    ]  # fmt: skip
    by_purpose = {trial.purpose: trial.world for trial in first if trial.gold == 1}
    reversed_world, empty_world = by_purpose[Purpose.REVERSED], by_purpose[Purpose.EMPTY]
    assert reversed_world is not None
    assert empty_world is not None
    assert reversed_world.tables["listings"] == world.tables["listings"][::-1]
    assert empty_world.tables == {"listings": []}
