"""The inner side of a live server's cage: pid 1, which builds the root and keeps its state.

It runs with the server's rights and sees what the server sees, so whatever a server puts into
its directory (links, pipes, a tree that changes while it is read) concerns this cage alone.
Standard library only: it is the second half of every server's start.
"""

from __future__ import annotations

import base64
import json
import os
import select
import socket
import stat
from contextlib import suppress
from typing import Any

from astra.sandbox import caged
from astra.sandbox import zygote_kernel as kernel

_MAX_PACKET = 1 << 16
_REAP_S = 1.0
"""How often processes that lost their parent are reaped, in seconds."""
Kept = dict[str, tuple[int, int, bytes | str]]
"""Path below the directory -> mode, modification time in ns, and bytes (a file) or target (a
link); a directory holds no bytes."""


def live(config: dict[str, Any], uid: int, control: socket.socket, pipes: list[int]) -> None:
    """Build the walls, start the server on ``pipes`` (its standard streams), serve ``control``.

    Tells ``control`` once whether the walls stand. Never returns: it ends with the server's exit
    code, or when ``control`` is closed, and with it ends whatever runs inside.
    """
    try:
        kernel.die_with_parent()
        if not config["network"]:
            caged.bring_loopback_up()
        _build(config, uid)
        caged.give_up_privileges(uid, config["limits"])
        kernel.die_with_parent()  # becoming another user undid it
        kernel.set_dumpable(False)
    except Exception as error:
        control.send(json.dumps({"reason": f"{type(error).__name__}: {error}"}).encode())
        os._exit(1)
    control.send(b"{}")
    child = os.fork()
    if not child:
        _become(config, pipes)
    for descriptor in pipes:
        os.close(descriptor)
    _watch(child, control, config["workdir"])


def _build(config: dict[str, Any], uid: int) -> None:
    """A root of what the server may read, with its directory and /tmp writable and bounded."""
    workdir: str = config["workdir"]
    base = caged.open_root()
    caged.add_writable(f"{base}/tmp", config["tmp_mb"], uid)  # first: binds may lie below it
    caged.show(base, config["reads"])
    _show_processes(f"{base}/proc")
    for path, text in config["files"].items():
        os.makedirs(os.path.dirname(base + path), exist_ok=True)
        with open(base + path, "w", encoding="utf-8") as file:
            file.write(text)
    caged.add_writable(base + workdir, config["disk_mb"], uid)
    restore(base + workdir, keep(workdir))
    for folder, _, names in os.walk(base + workdir):
        for name in (".", *names):
            os.chown(os.path.join(folder, name), uid, uid, follow_symlinks=False)
    os.chmod(base + workdir, 0o700)
    caged.enter_root(base, workdir)


def _show_processes(target: str) -> None:
    """A /proc of this cage's processes and nothing else, for runtimes that look at themselves.

    Where the kernel refuses one (a container whose own /proc is masked), there is none.
    """
    os.makedirs(target, exist_ok=True)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC | kernel.MS_RDONLY
    with suppress(PermissionError):
        kernel.mount(b"proc", target.encode(), b"proc", flags, b"subset=pid")


def _become(config: dict[str, Any], pipes: list[int]) -> None:
    command: list[str] = config["command"]
    try:
        for standard, descriptor in enumerate(pipes):
            os.dup2(descriptor, standard)
        os.closerange(3, 1024)
        kernel.install_filter(base64.b64decode(config["filter"]))
        os.execve(command[0], command, config["environment"])
    except BaseException as error:
        os.write(2, f"cannot start {command[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _watch(child: int, control: socket.socket, workdir: str) -> None:
    ended = os.pidfd_open(child)
    kept: Kept = {}
    while True:
        ready = select.select([ended, control], [], [], _REAP_S)[0]
        if ended in ready:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            os._exit(code if code >= 0 else 128 - code)
        if control in ready:
            wanted = control.recv(_MAX_PACKET)
            if not wanted:  # the host is gone, or done with us
                os._exit(0)
            try:
                if wanted == b"keep":
                    kept = keep(workdir)
                else:
                    restore("/tmp", {})
                    restore(workdir, kept)
                control.send(b"{}")
            except Exception as error:
                control.send(json.dumps({"reason": f"{type(error).__name__}: {error}"}).encode())
        else:
            _reap(child)


def _reap(child: int) -> None:
    """Collect orphans that ended; the server itself is left for its exit code."""
    while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        if ended.si_pid == child:
            return
        os.waitpid(ended.si_pid, 0)


def keep(folder: str, below: str = "") -> Kept:
    """Everything in ``folder`` as it is now; what is no file, directory or link is left out."""
    kept: Kept = {}
    with os.scandir(os.path.join(folder, below)) as entries:
        for entry in entries:
            path = os.path.join(below, entry.name)
            facts = entry.stat(follow_symlinks=False)
            mode, changed = facts.st_mode, facts.st_mtime_ns
            if stat.S_ISLNK(mode):
                kept[path] = mode, changed, os.readlink(entry.path)
            elif stat.S_ISDIR(mode):
                kept[path] = mode, changed, b""
                kept.update(keep(folder, path))
            elif stat.S_ISREG(mode):
                with open(entry.path, "rb") as file:
                    kept[path] = mode, changed, file.read()
    return kept


def restore(folder: str, kept: Kept) -> None:
    """Make ``folder`` hold what ``kept`` says, in place: a server may work in its directories.

    What something is mounted on, and what leads there, stays.
    """
    _clear(folder, kept)
    for below, (mode, changed, content) in kept.items():  # a directory comes before what is in it
        path = os.path.join(folder, below)
        if isinstance(content, str):
            os.symlink(content, path)
            continue
        if stat.S_ISDIR(mode):
            os.makedirs(path, exist_ok=True)
        else:
            with open(path, "wb") as file:
                file.write(content)
            os.utime(path, ns=(changed, changed))
        os.chmod(path, stat.S_IMODE(mode))


def _clear(folder: str, kept: Kept, below: str = "") -> None:
    with os.scandir(os.path.join(folder, below)) as entries:
        for entry in list(entries):
            path = os.path.join(below, entry.name)
            if os.path.ismount(entry.path):
                continue
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            _clear(folder, kept, path)
            if path not in kept or not stat.S_ISDIR(kept[path][0]):
                with suppress(OSError):  # not empty: a mount lies below
                    os.rmdir(entry.path)
