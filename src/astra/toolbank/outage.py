"""Refuses a tool bank for which too few of the listed live servers answered."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TypeVar

from astra.errors import AstraError
from astra.store.metrics import StageMetrics
from astra.toolbank.config import ToolsConfig
from astra.toolbank.sources import load_sources

log = logging.getLogger("astra")
NOT_STARTED = "environment_or_start_failed"
"""The reason of a server under ``live`` that did not start or list its tools."""
LISTED_SILENT = "listed_did_not_answer"
"""That of a server which a document or listing names: others may be long gone, ours are not."""
Outcome = TypeVar("Outcome")


class ServersDown(AstraError):
    """More live servers than ``tools.max_failed_live_share`` allows did not start."""


def check_live(config: ToolsConfig, metrics: StageMetrics) -> None:
    """Raise ServersDown if too many live servers failed; fewer failures are a warning.

    It is called when all sources were read. Without it, an outage of all servers would pass for a
    tool set that has no live server.
    """
    listed = sum(len(load_sources(Path(path)).live) for path in config.sources)
    failed = metrics.dropped[NOT_STARTED]
    if not failed:
        return
    text = f"{failed} of {listed} live servers did not start or list their tools"
    if failed > config.max_failed_live_share * listed:
        raise ServersDown(
            f"{text}; tools.max_failed_live_share allows {config.max_failed_live_share:g}. The "
            "lines above say why each failed: repair them (sources/environments.yaml pins what "
            "they need), take them off the list, or allow more failures in conf/tools"
        )
    log.warning("%s; they are counted as dropped in metrics/tools.json", text)


async def unless_down(
    outcomes: AsyncGenerator[Outcome, None], config: ToolsConfig, metrics: StageMetrics
) -> AsyncGenerator[Outcome, None]:
    """``outcomes``, then ``check_live``: before the table is written, so that the old one stays.

    Whoever takes them counts what was dropped in ``metrics``.
    """
    async with aclosing(outcomes):
        async for outcome in outcomes:
            yield outcome
    check_live(config, metrics)
