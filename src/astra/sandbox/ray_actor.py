"""The actor on each node of a Ray cluster: a local sandbox behind idempotent requests.

The host side may ask twice when an answer was lost on the way, so every request carries a key
and a repeated key gets the first answer; nothing runs twice in a session. Only trusted
processes speak here (Ray pickles); tool code stays behind the pipes of the local sandbox.
"""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from astra.sandbox.capacity import PoolConfig
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import (
    SandboxLoadError,
    SandboxResult,
    SandboxStatus,
    SandboxUnavailable,
    Session,
)

Call = tuple[str, Mapping[str, Any]]
Unit = tuple[str, int, Sequence[Call]]
"""Session key, a number that grows from unit to unit of a session, calls to run in order."""

OPENED, LOAD_ERROR, UNAVAILABLE = "opened", "load_error", "unavailable"


@dataclass(slots=True)
class _Held:
    session: Session
    number: int = -1
    answer: "Future[list[SandboxResult]]" = field(default_factory=lambda: Future())


class NodeSandbox:
    """The actor. Its methods run on several threads at once."""

    def __init__(
        self, limits: Mapping[str, Any], min_tier: str, zygotes: int, pool: Mapping[str, Any]
    ) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._sandbox: LocalSandbox | None = None
        self._problem = ""
        try:
            self._sandbox = LocalSandbox(
                SandboxLimits.model_validate(limits),
                min_tier,
                zygotes,
                pool=PoolConfig.model_validate(pool),
            )
        except SandboxUnavailable as error:
            self._problem = str(error)

    def greet(self) -> dict[str, Any]:
        """Tier, facts and process of this node; ``problem`` says why there is no sandbox."""
        if self._sandbox is None:
            return {"problem": self._problem}
        return {"tier": self._sandbox.tier, **self._sandbox.facts}

    def open(self, wanted: Sequence[tuple[str, Mapping[str, str]]]) -> list[tuple[str, str]]:
        """Open a session for every (key, sources) whose key is new: (outcome, reason) each."""
        if self._sandbox is None:
            return [(UNAVAILABLE, self._problem)] * len(wanted)
        with self._lock:
            new = [(key, sources) for key, sources in wanted if key not in self._held]
        outcomes: dict[str, tuple[str, str]] = {key: (OPENED, "") for key, _ in wanted}
        try:
            opened = self._sandbox.sessions([sources for _, sources in new])
        except SandboxUnavailable as error:
            outcomes.update((key, (UNAVAILABLE, str(error))) for key, _ in new)
            opened = []
        for (key, _), session in zip(new, opened, strict=False):
            if isinstance(session, SandboxLoadError):
                outcomes[key] = (LOAD_ERROR, session.reason)
            else:
                with self._lock:
                    self._held[key] = _Held(session)
        return [outcomes[key] for key, _ in wanted]

    def run(self, units: Sequence[Unit]) -> list[list[tuple[Any, ...]] | None]:
        """Run units, each at most once; None for a session that this node does not hold."""
        answers: list[Future[list[SandboxResult]] | None] = []
        fresh: list[tuple[_Held, Sequence[Call]]] = []
        with self._lock:
            for key, number, calls in units:
                held = self._held.get(key)
                if held is not None and held.number != number:
                    held.number, held.answer = number, Future()
                    fresh.append((held, calls))
                answers.append(None if held is None else held.answer)
        self._run_fresh(fresh)
        return [
            None if answer is None else [tuple(result) for result in answer.result()]
            for answer in answers
        ]

    def _run_fresh(self, fresh: Sequence[tuple[_Held, Sequence[Call]]]) -> None:
        if not fresh or self._sandbox is None:
            return
        requests = [(held.session, *call) for held, calls in fresh for call in calls]
        answers = [held.answer for held, _ in fresh]
        try:
            results = iter(self._sandbox.call_many(requests))
            for answer, (_, calls) in zip(answers, fresh, strict=True):
                answer.set_result([next(results) for _ in calls])
        finally:
            lost = SandboxResult(SandboxStatus.INFRA, None, "the node failed", "", 0.0)
            for answer, (_, calls) in zip(answers, fresh, strict=True):
                if not answer.done():
                    answer.set_result([lost] * len(calls))

    def close(self, keys: Sequence[str]) -> None:
        """End sessions; unknown keys are already gone."""
        for key in keys:
            with self._lock:
                held = self._held.pop(key, None)
            if held is not None:
                held.session.close()
