"""The verdict on a candidate from what its two sessions returned; pure."""

from __future__ import annotations

from collections.abc import Sequence

from astra.arena.answers import is_small_domain, matches, same_value
from astra.arena.state import VIOLATION
from astra.envsynth.candidates import CandidateTool, GoldCall, Observed, Proof, Ran
from astra.envsynth.perturb import Perturbation, PerturbationKind
from astra.envsynth.static import Problem, mentions, violation
from astra.records.base import canonical_json
from astra.sandbox.protocol import SandboxResult, SandboxStatus

MIN_PERTURBED = 3
MAX_ERROR_CHARS = 200
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


def prove(observed: Observed) -> Proof:
    candidate, calls = observed.candidate, observed.candidate.calls
    count = len(calls)
    # A call that ended its session dragged all later ones with it: the first is to blame.
    for ran in (observed.first, observed.second):
        ended = next((one.result for one in ran if one.result.status in _FATAL), None)
        if ended is not None:
            return Proof((_FATAL[ended.status], ended.error[:200]))
    overstepped = next(
        (r for r, _ in observed.first if VIOLATION in r.error[: len(VIOLATION)]), None
    )
    if overstepped is not None:
        return Proof(("undeclared_write", overstepped.error.removeprefix(VIOLATION)[:200]))
    fresh, again = observed.first[:count], observed.first[-count:]
    other = observed.second[:count]
    for at, call in enumerate(calls):
        problem = _gold_problem(candidate, call, fresh[at])
        if problem is None:
            repeated = observed.second[at + count :: count]
            problem = _stability_problem(fresh[at], other[at], repeated, again[at])
        if problem is not None:
            return Proof(problem)
    checks = {"fresh_sessions": 2, "gold_calls": (2 + len(observed.second) // count) * count,
              "perturbed_calls": 0, "perturbed_answered": 0}  # fmt: skip
    rest = iter(observed.first[count:-count])
    for call in calls:
        wrong = [next(rest) for _ in call.perturbed]
        optional = [next(rest) for _ in call.optional]
        problem = None  # a call that is refused has no effect that another must not have
        if not call.refused:
            problem = _perturbed_problem(candidate, call, wrong) or _optional_problem(
                candidate, call, optional
            )
        if problem is not None:
            return Proof(problem)
        # Calls with an optional argument too many are not counted: they were made later than
        # the first records, whose bytes must not change.
        checks["perturbed_calls"] += len(wrong)
        checks["perturbed_answered"] += sum(_answered(one) for one in wrong)
    for call in calls:
        if call.before is not None:
            reversed_, empty = next(rest), next(rest)
            problem = None if call.refused else _state_problem(candidate, call, reversed_, empty)
            if problem is not None:
                return Proof(problem)
            checks["worlds"] = checks.get("worlds", 0) + 2
            if call.taken is not None:
                problem = _taken_problem(next(rest))
                if problem is not None:
                    return Proof(problem)
                checks["worlds"] += 1
    return Proof(None, checks)


def _answered(ran: Ran) -> bool:
    return ran.result.status == SandboxStatus.OK


def _hits(candidate: CandidateTool, call: GoldCall, ran: Ran) -> bool:
    """Whether a call did what the gold call does: its effect where it writes, else its answer."""
    if not _answered(ran):
        return False
    if candidate.writes:
        return ran.end == candidate.hash(call.after)
    return matches(call.answer, ran.result.value)


def _gold_problem(candidate: CandidateTool, call: GoldCall, ran: Ran) -> Problem | None:
    result = ran.result
    if call.refused:
        if result.status == SandboxStatus.OK:
            return "not_refused", f"returned {result.value!r:.100}, the call must be refused"
        return None if _clean(result) else ("unclean_error", result.error[:200])
    if result.status != SandboxStatus.OK:
        return "gold_call_failed", result.error[:200]
    if not matches(call.answer, result.value):
        expected = canonical_json(call.answer.value)
        return "wrong_answer", f"returned {result.value!r:.100}, expected {expected:.100}"
    if candidate.tool.output_schema is not None:
        fault = violation(candidate.tool.output_schema, result.value)
        if fault:
            return "output_violates_schema", fault
    if ran.end != candidate.hash(call.after):
        untouched = call.before and ran.end == candidate.hash(call.before.tables)
        return "wrong_effect", "nothing was written" if untouched else "the tables end up wrong"
    return None


def _stability_problem(
    fresh: Ran, other: Ran, repeated: Sequence[Ran], again: Ran
) -> Problem | None:
    if not _same(fresh, other):
        return "nondeterministic", "two fresh sessions disagree on the gold call"
    if not all(_same(other, ran) for ran in repeated):
        return "not_repeatable", "the same call gives something else when repeated"
    if not _same(fresh, again):
        return "order_dependent", "the result depends on the calls made before"
    return None


def _same(one: Ran, other: Ran) -> bool:
    return (
        one.result.status == other.result.status
        and same_value(one.result.value, other.result.value)
        and one.end == other.end
    )


def _perturbed_problem(
    candidate: CandidateTool, call: GoldCall, wrong: Sequence[Ran]
) -> Problem | None:
    """Wrong calls must fail cleanly or answer something else, and show that arguments matter."""
    if len(call.perturbed) < MIN_PERTURBED:
        return "too_few_perturbations", f"only {len(call.perturbed)} wrong calls could be made"
    tried = list(zip(call.perturbed, wrong, strict=True))
    for item, ran in tried:
        if ran.result.status == SandboxStatus.EXCEPTION:
            if _leaks(call, item, ran.result.error):
                return "answer_in_error", f"an error states the answer: {ran.result.error:.100}"
            if not violation(candidate.tool.parameters, item.arguments) and not _clean(ran.result):
                return "unclean_error", f"{canonical_json(item.arguments):.100}: {ran.result.error}"
    hits = [_hits(candidate, call, ran) for ran in wrong]
    answered = [hit for hit, ran in zip(hits, wrong, strict=True) if _answered(ran)]
    if not candidate.writes and (not answered or all(answered)):
        return "constant", "no other arguments give another answer"
    for name in call.arguments:
        others = [
            hit
            for hit, (item, ran) in zip(hits, tried, strict=True)
            if item.argument == name and item.kind == PerturbationKind.OTHER and _answered(ran)
        ]
        left_out = [
            hit
            for hit, (item, _) in zip(hits, tried, strict=True)
            if item.argument == name
            and item.kind == PerturbationKind.MISSING
            and name not in candidate.tool.parameters.get("required", ())
        ]
        if (others and all(others)) or any(left_out):
            return "ignores_argument", f"argument {name} makes no difference"
    if any(hits) and (candidate.writes or not is_small_domain(call.answer)):
        arguments = canonical_json(call.perturbed[hits.index(True)].arguments)
        done = "does the same" if candidate.writes else "returns the gold answer too"
        return "perturbed_returns_gold", f"{arguments:.150} {done}"
    return None


def _clean(result: SandboxResult) -> bool:
    """One short line that a tool raised on purpose."""
    text = result.error.removeprefix(_DECLARED)
    return (
        result.error.startswith(_DECLARED)
        and 0 < len(text.strip()) <= MAX_ERROR_CHARS
        and "\n" not in text
    )


def _optional_problem(
    candidate: CandidateTool, call: GoldCall, optional: Sequence[Ran]
) -> Problem | None:
    for item, ran in zip(call.optional, optional, strict=True):
        if _hits(candidate, call, ran):
            return "ignores_argument", f"optional argument {item.argument} makes no difference"
    return None


def _state_problem(
    candidate: CandidateTool, call: GoldCall, reversed_: Ran, empty: Ran
) -> Problem | None:
    if not _hits(candidate, call, reversed_):
        return "row_order", "the order of the rows makes a difference"
    if _hits(candidate, call, empty):
        return "ignores_state", "an empty world makes no difference"
    return None


def _taken_problem(ran: Ran) -> Problem | None:
    if _answered(ran):
        return "duplicate_key", "a row is added under a key that another row has"
    return None if _clean(ran.result) else ("unclean_error", ran.result.error[:200])


def _leaks(call: GoldCall, item: Perturbation, error: str) -> bool:
    asked = canonical_json([call.arguments, item.arguments])
    return mentions(error, call.answer.value) and not mentions(asked, call.answer.value)
