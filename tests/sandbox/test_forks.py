"""Template forks: one load, many sessions, kept apart and ended one by one."""

import os
import time

import pytest

from astra.sandbox.attacks import REACH
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import SandboxError, SandboxLoadError, SandboxStatus

TABLE = {
    "add": "rows = list(range(1000))\ndef add(x):\n    rows.append(x)\n    return len(rows)",
    "spin": "def spin():\n    print('here')\n    while True: pass",
    "leave": "def leave():\n    raise SystemExit(4)",
}


def test_forks_share_what_was_loaded_and_nothing_after(sandbox: LocalSandbox) -> None:
    one, two, three = sandbox.forks(TABLE, 3)
    assert [one.call("add", {"x": 1}).value, one.call("add", {"x": 1}).value] == [1001, 1002]
    assert two.call("add", {"x": 1}).value == 1001
    spun = two.call("spin", {})
    assert (spun.status, spun.stdout) == (SandboxStatus.TIMEOUT, "here\n")
    assert three.call("leave", {}).error == "the process exited with status 4"
    assert one.call("add", {"x": 1}).value == 1003  # a sibling's end is not its own
    one.close()
    deadline = time.monotonic() + 3
    while sandbox._slots.used and time.monotonic() < deadline:
        time.sleep(0.01)
    two.close()
    three.close()


def test_sources_that_do_not_load_are_said_once(sandbox: LocalSandbox) -> None:
    with pytest.raises(SandboxLoadError, match="ZeroDivisionError"):
        sandbox.forks({"f": "x = 1 / 0\ndef f(): pass"}, 2)
    with pytest.raises(SandboxLoadError, match="forbidden import"):
        sandbox.forks({"f": "import os\ndef f(): pass"}, 2)
    with pytest.raises(SandboxLoadError, match="timeout"):
        sandbox.forks({"f": "while True: pass"}, 2)
    (session,) = sandbox.forks(TABLE, 1)
    assert session.call("add", {"x": 1}).value == 1001
    session.close()


@pytest.mark.parametrize(
    ("attack", "seen"),
    [
        ("os.open('/etc/passwd', 0)", "OSError"),
        ("os.open('/tmp/x', 65)", "OSError"),
        ("modules['socket'].socket()", "OSError"),
        ("os.execv('/bin/sh', ['sh'])", "OSError"),
        ("modules['_thread'].start_new_thread(print, ())", "RuntimeError"),
        ("os.fork() if modules['sys']._getframe().f_back is None else os.fork()", "OSError"),
    ],
)
def test_a_forked_session_is_sealed(sandbox: LocalSandbox, attack: str, seen: str) -> None:
    body = f"    try:\n        {attack}\n    except (OSError, RuntimeError) as e:\n"
    body += "        return 'OSError' if isinstance(e, OSError) else type(e).__name__\n"
    source = f"{REACH}\ndef f():\n    os, ctypes, modules = reach()\n{body}    return 'ALLOWED'"
    (session,) = sandbox.forks({"f": source}, 1)
    assert session.call("f", {}).value == seen
    session.close()


def test_code_loaded_in_a_template_cannot_fork_without_bound(sandbox: LocalSandbox) -> None:
    """A template may fork; what it may not do is fork more than its own quota."""
    bomb = """
os, ctypes, modules = reach()
made = 0
try:
    for _ in range(2000):
        if os.fork() == 0:
            while True: modules["time"].sleep(60)
        made += 1
except OSError:
    pass
def f():
    return made
"""
    if sandbox.tier != "A":
        pytest.skip("only tier A forks from a template")
    before = len(os.listdir("/proc"))
    try:
        sessions = sandbox.forks({"f": REACH + bomb}, 1)
    except SandboxError:
        sessions = []  # its quota is used up: no session, and that is the template's own fault
    assert len(os.listdir("/proc")) - before < 400
    for session in sessions:
        session.close()
    deadline = time.monotonic() + 4
    while len(os.listdir("/proc")) - before > 40 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(os.listdir("/proc")) - before <= 40  # all gone with their namespace
    again = sandbox.session({"g": "def g():\n    return 1"})
    assert again.call("g", {}).value == 1
    again.close()
