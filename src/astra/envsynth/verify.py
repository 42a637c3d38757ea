"""Candidates proved in the sandbox: gold calls pass, wrong calls do not.

Each distinct candidate is checked without running it (``static``), then makes the calls of its
``schedule`` in two fresh sessions, and ``proof`` judges what they returned. The same checks hold
whichever teacher wrote the code.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from astra.arena.state import entry_of, settle
from astra.envsynth.candidates import CandidateTool, GoldCall
from astra.envsynth.fit import result_problem
from astra.envsynth.proof import Proof, prove
from astra.envsynth.schedule import Observed, Trial, TrialRun, schedules
from astra.envsynth.static import (
    Problem,
    call_problem,
    code_problem,
    document_problem,
    steady,
)
from astra.records.tool import Tool
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.protocol import (
    Sandbox,
    SandboxLoadError,
    SandboxResult,
    SandboxStatus,
    Session,
)

TRIES = 2
"""How often a candidate is executed before a timeout or an outage counts."""
Verify = Callable[[CandidateTool], Awaitable[Proof]]
"""How a flow waits for one proof while ``verify`` works on a batch: ``Batcher.do``."""
log = logging.getLogger("astra")


def verify(
    candidates: Sequence[CandidateTool], sandbox: Sandbox, limits: SandboxLimits
) -> list[Proof]:
    """One proof per candidate, in order, whatever else is verified with it.

    A timeout or an outage is tried once more before it counts.
    """
    proofs: dict[str, Proof] = {}
    distinct: dict[str, CandidateTool] = {}
    keys = [candidate.key for candidate in candidates]
    for key, candidate in zip(keys, candidates, strict=True):
        if key in distinct:
            continue
        distinct[key] = candidate
        problem = static_problem(candidate, limits)
        if problem is not None:
            proofs[key] = Proof(problem)
    for _ in range(TRIES):
        pending = [
            key for key in distinct if key not in proofs or _is_transient(proofs[key].problem)
        ]
        outcomes = _execute([distinct[key] for key in pending], sandbox)
        for key, outcome in zip(pending, outcomes, strict=True):
            proofs[key] = prove(outcome) if isinstance(outcome, Observed) else Proof(outcome)
    return [_stated(distinct[key], proofs[key]) for key in keys]


def _stated(candidate: CandidateTool, proof: Proof) -> Proof:
    """The proof as it leaves: without what differs from run to run, an outage logged."""
    if proof.problem is None:
        return proof
    if proof.problem[0] == "sandbox_infra":
        log.warning("sandbox, tool %s: %s", candidate.tool.name, proof.problem[1])
    return replace(proof, problem=steady(proof.problem))


def static_problem(candidate: CandidateTool, limits: SandboxLimits) -> Problem | None:
    """Why a candidate fails before it is executed."""
    for call in candidate.calls:
        if call.answer.value in (None, "", [], {}):
            return "empty_answer", "the gold answer is empty"
    problem = document_problem(candidate.tool, candidate.secrets, candidate.filters)
    problem = problem or candidate.unfit
    if problem is not None:
        return problem
    for call in candidate.calls:
        problem = call_problem(candidate.tool, call.arguments)
        problem = problem or _results_problem(candidate.tool, call)
        if problem is not None:
            return problem
    stateful = candidate.state is not None
    return code_problem(candidate.tool, candidate.code, limits.allowed_imports, stateful)


def _results_problem(tool: Tool, call: GoldCall) -> Problem | None:
    """Why the document refuses a true result: that of the gold call, or of another that it must
    answer.
    """
    if call.refused:
        return None
    others = [
        other.truth.value
        for other in (*call.perturbed, *call.optional)
        if other.truth is not None
        and other.truth.exists
        and other.truth.required
        and call_problem(tool, other.arguments) is None
    ]
    problems = (result_problem(tool, value) for value in (call.answer.value, *others))
    return next(filter(None, problems), None)


def _is_transient(problem: Problem | None) -> bool:
    """Whether a busy machine, not the tool, may have caused a problem."""
    if problem is None:
        return False
    late = problem[0] == "load_error" and problem[1].startswith(SandboxStatus.TIMEOUT.value)
    return late or problem[0] in ("timeout", "sandbox_infra")


def _execute(candidates: Sequence[CandidateTool], sandbox: Sandbox) -> list[Observed | Problem]:
    """What the sessions of each candidate returned, or why its code does not load.

    All sessions are open at once, and all calls go to the sandbox together.
    """
    planned = [
        (at, entry, trials)
        for at, candidate in enumerate(candidates)
        for entry, trials in zip(_entries(candidate), schedules(candidate), strict=True)
    ]
    opened = sandbox.sessions([{name: code} for _, (name, code), _ in planned])
    runs: list[list[TrialRun]] = [[] for _ in opened]
    try:
        jobs = [
            (number, session, trial)
            for number, (session, (_, _, trials)) in enumerate(zip(opened, planned, strict=True))
            if not isinstance(session, SandboxLoadError)
            for trial in trials
        ]
        requests: list[tuple[Session, str, Mapping[str, Any]]] = [
            (session, planned[number][1][0], _given(trial)) for number, session, trial in jobs
        ]
        for (number, _, trial), result in zip(jobs, sandbox.call_many(requests), strict=True):
            runs[number].append(_run(candidates[planned[number][0]], trial, result))
    finally:
        for session in opened:
            if not isinstance(session, SandboxLoadError):
                session.close()
    outcomes: list[Observed | Problem] = []
    for at, candidate in enumerate(candidates):
        mine = [number for number, (of, _, _) in enumerate(planned) if of == at]
        failures = [opened[n] for n in mine if isinstance(opened[n], SandboxLoadError)]
        if failures:
            outcomes.append(("load_error", str(failures[0])[:200]))
        else:
            first, second, *members = [runs[number] for number in mine]
            outcomes.append(Observed(candidate, first, second, members))
    return outcomes


def _entries(candidate: CandidateTool) -> list[tuple[str, str]]:
    """The function that each session of a candidate calls, and the source that defines it."""
    own = _entry(candidate)
    return [own, own, *((member.name, member.code) for member in candidate.members)]


def _entry(candidate: CandidateTool) -> tuple[str, str]:
    """The function that a session calls, and the source that defines it."""
    name, code = candidate.tool.name, candidate.code
    return (name, code) if candidate.state is None else entry_of(name, code)


def _given(trial: Trial) -> Mapping[str, Any]:
    if trial.world is None:
        return trial.arguments
    return {"state": trial.world.model_dump(), "arguments": trial.arguments}


def _run(candidate: CandidateTool, trial: Trial, result: SandboxResult) -> TrialRun:
    if candidate.state is None or trial.world is None:
        return TrialRun(trial, result, "")
    settled, after = settle(candidate.state, candidate.tool.name, trial.world, result)
    return TrialRun(trial, settled, candidate.hash(after.tables))
