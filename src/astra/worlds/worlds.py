"""The flow of stage ``worlds``: each world is drawn or written by a teacher, and proved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from astra.contamination.index import ContaminationIndex
from astra.llm.pool import flow
from astra.llm.protocol import Teacher
from astra.records.score import Rejection
from astra.records.world import World
from astra.sandbox.protocol import Sandbox
from astra.store.metrics import StageMetrics
from astra.worlds.config import WorldsConfig
from astra.worlds.generator import generate
from astra.worlds.plans import Plan
from astra.worlds.proofs import WorldProof
from astra.worlds.soundness import WorldFault
from astra.worlds.subjects import WorldSubject
from astra.worlds.teaching import TaughtWorld

Outcome = World | Rejection


@dataclass(frozen=True)
class WorldTeachers:
    """Who writes worlds of subjects, and who reads their rules."""

    teacher: Teacher
    judge: Teacher


async def worlds(
    planned: Sequence[Plan | WorldSubject],
    teachers: WorldTeachers,
    sandbox: Sandbox,
    config: WorldsConfig,
    index: ContaminationIndex | None,
    open_items: int,
    metrics: StageMetrics,
) -> AsyncGenerator[Outcome, None]:
    """What comes of each plan and subject, in their order."""

    async def work(plan: Plan | WorldSubject) -> list[Outcome]:
        if isinstance(plan, Plan):
            return await asyncio.to_thread(lambda: list(_drawn(plan, sandbox, config, index)))
        shared = partial(overlap, config=config, index=index)
        taught = TaughtWorld(plan, teachers.teacher, teachers.judge, sandbox, config, shared)
        return await taught.outcomes()

    async for outcome in flow(planned, work, open_items):
        if isinstance(outcome, World) or outcome.final:
            metrics.count("planned")
        yield outcome


def _drawn(
    plan: Plan, sandbox: Sandbox, config: WorldsConfig, index: ContaminationIndex | None
) -> Iterator[Outcome]:
    """The first draw of a world that passes, after a rejection for each that did not."""
    for attempt in range(config.attempts):
        world = generate(plan.domain, plan.variant, config.shape, config.seed, attempt)
        proof = WorldProof(world, sandbox, config.proofs)
        fault = _again(plan, world, config, attempt) or overlap(world, config, index)
        fault = fault or proof.fault()
        if fault is None:
            yield world.model_copy(update={"checks": dict(sorted(proof.checks.items()))})
            return
        yield Rejection(
            item=plan.name, part=world.id, reason=fault.reason, detail=fault.detail,
            attempt=attempt, final=attempt == config.attempts - 1,
        )  # fmt: skip


def _again(plan: Plan, world: World, config: WorldsConfig, attempt: int) -> WorldFault | None:
    """The same draw made once more is the same world."""
    again = generate(plan.domain, plan.variant, config.shape, config.seed, attempt)
    return None if again == world else WorldFault("not_deterministic", f"{world.id} and {again.id}")


def overlap(
    world: World, config: WorldsConfig, index: ContaminationIndex | None
) -> WorldFault | None:
    """What a world shares with a benchmark suite: texts, names of tools, or their schemas."""
    if index is None or config.contamination is None:
        return None
    texts = [world.policy, *(tool.tool.description for tool in world.tools)]
    tools = [(tool.tool.name, tool.tool.parameters) for tool in world.tools]
    shared = index.shared_text(texts) or index.shared_tools(tools, config.contamination)
    if shared is None:
        return None
    known = [name for name, schema in tools
             if index.shared_tools([(name, schema)], config.contamination)]  # fmt: skip
    whose = f" ({', '.join(known)})" if known else ""
    return WorldFault("contaminated", f"{shared.kind} of {shared.suite}: {shared.share:.3f}{whose}")
