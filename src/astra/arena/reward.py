"""The reward of an episode: sub-tasks solved by executed calls, per call (ASTRA section 5.1).

With n sub-tasks, n^ of them solved and c calls, recall is n^/n, precision n^/(c + eps), and their
harmonic mean is written F1 = 2 n^/(n + c + eps), which is defined for n^ = 0 too. One call can
solve several sub-tasks (those that ask a tool the same), so n^ may exceed c: precision and F1 are
clamped to 1. Everything is computed from executed results by the host; no text of a tool or a model
decides.

A right final answer counts only where the steps it rests on are solved: what an agent knew or
guessed is paid nothing. Where it is a sub-task (our choice), calls cost what ``charges.py`` says;
without it the formulas are the paper's to the letter, and every call costs 1.

Where tools write, the end state decides: sub-tasks that write are solved, all of them, when every
change that was asked for was made and nothing else changed, and an answer counts only then.
Rewards lie in [0, 1] for every kind of arena, so that all kinds can share a batch.

In a persistent world (``arena/worlds.py``) the verdict on its goal decides: end state, outcome,
what was said and read, and rules (``arena/verdict.py``).

Code-interpreter arenas are paid for the final answer alone, whatever the mode (rStar2-Agent): no
call is needed, and none costs anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from astra.arena.answers import final_matches, is_small_domain, matches, parse_final, same_value
from astra.arena.charges import cost
from astra.arena.state import expected_tables, same_state, state_of
from astra.arena.verdict import GoalVerdict, judge
from astra.arena.worlds import base_of, goal_of
from astra.records.environment import Arena, ArenaStep
from astra.records.message import CallStatus, ExecutedCall
from astra.records.qa import QuestionKind
from astra.records.state import ArenaState, Tables
from astra.records.world import TraceEvent

EPSILON = 1e-6
"""The eps of the formulas."""
CALL_COST = 0.01
"""What reward ``state`` takes off per call; our choice: a dozen calls never outweigh a goal."""


class RewardMode(StrEnum):
    """Which number of an ``EpisodeScore`` is paid."""

    F1 = "f1"
    RECALL = "recall"
    PRECISION = "precision"
    ANSWER = "answer"  # 1 where the final answer counts, else 0
    STATE = "state"  # 1 where the goal is reached, else 0; less CALL_COST per call


class FinalAnswer(StrEnum):
    """What a final answer that counts is in n, n^ and c."""

    SUBTASK = "subtask"  # one more sub-task, and one more call; calls cost as in ``charges.py``
    IGNORE = "ignore"  # nothing, and every call costs 1: the paper's formulas


@dataclass(frozen=True)
class EpisodeScore:
    """What an episode is worth, by every measure.

    ``subtasks``, ``solved`` and ``calls`` are n, n^ and c as they enter the formulas; ``calls`` is
    what the calls cost, and may differ from how many there were.
    """

    subtasks: int
    solved: int
    calls: int
    recall: float
    precision: float
    f1: float
    answer_correct: bool
    """Whether the final text states the answer, whether or not it counts."""
    success: bool
    """Whether every sub-question that needs a tool is solved and the final answer counts; the
    reward mode makes no difference."""
    reward: float
    """The number that the reward mode names."""
    answer_counts: bool = False
    """Whether the answer is right and earned: the steps it rests on are solved."""
    state_reached: bool | None = None
    """Whether the world ended as it should; None where no tool writes."""
    verdict: GoalVerdict | None = None
    """What decided in a persistent world; None for any other arena."""


def score_episode(
    arena: Arena,
    calls: Sequence[ExecutedCall],
    final_text: str | None,
    mode: RewardMode = RewardMode.F1,
    final_answer: FinalAnswer = FinalAnswer.SUBTASK,
    eps: float = EPSILON,
    end_state: Tables | None = None,
    trace: Sequence[TraceEvent] | None = None,
) -> EpisodeScore:
    """Score one episode; precision and F1 are clamped to at most 1, reward ``state`` to at least 0.

    ``final_text`` is the final message, None where there was none. Calls that failed for reasons of
    our own (INFRA) count neither for nor against. ``end_state`` is ``ArenaEnv.tables`` after the
    last call; without it a stateful arena cannot be scored (ValueError), nor one in a world, paid
    by ``state`` in every mode, without ``ArenaEnv.trace``.
    """
    if arena.world_id:
        return _score_goal(arena, calls, end_state, trace)
    if arena.kind == QuestionKind.CODE:
        mode = RewardMode.ANSWER
    charged = [call for call in calls if call.result.status != CallStatus.INFRA]
    state = state_of(arena)
    reached = None if state is None else is_reached(arena, state, end_state)
    steps = [step for step in arena.steps if step.tool_name is not None]
    found = {step.id: solving_call(arena, step, charged) for step in steps}
    useful = {id: at for id, at in found.items() if at is not None}
    written = {step.id for step in steps if writes(state, step)}
    # Writes are one goal: all of them or none.
    solved_ids = (useful.keys() - written) | (written if reached else set())
    correct = final_text is not None and final_matches(
        arena.final_answer, parse_final(final_text), [step.answer for step in arena.steps]
    )
    credited = correct and reached is not False and rests_on(arena) <= solved_ids
    success = credited and len(solved_ids) == len(steps)
    solved, subtasks, n_calls = len(solved_ids), len(steps), len(charged)
    if final_answer == FinalAnswer.SUBTASK:
        n_calls = cost(arena, charged, set(useful.values())) + 1
        subtasks += 1
        solved += 1 if credited else 0
    recall = solved / subtasks if subtasks else 0.0
    precision = min(1.0, solved / (n_calls + eps))
    f1 = min(1.0, 2 * solved / (subtasks + n_calls + eps))
    reward = {
        RewardMode.F1: f1,
        RewardMode.RECALL: recall,
        RewardMode.PRECISION: precision,
        RewardMode.ANSWER: float(credited),
        RewardMode.STATE: max(0.0, float(success) - CALL_COST * len(charged)),
    }[mode]
    return EpisodeScore(
        subtasks=subtasks, solved=solved, calls=n_calls, recall=recall, precision=precision, f1=f1,
        answer_correct=correct, success=success, reward=reward, answer_counts=credited,
        state_reached=reached,
    )  # fmt: skip


def _score_goal(
    arena: Arena,
    calls: Sequence[ExecutedCall],
    end_state: Tables | None,
    trace: Sequence[TraceEvent] | None,
) -> EpisodeScore:
    """The score of an episode in a persistent world: one goal, reached or not."""
    if end_state is None or trace is None:
        raise ValueError(
            f"arena {arena.id} is in a world: its end state and trace decide the score"
        )
    verdict = judge(base_of(arena).world, goal_of(arena), trace, end_state)
    charged = sum(call.result.status != CallStatus.INFRA for call in calls)
    share = float(verdict.success)
    return EpisodeScore(
        subtasks=1, solved=int(verdict.success), calls=charged, recall=share, precision=share,
        f1=share, answer_correct=verdict.said, success=verdict.success,
        reward=max(0.0, share - CALL_COST * charged), answer_counts=verdict.success,
        state_reached=verdict.state, verdict=verdict,
    )  # fmt: skip


def is_reached(arena: Arena, state: ArenaState, end_state: Tables | None) -> bool:
    """Whether the world is as the arena's writes, and nothing else, make it."""
    if end_state is None:
        raise ValueError(f"arena {arena.id} has stateful tools: its end state decides the score")
    return same_state(expected_tables(arena.expected_state), end_state, state.fields)


def writes(state: ArenaState | None, step: ArenaStep) -> bool:
    """Whether the step is solved by what becomes of the world, not by what its tool returns."""
    return state is not None and bool(state.writes.get(step.tool_name or ""))


def rests_on(arena: Arena) -> set[int]:
    """The ids of the steps with a tool that the final answer follows from.

    These are the steps at the end of the question whose answer is the final one, with all that
    they depend on; and every step, where no end has that answer (a list of several, an outcome
    such as "not possible") or none of these needs a tool.
    """
    with_tool = {step.id for step in arena.steps if step.tool_name is not None}
    dependencies = {step.id: step.dependencies for step in arena.steps}
    used = {id for of_step in dependencies.values() for id in of_step}
    waiting = [
        step.id
        for step in arena.steps
        if step.id not in used and matches(arena.final_answer, step.answer.value)
    ]
    found: set[int] = set()
    while waiting:
        id = waiting.pop()
        if id not in found:
            found.add(id)
            waiting += dependencies.get(id, ())
    return found & with_tool or with_tool


def solving_call(arena: Arena, step: ArenaStep, calls: Sequence[ExecutedCall]) -> int | None:
    """The position of the first call to the step's tool that returned its typed answer.

    Where the answer could come about by chance (fewer than 20 possible values, or another
    sub-question of the same tool has an equal answer), only a call with arguments equivalent
    to the gold call's counts.
    """
    strict = needs_gold_arguments(arena, step)
    for at, executed in enumerate(calls):
        if executed.call.name != step.tool_name or executed.result.status != CallStatus.OK:
            continue
        if not matches(step.answer, executed.result.value):
            continue
        if not strict or asks_the_same(arena, step, executed.call.arguments):
            return at
    return None


def needs_gold_arguments(arena: Arena, step: ArenaStep) -> bool:
    """Whether an equal answer of another call would prove nothing about this step."""
    return is_small_domain(step.answer) or any(
        other.id != step.id
        and other.tool_name == step.tool_name
        and matches(step.answer, other.answer.value)
        for other in arena.steps
    )


def asks_the_same(arena: Arena, step: ArenaStep, written: str) -> bool:
    """Whether arguments in JSON are equivalent to the step's gold ones, up to case and spaces.

    An optional argument that has its documented default may be left out, and one that the gold
    call does without may be there: a narrower question with the right answer is no chance. But
    the gold arguments of another step ask that step's question.
    """
    try:
        parsed = json.loads(written)
    except (ValueError, RecursionError):
        return False
    if not isinstance(parsed, dict):
        return False
    stated = cast("dict[str, Any]", parsed)
    of_tool = [other.arguments for other in arena.steps if other.tool_name == step.tool_name]
    if any(same_value(gold, stated) for gold in of_tool):
        return same_value(step.arguments, stated)
    schemas = (one.tool.parameters for one in arena.tools if one.tool.name == step.tool_name)
    schema: Mapping[str, Any] = next(schemas, {})
    required: Sequence[str] = schema.get("required", ())
    return all(name not in required for name in stated.keys() - step.arguments.keys()) and all(
        same_value(value, stated[name] if name in stated else _default(schema, name))
        for name, value in step.arguments.items()
    )


def _default(schema: Mapping[str, Any], name: str) -> Any:
    """What an optional parameter is taken to be where a call leaves it out."""
    if name in schema.get("required", ()):
        return None
    return schema.get("properties", {}).get(name, {}).get("default")
