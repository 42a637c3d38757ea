"""What stands between a live server and the machine; ``astra.sandbox.servers`` builds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol


class WalledServer(Protocol):
    """One server behind its walls: what to start, and the state of its working directory."""

    @property
    def command(self) -> tuple[str, ...]:
        """What to start in the server's place."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of what is started; the server's own may be others."""
        ...

    def keep(self) -> None:
        """Remember the working directory as it is now. Raises AstraError."""
        ...

    def restore(self) -> None:
        """Make the working directory what it was when kept, in place. Raises AstraError."""
        ...


class ServerWalls(Protocol):
    """Puts walls around programs that speak the protocol on their standard streams."""

    def around(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        workdir: Path,
        reads: Sequence[Path],
        network: bool,
    ) -> AbstractContextManager[WalledServer]:
        """Walls around ``command``, which has ``environment``, starts in ``workdir``, reads
        ``reads`` besides the system's libraries, and has a network if ``network`` says so.

        Raises StageStop where no walls can be built.
        """
        ...
