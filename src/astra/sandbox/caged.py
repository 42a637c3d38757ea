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
        uid = _enter_namespaces(control)
        listener = _listen()
        _build_root(config["reads"], config["disk_mb"], uid)
        _give_up_privileges(uid, config)
    except Exception as error:
        control.send(json.dumps({"ok": False, "reason": f"{error}"}).encode())
        return
    port: int = listener.getsockname()[1]
    socket.send_fds(control, [json.dumps({"ok": True, "port": port}).encode()], [listener.fileno()])
    listener.close()
    go = json.loads(control.recv(_MAX_PACKET) or b"{}")
    if go:
        _supervise(control, go["command"], go["environment"], base64.b64decode(config["filter"]))


def _enter_namespaces(control: socket.socket) -> int:
    """Continue as pid 1 of fresh namespaces; returns the uid to become.

    Root maps itself too, for as long as it mounts: what the command reads may lie below a
    directory that only root may enter. The process the host started stays behind and waits.
    """
    flags = kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWNET
    flags |= kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS | kernel.CLONE_NEWPID
    uid = os.geteuid()
    if may_change_uid():
        uid = SANDBOX_UID
        os.setgroups([])
        kernel.unshare_chosen_ids(flags, (0, SANDBOX_UID))
    else:
        kernel.unshare_own_ids(flags)
    socket.sethostname("cage")
    child = os.fork()
    if child:
        control.close()
        for standard in (0, 1, 2):
            os.close(standard)
        os.waitpid(child, 0)
        os._exit(0)
    kernel.die_with_parent()
    return uid


def _listen() -> socket.socket:
    """Bring the loopback of the fresh network namespace up; its only listener is the host's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener


def _build_root(reads: list[str], disk_mb: int, uid: int) -> None:
    """A root of read-only binds of ``reads``, four devices and the writable directory.

    No /proc, no /etc but what was asked for, no home, no socket of the host.
    """
    kernel.mount(None, b"/", None, kernel.MS_REC | kernel.MS_PRIVATE, b"")
    base = "/proc"  # exists everywhere, and nothing that is read lies below it
    kernel.mount(b"tmpfs", base.encode(), b"tmpfs", kernel.MS_NOSUID, b"size=1m,mode=755")
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
    os.mkdir(base + HOME)
    options = f"size={disk_mb}m,nr_inodes=20000,mode=700,uid={uid},gid={uid}".encode()
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount(b"tmpfs", (base + HOME).encode(), b"tmpfs", flags, options)
    kernel.enter_root(base)
    kernel.restrict_mounts("/", _READ_ONLY, recursive=False)
    os.chdir(HOME)


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


def _give_up_privileges(uid: int, config: dict[str, Any]) -> None:
    kernel.drop_bounding_set()
    if os.geteuid() != uid:
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    kernel.drop_capabilities()
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: config["memory_mb"] << 20,
        resource.RLIMIT_NPROC: config["processes"],
        resource.RLIMIT_NOFILE: 1024,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for kind, value in limits.items():
        kernel.limit(kind, value)
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
