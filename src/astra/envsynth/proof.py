"""The proof of a candidate from what its two sessions returned; pure.

The rules (``rules.py``) are asked in the order of ``GOLD_RULES``, ``WRONG_CALL_RULES``,
``WORLD_RULES`` and ``TRUTH_RULES``, then that of merged tools. The first that finds a problem
decides, so a rule may rely on the ones before it: wrong calls are looked at only where every gold
call is right and stable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from astra.arena.answers import matches, same_value
from astra.arena.state import VIOLATION
from astra.envsynth.candidates import CandidateTool
from astra.envsynth.outcomes import answered, call_text, outcome_text
from astra.envsynth.rules import (
    GOLD_RULES,
    TRUTH_RULES,
    WORLD_RULES,
    WRONG_CALL_RULES,
    other_calls,
)
from astra.envsynth.schedule import Evidence, Observed, Purpose, TrialRun
from astra.envsynth.static import Problem
from astra.records.qa import Answer, AnswerType
from astra.sandbox.protocol import SandboxStatus

_FATAL = {
    SandboxStatus.TIMEOUT: "timeout",
    SandboxStatus.MEMORY: "out_of_memory",
    SandboxStatus.EXIT: "crash",
    SandboxStatus.PROTOCOL: "crash",
    SandboxStatus.INFRA: "sandbox_infra",
    SandboxStatus.LOAD_ERROR: "load_error",
}
"""The reason for each way in which a call ends its session."""


@dataclass(frozen=True)
class Proof:
    """Whether a candidate may be used."""

    problem: Problem | None
    """Why it may not; None for a pass."""
    checks: dict[str, int] = field(default_factory=dict[str, int])
    """How often each check was made; empty where there is a problem."""


def prove(observed: Observed) -> Proof:
    """The first problem that a rule finds, or a pass with the number of checks.

    Raises ValueError for a candidate without gold calls: nothing would be proved of it.
    """
    evidence = observed.evidence()
    if not evidence:
        raise ValueError(f"{observed.candidate.tool.name} has no gold call to be proved by")
    problem = _session_problem(observed) or _call_problem(observed.candidate, evidence)
    problem = problem or _member_problem(observed)
    return Proof(problem) if problem else Proof(None, _checks(evidence))


def _session_problem(observed: Observed) -> Problem | None:
    """Whether a call ended its session or wrote where the tool may not."""
    for run in chain(observed.first, observed.second, *observed.members):
        # It dragged all later calls of its session with it: the first is to blame.
        if run.result.status in _FATAL:
            return _FATAL[run.result.status], run.result.error[:200]
    for run in observed.first:
        if run.result.error.startswith(VIOLATION):
            return "undeclared_write", run.result.error.removeprefix(VIOLATION)[:200]
    return None


def _call_problem(candidate: CandidateTool, evidence: Sequence[Evidence]) -> Problem | None:
    """The first problem: four passes over the gold calls, one after the other."""
    # A call that must be refused has no effect that another call must not have.
    served = [about_call for about_call in evidence if not about_call.call.refused]
    stateful = [about_call for about_call in served if about_call.call.before is not None]
    for concerned, rules in (
        (evidence, GOLD_RULES),
        (served, WRONG_CALL_RULES),
        (stateful, WORLD_RULES),
        (served, TRUTH_RULES),
    ):
        for about_call in concerned:
            for rule in rules:
                problem = rule(candidate, about_call)
                if problem is not None:
                    return problem
    return None


def _checks(evidence: Sequence[Evidence]) -> dict[str, int]:
    """How often each check was made, for the record."""

    def count(*purposes: Purpose) -> int:
        return sum(len(one.all(purpose)) for one in evidence for purpose in purposes)

    wrong = [run for one in evidence for run in one.all(Purpose.PERTURBED)]
    known = [one for about_call in evidence for one in other_calls(about_call)]
    checks = {
        "fresh_sessions": 2,
        "gold_calls": count(Purpose.FRESH, Purpose.AGAIN, Purpose.OTHER_SESSION, Purpose.REPEATED),
        "perturbed_calls": len(wrong),
        "perturbed_answered": len([run for run in wrong if answered(run)]),
        "known_truths": len([one for one, _ in known if one.truth is not None]),
        "optional_calls": count(Purpose.OPTIONAL),
    }
    worlds = count(Purpose.REVERSED, Purpose.EMPTY, Purpose.LATER, Purpose.TAKEN, Purpose.EFFECT)
    return {**checks, "worlds": worlds} if worlds else checks


# Merged tools --------------------------------------------------------------------------------


def _member_problem(observed: Observed) -> Problem | None:
    """A merged tool answers every call that one of its members answers, and equally."""
    candidate = observed.candidate
    for member in candidate.members:
        if member.calls is None:
            return "rows_lost", f"{member.name} has other parameters: what it knows may be lost"
    for before, after in observed.kept():
        if answered(before) and not (answered(after) and _is_equal(before, after)):
            call = call_text(candidate.tool.name, after.trial.arguments)
            member = candidate.members[before.trial.gold]
            outcome = f"{outcome_text(after)}, {member.name} {outcome_text(before)}"
            return "rows_lost", f"{call} {outcome}"
    return None


def _is_equal(one: TrialRun, other: TrialRun) -> bool:
    """Whether two calls returned the same; merged data may be in another order."""
    value = one.result.value
    if isinstance(value, list):
        unordered = Answer(type=AnswerType.LIST, value=value, ordered=False)
        return matches(unordered, other.result.value)
    return same_value(value, other.result.value)
