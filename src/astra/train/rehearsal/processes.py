"""The processes of a rehearsal: stages that may be killed on the way, and rollout servers."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib import request

import astra
from astra.train.checkpoints import STATE_FILE
from astra.train.rehearsal.errors import RehearsalError, mismatch

MOST_S = 1200.0
"""The most that one stage of a rehearsal may take on a machine that does other things too."""
START_S = 180.0
"""The most that a scripted server may take until it answers."""
TELL_S = 15.0
SERVED_NAME = "policy"
"""What rollout asks servers for."""
_FORGOTTEN = ("DVC_", "MLFLOW_", "ASTRA_LAUNCH", "ACCELERATE_", "RANK", "WORLD_SIZE", "LOCAL_RANK",
              "TORCHELASTIC_")  # fmt: skip
_ERROR = re.compile(r"^(?:\[rank\d+\]: )?(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*")
_LAUNCHERS = re.compile("ChildFailedError|CalledProcessError|SystemExit")
"""What launchers say of a process that failed, which has said why itself."""
_DIRECT = request.build_opener(request.ProxyHandler({}))
Tell = Callable[[str], None]


def environment(workspace: Path) -> dict[str, str]:
    """What the processes of a rehearsal see: no GPU, no hub, no store but the workspace's."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_FORGOTTEN)}
    source, programs = Path(astra.__file__).parents[1], Path(sys.executable).parent
    return kept | {
        "PYTHONPATH": os.pathsep.join([str(source), *filter(None, [kept.get("PYTHONPATH")])]),
        "PATH": os.pathsep.join([str(programs), kept.get("PATH", "")]),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "ASTRA_CACHE": str(workspace / ".astra"),
        "MASTER_PORT": str(free_port()),
    }


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class StageRun:
    """Runs stages in ``workspace`` as dvc does; what they write goes to ``<stage>.log`` there."""

    def __init__(self, workspace: Path, tell: Tell) -> None:
        self._workspace, self._tell = workspace, tell

    def until_checkpoint(self, stage: str) -> Path:
        """Run the stage and kill it once its first checkpoint is whole. Returns that checkpoint."""
        found: list[Path] = []

        def whole() -> bool:
            found.extend((self._workspace / "runs" / stage).rglob(f"checkpoint-1/{STATE_FILE}"))
            return bool(found)

        if self._run(stage, whole):
            raise RehearsalError(
                f"{stage}: found no checkpoint after its first step, expected one ({stage}."
                f"save_steps is 1 here); see {self._log(stage)}"
            )
        return found[0].parent

    def to_its_end(self, stage: str) -> None:
        """Run the stage. Raises RehearsalError with what it says where it fails."""
        self._run(stage, lambda: False)

    def _log(self, stage: str) -> Path:
        return self._workspace / f"{stage}.log"

    def _run(self, stage: str, enough: Callable[[], bool]) -> bool:
        """Whether the stage ended by itself, before there was ``enough``."""
        log = self._log(stage)
        with log.open("a") as out:
            started = out.tell()
            process = subprocess.Popen(
                [sys.executable, str(self._workspace / "stages" / f"{stage}.py")],
                cwd=self._workspace, env=environment(self._workspace), stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
        begun = told = time.monotonic()
        try:
            while process.poll() is None:
                if enough():
                    return False
                if time.monotonic() - begun > MOST_S:
                    raise RehearsalError(
                        f"{stage}: found it running after {MOST_S:.0f} s, expected it to end; the "
                        f"last line of {log}: {_lines(log, started)[-1:]}"
                    )
                if time.monotonic() - told > TELL_S:
                    told = time.monotonic()
                    self._tell(f"    {stage} runs for {told - begun:.0f} s")
                time.sleep(0.02)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode:
            raise RehearsalError(_why(stage, process.returncode, _lines(log, started), log))
        return True


def _lines(log: Path, start: int) -> list[str]:
    with log.open(errors="replace") as file:
        file.seek(start)
        return file.read().splitlines()


def _why(stage: str, status: int, lines: Sequence[str], log: Path) -> str:
    """What a failed stage said last, and not what its launcher made of it."""
    own = [line for line in lines if line.startswith(f"[{stage}] ")]
    crashed = [line for line in lines if _ERROR.match(line) and not _LAUNCHERS.search(line)]
    said = crashed[-1] if crashed else own[-1] if own else (lines or ["nothing was said"])[-1]
    where = f"stage {stage} (runtime.{stage}_launch)"
    return f"{where}: found exit status {status}, expected 0: {said} (all of it: {log})"


@contextmanager
def rollout_servers(workspace: Path, ports: Sequence[int], model: str) -> Generator[None]:
    """A scripted server at each port, as conf/launch/vllm.sh starts vLLM. RehearsalError where one
    does not come up, or serves something else."""
    program = workspace / "vllm"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m astra.train.rehearsal.served "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    variables = environment(workspace) | {"VLLM": str(program)}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for port in ports:
            with (workspace / f"server-{port}.log").open("w") as out:
                started.append(
                    subprocess.Popen(
                        ["bash", "conf/launch/vllm.sh", model, str(port)],
                        cwd=workspace,
                        env=variables,
                        stdout=out,
                        stderr=out,
                        start_new_session=True,
                    )
                )
        for process, port in zip(started, ports, strict=True):
            _await(process, port, workspace / f"server-{port}.log", model)
        yield
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _await(process: subprocess.Popen[bytes], port: int, log: Path, model: str) -> None:
    url, begun = f"http://127.0.0.1:{port}", time.monotonic()
    while True:
        try:
            with _DIRECT.open(f"{url}/v1/models", timeout=5) as reply:
                (served,) = json.loads(reply.read())["data"]
            break
        except OSError as error:
            if process.poll() is not None or time.monotonic() - begun > START_S:
                state = "running" if process.poll() is None else f"exit status {process.returncode}"
                raise RehearsalError(
                    f"conf/launch/vllm.sh: found no server at {url} ({state}; {error}), expected "
                    f"one that answers; it said: {_lines(log, 0)[-1:]} ({log})"
                ) from error
            time.sleep(0.1)
    repair = "conf/launch/vllm.sh says what a rollout server serves"
    if served["id"] != SERVED_NAME:
        setting = "conf/launch/vllm.sh --served-model-name"
        raise mismatch(setting, served["id"], SERVED_NAME, repair)
    if served["root"] != model:
        raise mismatch("conf/launch/vllm.sh MODEL", served["root"], model, repair)


def weights_taken(workspace: Path, port: int) -> list[str]:
    """Names of the weights that the server at ``port`` took, in order."""
    lines = _lines(workspace / f"server-{port}.log", 0)
    return [line.split()[1] for line in lines if line.startswith("weights ")]
