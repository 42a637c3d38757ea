"""A published folder is loaded by others' libraries in a process of its own before it is done.

That process starts in an empty directory, offline and with empty caches, and cannot import this
project.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import astra
from astra.publish.record import PublishError

PROBES = Path(__file__).parent / "probes"
TIMEOUT_S = 1800.0
"""Weights of a large model load for minutes."""
TAIL = 2000
REPLY_TOKENS = 16


def probed(script: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """What a script of ``probes/`` says of a folder. PublishError where it does not load."""
    command = [sys.executable, "-I", str(PROBES / f"{script}.py"), str(folder.absolute())]
    with TemporaryDirectory(prefix="astra-fresh-") as place:
        try:
            ended = subprocess.run(
                [*command, *arguments], cwd=_empty(place), env=_environment(place),
                capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise PublishError(f"{folder} did not load within {TIMEOUT_S:.0f} s") from None
    if ended.returncode:
        said = ended.stderr[-TAIL:].strip()
        raise PublishError(f"what was written does not load in a process of its own:\n{said}")
    return json.loads(ended.stdout.splitlines()[-1])


def served(folder: Path, dtype: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Start ``astra serve`` on a policy, ask it one question and end it; what it answered with.

    ``asked`` has the ``messages`` and ``tools`` of a chat completion.

    Raises PublishError where it does not come up or does not answer.
    """
    command = [
        sys.executable, "-m", "astra.cli.main", "serve", str(folder.absolute()), "--name", "policy",
        "--port", "0", "--dtype", dtype,
    ]  # fmt: skip
    with TemporaryDirectory(prefix="astra-fresh-") as place:
        log = Path(place, "serve.log")
        environment = _environment(place) | {"PYTHONPATH": str(Path(astra.__file__).parents[1])}
        with log.open("wb") as errors:
            process = subprocess.Popen(
                command, cwd=_empty(place), env=environment, stdout=subprocess.PIPE, stderr=errors,
                text=True,
            )  # fmt: skip
        try:
            assert process.stdout is not None
            line = _first_line(process.stdout)
            if " at http" not in line:
                said = log.read_text(encoding="utf-8", errors="replace")[-TAIL:].strip()
                raise PublishError(f"`astra serve` did not come up with what was written:\n{said}")
            return _answered(line.rsplit(" at ", 1)[1].strip(), asked)
        finally:
            process.terminate()
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answered(url: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    request = {"model": "policy", **asked, "temperature": 0.0, "max_tokens": REPLY_TOKENS}
    sent = urllib.request.Request(
        f"{url.removesuffix('/v1')}/v1/chat/completions", json.dumps(request).encode(),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    try:
        with urllib.request.urlopen(sent, timeout=TIMEOUT_S) as reply:
            found: Mapping[str, Any] = json.load(reply)
        choice = found["choices"][0]
        return {
            "finish_reason": choice["finish_reason"],
            "completion_tokens": found["usage"]["completion_tokens"],
        }
    except (OSError, urllib.error.URLError, ValueError, LookupError) as error:
        raise PublishError(f"`astra serve` did not answer a chat completion: {error!r}") from None


def _first_line(stream: IO[str]) -> str:
    """The first line, empty where none comes in time or the process ends without one."""
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: lines.put(stream.readline()), daemon=True).start()
    try:
        return lines.get(timeout=TIMEOUT_S)
    except queue.Empty:
        return ""


def _empty(place: str) -> Path:
    folder = Path(place, "empty")
    folder.mkdir()
    return folder


def _environment(place: str) -> dict[str, str]:
    """No path to this project, no caches, no network for the hub's clients."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {
        "HF_HOME": str(Path(place, "hub")),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
    }
