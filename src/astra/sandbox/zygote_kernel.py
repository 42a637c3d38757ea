"""The kernel calls that build a session's walls, through libc; standard library only.

Every function either succeeds or raises OSError: a wall that could not be built must stop the
process before it runs any tool code.
"""

import ctypes
import os
import resource
import signal
import struct
from collections.abc import Sequence
from typing import Any

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
ATTRIBUTE_RDONLY, ATTRIBUTE_NOSUID, ATTRIBUTE_NODEV = 1, 2, 4
"""Flags of ``restrict_mounts``, which numbers them otherwise than ``mount``."""
_MNT_DETACH = 2
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522

# the same numbers on every architecture
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_VERSION_FLAG = 1
_LANDLOCK_PATH_BENEATH = 1
_FS_READ_FILE, _FS_WRITE_FILE, _FS_READ_DIR = 1 << 2, 1 << 1, 1 << 3
_FS_MAKE_REG, _FS_REMOVE_FILE, _FS_TRUNCATE = 1 << 8, 1 << 5, 1 << 14

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _Ruleset(ctypes.Structure):
    _fields_ = [
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    ]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _SockFprog(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _prctl(option: int, value: Any, what: str, extra: Any = 0) -> None:
    _check(
        _libc.prctl(
            option, ctypes.c_ulong(value), extra or ctypes.c_ulong(0), ctypes.c_ulong(0),
            ctypes.c_ulong(0),
        ),
        what,
    )  # fmt: skip


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def enter_pid_namespace(pidfd: int) -> None:
    """Make this process's next children start in the namespace of the process behind pidfd."""
    _check(_libc.setns(pidfd, CLONE_NEWPID), "setns")


def unshare_own_ids(flags: int) -> None:
    """Enter a fresh user namespace in which our uid and gid, and no others, stay what they are."""
    uid, gid = os.geteuid(), os.getegid()
    set_dumpable(True)
    unshare(flags)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def unshare_chosen_ids(flags: int, ids: Sequence[int]) -> None:
    """Enter, as root, a fresh user namespace in which ``ids`` (uids and gids) stay what they are.

    Only an outsider may map another id than its own: a child that stays outside does it.
    """
    ready_out, ready_in = os.pipe()
    me = os.getpid()
    helper = os.fork()
    if not helper:
        code = 1
        try:
            os.close(ready_in)
            if os.read(ready_out, 1):
                for name in ("uid_map", "gid_map"):
                    _write(f"/proc/{me}/{name}", "\n".join(f"{one} {one} 1" for one in ids))
                code = 0
        finally:
            os._exit(code)
    os.close(ready_out)
    try:
        unshare(flags)
        os.write(ready_in, b"1")
    finally:
        os.close(ready_in)
        status = os.waitpid(helper, 0)[1]
    if status:
        raise OSError("the id maps of the user namespace were refused")


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int, data: bytes) -> None:
    """Mount ``source``, or a fresh file system of ``kind``; ``flags`` are the MS_ constants."""
    _check(
        _libc.mount(source, target, kind, ctypes.c_ulong(flags), data or None),
        f"mount {target.decode()}",
    )


def empty_root() -> None:
    """Replace the root by a read-only, empty tmpfs holding one directory, /tmp.

    Nothing of the interpreter is in it: every module is imported before. So no host path exists
    in a session, and an interpreter below a directory only root may enter works unchanged.
    """
    mount(None, b"/", None, MS_REC | MS_PRIVATE, b"")
    where = next(path for path in ("/tmp", "/var", "/dev", "/proc") if os.path.isdir(path))
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    mount(b"tmpfs", where.encode(), b"tmpfs", flags, b"size=4k,nr_inodes=4,mode=755")
    os.mkdir(f"{where}/tmp", 0o700)
    enter_root(where)
    mount(None, b"/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags, b"")


def enter_root(path: str) -> None:
    """Make the mount at ``path`` the root and working directory; the old root is gone then."""
    os.chdir(path)
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", _MNT_DETACH), "umount")
    os.chdir("/")


def restrict_mounts(path: str, attributes: int, recursive: bool) -> None:
    """Forbid the mount at ``path``, and with ``recursive`` all below it, what ATTRIBUTE_ flags say.

    By ``mount_setattr`` (Linux 5.12), which only ever adds walls here.
    """
    wanted = struct.pack("=QQQQ", attributes, 0, 0, 0)
    result = _libc.syscall(
        ctypes.c_long(_MOUNT_SETATTR), ctypes.c_int(_AT_FDCWD), path.encode(),
        ctypes.c_uint(_AT_RECURSIVE if recursive else 0), wanted, ctypes.c_size_t(len(wanted)),
    )  # fmt: skip
    _check(result, f"mount_setattr {path}")


def private_tmp(megabytes: int) -> None:
    """A size- and inode-capped /tmp in a mount namespace of this session alone."""
    unshare(CLONE_NEWNS)
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    options = f"size={megabytes}m,nr_inodes=256,mode=700".encode()
    mount(b"tmpfs", b"/tmp", b"tmpfs", flags, options)
    os.chdir("/tmp")


def drop_bounding_set() -> None:
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            return  # past the last capability this kernel knows


def drop_capabilities() -> None:
    header = _CapHeader(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(ctypes.byref(header), nothing), "capset")


def set_dumpable(value: bool) -> None:
    _prctl(_PR_SET_DUMPABLE, int(value), "prctl dumpable")


def die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), "prctl pdeathsig")


def no_new_privileges() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "prctl no_new_privs")


def install_filter(program: bytes) -> None:
    """Install a BPF program made by libseccomp; it cannot be removed again."""
    instructions = ctypes.create_string_buffer(program, len(program))
    pointer = ctypes.cast(instructions, ctypes.c_void_p)
    loaded = _SockFprog(len(program) // 8, pointer)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, "prctl seccomp", ctypes.byref(loaded))


def landlock_version() -> int:
    """The Landlock ABI of this kernel; 0 where it is missing or switched off."""
    version = _libc.syscall(
        ctypes.c_long(_LANDLOCK_CREATE_RULESET), None, ctypes.c_size_t(0),
        ctypes.c_uint32(_LANDLOCK_VERSION_FLAG),
    )  # fmt: skip
    return max(0, version)


def landlock_ruleset(version: int) -> int:
    """A ruleset descriptor that refuses every file access, TCP, and signals leaving it."""
    filesystem = (1 << 13) - 1
    filesystem |= (1 << 13 if version >= 2 else 0) | (_FS_TRUNCATE if version >= 3 else 0)
    filesystem |= 1 << 15 if version >= 5 else 0
    ruleset = _Ruleset(filesystem, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    return _check(
        _libc.syscall(
            ctypes.c_long(_LANDLOCK_CREATE_RULESET), ctypes.byref(ruleset), ctypes.c_size_t(size),
            ctypes.c_uint32(0),
        ),
        "landlock_create_ruleset",
    )  # fmt: skip


def landlock_allow_directory(ruleset: int, path: str, version: int) -> None:
    """Let plain files below path be made, read, written and listed."""
    access = _FS_READ_FILE | _FS_WRITE_FILE | _FS_READ_DIR | _FS_MAKE_REG | _FS_REMOVE_FILE
    access |= _FS_TRUNCATE if version >= 3 else 0
    directory = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = _PathBeneath(access, directory)
    try:
        _check(
            _libc.syscall(
                ctypes.c_long(_LANDLOCK_ADD_RULE), ctypes.c_int(ruleset),
                ctypes.c_int(_LANDLOCK_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0),
            ),
            "landlock_add_rule",
        )  # fmt: skip
    finally:
        os.close(directory)


def landlock_enforce(ruleset: int) -> None:
    _check(
        _libc.syscall(
            ctypes.c_long(_LANDLOCK_RESTRICT_SELF), ctypes.c_int(ruleset), ctypes.c_uint32(0)
        ),
        "landlock_restrict_self",
    )


def limit(kind: int, value: int) -> None:
    """Set soft = hard, never above the hard limit already in force."""
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))
