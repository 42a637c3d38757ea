"""Work that goes on in a thread of its own while its caller does something else."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Ahead(Generic[Result]):
    """One piece of work at a time. Its thread never keeps a process alive that wants to end."""

    def __init__(self) -> None:
        self._future: Future[Result] | None = None

    @property
    def pending(self) -> bool:
        """Whether work was started whose result nobody has taken yet."""
        return self._future is not None

    def start(self, work: Callable[[], Result]) -> None:
        """Begin ``work``. RuntimeError where an earlier result was not taken."""
        if self._future is not None:
            raise RuntimeError("the result of the work before was not taken")
        future = self._future = Future[Result]()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        Thread(target=run, name="ahead", daemon=True).start()

    def wait(self) -> None:
        """Return once no work is going on; its result stays to be taken."""
        if self._future is not None:
            wait([self._future])

    def take(self) -> Result:
        """Wait for the result and take it; what the work raised is raised here.

        RuntimeError where nothing was started.
        """
        future, self._future = self._future, None
        if future is None:
            raise RuntimeError("nothing was started")
        return future.result()
