"""Attacks that every sandbox runs on itself at start, and that must all be denied.

It reaches ``os`` and ``ctypes`` the way hostile code does, by walking objects, and then makes
raw system calls, so what it tests is the kernel's boundary and not the import check.
"""

import base64
import marshal

from astra.sandbox.driver import drive
from astra.sandbox.protocol import SandboxStatus, SandboxUnavailable
from astra.sandbox.session import LocalSession

REACH = """
def reach():
    wrap = [c for c in object.__subclasses__() if c.__name__ == "_wrap_close"][0]
    os = wrap.__init__.__globals__["sys"].modules["os"]
    modules = wrap.__init__.__globals__["sys"].modules
    return os, modules["ctypes"], modules
"""
"""Source of a helper giving tool code os, ctypes and the module table without any import."""

_ATTACKS = (
    REACH
    + """
def probe():
    os, ctypes, modules = reach()
    libc = ctypes.CDLL(None, use_errno=True)
    found = {}

    def attempt(name, attack):
        try:
            result = attack()
        except OSError:
            found[name] = "denied"
        else:
            found[name] = "denied" if result in (-1, None) else f"ALLOWED: {result!r}"[:200]

    def fork():
        pid = libc.fork()
        if pid == 0:
            os._exit(0)
        return pid

    def raise_limit():
        import_resource = modules["resource"]
        kind = import_resource.RLIMIT_NPROC
        try:
            import_resource.setrlimit(kind, (100, 100))
        except ValueError:
            return None
        return "raised"

    null = ctypes.c_void_p(None)
    attempt("read_passwd", lambda: os.open("/etc/passwd", os.O_RDONLY))
    attempt("read_proc", lambda: os.open("/proc/self/environ", os.O_RDONLY))
    attempt("list_root", lambda: os.listdir("/"))
    attempt("stat_host", lambda: os.stat("/etc/passwd").st_size)
    attempt("write_outside", lambda: os.open("/astra-probe", os.O_WRONLY | os.O_CREAT))
    attempt("socket_inet", lambda: libc.socket(2, 1, 0))
    attempt("socket_udp", lambda: libc.socket(2, 2, 0))
    attempt("socket_unix", lambda: libc.socket(1, 1, 0))
    attempt("socketpair", lambda: libc.socketpair(1, 1, 0, (ctypes.c_int * 2)()))
    attempt("fork", fork)
    attempt("execve", lambda: libc.execve(b"/bin/true", null, null))
    attempt("memfd", lambda: libc.memfd_create(b"x", 0))
    attempt("signal_parent", lambda: libc.kill(os.getppid() or -1, 0))
    attempt("ptrace", lambda: libc.ptrace(0, 0, null, null))
    attempt("unshare", lambda: libc.unshare(0x10000000))
    attempt("mount", lambda: libc.mount(b"none", b"/", b"tmpfs", ctypes.c_ulong(0), null))
    attempt("executable_memory", lambda: libc.mprotect(null, ctypes.c_size_t(4096), 5))
    attempt("raise_rlimit", raise_limit)
    attempt("environment", lambda: dict(os.environ) or None)
    attempt("root_uid", lambda: None if os.getpid() and libc.getuid() != 0 else "root")
    return found
"""
)


def run_attacks(session: LocalSession) -> dict[str, str]:
    """Attack from inside the session, which is closed after: attack name → "denied" or what.

    Raises SandboxUnavailable where the attacks could not even run.
    """
    code = base64.b64encode(marshal.dumps(compile(_ATTACKS, "<probe>", "exec"))).decode()
    try:
        loaded = drive([session.load_steps({"probe": code})])[0]
        result = session.call("probe", {}) if loaded.status is SandboxStatus.OK else loaded
    finally:
        session.close()
    if result.status is not SandboxStatus.OK or not isinstance(result.value, dict):
        raise SandboxUnavailable(f"the probe did not finish: {result.status} {result.error}")
    return {str(name): str(found) for name, found in result.value.items()}
