"""A policy that was taught a few episodes, the sandbox it plays in, and an engine of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from astra.agent.prompt import final_message
from astra.agent.toolcalls import parse_assistant
from astra.arena.answers import render_answer
from astra.arena.env import ArenaEnv
from astra.arena.prompt import initial_messages
from astra.bench.references import oracle_turns
from astra.records.environment import Arena
from astra.records.message import Message, MessageRole
from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_policy
from astra.sandbox.build import build_sandbox
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.protocol import Sandbox
from astra.serving.engine import ServingEngine
from astra.settings import RuntimeConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from test_bench_arenas import ARENAS

TAUGHT = ARENAS[:4]
"""The arenas whose gold episodes the policy was taught."""


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    runtime = RuntimeConfig(threads=1, device="cpu", sandbox_workers=1)
    with build_sandbox(SandboxLimits(), runtime) as started:
        yield started


@pytest.fixture(scope="session")
def policy(root: Path, sandbox: Sandbox) -> LoadedPolicy:
    return taught(root / "policies/tiny", TAUGHT, sandbox)


def taught(tiny: Path, arenas: Sequence[Arena], sandbox: Sandbox) -> LoadedPolicy:
    """The committed policy after a few steps on the gold episodes of ``arenas``."""
    torch.manual_seed(0)
    loaded = load_policy(PolicyConfig.saved(str(tiny), "float32"))
    rows = [loaded.codec.encode_conversation(*episode(arena, sandbox)) for arena in arenas]
    width = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), width), loaded.codec.pad_id)
    labels = torch.full((len(rows), width), -100)
    for at, (row, mask) in enumerate(rows):
        ids[at, : len(row)] = torch.tensor(row)
        kept = torch.tensor(mask, dtype=torch.bool)
        labels[at, : len(row)][kept] = torch.tensor(row)[kept]
    optimizer = torch.optim.AdamW(loaded.model.parameters(), 3e-3)
    for _ in range(60):
        loss = loaded.model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if loss.item() < 0.003:
            break
    return loaded


def episode(arena: Arena, sandbox: Sandbox) -> tuple[list[Message], Sequence[Any]]:
    """The gold episode's messages and tools."""
    env = ArenaEnv(arena, sandbox)
    messages = list(initial_messages(arena))
    try:
        for turn in oracle_turns(arena)[:-1]:
            said = parse_assistant(turn)
            messages.append(said)
            messages += [
                Message(
                    role=MessageRole.TOOL, content=env.execute_now(call).content,
                    tool_call_id=call.id, name=call.name,
                )
                for call in said.tool_calls
            ]  # fmt: skip
        final = final_message("done.", [render_answer(arena.final_answer)])
        messages.append(Message(role=MessageRole.ASSISTANT, content=final))
        return messages, env.tools
    finally:
        env.close_now()


def engine_of(policy: LoadedPolicy, rows: int = 8, keep: int = 1 << 26) -> ServingEngine:
    return ServingEngine(policy.model, policy.codec.eos_id, policy.codec.pad_id, rows, keep)
