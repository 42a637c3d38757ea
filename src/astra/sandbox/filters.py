"""The allow-list of system calls (seccomp), compiled by libseccomp on the host to a BPF program.

Compiling here keeps libseccomp out of the zygote, which only needs one prctl to install the
result. Everything not listed fails with EPERM (clone3 and rseq-style probing with ENOSYS where
libc falls back on it); a system call through a foreign ABI (x32, int80) kills the process.
No list contains a way to make a process or thread, execute, signal, trace, open a socket, pass
a descriptor, map executable memory, or change credentials, mounts, namespaces or limits.
"""

import errno
import os
from contextlib import suppress
from functools import lru_cache
from types import ModuleType
from typing import Any

from astra.sandbox.protocol import SandboxUnavailable

COMPUTE = (
    "read", "write", "close", "fstat", "lseek",
    "munmap", "mremap", "madvise", "brk",
    "rt_sigprocmask", "rt_sigreturn", "restart_syscall",
    "futex", "getrandom", "getpid", "gettid", "sched_yield",
    "clock_gettime", "clock_getres", "gettimeofday", "time", "clock_nanosleep", "nanosleep",
    "exit", "exit_group",
)  # fmt: skip
"""What all sessions may call: to compute, to talk over already open descriptors, and to end."""

FILES = ("open", "openat", "newfstatat", "fstatat64", "ftruncate", "pread64", "pwrite64")
"""Calls allowed besides in tier A, where the root holds nothing but the session's own /tmp."""

NO_EXEC_MAPPING = ("mmap", "mprotect")
_PROT_ARGUMENT = 2
_PROT_EXEC = 4

_REMEDY = (
    "install libseccomp (Debian/Ubuntu: apt-get install libseccomp2) "
    "and the Python package pyseccomp"
)


KINDS = ("files", "sealed")
"""files: tier A. sealed: no path calls at all (tiers B and C)."""


@lru_cache
def program(kind: str) -> bytes:
    """The BPF instructions for this machine's architecture; SandboxUnavailable without libseccomp.

    ``kind`` is one of ``KINDS``.
    """
    seccomp = libseccomp()
    deny = seccomp.SyscallFilter(seccomp.ERRNO(errno.EPERM))
    with suppress(AttributeError, RuntimeError, OSError, ValueError):
        deny.set_attr(seccomp.Attr.CTL_OPTIMIZE, 2)  # a search tree, where libseccomp has it
    deny.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")
    for name in COMPUTE + (FILES if kind == "files" else ()):
        _allow(seccomp, deny, name)
    not_executable = seccomp.Arg(_PROT_ARGUMENT, seccomp.MASKED_EQ, _PROT_EXEC, 0)
    for name in NO_EXEC_MAPPING:
        deny.add_rule(seccomp.ALLOW, name, not_executable)
    descriptor = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "w+b") as file:
        deny.export_bpf(file)
        file.seek(0)
        return file.read()


def libseccomp() -> ModuleType:
    """The bindings to libseccomp. Raises SandboxUnavailable, and says the remedy, without them."""
    try:
        import pyseccomp  # late: it raises at import where libseccomp is missing
    except (ImportError, RuntimeError, OSError) as error:
        raise SandboxUnavailable(f"seccomp filters cannot be built: {error}; {_REMEDY}") from error
    return pyseccomp


def _allow(seccomp: ModuleType, filter_: Any, name: str) -> None:
    """Allow a call if this architecture has it; the lists cover several."""
    number: int = seccomp.resolve_syscall(seccomp.system_arch(), name)
    if number >= 0:
        filter_.add_rule(seccomp.ALLOW, number)
