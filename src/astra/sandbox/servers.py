"""Live servers' programs, each in a cage of its own.

Where ``runtime.live_servers`` says ``uncaged`` they have the user's rights.

Both kinds of walls offer the same: ``around`` a program they give the command to start in its
place, and the working directory's state is kept and restored for servers that serve many
episodes. ``astra.agent.mcp`` says what it expects of them, and starts the command.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import astra
from astra.errors import StageStop
from astra.sandbox import guard
from astra.sandbox.cage import DISK_MB, REMEDY, SYSTEM, filter_program
from astra.sandbox.protocol import SandboxError, SandboxUnavailable
from astra.sandbox.zygote import SANDBOX_UID, may_change_uid
from astra.settings import RuntimeConfig

log = logging.getLogger("astra")
TMP_MB = 64
MEMORY_MB = 4096
"""What all processes of a server may hold; the guard looks ten times a second."""
LIMITS = {
    "DATA": MEMORY_MB << 20,  # not address space: runtimes of JavaScript reserve far more
    "FSIZE": DISK_MB << 20,
    "NPROC": 256,
}
FORBIDDEN = ("memfd_create", "memfd_secret", "shmget", "msgget", "semget")
"""Calls that give memory which no limit of a process counts; forbidden as ``cage.FORBIDDEN`` is."""
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf")
NETWORK_READS = ("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates.conf")
ANSWER_TIMEOUT_S = 60.0
_UNIX_PATH = 90
"""A path that leaves room for a socket's name in its address, in bytes."""
UNCAGED = (
    "To run live servers without a cage, with all rights of your user and the network, say so by "
    "name: set live_servers: uncaged in conf/runtime/default.yaml, then `make params`"
)


class CageRefused(SandboxUnavailable, StageStop):
    """No cage for live servers can be built on this machine: none of them is started."""


class Caged:
    """One server in its cage. ``command`` and ``environment`` start its guard."""

    def __init__(self, folder: Path) -> None:
        flags = ("-P", "-s", "-S", "-B", "-X", "utf8")
        interpreter = os.path.realpath(sys.executable)
        self.command = (interpreter, *flags, guard.__file__, str(folder))
        self.environment = {"PYTHONPATH": str(Path(astra.__file__).parents[1])}
        self._folder = folder

    def raise_refusal(self) -> None:
        """Raises CageRefused if the guard could not build the walls."""
        refused = self._folder / "refused"
        reason = refused.read_text(encoding="utf-8") if refused.is_file() else ""
        if reason:
            raise CageRefused(f"live servers: no cage can be built: {reason}. {REMEDY}. {UNCAGED}")

    def keep(self) -> None:
        """Remember the working directory as it is now. Raises SandboxError."""
        self._ask("keep")

    def restore(self) -> None:
        """Make the working directory what it was when kept, in place. Raises SandboxError."""
        self._ask("restore")

    def _ask(self, what: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX) as control:
                control.settimeout(ANSWER_TIMEOUT_S)
                control.connect(str(self._folder / "control"))
                control.send(what.encode())
                said = json.loads(control.recv(1 << 16) or b'{"reason": "it has ended"}')
        except (OSError, ValueError) as error:
            said = {"reason": f"no answer: {error}"}
        if said:
            raise SandboxError(f"a caged server's directory, {what}: {said['reason']}")


class CageWalls:
    """Builds a cage for each server."""

    @contextmanager
    def around(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        workdir: Path,
        reads: Sequence[Path],
        network: bool,
    ) -> Generator[Caged]:
        """What starts ``command`` in a cage, for as long as the context lasts.

        The server has ``environment`` and no other variable, reads the system's libraries and
        ``reads``, and writes to /tmp and to ``workdir``: a copy in memory of what that holds at
        the start. Raises CageRefused.
        """
        config: dict[str, Any] = {
            "command": list(command),
            "environment": dict(environment),
            "workdir": str(workdir),
            "reads": _reads([*SYSTEM, *map(str, reads), *(NETWORK_READS if network else ())]),
            "files": _files(environment, network),
            "network": network,
            "disk_mb": DISK_MB,
            "tmp_mb": TMP_MB,
            "memory_mb": MEMORY_MB,
            "limits": LIMITS,
            "filter": base64.b64encode(_filter()).decode(),
        }
        with _private_folder() as folder:
            place = folder / "config.json"
            place.touch(0o600)
            place.write_text(json.dumps(config), encoding="utf-8")
            caged = Caged(folder)
            try:
                yield caged
            finally:
                caged.raise_refusal()


@contextmanager
def _private_folder() -> Generator[Path]:
    usual = tempfile.gettempdir()
    parent = usual if len(usual.encode()) < _UNIX_PATH - 30 else "/tmp"
    with tempfile.TemporaryDirectory(prefix="astra-cage-", dir=parent) as folder:
        yield Path(folder)


def _reads(paths: Sequence[str]) -> list[str]:
    return sorted({path for path in paths if os.path.lexists(path)})


def _files(environment: Mapping[str, str], network: bool) -> dict[str, str]:
    """Texts of /etc: one user without a name, and with ``network`` how names are resolved."""
    uid = SANDBOX_UID if may_change_uid() else os.geteuid()
    home = environment.get("HOME", "/")
    files = {
        "/etc/passwd": f"server:x:{uid}:{uid}::{home}:/bin/sh\n",
        "/etc/group": f"server:x:{uid}:\n",
    }
    for path in NETWORK_FILES if network else ():
        if os.path.isfile(path):
            files[path] = Path(path).read_text(encoding="utf-8", errors="replace")
    return files


@lru_cache
def _filter() -> bytes:
    try:
        return filter_program(FORBIDDEN)
    except SandboxUnavailable as error:
        raise CageRefused(f"live servers: {error}. {UNCAGED}") from error


def try_cage() -> None:
    """Build a cage and run a program in it that does nothing. Raises CageRefused."""
    with tempfile.TemporaryDirectory(prefix="astra-try-") as folder:
        workdir = Path(folder).resolve()
        with CageWalls().around(("/bin/true",), {}, workdir, (), network=False) as caged:
            tried = subprocess.run(
                caged.command, env=caged.environment, stdin=subprocess.DEVNULL,
                capture_output=True, timeout=ANSWER_TIMEOUT_S, check=False,
            )  # fmt: skip
    if tried.returncode:
        last = tried.stderr.decode(errors="replace").strip()[-300:]
        raise CageRefused(f"live servers: a cage was built, but /bin/true fails in it: {last}")


class Uncaged:
    """A server as the user's own program."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], workdir: Path, kept: Path
    ) -> None:
        self.command, self.environment = tuple(command), dict(environment)
        self._workdir, self._kept = workdir, kept

    def keep(self) -> None:
        """Remember the working directory as it is now."""
        shutil.rmtree(self._kept, ignore_errors=True)
        shutil.copytree(self._workdir, self._kept, symlinks=True)

    def restore(self) -> None:
        """Make the working directory what it was when kept, in place."""
        _restore(self._kept, self._workdir)


class NoWalls:
    """Starts servers as they are: with the user's rights, files and network."""

    @contextmanager
    def around(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        workdir: Path,
        reads: Sequence[Path],
        network: bool,
    ) -> Generator[Uncaged]:
        """``command`` itself. ``reads`` and ``network`` are no limits here."""
        with tempfile.TemporaryDirectory(prefix="astra-kept-") as folder:
            yield Uncaged(command, environment, workdir, Path(folder) / "kept")


def _restore(kept: Path, folder: Path) -> None:
    """Make ``folder`` equal to ``kept``, in place: a process may work in it."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            inner = kept / path.name
            if inner.is_dir() and not inner.is_symlink():
                _restore(inner, path)
            else:
                shutil.rmtree(path)
        else:
            path.unlink()
    for path in kept.iterdir():
        target = folder / path.name
        if target.is_dir() and not target.is_symlink():
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, target, symlinks=True)
        else:
            shutil.copy2(path, target, follow_symlinks=False)


def build_walls(runtime: RuntimeConfig) -> CageWalls | NoWalls:
    """The walls that ``runtime.live_servers`` asks for; without any, the log says so."""
    if runtime.live_servers == "caged":
        return CageWalls()
    log.warning(
        "live servers run UNCAGED, with all rights of this user and its network: "
        "runtime.live_servers is uncaged"
    )
    return NoWalls()
