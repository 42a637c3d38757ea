"""The flow of stage ``worlds``: worlds are drawn, hosted or written by a teacher, and proved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

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
from astra.worlds.services.hosting import service_world
from astra.worlds.services.source import ServiceRefused, ServiceSource, service_text
from astra.worlds.soundness import WorldFault
from astra.worlds.subjects import WorldSubject
from astra.worlds.teaching import TaughtWorld

Outcome = World | Rejection
Planned = Plan | ServiceSource | WorldSubject
"""What a world is made of: a domain, a service, or a subject that a teacher writes about."""


MOST_SHOWN = 120_000
"""Bytes of a document that a teacher is shown, at most."""
_MOST_FAULTS = 12
"""Faults of one world of a service that are told."""


@dataclass(frozen=True)
class WorldTeachers:
    """Who writes worlds of subjects, and who reads their rules."""

    teacher: Teacher
    judge: Teacher


async def worlds(
    planned: Sequence[Planned],
    teachers: WorldTeachers,
    sandbox: Sandbox,
    config: WorldsConfig,
    index: ContaminationIndex | None,
    open_items: int,
    metrics: StageMetrics,
) -> AsyncGenerator[Outcome, None]:
    """What comes of each, in their order."""

    async def work(plan: Planned) -> list[Outcome]:
        if isinstance(plan, ServiceSource):
            return await asyncio.to_thread(lambda: list(_hosted(plan, sandbox, config, index)))
        if isinstance(plan, Plan):
            return await asyncio.to_thread(lambda: list(_drawn(plan, sandbox, config, index)))
        try:
            openapi = service_text(plan.document, MOST_SHOWN) if plan.document else ""
        except ServiceRefused as error:
            return [*_refused(plan.name, "", error.faults)]
        shared = partial(overlap, config=config, index=index)
        taught = TaughtWorld(
            plan, teachers.teacher, teachers.judge, sandbox, config, shared, openapi
        )
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


def _hosted(
    source: ServiceSource, sandbox: Sandbox, config: WorldsConfig, index: ContaminationIndex | None
) -> Iterator[Outcome]:
    """The world of a service, or everything that is wrong with the first part that is."""
    part = ""
    try:
        world = service_world(source, config.shape)
        part = world.id
        proof = WorldProof(world, sandbox, config.proofs)
        shared = overlap(world, config, index)
        found = [shared] if shared else list(islice(proof.faults(), _MOST_FAULTS))
        if not found:
            yield world.model_copy(update={"checks": dict(sorted(proof.checks.items()))})
    except ServiceRefused as error:
        found = error.faults
    yield from _refused(source.name, part, found)


def _refused(item: str, part: str, found: Sequence[WorldFault]) -> Iterator[Rejection]:
    for at, fault in enumerate(found, start=1):
        yield Rejection(
            item=item, part=part, reason=fault.reason, detail=fault.detail, final=at == len(found)
        )


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
