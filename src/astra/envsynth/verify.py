"""Environments proved in the sandbox: gold calls pass, wrong calls do not.

Two fresh sessions per distinct code. Session one: every gold call, every perturbed call, every
gold call again. Session two: every gold call several times. A stateful tool meets the same world
in all of them, and gets its rows reversed and an empty world besides. The same checks hold
whichever teacher wrote the code.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from astra.arena.state import entry_of, settle
from astra.envsynth.candidates import CandidateTool, Observed, Proof, Ran, Trial, schedules
from astra.envsynth.proof import prove
from astra.envsynth.static import (
    Problem,
    call_problem,
    code_problem,
    document_problem,
    steady,
)
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.protocol import (
    Sandbox,
    SandboxLoadError,
    SandboxResult,
    SandboxStatus,
    Session,
)

log = logging.getLogger("astra")


def verify(
    candidates: Sequence[CandidateTool], sandbox: Sandbox, limits: SandboxLimits
) -> list[Proof]:
    """One verdict per candidate, whatever else is verified with it.

    A timeout or an outage is tried once more before it counts.
    """
    verdicts: dict[str, Proof] = {}
    distinct: dict[str, CandidateTool] = {}
    keys = [candidate.key for candidate in candidates]
    for key, candidate in zip(keys, candidates, strict=True):
        if key in distinct:
            continue
        distinct[key] = candidate
        problem = static_problem(candidate, limits)
        if problem is not None:
            verdicts[key] = Proof(problem)
    for _ in range(2):
        pending = [
            key for key in distinct
            if key not in verdicts or _is_transient(verdicts[key].problem)
        ]  # fmt: skip
        runs = _execute([distinct[key] for key in pending], sandbox)
        for key, run in zip(pending, runs, strict=True):
            verdicts[key] = prove(run) if isinstance(run, Observed) else Proof(run)
    return [_stated(distinct[key], verdicts[key]) for key in keys]


def _stated(candidate: CandidateTool, verdict: Proof) -> Proof:
    if verdict.problem is None:
        return verdict
    if verdict.problem[0] == "sandbox_infra":
        log.warning("sandbox, tool %s: %s", candidate.tool.name, verdict.problem[1])
    return replace(verdict, problem=steady(verdict.problem))


def static_problem(candidate: CandidateTool, limits: SandboxLimits) -> Problem | None:
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
    stateful = candidate.state is not None
    return code_problem(candidate.tool, candidate.code, limits.allowed_imports, stateful)


def _is_transient(problem: Problem | None) -> bool:
    if problem is None:
        return False
    late = problem[0] == "load_error" and problem[1].startswith(SandboxStatus.TIMEOUT.value)
    return late or problem[0] in ("timeout", "sandbox_infra")


def _execute(candidates: Sequence[CandidateTool], sandbox: Sandbox) -> list[Observed | Problem]:
    sources = [dict([_source(candidate)]) for candidate in candidates]
    opened = sandbox.sessions([source for source in sources for _ in range(2)])
    requests: list[tuple[Session, str, Mapping[str, Any]]] = []
    results: list[Observed | Problem] = []
    try:
        for at, candidate in enumerate(candidates):
            function, _ = _source(candidate)
            for session, trials in zip(
                opened[2 * at : 2 * at + 2], schedules(candidate), strict=True
            ):
                if not isinstance(session, SandboxLoadError):
                    requests += [(session, function, _given(trial)) for trial in trials]
        answers = iter(sandbox.call_many(requests))
        for at, candidate in enumerate(candidates):
            loads = opened[2 * at : 2 * at + 2]
            taken = [
                [_ran(candidate, trial, next(answers)) for trial in trials]
                for session, trials in zip(loads, schedules(candidate), strict=True)
                if not isinstance(session, SandboxLoadError)
            ]
            failed = next((one for one in loads if isinstance(one, SandboxLoadError)), None)
            if failed is not None:
                results.append(("load_error", str(failed)[:200]))
            else:
                results.append(Observed(candidate, taken[0], taken[1]))
    finally:
        for session in opened:
            if not isinstance(session, SandboxLoadError):
                session.close()
    return results


def _source(candidate: CandidateTool) -> tuple[str, str]:
    name, code = candidate.tool.name, candidate.code
    return (name, code) if candidate.state is None else entry_of(name, code)


def _given(trial: Trial) -> Mapping[str, Any]:
    if trial.world is None:
        return trial.arguments
    return {"state": trial.world.model_dump(), "arguments": trial.arguments}


def _ran(candidate: CandidateTool, trial: Trial, result: SandboxResult) -> Ran:
    if candidate.state is None or trial.world is None:
        return Ran(result, "")
    settled, after = settle(candidate.state, candidate.tool.name, trial.world, result)
    return Ran(settled, candidate.hash(after.tables))
