"""Watches a training run: curves, a run's metrics, numbers that are lost, exhausted memory."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from astra.stage import Progress
from astra.tracking.mlflow import Run
from astra.train.checkpoints import disk_state, size_of, torn_checkpoints
from astra.train.curves import Curves
from astra.train.errors import TrainingError

_CPU_ALLOCATOR = "DefaultCPUAllocator"
"""The allocator that torch names in a plain RuntimeError where a CPU's memory is exhausted."""


class StepProgress(Progress):
    """The progress of a training. Steps that a checkpoint held come at once: they count as done,
    and the rate and the time left are told by the steps that were made here."""

    def __init__(self, total: int) -> None:
        super().__init__("steps", total)
        self._before, self._since = 0, self._started

    def reach(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if done != self._done + 1:
            self._done = self._before = done
            self._since = now
            return
        # As if every step had taken as long as those that were made here.
        self._started = now - (now - self._since) * done / (done - self._before)
        super().reach(done, note)


class Watcher(TrainerCallback):
    """Copies what the trainer logs to curves and the run; ends a run whose numbers are lost.

    ``offset`` is added to the trainer's step: a schedule's later phases count on.
    """

    LOGGED: ClassVar[tuple[str, ...]] = ("loss", "grad_norm")

    def __init__(self, curves: Curves, run: Run, progress: Progress, offset: int = 0) -> None:
        self.curves = curves
        self.run = run
        self.offset = offset
        self._progress = progress

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        logs = logs or {}
        step = self.offset + state.global_step
        # Steps are logged before they are saved: a checkpoint never holds what is refused here.
        for name in ("loss", "grad_norm"):
            if name in logs and not math.isfinite(logs[name]):
                raise TrainingError(
                    f"step {step}: {name} is {logs[name]}; the checkpoints in {args.output_dir} "
                    "are from before it. Lower learning_rate or max_grad_norm and train anew"
                )
        if "loss" in logs:
            self._progress.advance(note=_note(logs))
        for name in self.LOGGED:
            if name in logs:
                self.curves.add(name.replace("/", "_"), step, float(logs[name]))
        if state.is_world_process_zero:
            self.run.metrics(logs, step)

    def state(self) -> dict[str, Any]:
        return {"curves": self.curves.points()}

    def restore(self, state: dict[str, Any]) -> None:
        self.curves.replace(state["curves"])
        self._progress.reach(self.curves.last_step("loss") or 0)


def _note(logs: dict[str, float]) -> str:
    """What the progress line tells of a step: its loss, and what our own machinery failed."""
    told = [f"loss {logs['loss']:.3f}"]
    for name, words in (
        ("filling/infra_retries", "episodes rolled again"),
        ("filling/lost_to_infra", "groups lost"),
    ):
        if logs.get(name):
            told.append(f"{logs[name]:.0f} {words}")
    return ", ".join(told)


@contextmanager
def _written(folder: Path) -> Generator[None]:
    """Explain an error that a checkpoint of ``folder`` was being written at. One that was torn
    before, by a run that was killed, explains nothing."""
    before = torn_checkpoints(folder)
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        after = torn_checkpoints(folder)
        torn = next((one for one in after if before.get(one) != after[one]), None)
        if torn is None or isinstance(error, torch.OutOfMemoryError):
            raise
        reason = str(error).split("\n")[0][:200] or type(error).__name__
        raise TrainingError(
            f"checkpoint {torn} cannot be written: {reason}. {disk_state(torn, size_of(torn))}; "
            "it goes on from the checkpoint before, which is whole"
        ) from error


@contextmanager
def explained(folder: Path, repair: str) -> Generator[None]:
    """Turn exhausted memory, or a disk that takes no checkpoint, into a TrainingError that says
    how to need less."""
    try:
        with _written(folder):
            yield
    except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is a RuntimeError
        exhausted = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not exhausted and _CPU_ALLOCATOR not in str(error):
            raise
        reason = str(error).split("\n")[0][:200] or type(error).__name__
        raise TrainingError(
            f"out of memory ({reason}); {repair}, then train again. `astra train plan` estimates "
            f"what fits; checkpoints are in {folder}"
        ) from error
