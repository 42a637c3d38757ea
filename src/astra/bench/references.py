"""Scripted policies that bound every arena score: one does nothing, one knows the gold calls.

In worlds there are three more that must not pay (``arena/world_scripts.py``).

They speak through the same engine protocol, tokenizer, parser, sandbox and scorer as a model,
so a ceiling below 1 is a fault of the harness or of an arena.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby

from astra.agent.prompt import final_message
from astra.agent.toolcalls import render_call
from astra.arena.answers import render_answer
from astra.arena.env import offered
from astra.arena.prompt import initial_messages
from astra.arena.world_runner import WorldRunner
from astra.arena.world_scripts import WorldScript, agent_turns, best_codes, goal_script
from astra.arena.worlds import base_of, goal_of
from astra.bench.names import CEILING, FLOOR, REFERENCES
from astra.records.base import canonical_json
from astra.records.environment import Arena
from astra.records.world import TraceEvent
from astra.rollout.chat import ChatCodec
from astra.rollout.engine import FakeEngine
from astra.rollout.live import EpisodeJob
from astra.sandbox.protocol import Sandbox


def oracle_turns(arena: Arena) -> list[str]:
    """The gold calls, one turn per hop level, then the gold answer; in a world the goal's trace."""
    if arena.world_id:
        return spoken_turns(goal_of(arena).trace)
    turns: list[str] = []
    rendered: set[str] = set()
    for level in sorted({step.hop_level for step in arena.steps}):
        blocks: list[str] = []
        for step in arena.steps:
            if step.hop_level != level or step.tool_name is None:
                continue
            key = canonical_json([step.tool_name, step.arguments])
            if key not in rendered:
                rendered.add(key)
                arguments = json.dumps(step.arguments, ensure_ascii=False)
                blocks.append(render_call(step.tool_name, arguments))
        if blocks:
            turns.append("\n".join(blocks))
    return [*turns, final_message("done.", [render_answer(arena.final_answer)])]


def idle_turns(arena: Arena) -> list[str]:
    """A final message at once, with no answer in it."""
    return ["done."]


def spoken_turns(events: Sequence[TraceEvent]) -> list[str]:
    """What an agent writes to do the events after the opening, turn by turn; those of the user are
    the user's to say."""
    written: list[str] = []
    for turn in agent_turns(events):
        calls = [
            render_call(name, json.dumps(given, ensure_ascii=False)) for name, given in turn.calls
        ]
        written.append("\n".join([turn.text, *calls]).strip() or "done.")
    return written


def reference_scripts(
    name: str, jobs: Sequence[EpisodeJob], sandbox: Sandbox
) -> dict[str, list[str]]:
    """What reference ``name`` writes, turn by turn, by arena; only arenas to which it applies."""
    if name in REFERENCES:
        write = {FLOOR: idle_turns, CEILING: oracle_turns}[name]
        return {job.arena.id: write(job.arena) for job in jobs}
    placed = [job.arena for job in jobs if job.arena.world_id]
    codes = best_codes(goal_of(arena) for arena in placed)
    scripts: dict[str, list[str]] = {}
    for _, members in groupby(
        sorted(placed, key=lambda arena: arena.world_id), key=lambda arena: arena.world_id
    ):
        first, *others = members
        with WorldRunner(base_of(first), sandbox) as runner:
            for arena in (first, *others):
                events = goal_script(WorldScript(name), runner, goal_of(arena), codes)
                if events is not None:
                    scripts[arena.id] = spoken_turns(events)
    return scripts


def scripted_engine(
    written: Mapping[str, Sequence[str]],
    jobs: Sequence[EpisodeJob],
    codec: ChatCodec,
    max_rows: int,
) -> FakeEngine:
    """An engine that plays ``reference_scripts``; it knows an episode by its prompt."""
    scripts: dict[tuple[int, ...], list[list[int]]] = {}
    for job in jobs:
        tools = [offer.tool for offer in offered(job.arena, job.extra_tools)]
        prompt = codec.encode_prompt(initial_messages(job.arena), tools)
        scripts[tuple(prompt)] = [
            list(codec.tokenizer.encode(turn, add_special_tokens=False))
            for turn in written[job.arena.id]
        ]

    def reply(prompt: list[int], turn: int) -> list[int]:
        script = scripts[tuple(prompt)]
        return script[min(turn, len(script) - 1)]

    return FakeEngine(reply, codec.eos_id, max_rows)
