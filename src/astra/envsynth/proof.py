"""The proof of a candidate from what its two sessions returned; pure.

The rules are small functions, asked in the order of ``_GOLD_RULES``, ``_WRONG_CALL_RULES`` and
``_WORLD_RULES``. The first that finds a problem decides, so a rule may rely on the ones before it:
wrong calls are looked at only where every gold call is right and stable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from astra.arena.answers import is_small_domain, matches, same_value
from astra.arena.state import VIOLATION
from astra.envsynth.candidates import CandidateTool
from astra.envsynth.perturb import Perturbation, PerturbationKind
from astra.envsynth.schedule import Evidence, Observed, Purpose, TrialRun
from astra.envsynth.static import Problem, mentions
from astra.records.base import canonical_json
from astra.sandbox.protocol import SandboxResult, SandboxStatus
from astra.text.schemas import violation

MIN_PERTURBED = 3
"""Fewer wrong calls than this prove too little; our choice."""
MAX_ERROR_CHARS = 200
"""A longer message is no clean refusal: it may hold the tool's data."""
_DECLARED = "ValueError: "
"""How a tool refuses on purpose; any other exception is a failure of its own."""
_FATAL = {
    SandboxStatus.TIMEOUT: "timeout",
    SandboxStatus.MEMORY: "out_of_memory",
    SandboxStatus.EXIT: "crash",
    SandboxStatus.PROTOCOL: "crash",
    SandboxStatus.INFRA: "sandbox_infra",
    SandboxStatus.LOAD_ERROR: "load_error",
}
"""The reason for each way in which a call ends its session."""
Rule = Callable[[CandidateTool, Evidence], Problem | None]
"""What must hold of a gold call, as the rule's docstring says; the problem where it does not."""


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
    return Proof(problem) if problem else Proof(None, _checks(evidence))


def _session_problem(observed: Observed) -> Problem | None:
    """Whether a call ended its session or wrote where the tool may not."""
    for run in chain(observed.first, observed.second):
        # It dragged all later calls of its session with it: the first is to blame.
        if run.result.status in _FATAL:
            return _FATAL[run.result.status], run.result.error[:200]
    for run in observed.first:
        if run.result.error.startswith(VIOLATION):
            return "undeclared_write", run.result.error.removeprefix(VIOLATION)[:200]
    return None


def _call_problem(candidate: CandidateTool, evidence: Sequence[Evidence]) -> Problem | None:
    """The first problem: three passes over the gold calls, one after the other."""
    # A call that must be refused has no effect that another call must not have.
    served = [about_call for about_call in evidence if not about_call.call.refused]
    stateful = [about_call for about_call in served if about_call.call.before is not None]
    for concerned, rules in (
        (evidence, _GOLD_RULES),
        (served, _WRONG_CALL_RULES),
        (stateful, _WORLD_RULES),
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
    # OPTIONAL is left out: such calls were added after the first records, whose bytes must not
    # change.
    checks = {
        "fresh_sessions": 2,
        "gold_calls": count(Purpose.FRESH, Purpose.AGAIN, Purpose.OTHER_SESSION, Purpose.REPEATED),
        "perturbed_calls": len(wrong),
        "perturbed_answered": len([run for run in wrong if _answered(run)]),
    }
    worlds = count(Purpose.REVERSED, Purpose.EMPTY, Purpose.TAKEN)
    return {**checks, "worlds": worlds} if worlds else checks


# The gold call itself ------------------------------------------------------------------------


def _gold_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """The gold call gives the typed answer and has its effect, or is refused if it must be."""
    call, run = evidence.call, evidence.one(Purpose.FRESH)
    result = run.result
    if call.refused:
        if _answered(run):
            return "not_refused", f"returned {result.value!r:.100}, the call must be refused"
        return _unclean(result)
    if not _answered(run):
        return "gold_call_failed", result.error[:200]
    if not matches(call.answer, result.value):
        expected = canonical_json(call.answer.value)
        return "wrong_answer", f"returned {result.value!r:.100}, expected {expected:.100}"
    if candidate.tool.output_schema is not None:
        fault = violation(result.value, candidate.tool.output_schema)
        if fault:
            return "output_violates_schema", fault
    if run.end != evidence.end:
        untouched = call.before and run.end == candidate.hash(call.before.tables)
        return "wrong_effect", "nothing was written" if untouched else "the tables end up wrong"
    return None


def _stability_problem(_: CandidateTool, evidence: Evidence) -> Problem | None:
    """Neither chance, nor repetition, nor the calls made before change what the gold call does."""
    fresh, other_session = evidence.one(Purpose.FRESH), evidence.one(Purpose.OTHER_SESSION)
    if not _same(fresh, other_session):
        return "nondeterministic", "two fresh sessions disagree on the gold call"
    if not all(_same(other_session, run) for run in evidence.all(Purpose.REPEATED)):
        return "not_repeatable", "the same call gives something else when repeated"
    if not _same(fresh, evidence.one(Purpose.AGAIN)):
        return "order_dependent", "the result depends on the calls made before"
    return None


_GOLD_RULES: tuple[Rule, ...] = (_gold_problem, _stability_problem)

# Wrong calls ---------------------------------------------------------------------------------


def _count_problem(_: CandidateTool, evidence: Evidence) -> Problem | None:
    """Enough wrong calls could be made for the rules below to say something."""
    count = len(evidence.call.perturbed)
    if count < MIN_PERTURBED:
        return "too_few_perturbations", f"only {count} wrong calls could be made"
    return None


def _error_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """A wrong call that fails tells no answer, and refuses cleanly if it fits the schema."""
    for perturbation, run in _wrong_calls(evidence):
        if run.result.status != SandboxStatus.EXCEPTION:
            continue
        error = run.result.error
        if _leaks(evidence, perturbation, error):
            return "answer_in_error", f"an error states the answer: {error:.100}"
        fits = not violation(perturbation.arguments, candidate.tool.parameters)
        if fits and not _is_clean(run.result):
            return "unclean_error", f"{canonical_json(perturbation.arguments):.100}: {error}"
    return None


def _constant_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """Some wrong call is answered, and with another answer: else code might know just one."""
    if candidate.writes:
        return None  # tools that write commonly return true: their effects are compared below
    answered = [run for _, run in _wrong_calls(evidence) if _answered(run)]
    if all(_does_the_same(candidate, evidence, run) for run in answered):
        return "constant", "no other arguments give another answer"
    return None


def _argument_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """Each argument makes a difference: with other values, and left out where it may be."""
    required = candidate.tool.parameters.get("required", ())
    for name in evidence.call.arguments:
        others: list[bool] = []
        for perturbation, run in _wrong_calls(evidence):
            if perturbation.argument != name:
                continue
            same = _does_the_same(candidate, evidence, run)
            if perturbation.kind == PerturbationKind.OTHER and _answered(run):
                others.append(same)
            left_out = perturbation.kind == PerturbationKind.MISSING and name not in required
            if left_out and same:
                return "ignores_argument", f"argument {name} makes no difference"
        # One other value may truly have the same answer; all of them do not.
        if others and all(others):
            return "ignores_argument", f"argument {name} makes no difference"
    return None


def _gold_again_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """No wrong call does what the gold call does, unless few answers exist to choose from."""
    if not candidate.writes and is_small_domain(evidence.call.answer):
        return None  # an equal answer may be chance; an equal effect never is
    for perturbation, run in _wrong_calls(evidence):
        if _does_the_same(candidate, evidence, run):
            arguments = canonical_json(perturbation.arguments)
            done = "does the same" if candidate.writes else "returns the gold answer too"
            return "perturbed_returns_gold", f"{arguments:.150} {done}"
    return None


def _optional_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """An optional argument that nothing has makes a difference: a filter filters."""
    runs = evidence.all(Purpose.OPTIONAL)
    for perturbation, run in zip(evidence.call.optional, runs, strict=True):
        if _does_the_same(candidate, evidence, run):
            name = perturbation.argument
            return "ignores_argument", f"optional argument {name} makes no difference"
    return None


_WRONG_CALL_RULES: tuple[Rule, ...] = (
    _count_problem,
    _error_problem,
    _constant_problem,
    _argument_problem,
    _gold_again_problem,
    _optional_problem,
)

# Other worlds --------------------------------------------------------------------------------


def _order_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """Rows have no order: with all of them reversed the gold call does the same."""
    if not _does_the_same(candidate, evidence, evidence.one(Purpose.REVERSED)):
        return "row_order", "the order of the rows makes a difference"
    return None


def _state_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """The tool reads the world: where that is empty the gold call does something else."""
    if _does_the_same(candidate, evidence, evidence.one(Purpose.EMPTY)):
        return "ignores_state", "an empty world makes no difference"
    return None


def _key_problem(_: CandidateTool, evidence: Evidence) -> Problem | None:
    """A row whose key another row has is refused, cleanly."""
    for run in evidence.all(Purpose.TAKEN):
        if _answered(run):
            return "duplicate_key", "a row is added under a key that another row has"
        return _unclean(run.result)
    return None


_WORLD_RULES: tuple[Rule, ...] = (_order_problem, _state_problem, _key_problem)


# What the rules share ------------------------------------------------------------------------


def _wrong_calls(evidence: Evidence) -> list[tuple[Perturbation, TrialRun]]:
    """Each perturbed call with what it did."""
    return list(zip(evidence.call.perturbed, evidence.all(Purpose.PERTURBED), strict=True))


def _answered(run: TrialRun) -> bool:
    return run.result.status == SandboxStatus.OK


def _does_the_same(candidate: CandidateTool, evidence: Evidence, run: TrialRun) -> bool:
    """Whether a call did what the gold call does: its effect where it writes, else its answer."""
    if not _answered(run):
        return False
    if candidate.writes:
        return run.end == evidence.end
    return matches(evidence.call.answer, run.result.value)


def _same(one: TrialRun, other: TrialRun) -> bool:
    return (
        one.result.status == other.result.status
        and same_value(one.result.value, other.result.value)
        and one.end == other.end
    )


def _unclean(result: SandboxResult) -> Problem | None:
    return None if _is_clean(result) else ("unclean_error", result.error[:200])


def _is_clean(result: SandboxResult) -> bool:
    """Whether a failure is one short line that the tool raised on purpose."""
    text = result.error.removeprefix(_DECLARED)
    return (
        result.error.startswith(_DECLARED)
        and 0 < len(text.strip()) <= MAX_ERROR_CHARS
        and "\n" not in text
    )


def _leaks(evidence: Evidence, perturbation: Perturbation, error: str) -> bool:
    """Whether an error states the answer, and not just because the arguments did."""
    answer = evidence.call.answer.value
    asked = canonical_json([evidence.call.arguments, perturbation.arguments])
    return mentions(error, answer) and not mentions(asked, answer)
