"""Runs the flow of stage ``tools`` as the stage does, for the tests of this folder."""

from __future__ import annotations

import asyncio
from pathlib import Path

from astra.llm.protocol import Teacher
from astra.records.score import Rejection
from astra.records.tool import ToolServer
from astra.settings import RuntimeConfig
from astra.stage import Progress
from astra.store.metrics import StageMetrics
from astra.toolbank.config import ToolsConfig
from astra.toolbank.connectors import Connectors
from astra.toolbank.sources import load_sources
from astra.toolbank.tools import measure, servers
from walls_here import walls


def flowed(
    config: ToolsConfig, metrics: StageMetrics, teacher: Teacher | None = None, open_items: int = 32
) -> tuple[list[ToolServer], list[Rejection]]:
    """What the flow yields, counted in ``metrics``."""
    lists = [load_sources(Path(path)) for path in config.sources]
    progress = Progress("sources", sum(one.total for one in lists), metrics.dropped)
    kept: list[ToolServer] = []
    rejections: list[Rejection] = []

    async def run() -> None:
        connectors = Connectors(RuntimeConfig(), walls())
        async for outcome in servers(
            lists, connectors, teacher, config, open_items, metrics, progress
        ):
            if isinstance(outcome, Rejection):
                metrics.reject(outcome)
                rejections.append(outcome)
            else:
                measure(metrics, outcome)
                kept.append(outcome)

    try:
        asyncio.run(run())
    finally:
        progress.close()
    return kept, rejections
