"""The attack suite in both tiers, as this user and as an ordinary one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from crossings import CROSSINGS
from hostile import rows, run_row

from astra.sandbox.local import LocalSandbox


@pytest.mark.parametrize("name", rows())
def test_the_attack_fails_and_the_pool_still_serves(sandbox: LocalSandbox, name: str) -> None:
    assert run_row(sandbox, name) == ""


@pytest.mark.parametrize("name", CROSSINGS)
def test_nothing_crosses_from_one_session_to_another(sandbox: LocalSandbox, name: str) -> None:
    assert CROSSINGS[name](sandbox) == ""


def interpreter() -> str:
    """The distribution's, since root's own may lie where others cannot reach it."""
    return "/usr/bin/python3"


@pytest.mark.skipif(os.getuid() != 0, reason="changing the user needs root")
@pytest.mark.skipif(not Path(interpreter()).exists(), reason="no interpreter for other users")
def test_the_whole_suite_as_an_ordinary_user() -> None:
    packages = [path for path in sys.path if path.endswith("site-packages")]
    here = Path(__file__).parent
    result = subprocess.run(
        [interpreter(), "-B", str(here / "hostile.py")],
        env={"PYTHONPATH": os.pathsep.join([str(here.parents[1] / "src"), *packages])},
        user=65534, group=65534, extra_groups=[], capture_output=True, text=True, timeout=120,
        cwd="/",
    )  # fmt: skip
    if "ModuleNotFoundError" in result.stderr or "can't open file" in result.stderr:
        pytest.skip("an ordinary user cannot read this checkout or its packages")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    count = len(rows()) + len(CROSSINGS)
    assert found == {
        "uid": 65534, "A": [], "B": [], "rows A": count, "rows B": count, "left": [],
    }  # fmt: skip


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
def test_a_rootless_container_with_a_single_uid() -> None:
    """Root there is the only uid there is; both tiers work without changing it."""
    code = (
        "from astra.sandbox.local import LocalSandbox\n"
        "for tier in 'AB':\n"
        "    with LocalSandbox(force_tier=tier) as sandbox:\n"
        "        session = sandbox.session({'f': 'def f():\\n    return 1'})\n"
        "        print(tier, set(sandbox.findings.values()), session.call('f', {}).value)\n"
    )
    result = subprocess.run(
        ["unshare", "--user", "--map-root-user", sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if "unshare failed" in result.stderr:
        pytest.skip("user namespaces are forbidden here")
    assert result.stdout == "A {'denied'} 1\nB {'denied'} 1\n", result.stderr


NO_NAMESPACES = "echo 0 > /proc/sys/user/max_user_namespaces && exec "


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
def test_where_namespaces_are_forbidden_tier_b_is_used_and_said() -> None:
    code = (
        "from astra.sandbox.local import LocalSandbox\n"
        "from astra.sandbox.probe import probe\n"
        "from astra.sandbox.protocol import SandboxUnavailable\n"
        "report = probe()\n"
        "print(report.tier, 'unshare' in report.findings['tier A'], report.remedy[:6])\n"
        "with LocalSandbox() as sandbox:\n"
        "    print(sandbox.tier, sandbox.session({'f': 'def f(): return 1'}).call('f', {}).value)\n"
        "try:\n"
        "    LocalSandbox(min_tier='A')\n"
        "except SandboxUnavailable as error:\n"
        "    print(str(error)[:30])\n"
    )
    result = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", NO_NAMESPACES + '"$@"', "sh",
         sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if "unshare failed" in result.stderr or "/proc/sys" in result.stderr:
        pytest.skip("user namespaces are forbidden here, or cannot be")
    lines = ["B True Tier A", "B 1", "no code sandbox of tier A or b"]
    assert result.stdout.splitlines() == lines, result.stderr
