"""Values, statuses and captured output of calls, in both tiers."""

import math
from typing import Any

import pytest

from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.probe import probe
from astra.sandbox.protocol import SandboxResult, SandboxStatus, SandboxUnavailable


def run(sandbox: LocalSandbox, body: str, **arguments: Any) -> SandboxResult:
    source = f"def f({', '.join(arguments)}):\n" + "\n".join(f"    {x}" for x in body.splitlines())
    session = sandbox.session({"f": source})
    try:
        return session.call("f", arguments)
    finally:
        session.close()


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -5, 10**40, 1.5, "é😀\u2028", [1, [2]], {"a": {"b": []}}, "x" * 900_000],
)
def test_plain_values_go_through_and_come_back(sandbox: LocalSandbox, value: Any) -> None:
    result = run(sandbox, "return x", x=value)
    assert (result.status, result.value) == (SandboxStatus.OK, value), result.error


def test_state_persists_within_a_session_and_not_between(sandbox: LocalSandbox) -> None:
    source = {
        "add": "seen = []\ndef add(x):\n    seen.append(x)\n    return seen",
        "size": "def size():\n    return 'seen' in globals()",
    }
    first, second = sandbox.sessions([source, source])
    assert not isinstance(first, Exception)
    assert not isinstance(second, Exception)
    first.call("add", {"x": 1})
    assert first.call("add", {"x": 2}).value == [1, 2]
    assert first.call("size", {}).value is False  # each source has its own namespace
    assert second.call("add", {"x": 9}).value == [9]
    first.close()
    second.close()


def test_exceptions_are_one_line_without_host_paths(sandbox: LocalSandbox) -> None:
    assert run(sandbox, "return {}['x']").error == "KeyError: 'x'"
    assert run(sandbox, "raise ValueError()").error == "ValueError"
    late = run(sandbox, "from json import nothing")
    assert late.status is SandboxStatus.EXCEPTION
    assert "/" not in late.error.replace("(unknown location)", "")
    recursion = run(sandbox, "g = lambda: g()\nreturn g()")
    assert (recursion.status, recursion.error[:14]) == (SandboxStatus.EXCEPTION, "RecursionError")
    nasty = "class E(Exception):\n    def __str__(self): raise SystemExit\nraise E"
    assert run(sandbox, nasty).error == "E: <unprintable>"


@pytest.mark.parametrize(
    "expression",
    ["{1}", "b'x'", "float('nan')", "float('inf')", "10**600", "10**5000", "'\\ud800'", "object()",
     "'x' * (1 << 20)", "__import__('functools').reduce(lambda a, _: [a], range(200), 1)"],
)  # fmt: skip
def test_values_that_are_not_plain_json_are_the_tools_error(
    sandbox: LocalSandbox, expression: str
) -> None:
    session = sandbox.session({"f": f"def f():\n    print('kept')\n    return {expression}"})
    for _ in range(2):  # the session stays usable
        result = session.call("f", {})
        assert result.status is SandboxStatus.EXCEPTION, result
        assert result.error.startswith("TypeError: return value refused: "), result
        assert result.stdout == "kept\n"
    session.close()


def test_bad_arguments_and_names_do_not_reach_the_session(sandbox: LocalSandbox) -> None:
    session = sandbox.session({"f": "def f(x):\n    return x"})
    for bad in (math.nan, {1}, "x" * (1 << 20), "\ud800"):
        result = session.call("f", {"x": bad})
        assert result.error.startswith("ValueError: arguments refused"), result
    assert "no function 'g'" in session.call("g", {}).error
    assert session.call("f", {"y": 1}).error.startswith("TypeError: ")
    assert session.call("f", {"x": 1}).value == 1
    session.close()


def test_output_is_captured_apart_and_capped(limits: SandboxLimits, sandbox: LocalSandbox) -> None:
    body = "import contextlib\nprint('out')\nwith contextlib.redirect_stdout(None): print('no')"
    result = run(sandbox, body + "\nprint('é' * 9_999)\nprint('lost')\nreturn 1")
    assert result.value == 1
    assert result.stdout.startswith("out\né")
    assert len(result.stdout.encode()) <= limits.max_output_bytes
    assert run(sandbox, "print('\\ud800')\nreturn 1").stdout == "?\n"
    source = {"f": "def f(x):\n    print(x)", "g": "def g():\n    return 0"}
    session = sandbox.session(source)
    assert session.call("f", {"x": "a"}).stdout == "a\n"
    assert session.call("g", {}).stdout == ""
    session.close()


def test_timeout_kills_and_every_later_call_says_so(
    limits: SandboxLimits, sandbox: LocalSandbox
) -> None:
    session = sandbox.session({"f": "def f():\n    while True: pass"})
    result = session.call("f", {})
    assert result.status is SandboxStatus.TIMEOUT
    assert limits.call_timeout_s <= result.elapsed_s < limits.call_timeout_s + 1.5
    assert not session.alive
    again = session.call("f", {})
    assert again.status is SandboxStatus.TIMEOUT
    assert "has ended" in again.error
    session.close()
    assert session.call("f", {}).status is SandboxStatus.TIMEOUT


@pytest.mark.parametrize(
    "body",
    ["import time\ntime.sleep(60)", "9**9**9", "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
     "while True:\n    try:\n        while True: pass\n    except BaseException: pass"],
)  # fmt: skip
def test_nothing_outlasts_the_host_clock(sandbox: LocalSandbox, body: str) -> None:
    assert run(sandbox, body).status is SandboxStatus.TIMEOUT


def test_memory_exit_and_closed_sessions(sandbox: LocalSandbox) -> None:
    session = sandbox.session({"f": "def f(n):\n    return len(bytearray(n))"})
    assert session.call("f", {"n": 10 << 20}).value == 10 << 20
    bomb = session.call("f", {"n": 1 << 30})
    assert (bomb.status, session.alive) == (SandboxStatus.MEMORY, True)
    assert session.call("f", {"n": 1}).value == 1
    session.close()
    session.close()
    assert session.call("f", {"n": 1}).status is SandboxStatus.INFRA
    grown = run(sandbox, "x = []\nwhile True: x.append('x' * 100_000)")
    assert grown.status is SandboxStatus.MEMORY, grown
    ended = run(sandbox, "raise SystemExit(7)")
    assert (ended.status, ended.error) == (SandboxStatus.EXIT, "the process exited with status 7")


def test_tier_c_serves_only_where_it_is_asked_for(limits: SandboxLimits) -> None:
    with LocalSandbox(limits, force_tier="C") as sandbox:
        assert sandbox.facts["landlock"] == 0
        assert set(sandbox.findings.values()) == {"denied"}
        assert run(sandbox, "return 1").value == 1


def test_cpu_limit_is_a_timeout(limits: SandboxLimits) -> None:
    tight = limits.model_copy(update={"cpu_s": 1, "call_timeout_s": 10.0})
    with LocalSandbox(tight) as sandbox:
        result = run(sandbox, "while True: pass")
    assert result.status is SandboxStatus.TIMEOUT, result
    assert "CPU" in result.error


def test_sets_have_the_same_order_in_every_zygote(limits: SandboxLimits) -> None:
    seen = set[str]()
    for _ in range(2):
        with LocalSandbox(limits, zygotes=2) as sandbox:
            for _ in range(2):
                seen.add(str(run(sandbox, "return list({str(i) for i in range(50)})").value))
    assert len(seen) == 1


def test_a_tier_that_does_not_exist_is_refused_loudly(
    limits: SandboxLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="tiers are"):
        LocalSandbox(min_tier="D")
    bad = limits.model_copy(update={"allowed_imports": ("math", "no_such_module")})
    with pytest.raises(SandboxUnavailable, match=r"no_such_module.*is not importable"):
        LocalSandbox(bad)
    found = {"read_passwd": "ALLOWED: 3"}
    monkeypatch.setattr("astra.sandbox.local.run_attacks", lambda session: session.close() or found)
    with pytest.raises(SandboxUnavailable, match=r"tier A: attacks succeeded.*read_passwd.*tier B"):
        LocalSandbox(limits)


def test_probe_reports_the_tier_and_every_finding(limits: SandboxLimits) -> None:
    report = probe(limits)
    assert report.tier in ("A", "B", "C", "none")
    assert report.meets("C") == (report.tier != "none")
    assert not report.meets("A") or report.remedy == ""
    assert report.tier == "none" or report.findings["socket_inet"] == "denied"
