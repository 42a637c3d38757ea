"""An arena proves its own reward before it ships.

The reference (every gold call, the true final answer) must score F1 = 2m / (2m + eps) over its
m sub-tasks, final answer included, and succeed; calling nothing, calls with empty arguments, a
dropped gold call and a missing final answer must each score strictly less.

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
    """Per arena: None, or why it must not ship."""
    scripts = [list(_scripts(arena)) for arena in arenas]
    flat = [(arena, calls) for arena, made in zip(arenas, scripts, strict=True) for calls in made]
    played = iter(play(flat, sandbox))
    problems: list[Problem | None] = []
    for arena, made in zip(arenas, scripts, strict=True):
        runs = [next(played) for _ in made]
        good = [run for run in runs if not isinstance(run, ArenaError)]
        broken = next((run for run in runs if isinstance(run, ArenaError)), None)
        if broken is not None:
            problems.append(("arena_does_not_load", str(broken)[:200]))
        else:
            found = problem_of(arena, good[0], good[1], good[2:])
            problems.append(found and steady(found))
    return problems


def _scripts(arena: Arena) -> Iterator[list[ToolCall]]:
    """The reference, every tool without arguments, and where tools write: the reference with
    independent calls the other way round, and without each of its writes."""
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


def problem_of(
    arena: Arena, reference: PlayedScript, emptied: PlayedScript, variants: Sequence[PlayedScript]
) -> Problem | None:
    """Judge the scores of the reference and of its mutants; pure."""
    final = render_answer(arena.final_answer)
    executed = reference.calls
    failed = next((done for done in executed if done.result.status != CallStatus.OK), None)
    if failed is not None:
        return "replay_failed", f"{failed.call.name}: {failed.result.content[:150]}"
    if not executed:
        return "no_tool_needed", "no sub-question needs a tool"
    gold = _score(arena, executed, final, reference.end_state)
    subtasks = len(executed) + 1
    expected = 2 * subtasks / (2 * subtasks + EPSILON)
    if not gold.success or abs(gold.reward - expected) > 1e-12:
        state = "" if gold.state_reached is not False else ", the world ends up wrong"
        return "reference_fails", f"F1 {gold.reward:.6f}, success {gold.success}{state}"
    state = state_of(arena)
    start = state.world.tables if state else None
    mutants = {
        "no_call_passes": ((), final, start),
        "empty_arguments_pass": (emptied.calls, final, emptied.end_state),
        "missing_answer_passes": (executed, None, reference.end_state),
    }
    for reason, (calls, text, end) in mutants.items():
        score = _score(arena, calls, text, end)
        if score.success or score.reward >= gold.reward:
            return reason, f"F1 {score.reward:.6f}"
    for at in range(len(executed)):
        if state is not None and state.writes.get(executed[at].call.name):
            continue  # what a dropped write leaves behind has to be executed
        rest = [*executed[:at], *executed[at + 1 :]]
        score = _score(arena, rest, final, reference.end_state)
        if score.success or score.reward >= gold.reward:
            return "dropped_call_passes", f"without {executed[at].call.name}: {score.reward:.6f}"
    return None if state is None else _state_problem(arena, state, reference, variants, gold)


def _state_problem(
    arena: Arena,
    state: ArenaState,
    reference: PlayedScript,
    variants: Sequence[PlayedScript],
    gold: EpisodeScore,
) -> Problem | None:
    final = render_answer(arena.final_answer)
    mirrored, *dropped = variants
    score = _score(arena, mirrored.calls, final, mirrored.end_state)
    if score.reward != gold.reward:
        return "order_matters", f"independent calls the other way round: F1 {score.reward:.6f}"
    for run in dropped:
        score = _score(arena, run.calls, final, run.end_state)
        if score.success or score.reward >= gold.reward:
            return "dropped_write_passes", f"F1 {score.reward:.6f} with {len(run.calls)} calls"
    expected = expected_tables(arena.expected_state)
    if any(writes(state, step) for step in arena.steps):
        untouched = _score(arena, reference.calls, final, state.world.tables)
        if untouched.state_reached:
            return "untouched_state_passes", "the writes change nothing that is compared"
    for reason, end in state_mutants(state, expected):
        if _score(arena, reference.calls, final, end).state_reached:
            return reason, "the checker takes a wrong end state for the right one"
    return None


def state_mutants(state: ArenaState, expected: Tables) -> Iterator[tuple[str, Tables]]:
    """End states that are wrong, each with the reason for refusing an arena that accepts it."""
    before = state.world.tables
    yield "wiped_state_passes", {name: [] for name in expected}
    for name, rows in expected.items():
        written = [at for at, row in enumerate(rows) if row not in before[name]]
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
    if isinstance(cell, bool) or cell is None:
        return not cell
    return cell + 1 if isinstance(cell, int | float) else f"{cell} x"


def _score(
    arena: Arena, calls: Sequence[ExecutedCall], final: str | None, end_state: Tables | None
) -> EpisodeScore:
    return score_episode(
        arena, calls, final, RewardMode.F1, FinalAnswer.SUBTASK, end_state=end_state
    )
