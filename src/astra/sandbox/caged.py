"""The cage's inner side: builds walls around a command, then starts it. Standard library only.

Run as ``python -s -S -m astra.sandbox.caged FD`` with the cage's control socket. It reads
one configuration, enters fresh user, mount, network, pid, ipc and uts namespaces, opens the one
socket that leads out (a loopback listener whose descriptor goes to the host), replaces the root
by what the command may read plus one small writable directory, gives up every privilege, installs
the seccomp filter and runs the command. It says how the command ended, and ends it when the host
closes the socket. It never reads a byte of what it cages.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import resource
import select
import socket
import struct
import sys
from typing import Any

from astra.sandbox import zygote_kernel as kernel
from astra.sandbox.zygote import SANDBOX_UID, may_change_uid

HOME = "/cage"
"""The one writable directory, in memory."""
_MAX_PACKET = 1 << 20
_DEVICES = ("null", "zero", "urandom", "random")
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_NO_SUID = kernel.ATTRIBUTE_NOSUID
_READ_ONLY = kernel.ATTRIBUTE_RDONLY | kernel.ATTRIBUTE_NOSUID | kernel.ATTRIBUTE_NODEV


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    config: dict[str, Any] = json.loads(control.recv(_MAX_PACKET))
    try:
        uid = enter_namespaces(network=False)
        _continue_as_first(control)
        listener = _listen()
        base = open_root()
        show(base, config["reads"])
        add_writable(base + HOME, config["disk_mb"], uid)
        enter_root(base, HOME)
        give_up_privileges(uid, config["limits"])
    except Exception as error:
        control.send(json.dumps({"ok": False, "reason": f"{error}"}).encode())
        return
    port: int = listener.getsockname()[1]
    socket.send_fds(control, [json.dumps({"ok": True, "port": port}).encode()], [listener.fileno()])
    listener.close()
    go = json.loads(control.recv(_MAX_PACKET) or b"{}")
    if go:
        _supervise(control, go["command"], go["environment"], base64.b64decode(config["filter"]))


def enter_namespaces(network: bool) -> int:
    """Enter fresh namespaces, with ``network`` all but that one; returns the uid to become.

    The caller's next child is the first process of the pid namespace. Root maps itself too, for
    as long as it mounts: what the command reads may lie below a directory that only root may enter.
    """
    flags = kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC
    flags |= kernel.CLONE_NEWUTS | kernel.CLONE_NEWPID
    flags |= 0 if network else kernel.CLONE_NEWNET
    uid = os.geteuid()
    if may_change_uid():
        uid = SANDBOX_UID
        os.setgroups([])
        kernel.unshare_chosen_ids(flags, (0, SANDBOX_UID))
    else:
        kernel.unshare_own_ids(flags)
    socket.sethostname("cage")
    return uid


def _continue_as_first(control: socket.socket) -> None:
    """Continue as pid 1; the process that the host started stays behind and waits."""
    child = os.fork()
    if child:
        control.close()
        for standard in (0, 1, 2):
            os.close(standard)
        os.waitpid(child, 0)
        os._exit(0)
    kernel.die_with_parent()


def bring_loopback_up() -> None:
    """Switch on the one device of a fresh network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))


def _listen() -> socket.socket:
    """The only listener of the fresh network namespace; it is the host's."""
    bring_loopback_up()
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener


def open_root() -> str:
    """An empty root in the making; returns where it is mounted.

    It has no /proc, no /etc, no home and no socket of the host: nothing but what is added.
    """
    kernel.mount(None, b"/", None, kernel.MS_REC | kernel.MS_PRIVATE, b"")
    base = "/proc"  # exists everywhere, and nothing that is read lies below it
    kernel.mount(b"tmpfs", base.encode(), b"tmpfs", kernel.MS_NOSUID, b"size=1m,mode=755")
    return base


def show(base: str, reads: list[str]) -> None:
    """Bind ``reads`` read-only at their own paths below ``base``, and four devices."""
    links: dict[str, str] = {}
    for path in sorted(reads):
        if os.path.islink(path):
            links[path] = os.readlink(path)
        elif not _below(path, reads):
            _bind(path, base + path)
    for path, target in links.items():
        if not os.path.lexists(base + path):
            os.makedirs(os.path.dirname(base + path), exist_ok=True)
            os.symlink(target, base + path)
    for name in _DEVICES:
        _bind(f"/dev/{name}", f"{base}/dev/{name}", devices=True)


def add_writable(target: str, megabytes: int, uid: int) -> None:
    """Mount a bounded file system in memory at ``target``, in which nothing can be executed."""
    os.makedirs(target, exist_ok=True)
    options = f"size={megabytes}m,nr_inodes=20000,mode=700,uid={uid},gid={uid}".encode()
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount(b"tmpfs", target.encode(), b"tmpfs", flags, options)


def enter_root(base: str, workdir: str) -> None:
    """Make what was built at ``base`` the root, itself read-only, and go to ``workdir``."""
    kernel.enter_root(base)
    kernel.restrict_mounts("/", _READ_ONLY, recursive=False)
    os.chdir(workdir)


def _below(path: str, reads: list[str]) -> bool:
    """Whether another bind already shows ``path``."""
    return any(path != one and path.startswith(one.rstrip("/") + "/") for one in reads)


def _bind(source: str, target: str, devices: bool = False) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.mount(source.encode(), target.encode(), None, kernel.MS_BIND | kernel.MS_REC, b"")
    kernel.restrict_mounts(target, _NO_SUID if devices else _READ_ONLY, recursive=True)


def give_up_privileges(uid: int, limits: dict[str, int]) -> None:
    """Become ``uid`` for good, with ``limits`` (``AS``, ``NPROC``, ...) as hard resource limits."""
    kernel.drop_bounding_set()
    if os.geteuid() != uid:
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    kernel.drop_capabilities()
    always = {"CORE": 0, "NOFILE": 1024, "MEMLOCK": 0, "MSGQUEUE": 0}
    for name, value in {**always, **limits}.items():
        kernel.limit(getattr(resource, f"RLIMIT_{name}"), value)
    os.umask(0o077)
    kernel.no_new_privileges()


def _supervise(
    control: socket.socket, command: list[str], environment: dict[str, str], program: bytes
) -> None:
    """Run the command as a child; as pid 1, ending ends whatever it left behind."""
    child = os.fork()
    if not child:
        try:
            control.close()
            kernel.install_filter(program)
            os.execve(command[0], command, environment)
        except BaseException as error:
            os.write(2, f"cannot start {command[0]}: {error}\n".encode())
        finally:
            os._exit(127)
    ended = os.pidfd_open(child)
    while True:
        ready = select.select([ended, control], [], [])[0]
        if ended in ready:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            control.send(json.dumps({"code": code}).encode())
            os._exit(0)
        if not control.recv(1):  # the host is gone, or done with us
            os._exit(0)


if __name__ == "__main__":
    main()
