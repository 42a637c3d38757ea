"""An arena proves its own reward before it ships.

The reference (every gold call, the true final answer) must succeed and score F1 = 2m / (2m + eps)
over its m sub-tasks, final answer included: that many sub-tasks and calls in the formula of
``arena/reward.py``. Calling nothing, calls with empty arguments, a dropped gold call and a missing
final answer must each score strictly less.

Where tools write, an equivalent reordering must score the same, and the checker of the end state
must refuse every mutant: an untouched world, each write dropped, any one value corrupted, a row
too many or too few, everything wiped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from astra.arena.answers import render_answer
from astra.arena.env import ArenaError
from astra.arena.reward import (
    EPSILON,
    EpisodeScore,
    FinalAnswer,
    RewardMode,
    score_episode,
    writes,
)
from astra.arena.scripted import PlayedScript, play, reference_calls
from astra.arena.state import expected_tables, state_of
from astra.envsynth.static import Problem, steady
from astra.records.environment import Arena
from astra.records.message import CallStatus, ExecutedCall, ToolCall
from astra.records.state import ArenaState, FieldClass, Row, Tables
from astra.sandbox.protocol import Sandbox


def check_arenas(arenas: Sequence[Arena], sandbox: Sandbox) -> list[Problem | None]:
    """Why each arena must not ship; None for one that may."""
    scripts = [list(_scripts(arena)) for arena in arenas]
    pairs = [
        (arena, calls)
        for arena, of_arena in zip(arenas, scripts, strict=True)
        for calls in of_arena
    ]
    played = iter(play(pairs, sandbox))
    return [
        _problem(arena, [next(played) for _ in of_arena])
        for arena, of_arena in zip(arenas, scripts, strict=True)
    ]


def _problem(arena: Arena, played: Sequence[PlayedScript | ArenaError]) -> Problem | None:
    """The verdict on the played ``_scripts`` of an arena, in their order."""
    scripts: list[PlayedScript] = []
    for script in played:
        if isinstance(script, ArenaError):
            return "arena_does_not_load", str(script)[:200]
        scripts.append(script)
    reference, emptied, *variants = scripts
    problem = _reward_problem(arena, reference, emptied)
    if problem is None:
        problem = _state_problem(arena, reference, variants)
    return problem and steady(problem)


def _scripts(arena: Arena) -> Iterator[list[ToolCall]]:
    """The reference, and the same calls without arguments. Where tools write also the reference
    with independent calls the other way round, and then without each of its writes in turn.
    """
    reference = reference_calls(arena)
    yield reference
    yield [call.model_copy(update={"arguments": "{}"}) for call in reference]
    state = state_of(arena)
    if state is not None:
        yield reference_calls(_mirrored(arena))
        for at, call in enumerate(reference):
            if state.writes.get(call.name):
                yield [*reference[:at], *reference[at + 1 :]]


def _mirrored(arena: Arena) -> Arena:
    """The same arena with the steps of one hop level numbered backwards."""
    steps = tuple(step.model_copy(update={"id": -step.id}) for step in arena.steps)
    return arena.model_copy(update={"steps": steps})


def _reward_problem(arena: Arena, reference: PlayedScript, emptied: PlayedScript) -> Problem | None:
    """Why the reference scores less than it must, or an episode that does less scores as much."""
    final, executed = render_answer(arena.final_answer), reference.calls
    failed = next((call for call in executed if call.result.status != CallStatus.OK), None)
    if failed is not None:
        return "replay_failed", f"{failed.call.name}: {failed.result.content[:150]}"
    if not executed:
        return "no_tool_needed", "no sub-question needs a tool"
    gold = _reference_score(arena, reference)
    subtasks = len(executed) + 1
    expected = 2 * subtasks / (2 * subtasks + EPSILON)
    if not gold.success or abs(gold.reward - expected) > 1e-12:
        fault = ", the world ends up wrong" if gold.state_reached is False else ""
        return "reference_fails", f"F1 {gold.reward:.6f}, success {gold.success}{fault}"
    state = state_of(arena)
    start = state.world.tables if state else None
    mutants: dict[str, tuple[Sequence[ExecutedCall], str | None, Tables | None]] = {
        "no_call_passes": ((), final, start),
        "empty_arguments_pass": (emptied.calls, final, emptied.end_state),
        "missing_answer_passes": (executed, None, reference.end_state),
    }
    for reason, (calls, text, end_state) in mutants.items():
        score = _score(arena, calls, text, end_state)
        if _passes(score, gold):
            return reason, f"F1 {score.reward:.6f}"
    for at, dropped in enumerate(executed):
        if state is not None and state.writes.get(dropped.call.name):
            continue  # what a dropped write leaves behind has to be executed: ``_state_problem``
        rest = [*executed[:at], *executed[at + 1 :]]
        score = _score(arena, rest, final, reference.end_state)
        if _passes(score, gold):
            return "dropped_call_passes", f"without {dropped.call.name}: {score.reward:.6f}"
    return None


def _state_problem(
    arena: Arena, reference: PlayedScript, variants: Sequence[PlayedScript]
) -> Problem | None:
    """Why the score depends on the order of calls, or a wrong end state is accepted."""
    state = state_of(arena)
    if state is None:
        return None
    final, gold = render_answer(arena.final_answer), _reference_score(arena, reference)
    mirrored, *without_a_write = variants
    score = _score(arena, mirrored.calls, final, mirrored.end_state)
    if score.reward != gold.reward:
        return "order_matters", f"independent calls the other way round: F1 {score.reward:.6f}"
    for script in without_a_write:
        score = _score(arena, script.calls, final, script.end_state)
        if _passes(score, gold):
            return "dropped_write_passes", f"F1 {score.reward:.6f} with {len(script.calls)} calls"
    if any(writes(state, step) for step in arena.steps):
        untouched = _score(arena, reference.calls, final, state.world.tables)
        if untouched.state_reached:
            return "untouched_state_passes", "the writes change nothing that is compared"
    for reason, end_state in state_mutants(state, expected_tables(arena.expected_state)):
        if _score(arena, reference.calls, final, end_state).state_reached:
            return reason, "the checker takes a wrong end state for the right one"
    return None


def _reference_score(arena: Arena, reference: PlayedScript) -> EpisodeScore:
    return _score(arena, reference.calls, render_answer(arena.final_answer), reference.end_state)


def _passes(score: EpisodeScore, gold: EpisodeScore) -> bool:
    """Whether a mutant is paid like the reference."""
    return score.success or score.reward >= gold.reward


def state_mutants(state: ArenaState, expected: Tables) -> Iterator[tuple[str, Tables]]:
    """End states that are wrong, each with the reason for refusing an arena that accepts it."""
    before = state.world.tables
    yield "wiped_state_passes", {name: [] for name in expected}
    for name, rows in expected.items():
        written = [at for at, row in enumerate(rows) if row not in before[name]]
        # Of a table that nobody writes one row stands for all.
        for at in written or range(min(1, len(rows))):
            for column in state.columns[name]:
                if state.fields.get(name, {}).get(column) == FieldClass.IGNORE:
                    continue
                wrong = {**rows[at], column: _corrupted(rows[at][column])}
                yield "corrupted_value_passes", _with(expected, name, rows, at, wrong)
            yield "missing_row_passes", {**expected, name: rows[:at] + rows[at + 1 :]}
        extra = dict(rows[0]) if rows else dict.fromkeys(state.columns[name])
        yield "extra_write_passes", {**expected, name: [*rows, extra]}


def _with(tables: Tables, name: str, rows: list[Row], at: int, row: Row) -> Tables:
    return {**tables, name: [*rows[:at], row, *rows[at + 1 :]]}


def _corrupted(cell: object) -> object:
    """Another value of the same type; true for an empty cell."""
    if isinstance(cell, bool) or cell is None:
        return not cell
    return cell + 1 if isinstance(cell, int | float) else f"{cell} x"


def _score(
    arena: Arena, calls: Sequence[ExecutedCall], final: str | None, end_state: Tables | None
) -> EpisodeScore:
    return score_episode(
        arena, calls, final, RewardMode.F1, FinalAnswer.SUBTASK, end_state=end_state
    )
