"""Every test that can be skipped belongs to a part that `make test-all` installs or tells of."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from astra.devtools.optional_parts import OptionalPart, part_of, read_parts
from astra.devtools.test_all import CaseOutcome, by_environment, judge
from astra.errors import AstraError

SKIPS = {
    "pytest.skip", "pytest.importorskip", "pytest.mark.skip", "pytest.mark.skipif",
    "unittest.skip", "unittest.skipIf", "unittest.skipUnless", "unittest.SkipTest",
}  # fmt: skip


@dataclass(frozen=True)
class Skip:
    """A call that can skip, its constant text, and the function around it."""

    place: str
    text: str
    function: ast.FunctionDef | None


@cache
def body_of(file: Path, word: str) -> list[ast.stmt]:
    """The file's statements, if it has the word at all: most files have not."""
    text = file.read_text(encoding="utf-8")
    return ast.parse(text).body if word in text else []


def skips_of(file: Path, root: Path) -> Iterator[Skip]:
    body = body_of(file, "skip")
    inside = {
        id(node): one for one in body if isinstance(one, ast.FunctionDef) for node in ast.walk(one)
    }
    for node in (node for one in body for node in ast.walk(one)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in SKIPS:
            place = f"{file.relative_to(root)}:{node.lineno}"
            yield Skip(place, reason_of(node), inside.get(id(node)))


def reason_of(call: ast.Call) -> str:
    """What a skip says, as far as it is written in place; a blank stands for each value."""
    reason: ast.expr | None = next((k.value for k in call.keywords if k.arg == "reason"), None)
    name = ast.unparse(call.func)
    if reason is None and name == "pytest.importorskip":
        return f"could not import {ast.unparse(call.args[0])}"
    if reason is None and name != "pytest.mark.skipif" and call.args:
        reason = call.args[-1]
    if isinstance(reason, ast.JoinedStr):
        return "".join(
            str(one.value) if isinstance(one, ast.Constant) else "_" for one in reason.values
        )
    return str(reason.value) if isinstance(reason, ast.Constant) else ""


def is_fixture(function: ast.FunctionDef) -> bool:
    return any("fixture" in ast.unparse(one) for one in function.decorator_list)


def reached(file: Path, function: ast.FunctionDef | None, root: Path) -> set[str]:
    """The tests and files that a skip in ``function`` of ``file`` can skip."""
    if function is not None and function.name.startswith("test_"):
        return {f"{file.relative_to(root)}::{function.name}"}
    if file.name != "conftest.py":
        return {str(file.relative_to(root))}
    assert function is not None, f"{file} skips when it is read"
    assert is_fixture(function), f"{file} skips outside of fixtures"
    found: set[str] = set()
    for other in file.parent.rglob("*.py"):
        body = body_of(other, function.name)
        functions = [one for one in body if isinstance(one, ast.FunctionDef)]
        if other != file and any(one.name == function.name for one in functions):
            continue  # a fixture of its own
        for one in functions:
            if function.name in {argument.arg for argument in one.args.args}:
                found |= reached(other, one, root)
    return found


@pytest.fixture(scope="module")
def parts(root: Path) -> list[OptionalPart]:
    return read_parts(root)


def test_every_skip_belongs_to_a_part_that_runs_what_it_skips(
    root: Path, parts: list[OptionalPart]
) -> None:
    claimed: set[str] = set()
    for file in sorted((root / "tests").rglob("*.py")):
        for skip in skips_of(file, root):
            part = part_of(skip.text, parts)
            assert part, f"{skip.place} skips with {skip.text!r}: no part of tests/optional.toml"
            claimed |= {pattern for pattern in part.skips if re.search(pattern, skip.text)}
            for test in reached(file, skip.function, root):
                assert part.covers(test), f"[{part.name}] lacks {test}, which {skip.place} skips"
    idle = {pattern for part in parts for pattern in part.skips} - claimed
    assert not idle, "no test skips so any more"


def test_what_parts_are_made_by_is_in_the_makefile(root: Path, parts: list[OptionalPart]) -> None:
    wanted = {target for part in parts for target in part.made_by}
    wanted |= {f"{part.environment}/.installed" for part in parts if part.environment}
    for target in sorted(wanted):
        told = subprocess.run(
            ["make", "-n", target], cwd=root, capture_output=True, text=True, check=False
        )
        assert told.returncode == 0, told.stderr


def part(name: str, **fields: object) -> OptionalPart:
    return OptionalPart.model_validate({"name": name, "what": "", "skips": [name], **fields})


def test_a_reason_names_one_part_or_none() -> None:
    two = [part("ray", tests=[]), part("array", tests=[])]
    assert part_of("no ray here", two) == two[0]
    assert part_of("nothing here", two) is None
    with pytest.raises(AstraError, match="ray, array all claim the skip 'array'"):
        part_of("array", two)


def test_a_test_runs_once_an_environment() -> None:
    listed = [
        part("a", tests=["tests/x", "tests/y.py::test_one"]),
        part("b", tests=["tests/x/test_z.py", "tests/y.py"]),
        part("c", tests=["tests/x/test_z.py"], environment=".venv-c"),
    ]
    assert by_environment(listed) == {
        ".venv": ["tests/x", "tests/y.py"], ".venv-c": ["tests/x/test_z.py"],
    }  # fmt: skip


def test_what_ran_anywhere_was_not_skipped() -> None:
    came = [
        ("t::a", ".venv", "skipped", "ray"), ("t::a", ".venv-c", "passed", ""),
        ("t::b", ".venv", "passed", ""), ("t::b", ".venv-c", "failed", ""),
        ("t::c", ".venv", "skipped", "root"),
    ]  # fmt: skip
    found = judge([CaseOutcome(*one, seconds=1.0) for one in came])
    assert found.ran == {"t::a", "t::b"}
    assert found.failed == {"t::b"}
    assert found.skipped == {"t::c": "root"}


@pytest.mark.parametrize("field", ["made_by = ['x']", "given_by = 'X'", "environment = '.venv-x'"])
def test_a_bad_table_is_refused(tmp_path: Path, field: str) -> None:
    (tmp_path / "tests").mkdir()
    table = tmp_path / "tests/optional.toml"
    for text, said in (
        (f"[a]\nwhat = ''\nmachine = true\nskips = []\ntests = []\n{field}", "neither made nor"),
        ("[a]\nskips = []\ntests = []", "what"),
        ("[a]\nwhat = ''\nskips = []\ntests = []\nneeds = 1", "needs"),
        ("[a]\nwhat = ''\nskips = []\ntests = ['tests/gone.py::test_x']", "not there"),
    ):
        table.write_text(text)
        with pytest.raises(AstraError, match=said):
            read_parts(tmp_path)


# --- the command on a project of its own

MAKEFILE = """
part:
\ttouch part
broken:
\texit 3
"""
TESTS = """
import os
from pathlib import Path

import pytest


def test_with_the_part() -> None:
    if not Path("part").exists():
        pytest.skip("the part is not installed")


def test_with_a_corpus() -> None:
    if "CORPUS" not in os.environ:
        pytest.skip("CORPUS names nothing")
    assert os.environ["CORPUS"] == "right"


def test_of_nobody() -> None:
    if "NEW" in os.environ:
        pytest.skip("something new")
"""
TABLE = """
[part]
what = "a file"
made_by = ["{target}"]
skips = ["^the part is not"]
tests = ["tests/test_parts.py"]

[corpus]
what = "a corpus"
given_by = "CORPUS"
skips = ["^CORPUS "]
tests = ["tests/test_parts.py::test_with_a_corpus"]
"""


LONG_TESTS = """
import pytest


@pytest.mark.long
def test_for_minutes() -> None:
    pass
"""
LONG_PART = """
[patience]
what = "many minutes"
{long}
skips = []
tests = ["tests/test_patience.py"]
"""


def run_all(
    folder: Path, root: Path, target: str = "part", table: str = "", *options: str, **variables: str
) -> tuple[int, str]:
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = long\naddopts = -m 'not long'\n")
    (folder / "tests/test_patience.py").write_text(LONG_TESTS)
    (folder / "tests/test_parts.py").write_text(TESTS)
    (folder / "tests/optional.toml").write_text(TABLE.format(target=target) + table)
    known = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST", "MAKE", "MFLAGS"))
    }
    ended = subprocess.run(
        [sys.executable, "-m", "astra.devtools.test_all", *options], cwd=folder, check=False,
        env=known | {"PYTHONPATH": str(root / "src")} | variables,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280,
    )  # fmt: skip
    return ended.returncode, ended.stdout


@pytest.mark.slow
def test_parts_are_made_and_what_nobody_can_make_is_told(root: Path, tmp_path: Path) -> None:
    code, said = run_all(tmp_path, root)
    assert code == 0, said
    assert "1 of 2: installing part, a file" in said
    assert "skipped for want of corpus (a corpus): 1" in said
    assert "test_with_a_corpus: CORPUS names nothing" in said
    assert "2 passed, 0 failed, 0 skipped; 1 more skipped" in said


@pytest.mark.slow
def test_what_fails_or_is_skipped_is_told_and_fails(root: Path, tmp_path: Path) -> None:
    code, said = run_all(tmp_path, root, "broken", CORPUS="wrong", NEW="1")
    assert code == 1
    assert "NOT INSTALLED: part; `make --no-print-directory broken` failed" in said
    assert "skipped for want of part (a file): 1" in said
    assert "skipped for want of a part that tests/optional.toml does not know: 1" in said
    assert "FAILED: tests/test_parts.py::test_with_a_corpus" in said
    assert "0 passed, 1 failed, 2 skipped; 0 more" in said


@pytest.mark.slow
def test_a_part_of_long_tests_is_left_for_those_who_have_the_time(
    root: Path, tmp_path: Path
) -> None:
    table = LONG_PART.format(long="long = true")
    code, said = run_all(tmp_path, root, "part", table)
    assert code == 0, said
    assert "left for LONG=1: patience, many minutes" in said
    assert "2 passed, 0 failed, 0 skipped" in said
    code, said = run_all(tmp_path, root, "part", table, "--long")
    assert code == 0, said
    assert "left for LONG=1" not in said
    assert "3 passed, 0 failed, 0 skipped" in said


@pytest.mark.slow
def test_a_part_whose_tests_are_long_without_saying_so_fails(root: Path, tmp_path: Path) -> None:
    code, said = run_all(tmp_path, root, "part", LONG_PART.format(long=""))
    assert code == 1
    assert "NOT TESTED: patience: pytest found no test of it" in said
