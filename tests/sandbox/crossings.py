"""Attacks that need more than one session or process; run in both tiers by whoever runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from astra.sandbox.attacks import REACH
from astra.sandbox.local import LocalSandbox

STATE = """
def f(word):
    os, ctypes, modules = reach()
    found = [getattr(modules["math"], "leak", None), modules["builtins"].__dict__.get("leak")]
    modules["math"].leak = modules["builtins"].leak = word
    return found
"""

KILL = """
def me():
    return reach()[0].getpid()
def f(pid):
    libc = reach()[1].CDLL(None)
    return sorted({libc.kill(p, 9) for p in {pid, *range(1, 400)}})
"""

TMP = """
def put():
    open("/tmp/secret", "w").write("s")
def f():
    return open("/tmp/secret").read()
"""


def no_state_passes(sandbox: LocalSandbox) -> str:
    """Neither to a session that is open at the same time nor to a later one."""
    one, two = (sandbox.session({"f": REACH + STATE}) for _ in range(2))
    seen = [one.call("f", {"word": "mine"}).value for _ in range(2)]
    later = sandbox.session({"f": REACH + STATE})
    others = [session.call("f", {"word": "x"}).value for session in (two, later)]
    for session in (one, two, later):
        session.close()
    expected = [None, None], ["mine", "mine"], [None, None], [None, None]
    return "" if (*seen, *others) == expected else f"state passed: {seen} {others}"


def no_signal_arrives(sandbox: LocalSandbox) -> str:
    victim, killer = (sandbox.session({"f": REACH + KILL, "me": REACH + KILL}) for _ in range(2))
    number = victim.call("me", {}).value
    sent = killer.call("f", {"pid": number}).value
    alive = victim.call("me", {}).value == number
    victim.close()
    killer.close()
    return "" if (sent, alive) == ([-1], True) else f"signals: {sent}, victim alive: {alive}"


def no_file_is_shared(sandbox: LocalSandbox) -> str:
    one, two = (sandbox.session({"f": TMP, "put": TMP}) for _ in range(2))
    one.call("put", {})
    own, others = one.call("f", {}), two.call("f", {})
    one.close()
    two.close()
    if others.status != "exception" or Path("/tmp/secret").exists():
        return f"a file was shared: {others}"
    return "" if own.value == ("s" if sandbox.tier == "A" else None) else f"own file: {own}"


CROSSINGS: Mapping[str, Callable[[LocalSandbox], str]] = {
    "state between sessions": no_state_passes,
    "signals between sessions": no_signal_arrives,
    "a sibling's files": no_file_is_shared,
}
"""What was seen; empty where the attack failed."""


def descendants(root: int) -> set[int]:
    """Every process below root; zombies count too."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(text.rpartition(")")[2].split()[1])
    found: set[int] = set()
    frontier = {root}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier}
        found |= frontier
    return found
