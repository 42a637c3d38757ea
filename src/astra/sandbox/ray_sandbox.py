"""A sandbox spread over a Ray cluster: one actor per node, behind the protocol of the local one.

Calls wait in a bounded queue per node and travel in batches. A batch that Ray loses is sent
again under the same keys, so an answered call is not run twice. When the actor itself has died,
its sessions are gone: one that had not answered a call yet is opened afresh and the call is
run, any other ends with status infra, since the state it held cannot be brought back.
"""

import importlib
import itertools
import os
import queue
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

from astra.sandbox.capacity import PoolConfig
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.protocol import (
    SandboxLoadError,
    SandboxResult,
    SandboxStatus,
    SandboxUnavailable,
    Session,
)
from astra.sandbox.ray_actor import LOAD_ERROR, OPENED, Call, NodeSandbox, Unit
from astra.sandbox.zygote_process import TIERS

BATCH = 64
_LINGER_S = 0.0005
_QUEUE = 1024
_SENDERS = 4  # batches of one node in flight
_ACTOR_THREADS = 8
_START_TIMEOUT_S = 120.0
_RESTART_S = 60.0  # how long a node may take to answer again: a busy one starts its actor slowly
_PAUSE_S, _PAUSE_MAX_S = 0.25, 2.0
_GRACE_S = 60.0

_INSTALL = "ray is not installed: pip install '.[ray]', or choose sandbox=local"


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise SandboxUnavailable(f"{_INSTALL} ({error})") from error


_Item = tuple[Unit, "Future[Any]"]
"""A unit and who waits for its answer."""


class _Lost(Exception):
    """The node does not answer; nothing is known about what was asked."""


class _Node:
    """One actor, the queue before it and the threads that empty the queue."""

    def __init__(self, ray: Any, actor: Any, call_timeout_s: float) -> None:
        self._ray, self.actor = ray, actor
        self._timeout_s = BATCH * call_timeout_s + _GRACE_S
        self._queue: queue.Queue[_Item | None] = queue.Queue(_QUEUE)
        self._senders = [
            threading.Thread(target=self._send_forever, name="sandbox-ray", daemon=True)
            for _ in range(_SENDERS)
        ]
        for sender in self._senders:
            sender.start()

    def submit(self, unit: Unit) -> "Future[list[tuple[Any, ...]] | None]":
        """Queue a unit; blocks while the queue is full."""
        future: Future[Any] = Future()
        self._queue.put((unit, future))
        return future

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call the actor until it answers; the request must be idempotent. Raises _Lost."""
        pause, give_up = _PAUSE_S, 0.0
        while True:
            try:
                reference = getattr(self.actor, method).remote(*arguments)
                return self._ray.get(reference, timeout=self._timeout_s)
            except self._ray.exceptions.RayTaskError as error:  # raised there, so not to be retried
                raise _Lost(f"the node failed: {error.cause!r}"[:300]) from error
            except self._ray.exceptions.RayError as error:
                now = monotonic()
                give_up = give_up or now + _RESTART_S
                if now >= give_up:
                    reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
                    raise _Lost(reason) from error
                sleep(pause)
                pause = min(2 * pause, _PAUSE_MAX_S)

    def stop(self) -> None:
        for _ in self._senders:
            self._queue.put(None)

    def _send_forever(self) -> None:
        held: deque[_Item | None] = deque()
        """What was taken from the queue for the next batch; None: stop."""
        while (first := held.popleft() if held else self._queue.get()) is not None:
            batch = self._collect(first, held)
            try:
                answers = self.ask("run", [unit for unit, _ in batch])
                for (_, future), answer in zip(batch, answers, strict=True):
                    future.set_result(answer)
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)

    def _collect(self, first: _Item, held: "deque[_Item | None]") -> "list[_Item]":
        """A batch that ``first`` begins, with the calls that come within a moment."""
        batch, size = [first], len(first[0][2])
        deadline = monotonic() + _LINGER_S
        while size < BATCH:
            try:
                item = self._queue.get(timeout=max(0.0, deadline - monotonic()))
            except queue.Empty:
                break
            if item is None or size + len(item[0][2]) > BATCH:
                held.append(item)
                break
            batch.append(item)
            size += len(item[0][2])
        return batch


class RaySession:
    """A session on some node. For one thread at a time, like a local one."""

    def __init__(self, sandbox: "RaySandbox", node: _Node, key: str, sources: Any) -> None:
        self._sandbox, self.node, self.key, self.sources = sandbox, node, key, sources
        self.number = 0
        self.answered = False
        self.end: tuple[SandboxStatus, str] | None = None

    @property
    def alive(self) -> bool:
        return self.end is None

    def call(self, function: str, arguments: Mapping[str, Any]) -> SandboxResult:
        return self._sandbox.call_many([(self, function, arguments)])[0]

    def close(self) -> None:
        """End the process; idempotent. Does not wait for the node."""
        if self.end is None:
            self.end = (SandboxStatus.INFRA, "the session was closed")
            self.node.actor.close.remote([self.key])


class RaySandbox:
    """Sessions on every node of the cluster that this process is, or gets, connected to.

    Raises SandboxUnavailable where ray is missing or a node has no isolation of ``min_tier``.
    """

    def __init__(
        self,
        limits: SandboxLimits | None = None,
        min_tier: str = "B",
        zygotes: int = 1,
        pool: PoolConfig | None = None,
    ) -> None:
        self.limits = limits or SandboxLimits()
        self._ray = _ray()
        self._owned = not self._ray.is_initialized()
        if self._owned:
            self._ray.init(log_to_driver=False, include_dashboard=False)
        self._names = (f"{os.urandom(6).hex()}-{number}" for number in itertools.count())
        self._turn = itertools.count()
        self._lock = threading.Lock()
        settings = (
            self.limits.model_dump(),
            min_tier,
            zygotes,
            (pool or PoolConfig()).model_dump(),
        )
        self._nodes: list[_Node] = []
        try:
            self._nodes = [
                _Node(self._ray, actor, self.limits.call_timeout_s)
                for actor in self._start_actors(settings)
            ]
            self.facts = self._greet()
        except BaseException:
            self.close()
            raise

    def _start_actors(self, settings: tuple[Any, ...]) -> list[Any]:
        affinity = importlib.import_module("ray.util.scheduling_strategies")
        actors: list[Any] = []
        for node in self._ray.nodes():
            if not node["Alive"]:
                continue
            # soft: a node that goes away for good gives its actor to another one
            place = affinity.NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
            remote = self._ray.remote(NodeSandbox).options(
                num_cpus=0,
                max_restarts=-1,
                max_concurrency=_ACTOR_THREADS,
                scheduling_strategy=place,
            )
            actors.append(remote.remote(*settings))
        return actors

    def _greet(self) -> dict[str, Any]:
        greetings: list[dict[str, Any]] = []
        for node in self._nodes:
            try:
                facts = self._ray.get(node.actor.greet.remote(), timeout=_START_TIMEOUT_S)
            except self._ray.exceptions.RayError as error:
                raise SandboxUnavailable(f"a node's sandbox did not start: {error}") from error
            if "problem" in facts:
                raise SandboxUnavailable(f"a node of the cluster: {facts['problem']}")
            greetings.append(facts)
        weakest = max(greetings, key=lambda facts: TIERS.index(facts["tier"]))
        return {**weakest, "nodes": len(greetings)}

    @property
    def tier(self) -> str:
        """The weakest tier of any node."""
        return self.facts["tier"]

    def session(self, sources: Mapping[str, str]) -> Session:
        """Open one session; raises SandboxLoadError for sources that do not load."""
        opened = self.sessions([sources])[0]
        if isinstance(opened, SandboxLoadError):
            raise opened
        return opened

    def sessions(self, sources: Sequence[Mapping[str, str]]) -> list[Session | SandboxLoadError]:
        """Open many, spread over the nodes; one outcome per item, in order.

        Raises SandboxUnavailable where no node can open one.
        """
        sessions = [RaySession(self, self._pick(), self._name(), item) for item in sources]
        outcomes = self._open(sessions)
        return [outcomes.get(session.key, session) for session in sessions]

    def _name(self) -> str:
        with self._lock:
            return next(self._names)

    def _pick(self) -> _Node:
        return self._nodes[next(self._turn) % len(self._nodes)]

    def _open(self, sessions: Sequence[RaySession]) -> dict[str, SandboxLoadError]:
        """Open on the sessions' nodes; the load errors by key. Raises SandboxUnavailable."""
        failures: dict[str, SandboxLoadError] = {}
        for node in self._nodes:
            mine = [session for session in sessions if session.node is node]
            for start in range(0, len(mine), BATCH):
                part = mine[start : start + BATCH]
                try:
                    answers = node.ask("open", [(one.key, dict(one.sources)) for one in part])
                except _Lost as error:
                    raise SandboxUnavailable(f"a sandbox node is lost: {error}") from error
                for session, (outcome, reason) in zip(part, answers, strict=True):
                    if outcome == LOAD_ERROR:
                        failures[session.key] = SandboxLoadError(reason)
                    elif outcome != OPENED:
                        raise SandboxUnavailable(reason)
        return failures

    def call_many(
        self, requests: Sequence[tuple[Session, str, Mapping[str, Any]]]
    ) -> list[SandboxResult]:
        """Run all requests, sessions overlapped, those of one session in order."""
        queues: dict[int, deque[int]] = {}
        for index, (session, _, _) in enumerate(requests):
            if not isinstance(session, RaySession):
                raise TypeError(f"not a session of this sandbox: {type(session).__name__}")
            queues.setdefault(id(session), deque()).append(index)
        results: dict[int, SandboxResult] = {}
        while queues:
            parts: list[tuple[RaySession, list[int]]] = []
            for name in list(queues):
                waiting = queues[name]
                part = [waiting.popleft() for _ in range(min(BATCH, len(waiting)))]
                if not waiting:
                    del queues[name]
                session = requests[part[0]][0]
                assert isinstance(session, RaySession)
                parts.append((session, part))
            calls = [[requests[at][1:] for at in part] for _, part in parts]
            answers = self._run([session for session, _ in parts], calls)
            for (_, part), answer in zip(parts, answers, strict=True):
                results.update(zip(part, answer, strict=True))
        return [results[index] for index in range(len(requests))]

    def _run(
        self, sessions: Sequence[RaySession], calls: Sequence[Sequence[Call]]
    ) -> list[list[SandboxResult]]:
        """One unit per session; a lost session that held no state is opened and asked again."""
        futures = [
            self._submit(one, unit) if one.end is None else None
            for one, unit in zip(sessions, calls, strict=True)
        ]
        answers: list[list[SandboxResult]] = []
        for session, unit, future in zip(sessions, calls, futures, strict=True):
            reason = "the node that held the session was restarted"
            answer = None
            if future is not None:
                answer, reason = _outcome(future, reason)
                if answer is None and not session.answered:
                    answer, reason = self._replay(session, unit, reason)
                if answer is None:
                    session.end = (SandboxStatus.INFRA, reason)
            answers.append(answer or _ended(session, len(unit)))
            session.answered = session.answered or answer is not None
            _note_end(session, answers[-1])
        return answers

    def _submit(self, session: RaySession, unit: Sequence[Call]) -> "Future[Any]":
        session.number += 1
        plain = [(function, dict(arguments)) for function, arguments in unit]
        return session.node.submit((session.key, session.number, plain))

    def _replay(
        self, session: RaySession, unit: Sequence[Call], reason: str
    ) -> tuple[list[SandboxResult] | None, str]:
        session.node, session.key = self._pick(), self._name()
        try:
            failures = self._open([session])
        except SandboxUnavailable as error:
            return None, f"{reason}; opening it again failed: {error}"
        if failures:
            return None, f"{reason}; opening it again failed: {failures[session.key]}"
        return _outcome(self._submit(session, unit), reason)

    def close(self) -> None:
        """End every actor and, where this object started it, Ray; idempotent."""
        for node in self._nodes:
            node.stop()
            self._ray.kill(node.actor)
        self._nodes = []
        if self._owned and self._ray.is_initialized():
            self._ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _outcome(future: "Future[Any]", lost: str) -> tuple[list[SandboxResult] | None, str]:
    """The results of a unit, or None and why the session is lost."""
    try:
        rows = future.result()
    except _Lost as error:
        return None, f"a sandbox node is lost: {error}"
    if rows is None:
        return None, lost
    return [SandboxResult(*row) for row in rows], ""


def _ended(session: RaySession, count: int) -> list[SandboxResult]:
    status, reason = session.end or (SandboxStatus.INFRA, "the session ended")
    return [SandboxResult(status, None, f"the session has ended: {reason}", "", 0.0)] * count


_FATAL = {SandboxStatus.TIMEOUT, SandboxStatus.EXIT, SandboxStatus.PROTOCOL, SandboxStatus.INFRA}


def _note_end(session: RaySession, answer: Sequence[SandboxResult]) -> None:
    """Statuses after which the process is gone; a memory kill shows at the next call."""
    last = answer[-1]
    if session.end is None and last.status in _FATAL:
        session.end = (last.status, last.error.removeprefix("the session has ended: "))
        session.node.actor.close.remote([session.key])
