"""What asking cost: counts per stage and model, appended to the git-ignored run log.

Tokens and retries depend on the run, not on the inputs, so they never enter metrics/*.json.
"""

from __future__ import annotations

import atexit
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

USAGE_LOG = Path("runs/usage.jsonl")


@dataclass
class Usage:
    """Counters of one teacher or endpoint policy."""

    stage: str
    model: str
    requests: int = 0
    """HTTP requests sent, retries and repairs included."""
    answers: int = 0
    """Asks answered by an endpoint."""
    cache_hits: int = 0
    retries: int = 0
    """Requests sent again after a transport fault."""
    repairs: int = 0
    """Requests sent because a reply could not be used."""
    failures: int = 0
    """Asks that ended without an answer."""
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def write_at_exit(self) -> None:
        """Also a stage that fails, or never closes its teacher, leaves its line."""
        atexit.register(self.write)

    def write(self, path: Path = USAGE_LOG) -> None:
        """Append one JSON line, once; nothing is written if nothing was asked."""
        atexit.unregister(self.write)
        if not (self.requests or self.cache_hits):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(asdict(self), ensure_ascii=False) + "\n"
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
