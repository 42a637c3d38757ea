"""Checkpoints: weights often, optimizer state for the newest only, and a resume that is one.

Resuming from a checkpoint without optimizer state raises nothing in the trainer: moments and
schedule restart silently. So such a resume is refused here. A checkpoint counts once its last
file, ``training_state.json``, is in place; what a kill left before that is deleted.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout
from pydantic import BaseModel
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from astra.records.base import content_id
from astra.store.paths import repository_root
from astra.train.distributed import barrier, is_main
from astra.train.errors import TrainingError

log = logging.getLogger("astra")
OPTIMIZER_PATTERNS = ("optimizer.pt", "optimizer.bin", "optimizer_*", "global_step*")
FINISHED = "finished"
STATE_FILE = "training_state.json"


class Stateful(Protocol):
    """A part of training that a checkpoint has to carry: curves, the prompt stream."""

    def state(self) -> dict[str, Any]:
        """Everything that continues, as JSON."""
        ...

    def restore(self, state: dict[str, Any]) -> None: ...


def run_folder(stage: str, config: BaseModel, inputs: dict[str, str]) -> Path:
    """``runs/<stage>/<key>``: one folder per parameters and input data, never shared."""
    key = content_id([stage, config.model_dump(mode="json"), sorted(inputs.values())])
    return repository_root() / "runs" / stage / key


@contextmanager
def claim(folder: Path) -> Generator[Path]:
    """Keep a run's folder to oneself, and leave it finished unless an error ends the block.

    Experiments run side by side and share ``runs/`` so that a killed one can be resumed from any
    workspace. Two that train the same would write the same checkpoints: the later one waits.
    The first rank claims for all.
    """
    if not is_main():
        yield folder
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{folder}.lock")
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        log.info("another process trains exactly this in %s; waiting for it to end", folder)
        held = lock.acquire()
    with held:
        yield folder
        mark_finished(folder)


def start_afresh_if_finished(folder: Path) -> None:
    """A finished run leaves nothing to resume: training again starts anew."""
    if is_main() and (folder / FINISHED).exists():
        shutil.rmtree(folder)
    barrier()


def resume_point(folder: Path) -> str | None:
    """The newest whole checkpoint, or None to start afresh. Deletes what a kill left torn.

    Raises TrainingError where optimizer state is missing. Called by every rank.
    """
    if is_main():
        for checkpoint in _checkpoints(folder):
            if not (checkpoint / STATE_FILE).exists():
                shutil.rmtree(checkpoint)
    barrier()
    checkpoints = _checkpoints(folder)
    if not checkpoints:
        return None
    newest = checkpoints[-1]
    if not optimizer_files(newest):
        raise TrainingError(
            f"cannot resume from {newest}: its optimizer state is missing, so moments and "
            f"schedule would restart silently; restore it, or delete {folder} to train anew"
        )
    return str(newest)


def mark_finished(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FINISHED).touch()


def optimizer_files(checkpoint: Path) -> list[Path]:
    """Optimizer state of any backend: one file, FSDP shards or DeepSpeed folders."""
    return [path for pattern in OPTIMIZER_PATTERNS for path in checkpoint.glob(pattern)]


def _checkpoints(folder: Path) -> list[Path]:
    folders = [path for path in folder.glob("checkpoint-*") if path.is_dir()]
    return sorted(folders, key=lambda path: int(path.name.rsplit("-", 1)[1]))


class CompleteCheckpoint(TrainerCallback):
    """Ends every save: the state of ``parts``, then older optimizer state goes.

    The state file is moved into place last and at once, after every rank wrote its shards, so
    its presence says that the checkpoint is whole. Only then is the optimizer state of all but
    the newest ``keep`` checkpoints deleted; schedules and random states stay everywhere.
    """

    def __init__(self, parts: Mapping[str, Stateful], keep: int) -> None:
        self._parts = parts
        self._keep = keep

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        barrier()
        if not is_main():
            return
        folder = Path(str(args.output_dir))
        document = {name: part.state() for name, part in self._parts.items()}
        path = folder / f"checkpoint-{state.global_step}" / STATE_FILE
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(document))
        os.replace(fresh, path)
        for checkpoint in _checkpoints(folder)[: -self._keep]:
            for stale in optimizer_files(checkpoint):
                shutil.rmtree(stale) if stale.is_dir() else stale.unlink()


def restore_parts(checkpoint: str | None, parts: Mapping[str, Stateful]) -> None:
    """Give every part the state that the checkpoint holds. TrainingError if it holds none."""
    if checkpoint is None:
        return
    path = Path(checkpoint) / STATE_FILE
    try:
        document = json.loads(path.read_text())
        for name, part in parts.items():
            part.restore(document[name])
    except (OSError, ValueError, KeyError) as error:
        raise TrainingError(
            f"cannot resume from {checkpoint}: {STATE_FILE} is missing or of another version "
            f"({error!r}); delete {Path(checkpoint).parent} to train anew"
        ) from error


def train_from(trainer: Any, checkpoint: str | None, stopped: bool = False) -> None:
    """``trainer.train`` from a checkpoint; only loads it where no step is left to make.

    ``stopped``: the run had ended by itself before the checkpoint was written.
    """
    if checkpoint is not None:
        step = int(checkpoint.rsplit("-", 1)[1])
        if stopped or step >= trainer.args.max_steps:
            # The trainer would make one more step; over no epochs it loads and makes none.
            trainer.args.max_steps, trainer.args.num_train_epochs = -1, 0.0
    trainer.train(resume_from_checkpoint=checkpoint)


def save_policy(
    model: Any, tokenizer: Any, folder: Path, weights: Mapping[str, Any] | None = None
) -> None:
    """Write a complete policy folder (config, weights, tokenizer, template), replacing it.

    ``weights`` are those of a model whose own are spread over ranks.
    """
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    model.config.use_cache = True
    model.save_pretrained(folder, state_dict=weights)
    tokenizer.save_pretrained(folder)
    # The trainer leaves the absolute path of the base model here, which differs per machine.
    for name in ("config.json", "tokenizer_config.json"):
        path = folder / name
        document = json.loads(path.read_text())
        for key in ("_name_or_path", "name_or_path"):
            document.pop(key, None)
        path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")
