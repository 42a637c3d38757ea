"""The process sessions are forked from: exec'd fresh, so that it holds no secret of the host.

Started as an isolated interpreter (no environment, no site, no user paths) with one socket. It
reads one configuration packet, imports the allowed modules, builds the walls that all sessions
share, answers whether that worked, then forks one session per packet of descriptors: the
session's two pipes, a status socket and a memory file for its output. On the status socket it
writes (wait status, CPU microseconds, peak KiB) once the session has ended; when the host closes
its end, the session is killed. It never reads a byte of tool code. It ends when its control
socket does.
"""

import base64
import ctypes
import gc
import importlib
import importlib.util
import json
import mmap
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

STATUS = struct.Struct("!iQQ")
SANDBOX_UID = 65534
_MAX_PACKET = 1 << 18

_SHARED_LIMITS = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_STACK: 8 << 20,
    resource.RLIMIT_MEMLOCK: 0,
    resource.RLIMIT_MSGQUEUE: 0,
}
"""Limits that every session inherits; the others are set where a session starts."""

# loaded on first use by allowed modules, when no file can be opened any more
_LATE_IMPORTS = (
    "_strptime", "locale", "traceback", "copyreg", "weakref", "stringprep", "encodings.ascii",
    "encodings.latin_1", "encodings.utf_16", "encodings.utf_32", "encodings.utf_8_sig",
    "encodings.cp1252", "encodings.idna", "encodings.unicode_escape", "encodings.hex_codec",
)  # fmt: skip


def _sibling(file: str) -> ModuleType:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), file)
    name = file.removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    config: dict[str, Any] = json.loads(control.recv(_MAX_PACKET))
    try:
        _prepare(config)
        kernel = _sibling("zygote_kernel.py")
        session, wire = _sibling("zygote_session.py"), _sibling("wire.py")
        _forget_host()
        config["builtins"] = session.guarded_builtins(config["imports"])
        _wall_in(config, kernel, control)
    except Exception as error:
        control.send(json.dumps({"ok": False, "reason": f"{error}"}).encode())
        return
    landlock: int = config["landlock"]
    control.send(json.dumps({"ok": True, "landlock": landlock, "uid": os.getuid()}).encode())
    gc.collect()
    gc.freeze()
    gc.disable()

    def start(output: mmap.mmap) -> None:
        session.run(config, wire, kernel, output)

    Forks(control.detach(), kernel, start, namespaces=config["tier"] == "A").serve()


def _prepare(config: dict[str, Any]) -> None:
    """Import while files can still be read, and measure what the interpreter itself maps."""
    for name in (*_LATE_IMPORTS, *config["imports"]):
        try:
            importlib.import_module(name)
        except ImportError as error:
            if name in config["imports"]:
                raise ImportError(f"allowed import {name!r} is not importable: {error}") from None
    with suppress(OSError):
        ctypes.CDLL("libgcc_s.so.1")  # libc opens it late, to unwind
    with open("/proc/self/statm", encoding="ascii") as file:
        config["base_bytes"] = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    config["filters"] = {k: base64.b64decode(text) for k, text in config["filters"].items()}
    config["hidden"] = sorted({sys.prefix, sys.base_prefix, os.path.dirname(os.__file__)}, key=len)
    config["hidden"].reverse()
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.close(null)


def _forget_host() -> None:
    """Leave no path of the host in the interpreter, and nothing that would look for files."""
    os.environ.clear()
    sys.path.clear()
    sys.path_hooks.clear()
    sys.path_importer_cache.clear()
    sys.meta_path[:] = sys.meta_path[:2]  # built-in and frozen, not the path finder
    sys.argv[:] = [""]
    entries: list[object] = list(sys.modules.values())
    for module in entries:
        if not isinstance(module, ModuleType):
            continue  # typing.io and its like are classes
        for attribute in ("__file__", "__cached__"):
            vars(module).pop(attribute, None)
        if "__path__" in vars(module):
            module.__path__ = []
    sys.prefix = sys.exec_prefix = sys.base_prefix = sys.base_exec_prefix = "/"
    sys.executable = ""


def _wall_in(config: dict[str, Any], kernel: ModuleType, control: socket.socket) -> None:
    """Give up root, enter the namespaces of tier A, and forbid new privileges for good."""
    version: int = kernel.landlock_version()
    config["landlock"] = 0 if config["tier"] == "C" else version
    if config["tier"] == "B" and not version:
        raise OSError("this kernel has no Landlock")
    if config["tier"] == "A":
        _enter_namespaces(kernel, control)
        kernel.empty_root()
        kernel.drop_bounding_set()
    elif may_change_uid():
        os.setgroups([])
        os.setresgid(SANDBOX_UID, SANDBOX_UID, SANDBOX_UID)
        os.setresuid(SANDBOX_UID, SANDBOX_UID, SANDBOX_UID)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for kind, value in _SHARED_LIMITS.items():
        kernel.limit(kind, value)
    os.umask(0o077)
    os.chdir("/")
    kernel.set_dumpable(False)
    kernel.no_new_privileges()


def may_change_uid() -> bool:
    """Whether we are root and there is another uid to become.

    A rootless container may map no uid but 0; its root is an ordinary user outside, and is
    treated as one here.
    """
    if os.geteuid() != 0:
        return False
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            ranges = [tuple(map(int, line.split())) for line in file]
        with open("/proc/self/setgroups", encoding="ascii") as file:
            groups = file.read().strip()
    except OSError:
        return True
    mapped = any(first <= SANDBOX_UID < first + count for first, _, count in ranges)
    return mapped and groups == "allow"


def _enter_namespaces(kernel: ModuleType, control: socket.socket) -> None:
    """Continue as pid 1 of fresh namespaces, under an unprivileged uid.

    The process the host started stays behind as the parent and only waits: it dies with the
    pid namespace, and the pid namespace with it.
    """
    flags = kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWNET
    flags |= kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS | kernel.CLONE_NEWPID
    if may_change_uid():
        os.setgroups([])
        kernel.unshare_chosen_ids(flags, (SANDBOX_UID,))
        os.setresgid(SANDBOX_UID, SANDBOX_UID, SANDBOX_UID)
        os.setresuid(SANDBOX_UID, SANDBOX_UID, SANDBOX_UID)
    else:
        kernel.unshare_own_ids(flags)
    socket.sethostname("sandbox")
    child = os.fork()
    if child:
        control.close()
        os.waitpid(child, 0)
        os._exit(0)
    kernel.die_with_parent()


class Forks:
    """The event loop: a control socket, and per session a status socket and a pidfd.

    ``start`` is what a child does, given its output region; it finds its pipes at fixed
    descriptors.
    """

    def __init__(
        self,
        control: int,
        kernel: ModuleType,
        start: Callable[[mmap.mmap], None],
        namespaces: bool,
    ) -> None:
        self._control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, control)
        self._kernel, self._start, self._namespaces = kernel, start, namespaces
        self._self_pidfd = os.pidfd_open(os.getpid()) if namespaces else -1
        self._poll = select.epoll()
        self._poll.register(control, select.EPOLLIN)
        self._by_status: dict[int, tuple[int, int]] = {}  # status fd -> (pid, pidfd)
        self._by_pidfd: dict[int, tuple[int, int]] = {}  # pidfd -> (pid, status fd)

    def serve(self) -> None:
        while True:
            ready = [descriptor for descriptor, _ in self._poll.poll()]
            for descriptor in ready:
                if descriptor in self._by_pidfd:
                    self._reap(descriptor)
                elif descriptor in self._by_status:
                    self._kill(descriptor)
            # last, so that a descriptor number freed above is not taken for its successor
            if self._control.fileno() in ready and not self._accept():
                os._exit(0)

    def _accept(self) -> bool:
        """Fork a session for one request; False when the host is gone."""
        packet, descriptors, _, _ = socket.recv_fds(self._control, 16, 4)
        if not packet:
            return False
        if len(descriptors) != 4:
            for descriptor in descriptors:
                os.close(descriptor)
            return True
        status = descriptors[2]
        try:
            pid = self._fork(descriptors)
        except OSError:
            os.close(status)  # the host reads: ended without a status
            return True
        finally:
            for descriptor in descriptors:
                if descriptor != status:
                    os.close(descriptor)
        pidfd = os.pidfd_open(pid)
        self._by_status[status] = (pid, pidfd)
        self._by_pidfd[pidfd] = (pid, status)
        self._poll.register(status, select.EPOLLIN | select.EPOLLRDHUP)
        self._poll.register(pidfd, select.EPOLLIN)
        return True

    def _fork(self, descriptors: list[int]) -> int:
        if self._namespaces:
            self._kernel.unshare(self._kernel.CLONE_NEWPID)
        try:
            pid = os.fork()
            if not pid:
                try:
                    self._become_session(descriptors)
                finally:
                    os._exit(1)
        finally:
            if self._namespaces:
                self._kernel.enter_pid_namespace(self._self_pidfd)
        return pid

    def _become_session(self, descriptors: list[int]) -> None:
        """Keep the pipes at 3 and 4, the output mapped, no more.

        Received descriptors are above 4, since 0-2, a socket and the poll set lie below.
        """
        requests, replies, _, output = descriptors
        region = mmap.mmap(output, 0)
        os.close(output)
        for target, source in enumerate([requests, replies], start=3):
            os.dup2(source, target)
        os.closerange(5, 1 << 30)
        self._start(region)

    def _kill(self, status: int) -> None:
        pid = self._by_status[status][0]
        self._poll.unregister(status)  # a hang-up is reported again and again, whatever the mask
        os.kill(pid, signal.SIGKILL)

    def _reap(self, pidfd: int) -> None:
        pid, status = self._by_pidfd.pop(pidfd)
        del self._by_status[status]
        self._poll.unregister(pidfd)
        with suppress(OSError):  # already out where the session was killed
            self._poll.unregister(status)
        _, code, used = os.wait4(pid, 0)
        cpu = int((used.ru_utime + used.ru_stime) * 1e6)
        with suppress(OSError):  # the host has closed its end: it is not interested
            os.write(status, STATUS.pack(code, cpu, used.ru_maxrss))
        os.close(pidfd)
        os.close(status)


if __name__ == "__main__":
    main()
