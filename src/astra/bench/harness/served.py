"""Checkpoints behind endpoints: a server process of each one's weights, ended with the block."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import astra
from astra.bench.checkpoints import policies, prompting
from astra.bench.config import BenchConfig
from astra.bench.harness.protocol import ModelEndpoint, Serving, Subject, SuiteError
from astra.bench.harness.scripted import ScriptedServer, idle
from astra.bench.names import BASE_NATIVE, FLOOR
from astra.rollout.chat import PolicyConfig, load_codec
from astra.serving.main import ServeConfig, ServingOptions
from astra.settings import RuntimeConfig
from astra.tracking.mlflow import file_digest

START_TIMEOUT_S = 1200.0
END_TIMEOUT_S = 60.0
TAIL_CHARS = 2000


class ServedCheckpoints:
    """A ``Serving`` of model folders and hub models: one server at a time, by name."""

    def __init__(self, configs: Mapping[str, ServeConfig]) -> None:
        self.configs = configs

    @classmethod
    def of(
        cls,
        base: PolicyConfig,
        trained: Mapping[str, Path],
        options: ServingOptions,
        runtime: RuntimeConfig,
    ) -> Self:
        """The base policy, natively prompted too where that differs, and what was trained."""
        machine: dict[str, Any] = {"device": runtime.device, "threads": runtime.threads}
        return cls(
            {
                name: ServeConfig(policy=policy, name=name, **machine, **options.model_dump())
                for name, policy in policies(base, trained).items()
            }
        )

    @contextmanager
    def __call__(self, checkpoint: str) -> Generator[Subject]:
        config = self.configs[checkpoint]
        with served(config) as url:
            endpoint = ModelEndpoint(base_url=url, model=config.name)
            told = prompting(load_codec(config.policy))
            yield Subject(checkpoint, endpoint, identity(config), told)


class RunningEndpoints:
    """A ``Serving`` of servers that run already, closed models included."""

    def __init__(self, endpoints: Mapping[str, ModelEndpoint]) -> None:
        self._endpoints = endpoints

    @contextmanager
    def __call__(self, checkpoint: str) -> Generator[Subject]:
        endpoint = self._endpoints[checkpoint]
        yield Subject(checkpoint, endpoint, f"{endpoint.base_url} {endpoint.model}")


class WithFloor:
    """A ``Serving`` that knows FLOOR besides: a model that says it is done at once."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    @contextmanager
    def __call__(self, checkpoint: str) -> Generator[Subject]:
        if checkpoint != FLOOR:
            with self._serving(checkpoint) as subject:
                yield subject
            return
        with ScriptedServer(idle, model=FLOOR) as server:
            yield Subject(FLOOR, server.endpoint, identity=FLOOR)


class Checkpoints:
    """The ``Serving`` of stage ``bench``: a server that runs already where conf names one, else
    one of our own; FLOOR besides."""

    def __init__(
        self, config: BenchConfig, runtime: RuntimeConfig, trained: Mapping[str, Path]
    ) -> None:
        self._endpoints = config.endpoints
        self._running = RunningEndpoints(config.endpoints)
        self._started = ServedCheckpoints.of(config.policy, trained, config.serving, runtime)
        self.policies = {name: one.policy for name, one in self._started.configs.items()}
        """The checkpoints that are played in the arenas."""
        if BASE_NATIVE in config.endpoints:
            self.policies[BASE_NATIVE] = config.policy.model_copy(update={"template": "own"})
        self._serves_all = config.serving.engine == "vllm"
        self.names = list(dict.fromkeys([FLOOR, *self._started.configs, *config.endpoints]))
        """The floor first, then base and what was trained from it, then baselines."""

    def serves(self, checkpoint: str) -> bool:
        """Whether the arenas are played against its server, and not by a model loaded there."""
        return self._serves_all or checkpoint in self._endpoints

    def __call__(self, checkpoint: str) -> AbstractContextManager[Subject]:
        serving = self._running if checkpoint in self._endpoints else self._started
        return WithFloor(serving)(checkpoint)


def identity(config: ServeConfig) -> str:
    """What the server's answers depend on: weights, template, limits, engine and its options.

    vLLM's executable is a place on this machine; as torch's, its version is not in here.
    """
    folder = Path(config.policy.path)
    weights = file_digest(folder) if folder.is_dir() else config.policy.revision or "main"
    fields = {"policy", "engine", "context", "new_tokens"}
    if config.engine == "vllm" and config.vllm_args:
        fields.add("vllm_args")  # none are no field: what was played without keeps its identity
    rest = config.model_dump_json(include=fields)
    return hashlib.sha256(f"{weights} {rest}".encode()).hexdigest()


@contextmanager
def served(config: ServeConfig, timeout_s: float = START_TIMEOUT_S) -> Generator[str]:
    """The address of a server that lives as long as the block, and no longer than this process.

    Raises SuiteError with what the server said where it does not come up.
    """
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "astra.serving.main"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True,
            env={**os.environ, "PYTHONPATH": str(Path(astra.__file__).parents[1])},
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
    with suppress(BrokenPipeError):  # it may be gone already
        process.stdin.close()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
