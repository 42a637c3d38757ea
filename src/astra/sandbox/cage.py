"""A cage for a command that nobody trusts: no network, no secret, no disk but 256 MB of memory.

A cage holds a whole program, as a session of the sandbox holds functions: stage ``bench`` cages
harnesses, which may run text of a model. A caged process is an unprivileged user in its own
namespaces. It sees the system's libraries and the files it was given read-only, 256 MB of memory
as its one writable directory, and one TCP listener on its own loopback, whose connections arrive
at the host. It has no key and no variable of the host. Weaker isolation is refused: there is no
fallback.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, cast

import astra
from astra.sandbox import caged
from astra.sandbox.filters import libseccomp
from astra.sandbox.protocol import SandboxUnavailable

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
MEMORY_MB = 8192
"""Address space of each caged process."""
DISK_MB = 256
PROCESSES = 512
SYSTEM = (
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/sbin",
    "/etc/ld.so.cache",
    "/etc/alternatives",
)
"""Programs and libraries; nothing below them is private to a user."""
FORBIDDEN = (
    "mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "fsmount",
    "fsconfig", "fspick", "mount_setattr", "unshare", "setns", "ptrace", "process_vm_readv",
    "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd", "bpf", "perf_event_open",
    "userfaultfd", "keyctl", "add_key", "request_key", "init_module", "finit_module",
    "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "acct",
    "quotactl", "settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "open_by_handle_at",
    "name_to_handle_at", "io_uring_setup", "io_uring_enter", "io_uring_register", "syslog",
    "personality", "iopl", "ioperm", "modify_ldt", "vhangup", "lookup_dcookie", "fanotify_init",
    "sethostname", "setdomainname", "mknod", "mknodat",
)  # fmt: skip
"""What no caged program needs and exploits of a kernel begin with. The walls are the namespaces."""
SOCKETS = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
"""Families of sockets that a cage has. Others lead past its network namespace (AF_VSOCK) or into
corners of the kernel."""
FAMILIES = 64
"""More than any kernel numbers."""
REMEDY = (
    "A cage needs unprivileged user namespaces, Linux 5.12 and libseccomp2 (in Docker: "
    "--security-opt seccomp=unconfined --security-opt apparmor=unconfined; on Ubuntu "
    "24.04: kernel.apparmor_restrict_unprivileged_userns=0); "
    "`astra doctor` shows what this machine offers"
)


class Cage:
    """A cage with its walls standing. Start one command in it, then read its output."""

    def __init__(self, reads: Sequence[Path]) -> None:
        """``reads``: files and directories shown read-only at their own paths.

        Raises SandboxUnavailable where the walls cannot be built.
        """
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = here
        try:
            self.process = _launch(there)
        except OSError as error:
            here.close()
            raise SandboxUnavailable(f"no cage can be built: {error}. {REMEDY}") from error
        finally:
            there.close()
        self._listener: socket.socket | None = None
        try:
            self._listener = self.listener = self._greet([*SYSTEM, *map(str, reads)])
            """Where connections from inside arrive; the caller accepts them."""
        except BaseException:
            self.close()
            raise
        self.port: int = self.listener.getsockname()[1]

    def _greet(self, reads: Sequence[str]) -> socket.socket:
        config = {
            "reads": sorted({path for path in reads if os.path.lexists(path)}),
            "disk_mb": DISK_MB,
            "limits": {"AS": MEMORY_MB << 20, "NPROC": PROCESSES},
            "filter": base64.b64encode(filter_program()).decode(),
        }
        answer: dict[str, Any] = {}
        descriptors: list[int] = []
        try:
            self._control.settimeout(START_TIMEOUT_S)
            self._control.send(json.dumps(config).encode())
            packet, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, 1)
            answer = json.loads(packet) if packet else {}
        except (OSError, ValueError) as error:
            answer = {"reason": f"no answer from inside: {error}"}
        if not answer.get("ok") or not descriptors:
            reason = answer.get("reason") or self._last_words()
            raise SandboxUnavailable(f"no cage can be built: {reason}. {REMEDY}")
        return socket.socket(fileno=descriptors[0])

    def _last_words(self) -> str:
        self.process.kill()
        text = cast("IO[bytes]", self.process.stderr).read()
        return text.decode(errors="replace").strip()[-500:] or "the process ended at once"

    def start(self, command: Sequence[str], environment: dict[str, str]) -> None:
        """Run ``command`` inside with just this environment, HOME and TMPDIR added."""
        inside = {"HOME": caged.HOME, "TMPDIR": caged.HOME, "PATH": "/usr/bin:/bin"}
        go = {"command": list(command), "environment": {**inside, **environment}}
        self._control.send(json.dumps(go).encode())

    def exit_code(self, timeout_s: float = STOP_TIMEOUT_S) -> int | None:
        """How the command ended; None if it did not in that time."""
        self._control.settimeout(timeout_s)
        try:
            packet = self._control.recv(1 << 16)
            return int(json.loads(packet)["code"]) if packet else None
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """End whatever runs inside; idempotent."""
        self._control.close()
        if self._listener is not None:
            self._listener.close()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _launch(control: socket.socket) -> subprocess.Popen[bytes]:
    source = str(Path(astra.__file__).parents[1])
    flags = ("-P", "-s", "-S", "-B", "-X", "utf8")
    return subprocess.Popen(
        [os.path.realpath(sys.executable), *flags, "-m", caged.__name__, str(control.fileno())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env={"PYTHONPATH": source},
        pass_fds=(control.fileno(),),
        start_new_session=True,  # a terminal's Ctrl-C is the host's affair
    )


def filter_program(more: Sequence[str] = ()) -> bytes:
    """The seccomp filter: all but ``FORBIDDEN``, ``more``, new user namespaces and odd sockets.

    Raises SandboxUnavailable without libseccomp.
    """
    try:
        seccomp = libseccomp()
    except SandboxUnavailable as error:
        raise SandboxUnavailable(f"no cage can be built: {error}. {REMEDY}") from error
    program = seccomp.SyscallFilter(seccomp.ALLOW)
    for name in (*FORBIDDEN, *more):
        number: int = seccomp.resolve_syscall(seccomp.system_arch(), name)
        if number >= 0:
            program.add_rule(seccomp.ERRNO(errno.EPERM), number)
    program.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")  # its flags lie in memory
    spaces = caged.kernel.CLONE_NEWUSER
    program.add_rule(
        seccomp.ERRNO(errno.EPERM), "clone", seccomp.Arg(0, seccomp.MASKED_EQ, spaces, spaces)
    )
    no_family = seccomp.ERRNO(errno.EAFNOSUPPORT)
    for family in set(range(FAMILIES)) - set(SOCKETS):
        program.add_rule(no_family, "socket", seccomp.Arg(0, seccomp.EQ, family))
    program.add_rule(no_family, "socket", seccomp.Arg(0, seccomp.GE, FAMILIES))
    descriptor = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "w+b") as file:
        program.export_bpf(file)
        file.seek(0)
        return file.read()
