"""Steps of many sessions run side by side, never more at once than there are cores.

A *step generator* does non-blocking work and yields a ``Wait`` whenever it needs the peer; it is
resumed with True when the descriptor is ready and with False when the deadline passed. A single
call and a batch share every rule that way.
"""

import os
import queue
import select
from collections import deque
from collections.abc import Generator, Sequence
from time import monotonic
from typing import Generic, TypeVar

Wait = tuple[int, int, float]
"""A descriptor, poll events and a monotonic deadline: the wait ends when either comes first."""

T = TypeVar("T")
Steps = Generator[Wait, bool, T]

_RETRY_MS = 20.0


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


class Gate:
    """Turns at running tool code, shared by every thread of one sandbox.

    A call's clock starts when it gets its turn, so a deadline measures the call and not the
    queue before it.
    """

    def __init__(self, width: int) -> None:
        self._turns: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(width):
            self._turns.put(None)
        self.take = self._turns.get
        """Blocks until a turn is free."""

    def try_take(self) -> bool:
        try:
            self._turns.get_nowait()
        except queue.Empty:
            return False
        return True

    def give(self) -> None:
        self._turns.put(None)


def drive(tasks: Sequence[Steps[T]], gate: Gate | None = None) -> list[T]:
    """Run all tasks, overlapped as far as the gate lets them, and return results in order."""
    return _Run(tasks, gate).run()


class _Run(Generic[T]):
    def __init__(self, tasks: Sequence[Steps[T]], gate: Gate | None) -> None:
        self._tasks, self._gate = tasks, gate
        self._results: dict[int, T] = {}
        self._waits: dict[int, Wait] = {}
        self._owners: dict[int, int] = {}
        self._poll = select.poll()
        self._queue = deque(range(len(tasks)))
        self._turns = 0

    def run(self) -> list[T]:
        try:
            while True:
                self._start()
                if not self._waits:
                    break
                self._wait()
        finally:
            while self._gate is not None and self._turns:
                self._give()
        return [self._results[index] for index in range(len(self._tasks))]

    def _start(self) -> None:
        while self._queue:
            if self._gate is not None:
                if self._waits and not self._gate.try_take():
                    return
                if not self._waits:
                    self._gate.take()
            self._turns += 1
            self._resume(self._queue.popleft(), None)

    def _give(self) -> None:
        self._turns -= 1
        if self._gate is not None:
            self._gate.give()

    def _wait(self) -> None:
        left = min(wait[2] for wait in self._waits.values()) - monotonic()
        patience = max(0.0, left) * 1000 + 0.5
        if self._queue:  # other threads may give turns back meanwhile
            patience = min(patience, _RETRY_MS)
        for descriptor, _ in self._poll.poll(patience):
            self._settle(self._owners[descriptor], True)
        now = monotonic()
        for index in [key for key, wait in self._waits.items() if wait[2] <= now]:
            self._settle(index, False)

    def _settle(self, index: int, ready: bool) -> None:
        descriptor = self._waits.pop(index)[0]
        del self._owners[descriptor]
        self._poll.unregister(descriptor)
        self._resume(index, ready)

    def _resume(self, index: int, ready: bool | None) -> None:
        task = self._tasks[index]
        try:
            wait = next(task) if ready is None else task.send(ready)
        except StopIteration as stop:
            self._results[index] = stop.value
            self._give()
            return
        self._waits[index] = wait
        self._owners[wait[0]] = index
        self._poll.register(wait[0], wait[1])
