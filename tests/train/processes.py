"""Runs of training in processes of their own, never longer than they may."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

TIMEOUT_S = 600


def run_python(root: Path, *arguments: str, **environment: str) -> str:
    """Standard output of ``python ARGUMENTS``; on a failure the test fails with what it wrote."""
    folder = root / "tests" / "train"
    # What the tests see, their children see: also packages in a folder of their own.
    known = filter(None, [os.environ.get("PYTHONPATH")])
    path = os.pathsep.join([str(root / "src"), str(folder), str(folder.parent), *known])
    done = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = done.communicate(timeout=TIMEOUT_S)
    finally:
        if done.poll() is None:
            os.killpg(done.pid, signal.SIGKILL)  # with all that it started
            done.wait(TIMEOUT_S)
    assert done.returncode == 0, errors[-3000:]
    return out


def script(root: Path, name: str) -> str:
    return str(root / "tests" / "train" / name)


def last_json(out: str) -> dict[str, Any]:
    return json.loads(out.splitlines()[-1])
