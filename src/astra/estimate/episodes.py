"""Facts of table ``trajectories``: its episodes, and how long they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from astra.estimate.asks import Amount
from astra.estimate.sampling import mean, sample, size
from astra.estimate.servers import document_bytes
from astra.records.message import MessageRole
from astra.records.trajectory import Trajectory


@dataclass(frozen=True)
class EpisodeFacts:
    """The episodes of table ``trajectories``."""

    rows: Amount
    turns: float
    """The agent's turns."""
    calls: float
    message_bytes: float
    """All messages of one episode."""
    documents_bytes: float
    """The tools that the agent saw."""


def episodes_of(table: Path) -> EpisodeFacts:
    """Facts of table ``trajectories``."""
    rows, some = sample(table, Trajectory)
    return EpisodeFacts(
        rows=rows,
        turns=mean(sum(m.role == MessageRole.ASSISTANT for m in one.messages) for one in some),
        calls=mean(len(one.calls) for one in some),
        message_bytes=mean(
            sum(size([m.content, [call.arguments for call in m.tool_calls]]) for m in one.messages)
            for one in some
        ),
        documents_bytes=mean(sum(map(document_bytes, one.tools)) for one in some),
    )
