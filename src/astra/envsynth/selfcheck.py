"""An arena proves its own reward before it ships.

In a fresh session of the whole arena: the reference (every gold call, the true final answer)
must score F1 = 2m / (2m + eps) over its m sub-tasks, final answer included, and succeed;
calling nothing, calls with empty arguments, a dropped gold call and a missing final answer
must each score strictly less.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from astra.arena.answers import render_answer
from astra.arena.env import ArenaEnv, ArenaError, execute_batch, open_envs
from astra.arena.reward import EPSILON, EpisodeScore, FinalAnswer, RewardMode, score_episode
from astra.envsynth.static import Problem
from astra.records.environment import Arena
from astra.records.message import CallStatus, ExecutedCall, ToolCall
from astra.sandbox.protocol import Sandbox


def check_arenas(arenas: Sequence[Arena], sandbox: Sandbox) -> list[Problem | None]:
    """Per arena: None, or why it must not ship."""
    problems: list[Problem | None] = [None] * len(arenas)
    envs: dict[int, ArenaEnv] = {}
    for at, opened in _open(arenas, sandbox).items():
        if isinstance(opened, ArenaError):
            problems[at] = ("arena_does_not_load", str(opened)[:200])
        else:
            envs[at] = opened
    try:
        wanted = [(at, call) for at in envs for call in reference_calls(arenas[at])]
        empty = [(at, call) for at in envs for call in _empty_calls(arenas[at])]
        results = execute_batch([(envs[at], call) for at, call in [*wanted, *empty]])
        executed: dict[int, list[ExecutedCall]] = {at: [] for at in envs}
        emptied: dict[int, list[ExecutedCall]] = {at: [] for at in envs}
        for number, ((at, call), result) in enumerate(zip([*wanted, *empty], results, strict=True)):
            done = executed if number < len(wanted) else emptied
            done[at].append(ExecutedCall(turn=0, call=call, result=result))
    finally:
        for env in envs.values():
            env.close_now()
    for at in envs:
        problems[at] = problem_of(arenas[at], executed[at], emptied[at])
    return problems


def _open(arenas: Sequence[Arena], sandbox: Sandbox) -> dict[int, ArenaEnv | ArenaError]:
    try:
        return dict(enumerate(open_envs([(arena, ()) for arena in arenas], sandbox)))
    except ArenaError:
        pass
    opened: dict[int, ArenaEnv | ArenaError] = {}  # one is broken: find out which
    for at, arena in enumerate(arenas):
        try:
            opened[at] = open_envs([(arena, ())], sandbox)[0]
        except ArenaError as error:
            opened[at] = error
    return opened


def reference_calls(arena: Arena) -> list[ToolCall]:
    """The gold calls in an order that respects dependencies."""
    steps = sorted(arena.steps, key=lambda step: (step.hop_level, step.id))
    return [
        ToolCall(
            id=f"call_{step.id}",
            name=step.tool_name,
            arguments=json.dumps(step.arguments, ensure_ascii=False),
        )
        for step in steps
        if step.tool_name is not None
    ]


def _empty_calls(arena: Arena) -> list[ToolCall]:
    return [ToolCall(id=call.id, name=call.name, arguments="{}") for call in reference_calls(arena)]


def problem_of(
    arena: Arena, executed: Sequence[ExecutedCall], emptied: Sequence[ExecutedCall]
) -> Problem | None:
    """Judge the scores of the reference and of its mutants; pure."""
    final = render_answer(arena.final_answer)
    failed = next((done for done in executed if done.result.status != CallStatus.OK), None)
    if failed is not None:
        return "replay_failed", f"{failed.call.name}: {failed.result.content[:150]}"
    if not executed:
        return "no_tool_needed", "no sub-question needs a tool"
    reference = _score(arena, executed, final)
    subtasks = len(executed) + 1
    expected = 2 * subtasks / (2 * subtasks + EPSILON)
    if not reference.success or abs(reference.reward - expected) > 1e-12:
        return "reference_fails", f"F1 {reference.reward:.6f}, success {reference.success}"
    mutants = {
        "no_call_passes": ((), final),
        "empty_arguments_pass": (emptied, final),
        "missing_answer_passes": (executed, None),
    }
    for reason, (calls, text) in mutants.items():
        score = _score(arena, calls, text)
        if score.success or score.reward >= reference.reward:
            return reason, f"F1 {score.reward:.6f}"
    for at in range(len(executed)):
        score = _score(arena, [*executed[:at], *executed[at + 1 :]], final)
        if score.success or score.reward >= reference.reward:
            return "dropped_call_passes", f"without {executed[at].call.name}: {score.reward:.6f}"
    return None


def _score(arena: Arena, calls: Sequence[ExecutedCall], final: str | None) -> EpisodeScore:
    return score_episode(arena, calls, final, RewardMode.F1, FinalAnswer.SUBTASK)
