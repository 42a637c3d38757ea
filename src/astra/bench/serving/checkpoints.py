"""Each checkpoint behind an endpoint, in a process of its own that ends with whoever asked."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from astra.bench.serving.main import ServeConfig
from astra.bench.suites.protocol import Endpoint, Subject, SuiteError
from astra.tracking.mlflow import file_digest

START_TIMEOUT_S = 1200.0
END_TIMEOUT_S = 60.0
TAIL_CHARS = 2000


class ServedCheckpoints:
    """``Serving`` for model folders and hub models: one server at a time, by name."""

    def __init__(self, checkpoints: Mapping[str, ServeConfig]) -> None:
        self._checkpoints = checkpoints

    @contextmanager
    def __call__(self, checkpoint: str) -> Generator[Subject]:
        config = self._checkpoints[checkpoint]
        with served(config) as url:
            endpoint = Endpoint(base_url=url, model=config.name)
            yield Subject(checkpoint, endpoint, identity(config))


class RunningEndpoints:
    """``Serving`` for servers that run already, closed models included."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = endpoints

    @contextmanager
    def __call__(self, checkpoint: str) -> Generator[Subject]:
        endpoint = self._endpoints[checkpoint]
        yield Subject(checkpoint, endpoint, f"{endpoint.base_url} {endpoint.model}")


def identity(config: ServeConfig) -> str:
    """What the server's answers depend on: weights, template, limits and engine."""
    folder = Path(config.policy.path)
    weights = file_digest(folder) if folder.is_dir() else config.policy.revision or "main"
    rest = config.model_dump_json(include={"policy", "engine", "context", "new_tokens"})
    return hashlib.sha256(f"{weights} {rest}".encode()).hexdigest()


@contextmanager
def served(config: ServeConfig, timeout_s: float = START_TIMEOUT_S) -> Generator[str]:
    """The address of a server that lives as long as the block, and no longer than this process.

    Raises SuiteError with what the server said where it does not come up.
    """
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "astra.bench.serving.main"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        too_late = threading.Timer(timeout_s, process.kill)
        try:
            process.stdin.write(config.model_dump_json() + "\n")
            process.stdin.flush()
            too_late.start()
            url = process.stdout.readline().strip()
            too_late.cancel()
            if not url:
                process.wait(END_TIMEOUT_S)
                said.seek(0)
                text = said.read().decode(errors="replace")[-TAIL_CHARS:].strip()
                raise SuiteError(f"{config.policy.path} cannot be served: {text or 'no answer'}")
            yield url
        finally:
            too_late.cancel()
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.close()
    except BrokenPipeError:
        pass  # it is gone already
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
