"""The flows of both stages run to their end, for tests that look at what comes out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from env_samples import ENVS, MERGED

from astra.envsynth.envs import Outcome, environments
from astra.envsynth.envs_merged import Inputs, proved_arenas
from astra.llm.protocol import Teacher
from astra.records.environment import Arena, Environment
from astra.records.qa import QAInstance
from astra.records.score import Rejection
from astra.sandbox.protocol import Sandbox
from astra.store.metrics import StageMetrics


@dataclass
class Merged:
    """What became of instances: arenas, drops, failed tries of merging, and the counts."""

    arenas: list[Arena] = field(default_factory=list[Arena])
    dropped: list[Rejection] = field(default_factory=list[Rejection])
    tries: list[Rejection] = field(default_factory=list[Rejection])
    metrics: StageMetrics = field(default_factory=lambda: StageMetrics("envs_merged"))


def everything(
    instances: Iterable[QAInstance],
    teacher: Teacher,
    sandbox: Sandbox,
    open_items: int = 4,
    metrics: StageMetrics | None = None,
    **changes: Any,
) -> list[Outcome]:
    """All outcomes of stage envs, failed tries among them."""
    config, counted = ENVS.model_copy(update=changes), metrics or StageMetrics("envs")
    return asyncio.run(_all(environments(instances, teacher, sandbox, config, open_items, counted)))


def final(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """What came of each sub-question in the end."""
    return [one for one in outcomes if isinstance(one, Environment) or one.final]


def inputs_of(instances: Sequence[QAInstance], environments: Iterable[Environment]) -> Inputs:
    known = list(environments)
    return Inputs(
        instances=lambda: instances,
        environments=lambda qa_id: [one for one in known if one.qa_id == qa_id],
        servers=lambda: (),
    )


def merged(
    instances: Sequence[QAInstance],
    environments: Iterable[Environment],
    teacher: Teacher,
    sandbox: Sandbox,
    open_items: int = 4,
    **changes: Any,
) -> Merged:
    """Stage envs_merged up to the irrelevant tools."""
    config, result = MERGED.model_copy(update=changes), Merged()
    flow = proved_arenas(
        inputs_of(instances, environments), teacher, sandbox, config, open_items, result.metrics
    )
    for outcome in asyncio.run(_all(flow)):
        if isinstance(outcome, Arena):
            result.arenas.append(outcome)
        else:
            (result.dropped if outcome.final else result.tries).append(outcome)
    return result


async def _all(outcomes: AsyncGenerator[Any, None]) -> list[Any]:
    return [outcome async for outcome in outcomes]
