"""Environments proved in the sandbox: gold calls pass, wrong calls do not.

Two fresh sessions per distinct code. Session one: every gold call, every perturbed call, every
gold call again. Session two: every gold call several times. The same checks hold whichever teacher
wrote the code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from astra.arena.answers import is_small_domain, matches, same_value
from astra.envsynth.perturb import Kind, Perturbation
from astra.envsynth.static import (
    Problem,
    call_problem,
    code_problem,
    document_problem,
    mentions,
    violation,
)
from astra.records.base import canonical_json
from astra.records.qa import Answer
from astra.records.tool import Tool
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.protocol import (
    Sandbox,
    SandboxLoadError,
    SandboxResult,
    SandboxStatus,
    Session,
)

MIN_PERTURBED = 3
REPEATS = 6
"""Gold calls in the second session: a coin flip survives them with a chance of 1 in 64."""
_FATAL = {
    SandboxStatus.TIMEOUT: "timeout",
    SandboxStatus.MEMORY: "out_of_memory",
    SandboxStatus.EXIT: "crash",
    SandboxStatus.PROTOCOL: "crash",
    SandboxStatus.INFRA: "sandbox_infra",
    SandboxStatus.LOAD_ERROR: "load_error",
}


@dataclass(frozen=True)
class GoldCall:
    arguments: dict[str, Any]
    answer: Answer
    perturbed: tuple[Perturbation, ...]


@dataclass(frozen=True)
class Candidate:
    """A tool with code, and every gold call that it must serve."""

    tool: Tool
    code: str
    calls: tuple[GoldCall, ...]

    @property
    def key(self) -> str:
        """Candidates of one key have the same verdict; they are verified once."""
        return canonical_json(
            [
                self.tool.model_dump(mode="json"),
                self.code,
                [[call.arguments, call.answer.model_dump(mode="json")] for call in self.calls],
            ]
        )


@dataclass(frozen=True)
class Verdict:
    """``problem`` is None for a pass; ``checks`` counts what was tried."""

    problem: Problem | None
    checks: dict[str, int] = field(default_factory=dict[str, int])


@dataclass
class _Run:
    """What the two sessions returned for one candidate."""

    candidate: Candidate
    first: list[SandboxResult]
    second: list[SandboxResult]


def verify(
    candidates: Sequence[Candidate], sandbox: Sandbox, limits: SandboxLimits
) -> list[Verdict]:
    """One verdict per candidate. A timeout or an outage is tried once more before it counts."""
    verdicts: dict[str, Verdict] = {}
    distinct: dict[str, Candidate] = {}
    keys = [candidate.key for candidate in candidates]
    for key, candidate in zip(keys, candidates, strict=True):
        if key in distinct:
            continue
        distinct[key] = candidate
        problem = static_problem(candidate, limits)
        if problem is not None:
            verdicts[key] = Verdict(problem)
    for _ in range(2):
        pending = [
            key for key in distinct
            if key not in verdicts or _is_transient(verdicts[key].problem)
        ]  # fmt: skip
        runs = _execute([distinct[key] for key in pending], sandbox)
        for key, run in zip(pending, runs, strict=True):
            verdicts[key] = _judge(run) if isinstance(run, _Run) else Verdict(run)
    return [verdicts[key] for key in keys]


def static_problem(candidate: Candidate, limits: SandboxLimits) -> Problem | None:
    """Everything that needs no execution."""
    for call in candidate.calls:
        if call.answer.value in (None, "", [], {}):
            return "empty_answer", "the gold answer is empty"
    problem = document_problem(candidate.tool, [call.answer for call in candidate.calls])
    if problem is not None:
        return problem
    for call in candidate.calls:
        problem = call_problem(candidate.tool, call.arguments)
        if problem is not None:
            return problem
    return code_problem(candidate.tool, candidate.code, limits.allowed_imports)


def _is_transient(problem: Problem | None) -> bool:
    return problem is not None and problem[0] in ("timeout", "sandbox_infra")


def _execute(candidates: Sequence[Candidate], sandbox: Sandbox) -> list[_Run | Problem]:
    sources = [{candidate.tool.name: candidate.code} for candidate in candidates]
    opened = sandbox.sessions([source for source in sources for _ in range(2)])
    requests: list[tuple[Session, str, Mapping[str, Any]]] = []
    results: list[_Run | Problem] = []
    try:
        for at, candidate in enumerate(candidates):
            for session, calls in zip(
                opened[2 * at : 2 * at + 2], _schedules(candidate), strict=True
            ):
                if not isinstance(session, SandboxLoadError):
                    requests += [(session, candidate.tool.name, call) for call in calls]
        answers = iter(sandbox.call_many(requests))
        for at, candidate in enumerate(candidates):
            loads = opened[2 * at : 2 * at + 2]
            taken = [
                [next(answers) for _ in calls]
                for session, calls in zip(loads, _schedules(candidate), strict=True)
                if not isinstance(session, SandboxLoadError)
            ]
            failed = next((one for one in loads if isinstance(one, SandboxLoadError)), None)
            if failed is not None:
                results.append(("load_error", str(failed)[:200]))
            else:
                results.append(_Run(candidate, taken[0], taken[1]))
    finally:
        for session in opened:
            if not isinstance(session, SandboxLoadError):
                session.close()
    return results


def _schedules(candidate: Candidate) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    gold = [call.arguments for call in candidate.calls]
    wrong = [item.arguments for call in candidate.calls for item in call.perturbed]
    return [*gold, *wrong, *gold], gold * REPEATS


def _judge(run: _Run) -> Verdict:
    calls = run.candidate.calls
    count = len(calls)
    # A call that ended its session dragged all later ones with it: the first is to blame.
    for results in (run.first, run.second):
        ended = next((result for result in results if result.status in _FATAL), None)
        if ended is not None:
            return Verdict((_FATAL[ended.status], ended.error[:200]))
    fresh, again = run.first[:count], run.first[-count:]
    other = run.second[:count]
    for at, call in enumerate(calls):
        problem = _gold_problem(run.candidate.tool, call, fresh[at])
        if problem is None:
            repeated = run.second[at + count :: count]
            problem = _stability_problem(fresh[at], other[at], repeated, again[at])
        if problem is not None:
            return Verdict(problem)
    wrong = run.first[count:-count]
    checks = {
        "fresh_sessions": 2,
        "gold_calls": (2 + REPEATS) * count,
        "perturbed_calls": len(wrong),
        "perturbed_answered": 0,
    }
    position = 0
    for call in calls:
        results = wrong[position : position + len(call.perturbed)]
        position += len(call.perturbed)
        problem = _perturbed_problem(call, results)
        if problem is not None:
            return Verdict(problem)
        answered = sum(result.status == SandboxStatus.OK for result in results)
        checks["perturbed_answered"] += answered
    return Verdict(None, checks)


def _gold_problem(tool: Tool, call: GoldCall, result: SandboxResult) -> Problem | None:
    if result.status != SandboxStatus.OK:
        return "gold_call_failed", result.error[:200]
    if not matches(call.answer, result.value):
        expected = canonical_json(call.answer.value)
        return "wrong_answer", f"returned {result.value!r:.100}, expected {expected:.100}"
    if tool.output_schema is not None:
        fault = violation(tool.output_schema, result.value)
        if fault:
            return "output_violates_schema", fault
    return None


def _stability_problem(
    fresh: SandboxResult,
    other: SandboxResult,
    repeated: Sequence[SandboxResult],
    again: SandboxResult,
) -> Problem | None:
    if not _same(fresh, other):
        return "nondeterministic", "two fresh sessions disagree on the gold call"
    if not all(_same(other, result) for result in repeated):
        return "not_repeatable", "the same call gives something else when repeated"
    if not _same(fresh, again):
        return "order_dependent", "the result depends on the calls made before"
    return None


def _same(one: SandboxResult, other: SandboxResult) -> bool:
    return one.status == other.status and same_value(one.value, other.value)


def _perturbed_problem(call: GoldCall, results: Sequence[SandboxResult]) -> Problem | None:
    """Wrong calls must fail cleanly or answer something else, and show that arguments matter."""
    if len(call.perturbed) < MIN_PERTURBED:
        return "too_few_perturbations", f"only {len(call.perturbed)} wrong calls could be made"
    hits = [
        result.status == SandboxStatus.OK and matches(call.answer, result.value)
        for result in results
    ]
    for item, result in zip(call.perturbed, results, strict=True):
        if result.status == SandboxStatus.EXCEPTION and _leaks(call, item, result.error):
            return "answer_in_error", f"an error message states the answer: {result.error:.100}"
    answered = [
        hit for hit, result in zip(hits, results, strict=True) if result.status == SandboxStatus.OK
    ]
    if not answered or all(answered):
        return "constant", "no other arguments give another answer"
    for name in call.arguments:
        others = [
            hit
            for hit, item, result in zip(hits, call.perturbed, results, strict=True)
            if item.argument == name
            and item.kind == Kind.OTHER
            and result.status == SandboxStatus.OK
        ]
        if others and all(others):
            return "ignores_argument", f"argument {name} makes no difference"
    if not is_small_domain(call.answer) and any(hits):
        arguments = canonical_json(call.perturbed[hits.index(True)].arguments)
        return "perturbed_returns_gold", f"{arguments:.150} returns the gold answer too"
    return None


def _leaks(call: GoldCall, item: Perturbation, error: str) -> bool:
    asked = canonical_json([call.arguments, item.arguments])
    return mentions(error, call.answer.value) and not mentions(asked, call.answer.value)
