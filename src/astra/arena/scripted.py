"""Episodes without a model: scripts of calls, and seven policies that bound every arena.

``gold`` must score exactly F1 = 2m / (2m + eps) over its m sub-tasks (see ``arena/reward.py``) and
every other policy strictly less, but ``names``, which knows all but the tools. Where that does not
hold, an arena rewards something else than solving its question.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from astra.arena.answers import render_answer
from astra.arena.env import ArenaEnv, ArenaError, execute_batch, open_envs
from astra.arena.reward import EPSILON, EpisodeScore, score_episode
from astra.arena.state import state_of
from astra.records.base import content_id
from astra.records.environment import Arena
from astra.records.message import ExecutedCall, ToolCall
from astra.records.qa import AnswerType
from astra.records.state import Tables
from astra.sandbox.protocol import Sandbox
from astra.text.likeness import shared_words

REPEATS = 3
"""How often policy ``repeat`` makes each gold call."""
_NAME = re.compile(r"[A-Z][a-z]+(?: [A-Z][a-z]+)+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


class ScriptedPolicy(StrEnum):
    """How an episode is played without a model."""

    GOLD = "gold"  # every gold call once, then the true answer
    SILENT = "silent"  # never calls, says nothing
    EMPTY = "empty"  # every tool once, without arguments
    REPEAT = "repeat"  # every gold call several times, then the true answer
    ANSWER = "answer"  # the true answer without a call
    NAMES = "names"  # each step's gold arguments to the tool named most like its question
    GUESS = "guess"  # no call; an answer of the right type taken from the question


MOST = {ScriptedPolicy.SILENT: 0.0, ScriptedPolicy.ANSWER: 0.05, ScriptedPolicy.REPEAT: 0.5}
"""The most that a policy may earn on any arena; ours: work is paid, and waste is not."""


@dataclass(frozen=True)
class PlayedScript:
    """The executed calls of one script, and what they left of the world."""

    calls: tuple[ExecutedCall, ...]
    end_state: Tables | None


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


def script(policy: ScriptedPolicy, arena: Arena) -> tuple[list[ToolCall], str | None]:
    """The calls of a policy and its final message, None for none."""
    gold = reference_calls(arena)
    match policy:
        case ScriptedPolicy.GOLD:
            return gold, render_answer(arena.final_answer)
        case ScriptedPolicy.SILENT:
            return [], None
        case ScriptedPolicy.EMPTY:
            names = sorted(offer.tool.name for offer in arena.tools)
            return [ToolCall(id=name, name=name, arguments="{}") for name in names], None
        case ScriptedPolicy.REPEAT:
            repeated = [call for call in gold for _ in range(REPEATS)]
            return repeated, render_answer(arena.final_answer)
        case ScriptedPolicy.ANSWER:
            return [], render_answer(arena.final_answer)
        case ScriptedPolicy.NAMES:
            return calls_by_name(arena), render_answer(arena.final_answer)
        case ScriptedPolicy.GUESS:
            return [], guess(arena)


def calls_by_name(arena: Arena) -> list[ToolCall]:
    """The gold calls, each made to the tool whose name shares most words with the step's question,
    be it in scope or irrelevant; of several the first by name.

    An episode without the irrelevant tools refuses calls to them, which is worth as much.
    """
    offers = [*arena.tools, *(offer for band in arena.irrelevant.values() for offer in band)]
    names = sorted({offer.tool.name for offer in offers})
    questions = {f"call_{step.id}": step.question for step in arena.steps}
    return [
        call.model_copy(
            update={"name": max(names, key=lambda name: _likeness(name, questions[call.id]))}
        )
        for call in reference_calls(arena)
    ]


def _likeness(name: str, question: str) -> int:
    return len(shared_words(name, question))


def guess(arena: Arena) -> str:
    """An answer of the final answer's type, from the words of the question alone."""
    text, kind = arena.main_question, arena.final_answer.type
    patterns = {AnswerType.NUMBER: _NUMBER, AnswerType.DATE: _DATE}
    candidates = patterns.get(kind, _NAME).findall(text) or [text]
    if kind == AnswerType.BOOLEAN:
        candidates = ["yes", "no"]
    if kind == AnswerType.LIST:
        return "; ".join(candidates)
    return random.Random(int(content_id([arena.id, "guess"]), 16)).choice(candidates)


def play(
    scripts: Sequence[tuple[Arena, Sequence[ToolCall]]], sandbox: Sandbox
) -> list[PlayedScript | ArenaError]:
    """Run scripts side by side, each from its arena's start.

    Results come in order; a script whose arena does not load gives the error. Scripts of one
    stateless arena share a session: nothing of one can reach the other.
    """
    keys = [
        ("own", at) if state_of(arena) or arena.world_id else ("shared", id(arena))
        for at, (arena, _) in enumerate(scripts)
    ]
    needed = dict(zip(keys, (arena for arena, _ in scripts), strict=True))
    envs = dict(zip(needed, _open(list(needed.values()), sandbox), strict=True))
    try:
        jobs = [
            (at, env, call)
            for at, (key, (_, calls)) in enumerate(zip(keys, scripts, strict=True))
            if isinstance(env := envs[key], ArenaEnv)
            for call in calls
        ]
        results = execute_batch([(env, call) for _, env, call in jobs])
        executed: list[list[ExecutedCall]] = [[] for _ in scripts]
        for (at, _, call), result in zip(jobs, results, strict=True):
            executed[at].append(ExecutedCall(turn=0, call=call, result=result))
        return [
            PlayedScript(tuple(calls), env.tables)
            if isinstance(env := envs[key], ArenaEnv)
            else env
            for key, calls in zip(keys, executed, strict=True)
        ]
    finally:
        for env in envs.values():
            if isinstance(env, ArenaEnv):
                env.close_now()


def rate(arenas: Sequence[Arena], sandbox: Sandbox) -> list[dict[ScriptedPolicy, EpisodeScore]]:
    """Every policy's score (F1, the final answer counts) on every arena. Raises ArenaError."""
    scripts = [(arena, script(policy, arena)) for arena in arenas for policy in ScriptedPolicy]
    played = iter(play([(arena, calls) for arena, (calls, _) in scripts], sandbox))
    finals = iter(final for _, (_, final) in scripts)
    rated: list[dict[ScriptedPolicy, EpisodeScore]] = []
    for arena in arenas:
        scores: dict[ScriptedPolicy, EpisodeScore] = {}
        for policy in ScriptedPolicy:
            outcome, final = next(played), next(finals)
            if isinstance(outcome, ArenaError):
                raise outcome
            scores[policy] = score_episode(arena, outcome.calls, final, end_state=outcome.end_state)
        rated.append(scores)
    return rated


def misordered(arena: Arena, scores: Mapping[ScriptedPolicy, EpisodeScore]) -> str:
    """What is wrong with the policies' scores on an arena; empty if they are as they must be."""
    subtasks = len([step for step in arena.steps if step.tool_name is not None]) + 1
    gold = scores[ScriptedPolicy.GOLD]
    if abs(gold.reward - 2 * subtasks / (2 * subtasks + EPSILON)) > 1e-12 or not gold.success:
        return f"gold scores {gold.reward:.6f}"
    for policy, most in MOST.items():
        if scores[policy].reward > most:
            return f"{policy} scores {scores[policy].reward:.6f}, at most {most} is fair"
    for policy, score in scores.items():
        if policy in (ScriptedPolicy.GOLD, ScriptedPolicy.NAMES):
            continue
        if score.reward >= gold.reward or (score.success and policy != ScriptedPolicy.REPEAT):
            return f"{policy} scores {score.reward:.6f}, gold {gold.reward:.6f}"
    return ""


def _open(arenas: Sequence[Arena], sandbox: Sandbox) -> list[ArenaEnv | ArenaError]:
    """An environment per arena, or why it does not load."""
    try:
        return list(open_envs([(arena, ()) for arena in arenas], sandbox))
    except ArenaError:
        pass
    # Some arena is broken, and none was opened: find out which, one by one.
    opened: list[ArenaEnv | ArenaError] = []
    for arena in arenas:
        try:
            opened += open_envs([(arena, ())], sandbox)
        except ArenaError as error:
            opened.append(error)
    return opened
