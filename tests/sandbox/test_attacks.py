"""Hostile code in both tiers: it reaches os and ctypes, and the kernel must stop it."""

import os
import sys

import pyseccomp
import pytest

from astra.sandbox.attacks import REACH
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import SandboxResult, SandboxStatus

# frames of this session's server: replies go out at 4, the request's ids are in a caller's frame
FRAMES = """
def request():
    import struct, json
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
"""


def attack(sandbox: LocalSandbox, body: str) -> SandboxResult:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    source = f"{REACH}{FRAMES}\ndef f():\n    os, ctypes, modules = reach()\n"
    source += f"    libc = ctypes.CDLL(None, use_errno=True)\n{lines}\n"
    session = sandbox.session({"f": source})
    try:
        return session.call("f", {})
    finally:
        session.close()
        still = sandbox.session({"g": "def g():\n    return 1"})
        assert still.call("g", {}).value == 1  # the pool still serves
        still.close()


@pytest.mark.parametrize(
    "call",
    [
        "os.open('/etc/passwd', 0)", "os.open('/proc/1/environ', 0)", 
        "os.open('/proc/self/mem', 2)",
        "os.open('../../../etc/passwd', 0)", "os.listdir('/')", "os.stat('/etc')",
        "os.open('/x', 65)", "os.symlink('/etc/passwd', 's')", "os.link('/etc/passwd', 'l')",
        "os.mkfifo('p')", "os.chmod('/tmp', 511)", "os.chroot('/')", "os.chdir('/')",
        "os.fork()", "os.forkpty()", "os.execv('/bin/sh', ['sh'])", 
        "os.posix_spawn('/bin/sh', [], {})",
        "os.kill(-1, 9)", "os.kill(os.getpid(), 19)", "os.killpg(0, 9)", "os.setuid(0)",
        "os.setsid()", "os.memfd_create('x')", "os.pipe()", "os.dup(3)", "os.eventfd(0)",
        "os.sched_setaffinity(0, {0})", "os.nice(5)", "os.getpriority(0, 0)",
        "os.posix_openpt(2)" if sys.version_info >= (3, 13) else "os.openpty()",
        "modules['resource'].setrlimit(modules['resource'].RLIMIT_CPU, (999, 999))",
        "modules['socket'].socket()", "modules['socket'].socketpair()",
        "modules['socket'].socket(1, 2)", "modules['socket'].create_connection(('127.0.0.1', 1))",
        "modules['socket'].send_fds(modules['socket'].socket(fileno=3), [b'x'], [0])",
        "modules['select'].epoll()", "modules['ctypes'].CDLL('libc.so.6').nothing",
    ],
)  # fmt: skip
def test_python_level_attacks_are_denied(sandbox: LocalSandbox, call: str) -> None:
    caught = "except (OSError, ValueError, AttributeError) as e:\n    return type(e).__name__"
    result = attack(sandbox, f"try:\n    {call}\n{caught}\nreturn 'ALLOWED'")
    assert result.status is SandboxStatus.OK, result
    assert result.value != "ALLOWED", result


@pytest.mark.parametrize(
    "call",
    [
        "clone(0x11, 0, 0, 0, 0)", "clone(0x10f00, 0, 0, 0, 0)", "clone3(0, 0)", "vfork()",
        "ptrace(0, 0, 0, 0)", "unshare(0x10000000)", "setns(3, 0)", "mount(0, 0, 0, 0, 0)",
        "umount2(0, 2)", "pivot_root(0, 0)", "chroot(0)", "io_uring_setup(1, 0)", "bpf(0, 0, 0)",
        "perf_event_open(0, 0, 0, 0, 0)", "keyctl(0)", "userfaultfd(0)", "process_vm_readv(1, 0)",
        "memfd_create(0, 0)", "execveat(0, 0, 0, 0, 4096)", "seccomp(1, 0, 0)", "prctl(4, 1)",
        "capset(0, 0)", "kexec_load(0)", "pidfd_open(1, 0)", "open_by_handle_at(3, 0, 0)",
        "tgkill(1, 1, 9)", "fcntl(3, 8, 1)", "ioctl(3, 0x8901, 0)", "sendmsg(3, 0, 0)",
        "recvmsg(3, 0, 0)", "landlock_restrict_self(3, 0)", "name_to_handle_at(-100, 0, 0, 0, 0)",
    ],
)  # fmt: skip
def test_raw_system_calls_are_denied(sandbox: LocalSandbox, call: str) -> None:
    name, _, rest = call.partition("(")
    number = pyseccomp.resolve_syscall(pyseccomp.system_arch(), name)
    if number < 0:
        pytest.skip(f"no {name} on this architecture")
    body = f"r = libc.syscall({number}, {rest}\nreturn [r, ctypes.get_errno()]"
    result = attack(sandbox, body)
    assert result.status is SandboxStatus.OK, result
    assert result.value in ([-1, 1], [-1, 38]), result  # EPERM, ENOSYS


def test_executable_memory_and_foreign_abis(sandbox: LocalSandbox) -> None:
    body = "import array\nlibc.mmap.restype = ctypes.c_void_p\n"
    body += (
        "return libc.mmap(None, ctypes.c_size_t(4096), 7, 0x22, -1, ctypes.c_long(0)) == 2**64 - 1"
    )
    assert attack(sandbox, body).value is True
    if os.uname().machine == "x86_64":
        x32 = attack(sandbox, "return libc.syscall(0x40000000 + 39)")
        assert (x32.status, "SIGSYS" in x32.error) == (SandboxStatus.EXIT, True), x32


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("os._exit(0)", SandboxStatus.EXIT),
        ("ctypes.string_at(1)", SandboxStatus.EXIT),
        ("os.abort()", SandboxStatus.EXIT),
        ("os.close(4)\nimport time\ntime.sleep(30)", SandboxStatus.PROTOCOL),
        ("os.write(4, b'\\xff' * 8)\nimport time\ntime.sleep(30)", SandboxStatus.PROTOCOL),
        ("send(b'[' * 100_000)", SandboxStatus.PROTOCOL),
        ("send(b'\\x80\\x04K\\x01.')", SandboxStatus.PROTOCOL),
        ("send({**request(), 'v': 1})", SandboxStatus.PROTOCOL),
        ("r = request()\nsend({'i': r['i'], 'n': r['n'] + '0', 'v': 1})", SandboxStatus.PROTOCOL),
        ("r = request()\nsend({'i': r['i'] + 1, 'n': r['n'], 'v': 1})", SandboxStatus.PROTOCOL),
        ("send({**request(), 'v': float('nan'), 'f': 1})", SandboxStatus.PROTOCOL),
        ("r = request()\nsend({'i': r['i'], 'n': r['n'], 'v': 1e400})", SandboxStatus.PROTOCOL),
        ("r = request()\nsend({'i': r['i'], 'n': r['n'], 'e': 1, 't': 2})", SandboxStatus.PROTOCOL),
        ("os.write(4, b'\\0\\0')\nimport time\ntime.sleep(30)", SandboxStatus.TIMEOUT),
    ],
)  # fmt: skip
def test_ends_and_forged_frames_are_judged_by_the_host(
    sandbox: LocalSandbox, body: str, status: SandboxStatus
) -> None:
    result = attack(sandbox, body)
    assert result.status is status, result


@pytest.mark.parametrize("step", ["g()", "list(map(lambda _: g(), [0]))"])
def test_unbounded_recursion_ends_only_the_call_or_its_session(
    sandbox: LocalSandbox, step: str
) -> None:
    result = attack(sandbox, f"modules['sys'].setrecursionlimit(10**9)\ng = lambda: {step}\ng()")
    assert result.status in ("exit", "exception", "memory", "timeout"), result


def test_a_reply_sent_ahead_poisons_the_session(sandbox: LocalSandbox) -> None:
    ahead = "def f():\n    r = request()\n    send({'i': r['i'], 'n': r['n'], 'v': 'early'})\n"
    ahead += "    return 'late'"
    session = sandbox.session({"f": REACH + FRAMES + ahead, "g": "def g():\n    return 2"})
    first, second = session.call("f", {}), session.call("g", {})
    assert first.value in ("early", None)  # its own value is its own to forge
    assert second.status is SandboxStatus.PROTOCOL
    assert not session.alive


def test_a_rewritten_encoder_reaches_nobody_else(sandbox: LocalSandbox) -> None:
    body = "json = modules['json']\njson.dumps = json.loads = None\n"
    body += "json.JSONEncoder.encode = json.JSONDecoder.decode = lambda s, x: 'NaN'\n"
    assert attack(sandbox, body + "return 1").value == 1  # the wire holds its own
    body = """
frame = modules["sys"]._getframe()
while "_wire" not in getattr(frame.f_locals.get("self"), "__dict__", {}):
    frame = frame.f_back
wire = frame.f_locals["self"]._wire
wire.encode = lambda message: b"\\0\\0\\0\\x0b" + b'{"v":  NaN}'
return 1
"""
    assert attack(sandbox, body).status is SandboxStatus.PROTOCOL


def test_no_environment_path_or_descriptor_of_the_host_is_visible(sandbox: LocalSandbox) -> None:
    body = """
s = modules["sys"]
fds = [n for n in range(64) if not failing(os.fstat, n)]
return [dict(os.environ), s.path, s.argv, s.executable, s.prefix, fds, libc.getenv(b"PATH"),
        [m for m in list(modules) if getattr(modules[m], "__file__", None)]]
"""
    helper = "def failing(f, *a):\n    try: f(*a)\n    except OSError: return True\n"
    result = attack_with(sandbox, helper, body)
    if sandbox.tier == "A":
        assert result.value == [{}, [], [""], "", "/", [0, 1, 2, 3, 4], 0, []], result
    else:
        assert result.value[:5] == [{}, [], [""], "", "/"], result
        assert set(result.value[5]) <= {0, 1, 2, 3, 4}, result
        assert result.value[6:] == [0, []], result


def attack_with(sandbox: LocalSandbox, helper: str, body: str) -> SandboxResult:
    return attack(sandbox, f"ns = {{}}\nexec({helper!r}, ns)\nfailing = ns['failing']\n{body}")
