"""The attack suite as a program: every row in both tiers, by whoever runs it.

Tests run it in their own process, and again as an ordinary user in another. Each attack is the
body of a function that has ``os``, ``ctypes``, ``modules``, ``libc``, ``request`` and ``send``;
its expectation judges the host's result.
"""

# ruff: noqa: E501 - attack bodies are one string each
import errno
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from crossings import CROSSINGS

from astra.sandbox.attacks import REACH
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import SandboxResult

os.environ["ASTRA_PLANTED"] = "planted" + "-in-host"  # what no session may ever see

LIMITS = SandboxLimits(call_timeout_s=1.0, cpu_s=5, memory_mb=64, max_output_bytes=2_000)

FRAMES = """
def request():
    os, ctypes, modules = reach()
    frame = modules["sys"]._getframe()
    while "request" not in frame.f_locals or not isinstance(frame.f_locals["request"], dict):
        frame = frame.f_back
    return frame.f_locals["request"]
def send(message):
    import struct, json
    os, ctypes, modules = reach()
    data = json.dumps(message).encode() if isinstance(message, dict) else message
    os.write(4, struct.pack("!I", len(data)) + data)
def refused(attack, *arguments):
    try:
        result = attack(*arguments)
    except (OSError, ValueError, MemoryError, AttributeError, RuntimeError) as error:
        return "refused"
    return "refused" if result == -1 else f"ALLOWED {result!r}"[:200]
"""

Expectation = Callable[[SandboxResult], bool]


def is_refused(result: SandboxResult) -> bool:
    """Every attempt of the body failed, and the session lives."""
    return result.value == "refused" or (
        isinstance(result.value, list) and bool(result.value) and set(result.value) == {"refused"}
    )


def ends(*statuses: str) -> Expectation:
    return lambda result: result.status in statuses


def returns(value: object) -> Expectation:
    return lambda result: result.status == "ok" and result.value == value


def stopped_at(result: SandboxResult, bytes_at_most: int, files_at_most: int) -> bool:
    """ENOSPC within the quota where there is a /tmp, EPERM at the first file where not."""
    written, files, code = result.value or (0, 0, 0)
    if code == errno.EPERM:
        return written == files == 0
    return code == errno.ENOSPC and written <= bytes_at_most and files <= files_at_most


_FILL = """
written = 0
for n in range(400):
    try:
        with open(f"/tmp/{{n}}", "wb") as file:
            written += file.write(b"x" * {size})
    except OSError as error:
        return [written, n, error.errno]
return [written, n, 0]
"""

_MACHINE_CODE = """
import struct
libc.mmap.restype = ctypes.c_void_p
found = []
for protection in (7, 4, 5):
    where = libc.mmap(None, ctypes.c_size_t(4096), protection, 0x22, -1, ctypes.c_long(0))
    found.append("refused" if where == 2**64 - 1 else "ALLOWED")
where = libc.mmap(None, ctypes.c_size_t(4096), 3, 0x22, -1, ctypes.c_long(0))
found.append(refused(libc.mprotect, ctypes.c_void_p(where), ctypes.c_size_t(4096), 5))
return found
"""

_INT80 = """
# the only machine code there is lies in libraries: find `int 0x80` (CD 80) in libc and jump there
import re
base = ctypes.cast(libc.getpid, ctypes.c_void_p).value
start = (base & ~0xFFF) - 0x60000
text = ctypes.string_at(start, 0xC0000)
at = text.find(bytes([0xCD, 0x80]))
if at < 0:
    return "no gadget"
ctypes.CFUNCTYPE(ctypes.c_long)(start + at)()
return "survived"
"""

ATTACKS: Mapping[str, tuple[str, Expectation]] = {
    "fork bomb": ("return [refused(os.fork) for _ in range(50)]", is_refused),
    "subprocess": ("return refused(os.posix_spawn, '/bin/true', ['x'], {})", is_refused),
    "thread bomb": (
        "import _thread\nreturn [refused(modules['_thread'].start_new_thread, print, ()) "
        "for _ in range(50)]".replace("import _thread\n", ""),
        is_refused,
    ),
    "memory bomb": ("x = []\nwhile True: x.append(bytearray(1 << 20))", ends("memory")),
    "memory bomb in one go": ("return len(bytearray(1 << 40))", ends("memory")),
    "endless loop": ("while True: pass", ends("timeout")),
    "signals ignored": (
        "found = [refused(modules['signal'].signal, n, modules['signal'].SIG_IGN) "
        "for n in (2, 15, 24)]\nwhile True: pass",
        ends("timeout"),
    ),
    "huge return": ("return 'x' * (8 << 20)", ends("exception")),
    "huge print": (
        "for _ in range(300): print('x' * 100_000)\nreturn 1",
        lambda result: result.value == 1 and len(result.stdout) <= 2_000,
    ),
    "output that is not UTF-8": (
        "modules['sys'].stdout._region[0:9] = b'\\0\\0\\0\\5\\xff\\xfe\\xff\\xfeA'\nos._exit(0)",
        lambda result: result.status == "exit" and set(result.stdout) <= {"A"},
    ),
    "output length forged": (
        "modules['sys'].stdout._region[0:4] = b'\\xff' * 4\nos._exit(0)",
        lambda result: result.status == "exit" and len(result.stdout) <= 2_000,
    ),
    "read host files": (
        "return [refused(os.open, path, 0) for path in ('/etc/passwd', '/etc/shadow', '/proc/1/environ',"
        " '/proc/self/mem', '/sys/kernel', '/dev/null', '/root')]",
        is_refused,
    ),
    "dot-dot": (
        "return [refused(os.open, '../' * depth + 'etc/passwd', 0) for depth in range(1, 12)]",
        is_refused,
    ),
    "dot-dot race": (
        """
found = []
for _ in range(300):
    found.append(refused(os.mkdir, 'd'))
    found.append(refused(os.rename, 'd', '../d'))
    found.append(refused(os.open, 'd/../../../etc/passwd', 0))
return found""",
        is_refused,
    ),
    "symbolic and hard links": (
        "return [refused(os.symlink, '/etc/passwd', 's'), refused(os.link, '/etc/passwd', 'h'),"
        " refused(os.open, 's', 0), refused(os.open, 'h', 0), refused(os.rename, '/etc', 'e')]",
        is_refused,
    ),
    "write outside": (
        "return [refused(os.open, path, 65) for path in ('/x', '/etc/x', '/dev/shm/x', '/var/tmp/x')]",
        is_refused,
    ),
    "sockets": (
        "return [refused(libc.socket, family, kind, 0) for family in (1, 2, 10, 16, 17, 38, 40)"
        " for kind in (1, 2, 3, 5)]",
        is_refused,
    ),
    "abstract socket, UDP, send on any descriptor": (
        """
name = ctypes.create_string_buffer(b"\\x01\\0\\0/tmp/.X11-unix/X0")
found = [refused(libc.connect, n, name, 20) for n in range(16)]
found += [refused(libc.bind, n, name, 20) for n in range(16)]
return found + [refused(libc.sendto, n, name, 5, 0, name, 20) for n in range(16)]""",
        is_refused,
    ),
    "pass descriptors (SCM_RIGHTS)": (
        "import struct\nheader = ctypes.create_string_buffer(64)\n"
        "return [refused(call, n, header, 0) for n in range(16) for call in (libc.sendmsg, libc.recvmsg)]",
        is_refused,
    ),
    "socket pairs": (
        "pair = ctypes.create_string_buffer(8)\n"
        "return [refused(libc.socketpair, 1, kind, 0, pair) for kind in (1, 2, 5)]",
        is_refused,
    ),
    "fill /tmp": (
        _FILL.format(size=1 << 20),
        lambda result: stopped_at(result, bytes_at_most=8 << 20, files_at_most=256),
    ),
    "inode bomb": (
        _FILL.format(size=1),
        lambda result: stopped_at(result, bytes_at_most=256, files_at_most=255),
    ),
    "environment": ("return [dict(os.environ), libc.getenv(b'PATH')]", returns([{}, 0])),
    "ptrace and other processes' memory": (
        "null = ctypes.c_void_p(None)\n"
        "return [refused(libc.ptrace, 16, pid, null, null) for pid in range(1, 9)]"
        " + [refused(libc.process_vm_readv, pid, null, 0, null, 0, 0) for pid in range(1, 9)]",
        is_refused,
    ),
    "signals to anyone": (
        "return [refused(libc.kill, pid, n) for pid in (-1, 0, 1, 2, 3, os.getpid()) for n in (0, 9, 19)]"
        " + [refused(libc.killpg, 0, 9), refused(libc.raise_, 9) if hasattr(libc, 'raise_') else 'refused']",
        is_refused,
    ),
    "stop oneself": (
        "found = refused(libc.kill, os.getpid(), 19), refused(libc.syscall, 234, 1, 1, 19)\n"
        "return list(found)",
        is_refused,
    ),
    "os._exit": ("os._exit(3)", ends("exit")),
    "segfault": ("ctypes.string_at(8)", ends("exit")),
    "sys.exit": ("raise SystemExit(1)", ends("exit")),
    "recursion": (
        "modules['sys'].setrecursionlimit(10**9)\ng = lambda: g()\ng()",
        ends("timeout", "exit", "memory", "exception"),
    ),
    "raise rlimits": (
        "resource = modules['resource']\n"
        "return [refused(resource.setrlimit, kind, (1 << 40, 1 << 40)) for kind in range(16)]",
        is_refused,
    ),
    "namespaces, mounts, io_uring": (
        "null = ctypes.c_void_p(None)\n"
        "return [refused(libc.unshare, 1 << bit) for bit in range(7, 32)]"
        " + [refused(libc.setns, n, 0) for n in range(9)]"
        " + [refused(libc.mount, b'x', b'/', b'proc', ctypes.c_ulong(0), null),"
        " refused(libc.umount2, b'/tmp', 2), refused(libc.syscall, 425, 8, null),"
        " refused(libc.syscall, 155, b'.', b'.')]",
        is_refused,
    ),
    "memfd and execveat": (
        "null = ctypes.c_void_p(None)\n"
        "return [refused(libc.memfd_create, b'x', 0), refused(libc.execve, b'/bin/true', null, null)]"
        " + [refused(libc.fexecve, n, null, null) for n in range(9)]",
        is_refused,
    ),
    "executable memory": (_MACHINE_CODE, is_refused),
    "descriptor exhaustion": (
        "found = [refused(os.dup, 3) for _ in range(40)] + [refused(os.pipe) for _ in range(40)]\n"
        "return found + [refused(libc.epoll_create1, 0), refused(libc.eventfd, 0, 0)]",
        is_refused,
    ),
    "daemonise": ("return [refused(os.setsid), refused(os.fork), refused(os.daemon, 0, 0) "
                  "if hasattr(os, 'daemon') else 'refused']", is_refused),
    "close the pipe": ("os.close(4)\nimport time\ntime.sleep(9)", ends("protocol")),
    "4 GB frame": ("os.write(4, b'\\xff' * 8)\nimport time\ntime.sleep(9)", ends("protocol")),
    "half a frame": ("os.write(4, b'\\0\\0')\nimport time\ntime.sleep(9)", ends("timeout")),
    "deep JSON": ("send(b'[' * 100_000)", ends("protocol")),
    "pickle": ("send(b'\\x80\\x04cos\\nsystem\\n(S\"id\"\\ntR.')", ends("protocol")),
    "spoofed frame": ("send({'i': 1, 'n': 'guess', 'v': 1})", ends("protocol")),
    "NaN": ("r = request()\nsend({'i': r['i'], 'n': r['n'], 'v': float('nan')})", ends("protocol")),
    "4,000-digit integer": (
        "r = request()\nsend(b'{\"i\":%d,\"n\":\"%s\",\"v\":' % (r['i'], r['n'].encode()) + b'9' * 4000 + b'}')",
        ends("protocol"),
    ),
    "frames flooded": (
        "r = request()\nwhile True: send({'i': r['i'], 'n': r['n'], 'v': 1})",
        # the first is a fair answer to this call; the rest poison what comes next
        ends("protocol", "ok"),
    ),
    "frame walking": (
        """
frame, seen = modules["sys"]._getframe(), []
while frame:
    seen += [str(v) for v in {**frame.f_globals, **frame.f_locals}.values() if isinstance(v, str)]
    frame = frame.f_back
text = "\\n".join(seen)
return [word for word in ("/root", "/home", "/usr", "PATH", "planted" + "-in-host", "site-packages") if word in text]""",
        returns([]),
    ),
    "GIL held by arithmetic": ("return 9**9**9", ends("timeout", "memory")),
    "GIL held by a regex": ("import re\nre.match('(a+)+$', 'a' * 60 + 'b')", ends("timeout")),
    "import hijack from the working directory": (
        "found = refused(lambda: open('math2.py', 'w').write('x = 1') and None)\n"
        "return refused(modules['importlib'].import_module, 'math2') if 'importlib' in modules else 'refused'",
        lambda result: is_refused(result) or "ModuleNotFoundError" in result.error,
    ),
    "json rewritten": ("modules['json'].dumps = modules['json'].loads = None\nreturn 7", returns(7)),
    "every descriptor written": (
        "found = []\nfor n in [0, 1, 2, *range(5, 64)]:\n    refused(os.write, n, b'x' * 9)\nreturn 7",
        returns(7),
    ),
    "resource and scheduling games": (
        "return [refused(os.nice, -5), refused(os.sched_setaffinity, 0, {0}),"
        " refused(libc.sched_setscheduler, 0, 1, 0), refused(libc.mlockall, 3),"
        " refused(libc.personality, 0x40000), refused(libc.syscall, 317, 0, 0, 0)]",
        is_refused,
    ),
    "kernel surfaces": (
        "return [refused(libc.syscall, number, 0, 0, 0, 0, 0) for number in "
        "(250, 248, 249, 298, 321, 323, 246, 320, 304, 310, 311, 272, 308, 434, 438, 424)]",
        is_refused,
    ),
}  # fmt: skip

X86_ONLY: Mapping[str, tuple[str, Expectation]] = {
    "x32 call": ("return libc.syscall(0x40000000 + 39)", ends("exit")),
    "int 0x80": (
        _INT80,
        lambda result: result.status == "exit" or result.value == "no gadget",
    ),
}


def rows() -> Mapping[str, tuple[str, Expectation]]:
    return {**ATTACKS, **(X86_ONLY if platform.machine() == "x86_64" else {})}


def source(body: str) -> dict[str, str]:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    head = "    os, ctypes, modules = reach()\n    libc = ctypes.CDLL(None, use_errno=True)\n"
    return {"f": f"{REACH}{FRAMES}\ndef f():\n{head}{lines}\n"}


def run_row(sandbox: LocalSandbox, name: str) -> str:
    """Empty where the attack failed and the pool still serves, else what was seen."""
    body, expected = rows()[name]
    session = sandbox.session(source(body))
    start = time.monotonic()
    result = session.call("f", {})
    took = time.monotonic() - start
    session.close()
    if took > 6 * LIMITS.call_timeout_s:
        return f"{name}: the host hung for {took:.1f} s"
    if not expected(result):
        return f"{name}: {result.status} {result.error} {str(result.value)[:300]}"
    after = sandbox.session({"g": "def g():\n    return 1"})
    served = after.call("g", {}).value == 1
    after.close()
    return "" if served else f"{name}: the pool does not serve any more"


def mounts_and_descriptors() -> tuple[int, int]:
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    return len(lines), len(os.listdir("/proc/self/fd"))


def main() -> None:
    """All rows and crossings in both tiers; prints one JSON object."""
    failures: dict[str, object] = {"uid": os.getuid()}
    before = mounts_and_descriptors()
    for tier in "AB":
        with LocalSandbox(LIMITS, force_tier=tier) as sandbox:
            seen = [run_row(sandbox, name) for name in rows()]
            seen += [crossing(sandbox) for crossing in CROSSINGS.values()]
        failures[tier] = [text for text in seen if text]
        failures[f"rows {tier}"] = len(seen)
    left = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    if (after := mounts_and_descriptors()) != before:
        left.append(f"mounts and descriptors: {before} before, {after} after")
    failures["left"] = left
    json.dump(failures, sys.stdout)


if __name__ == "__main__":
    main()
