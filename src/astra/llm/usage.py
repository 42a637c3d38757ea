"""Usage: what asking cost, counted per stage and model and appended to the run log.

Tokens and retries depend on the run, not on the inputs, so they never enter metrics/*.json.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

USAGE_LOG = Path("runs/usage.jsonl")
STEP = math.log(1.05)
"""The width of a class of latencies, 5 %: they are counted, so that memory does not grow."""


@dataclass
class Latency:
    """Times of answered requests in seconds."""

    classes: Counter[int] = field(default_factory=Counter[int])

    def add(self, seconds: float) -> None:
        self.classes[math.ceil(math.log(max(seconds, 1e-4)) / STEP)] += 1

    def quantile(self, share: float) -> float | None:
        """The least time that ``share`` of the requests did not exceed, to 5 %; None if none."""
        uncovered = share * self.classes.total()
        for number in sorted(self.classes):
            uncovered -= self.classes[number]
            if uncovered <= 1e-9:
                return round(math.exp(number * STEP), 4)
        return None


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
    cached_tokens: int = 0
    """How many of the prompt tokens the provider had cached."""
    completion_tokens: int = 0
    unreported: int = 0
    """Replies whose tokens the server did not state; they are estimated."""
    cost: float = 0.0
    """What the tokens cost by runtime.prices; 0 for a model without a price."""
    faults: Counter[str] = field(default_factory=Counter[str])
    """Requests without a usable reply, by kind: http_429, timeout, connection, no_completion,
    refusal, truncated, unparsable, unfit (refused by the ask's own check)."""
    latency: Latency = field(default_factory=Latency)

    def add(self, more: Usage, less: Usage) -> None:
        """Count what ``more`` holds beyond ``less``, an earlier state of the same counters."""
        for counter in fields(self):
            old, new, own = (getattr(one, counter.name) for one in (less, more, self))
            if isinstance(own, int | float):
                setattr(self, counter.name, own + new - old)
        self.faults += more.faults - less.faults
        self.latency.classes += more.latency.classes - less.latency.classes

    def document(self) -> dict[str, Any]:
        """The counters as one line of the run log."""
        counters: dict[str, Any] = {
            counter.name: getattr(self, counter.name)
            for counter in fields(self)
            if counter.name not in ("latency", "faults")
        }
        counters["cost"] = round(self.cost, 6)
        return {
            **counters,
            "faults": dict(sorted(self.faults.items())),
            "latency_p50_s": self.latency.quantile(0.5),
            "latency_p95_s": self.latency.quantile(0.95),
        }

    def write(self, path: Path = USAGE_LOG) -> None:
        """Append one JSON line; nothing is written if nothing was asked."""
        if not (self.requests or self.cache_hits):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(self.document(), ensure_ascii=False) + "\n"
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def summary(self) -> str:
        """One line for a person."""
        parts = [
            f"{self.model}: {self.answers} answered, {self.cache_hits} from the cache, "
            f"{self.failures} failed; {self.requests} requests ({self.retries} retries, "
            f"{self.repairs} repairs), {self.prompt_tokens} + {self.completion_tokens} tokens"
        ]
        if self.cost:
            parts.append(f"cost {self.cost:.4f}")
        p50, p95 = self.latency.quantile(0.5), self.latency.quantile(0.95)
        if p50 is not None and p95 is not None:
            parts.append(f"latency p50 {p50:.2f} s, p95 {p95:.2f} s")
        if self.faults:
            kinds = ", ".join(f"{kind} {n}" for kind, n in self.faults.most_common())
            parts.append(f"faults: {kinds}")
        return "; ".join(parts)
