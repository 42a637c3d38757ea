"""What code that nobody trusts might try in a cage, as source that leaves ``found`` behind.

Each attack of ``only`` (empty: all) says ``denied: ...`` or what it got. Braces are doubled: the
text is formatted.
"""

from __future__ import annotations

HARMLESS = (
    "read the environment", "read a file of the host", "read the repository",
    "write a file of the host", "reach a service of the host",
)  # fmt: skip
"""May be run without a cage, to see that they work."""

ATTACKS = """
import ctypes, json, os, signal, socket, subprocess

found = {{}}
only = {only}

def attack(name, act):
    if only and name not in only:
        return
    try:
        got = act()
    except BaseException as error:
        found[name] = f"denied: {{error!r}}"
    else:
        found[name] = "denied" if got is None else str(got)[:200]

def connect(address, family=socket.AF_INET, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as client:
        client.settimeout(2)
        client.connect(address)
        if kind == socket.SOCK_DGRAM:
            client.send(b"x")
        return "connected"

def write(path):
    with open(path, "w") as file:
        file.write("planted")
    return "wrote"

def shell(command):
    code = subprocess.run(["/bin/sh", "-c", command], capture_output=True, timeout=10)
    return code.stdout.decode().strip() if code.returncode == 0 and code.stdout else None

def secrets():
    values = [v for v in os.environ.values() if "sk-" in v or "secret" in v.lower()]
    return values or None

def kernel(number, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "done"

attack("read the environment", secrets)
attack("read the environment of others", lambda: shell("cat /proc/*/environ"))
attack("read a file of the host", lambda: open("{key}").read())
attack("read passwords", lambda: open("/etc/shadow").read())
attack("read users", lambda: open("/etc/passwd").read())
attack("read the repository", lambda: open("{source}").read())
attack("list homes", lambda: [n for n in os.listdir("/home") if n] or None)
attack("write a file of the host", lambda: write("{planted}"))
attack("write by shell", lambda: shell("echo planted > '{planted}' && echo wrote"))
attack("write to programs", lambda: write("/usr/bin/planted"))
attack("write to the root", lambda: write("/planted"))
attack("write to the temporary folder", lambda: write("/tmp/planted"))
attack("write to its own interpreter", lambda: write(os.path.dirname(os.__file__) + "/planted.py"))
attack("reach a service of the host", lambda: connect(("127.0.0.1", {port})))
attack("reach the network", lambda: connect(("192.0.2.1", 80)))
attack("reach a name server", lambda: connect(("192.0.2.1", 53), kind=socket.SOCK_DGRAM))
attack("resolve a name", lambda: socket.getaddrinfo("example.org", 80))
attack("reach the network by IPv6", lambda: connect(("2001:db8::1", 80), socket.AF_INET6))
attack("see the host's process", lambda: os.kill({host}, 0))
attack("become root", lambda: os.setuid(0))
attack("make namespaces", lambda: kernel(272, 0x10000000))
attack("mount", lambda: kernel(165, b"tmpfs", b"/usr", b"tmpfs", 0, None))
attack("trace", lambda: kernel(101, 16, 1, 0, 0))
attack("run from the writable place", lambda: (
    write(os.environ["HOME"] + "/run"), os.chmod(os.environ["HOME"] + "/run", 0o700),
    subprocess.run([os.environ["HOME"] + "/run"], check=True))[0])
"""
