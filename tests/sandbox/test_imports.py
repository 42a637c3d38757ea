"""The static import check, and the guard that backs it inside a session."""

import ast

import pytest

from astra.sandbox.imports import forbidden_imports, is_allowed
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import SandboxLoadError
from astra.sandbox.sources import compile_source

ALLOWED = ("math", "collections", "urllib.parse")


@pytest.mark.parametrize(
    ("source", "forbidden"),
    [
        ("import math\nfrom collections.abc import Mapping", []),
        ("import os, math", ["os"]),
        ("def f():\n    import subprocess as s", ["subprocess"]),
        ("from os import path", ["os"]),
        ("import urllib.parse\nfrom urllib import parse", []),
        ("from urllib import request, parse", ["urllib.request"]),
        ("import urllib.request", ["urllib.request"]),
        ("from . import x\nfrom ..y import z", [".", "..y"]),
        ("import mathematics", ["mathematics"]),
        ("if 0:\n    import socket\nimport os\nimport os", ["os", "socket"]),
    ],
)
def test_forbidden_imports(source: str, forbidden: list[str]) -> None:
    assert forbidden_imports(ast.parse(source), ALLOWED) == forbidden


def test_parents_allow_children_and_not_the_reverse() -> None:
    assert is_allowed("collections.abc", ALLOWED)
    assert not is_allowed("urllib", ALLOWED)


def test_a_source_that_does_not_parse_says_where() -> None:
    with pytest.raises(SandboxLoadError, match=r"SyntaxError in f: .* \(line 1\)"):
        compile_source("f", "def f(:", ALLOWED)


@pytest.mark.parametrize("module", ["os", "sys", "socket", "ctypes", "subprocess", "threading"])
def test_dynamic_imports_are_refused_in_the_session(sandbox: LocalSandbox, module: str) -> None:
    source = f"def f():\n    return str(__import__({module!r}))"
    session = sandbox.session({"f": source})
    result = session.call("f", {})
    session.close()
    assert result.error == f"ImportError: import of {module!r} is not allowed in the sandbox"


def test_allowed_imports_work_also_when_made_late(sandbox: LocalSandbox) -> None:
    source = """
def f():
    import datetime, json, decimal, statistics, hashlib, dataclasses, typing, enum
    import collections.abc, urllib.parse
    from urllib import parse
    @dataclasses.dataclass
    class P:
        x: int = 1
    class E(enum.Enum):
        A = 1
    day = datetime.datetime.strptime("2024-02-29", "%Y-%m-%d")
    return [day.isoformat(), str(decimal.Decimal("0.1")), P().x, E.A.value,
            parse.quote("a b"), typing.get_type_hints(P)["x"].__name__, "é".encode("cp1252").hex()]
"""
    session = sandbox.session({"f": source})
    result = session.call("f", {})
    session.close()
    assert result.value == ["2024-02-29T00:00:00", "0.1", 1, 1, "a%20b", "int", "e9"], result


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def f(:", "SyntaxError"),
        ("import os\ndef f(): pass", "forbidden import in f: os"),
        ("def g(): pass", "does not define a function named 'f'"),
        ("f = 3", "does not define a function named 'f'"),
        ("raise KeyError('x')", "KeyError: 'x'"),
        ("while True: pass", "timeout"),
        ("raise SystemExit(3)", "exited with status 3"),
        ("x = [0] * 10**9\ndef f(): pass", "memory"),
        ("def f(): return " + "(" * 300 + ")" * 300, "SyntaxError"),
        ("f = " + "-" * 100_000 + "1", "f"),
        ("\0", "f"),
    ],
)
def test_load_errors_carry_the_reason(sandbox: LocalSandbox, source: str, reason: str) -> None:
    with pytest.raises(SandboxLoadError, match=reason):
        sandbox.session({"f": source})


def test_names_that_are_no_functions_are_load_errors(sandbox: LocalSandbox) -> None:
    with pytest.raises(SandboxLoadError, match="not a function name"):
        sandbox.session({"a.b": "def f(): pass"})
