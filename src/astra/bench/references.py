"""Two scripted policies that bound every arena score: one does nothing, one knows the gold calls.

They speak through the same engine protocol, tokenizer, parser, sandbox and scorer as a model,
so a ceiling below 1 is a fault of the harness or of an arena.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from astra.agent.prompt import final_message
from astra.agent.toolcalls import render_call
from astra.arena.answers import render_answer
from astra.arena.env import offered
from astra.arena.prompt import initial_messages
from astra.bench.names import CEILING, FLOOR
from astra.records.base import canonical_json
from astra.records.environment import Arena
from astra.rollout.chat import ChatCodec
from astra.rollout.engine import FakeEngine
from astra.rollout.live import EpisodeJob

REFERENCES = (FLOOR, CEILING)


def oracle_turns(arena: Arena) -> list[str]:
    """The gold calls, one turn per hop level, then the gold answer."""
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


def scripted_engine(
    name: str, jobs: Sequence[EpisodeJob], codec: ChatCodec, max_rows: int
) -> FakeEngine:
    """An engine that plays reference ``name``; it knows an episode by its prompt."""
    write = {FLOOR: idle_turns, CEILING: oracle_turns}[name]
    scripts: dict[tuple[int, ...], list[list[int]]] = {}
    for job in jobs:
        tools = [offer.tool for offer in offered(job.arena, job.extra_tools)]
        prompt = codec.encode_prompt(initial_messages(job.arena), tools)
        scripts[tuple(prompt)] = [
            list(codec.tokenizer.encode(turn, add_special_tokens=False))
            for turn in write(job.arena)
        ]

    def reply(prompt: list[int], turn: int) -> list[int]:
        script = scripts[tuple(prompt)]
        return script[min(turn, len(script) - 1)]

    return FakeEngine(reply, codec.eos_id, max_rows)
