"""Checkpoints: the newest few, optimizer state for fewer still, and a resume that is one.

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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import torch
from filelock import FileLock, Timeout
from pydantic import BaseModel
from safetensors import SafetensorError
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from astra.records.base import content_id
from astra.store.paths import repository_root
from astra.train.distributed import barrier, is_main
from astra.train.errors import TrainingError

log = logging.getLogger("astra")
OPTIMIZER_PATTERNS = ("optimizer.pt", "optimizer.bin", "optimizer_*", "global_step*")
ADAPTER_CONFIG = "adapter_config.json"
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
    """Ends every save: the state of ``parts``, then what is old goes.

    The state file is moved into place last and at once, after every rank wrote its shards, so
    its presence says that the checkpoint is whole. Only then are all but the newest ``keep``
    checkpoints deleted, and the optimizer's state of all but the newest ``keep_optimizer``. What
    remains keeps schedules and random states, and a configuration and tokenizer beside its weights.
    """

    def __init__(self, parts: Mapping[str, Stateful], keep: int, keep_optimizer: int) -> None:
        self._parts = parts
        self._keep = keep
        self._keep_optimizer = keep_optimizer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if is_main():
            _refuse_without_room(Path(str(args.output_dir)), kwargs["model"])

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        barrier()
        if not is_main():
            return
        folder = Path(str(args.output_dir))
        checkpoint = folder / f"checkpoint-{state.global_step}"
        if not any((checkpoint / name).exists() for name in ("config.json", ADAPTER_CONFIG)):
            # FSDP's trainer writes shards alone, from which nobody could build a model.
            kwargs["model"].config.save_pretrained(checkpoint)
            kwargs["processing_class"].save_pretrained(checkpoint)
        document = {name: part.state() for name, part in self._parts.items()}
        path = checkpoint / STATE_FILE
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(document))
        os.replace(fresh, path)
        self._prune(folder)

    def _prune(self, folder: Path) -> None:
        whole = _checkpoints(folder)
        for checkpoint in whole[: -self._keep]:
            # Torn before it goes, so that a kill in between leaves nothing that looks whole.
            (checkpoint / STATE_FILE).unlink(missing_ok=True)
            shutil.rmtree(checkpoint)
        for checkpoint in whole[-self._keep : -self._keep_optimizer]:
            for stale in optimizer_files(checkpoint):
                shutil.rmtree(stale) if stale.is_dir() else stale.unlink()


def checkpoint_bytes(model: Any) -> int:
    """Bytes of one whole checkpoint: the trained weights and AdamW's two moments of each, float32.

    Sharded weights count in full: all shards go to the same folder. Weights that are bfloat16, as
    under DeepSpeed, are saved besides their float32 masters.
    """
    return sum(
        getattr(p, "ds_numel", p.numel()) * (12 if p.dtype == torch.float32 else 14)
        for p in model.parameters()
        if p.requires_grad
    )


def _refuse_without_room(folder: Path, model: Any) -> None:
    """Raises TrainingError where not even the next checkpoint fits on the disk of ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    needed, free = checkpoint_bytes(model), shutil.disk_usage(folder).free
    if free < needed:
        raise TrainingError(
            f"{folder}: a checkpoint of this policy takes {needed:,} bytes (float32 weights and "
            f"two moments of each), {free:,} are free on its disk; free some, or move runs/ to a "
            "larger one"
        )


class EpochOrder(TrainerCallback):
    """Carries through checkpoints the random state that the order of an epoch was drawn from.

    The sampler of like lengths draws an epoch's order from torch's own generator, and a resume
    restores that only after the draw. All ranks draw alike, so that of the first is everyone's.
    """

    def __init__(self) -> None:
        self._begun = self._saved = b""
        self._resumed: bytes | None = None

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._resumed is not None:
            torch.set_rng_state(torch.frombuffer(bytearray(self._resumed), dtype=torch.uint8))
            self._resumed = None
        self._begun = _generator_state()

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        ended = float(state.epoch or 0).is_integer()  # then the next step draws another order
        self._saved = _generator_state() if ended else self._begun

    def state(self) -> dict[str, Any]:
        return {"drawn_from": self._saved.hex()}

    def restore(self, state: dict[str, Any]) -> None:
        self._resumed = bytes.fromhex(state["drawn_from"])


def _generator_state() -> bytes:
    return torch.get_rng_state().numpy().tobytes()


def torn_checkpoints(folder: Path) -> dict[Path, int]:
    """Checkpoints of a run and its phases that were not written to their end, and when each changed
    last (ns, by its disk's clock)."""
    torn: dict[Path, int] = {}
    for place in (folder, *folder.glob("phase-*")):
        for one in _checkpoints(place):
            with suppress(FileNotFoundError):  # the first rank deletes those of an earlier run
                if not (one / STATE_FILE).exists():
                    torn[one] = one.stat().st_mtime_ns
    return torn


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


def served_weights(
    model: Any, weights: Mapping[str, torch.Tensor] | None, dtype: str
) -> dict[str, torch.Tensor]:
    """The tensors of a model folder by name: tied ones once, those of floating point in ``dtype``.

    ``weights`` are all of the model's where its own are spread over ranks.
    """
    tied = getattr(model, "all_tied_weights_keys", {})
    served: torch.dtype = getattr(torch, dtype)
    return {
        name: tensor.detach().to(served if tensor.is_floating_point() else None)
        for name, tensor in (model.state_dict() if weights is None else weights).items()
        if name not in tied
    }


def save_policy(
    model: Any, tokenizer: Any, folder: Path, weights: Mapping[str, torch.Tensor] | None = None
) -> None:
    """Write a complete policy folder (config, weights, tokenizer, template), replacing it.

    ``weights`` take the place of the model's own, which are spread over ranks or of another type.
    Raises TrainingError where it cannot be written; what was there before then stays.
    """
    fresh = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        fresh.mkdir(parents=True)
        _write_policy(model, tokenizer, fresh, weights)
    except (OSError, RuntimeError, SafetensorError) as error:
        written = size_of(fresh)
        shutil.rmtree(fresh, ignore_errors=True)
        raise TrainingError(
            f"the policy cannot be written to {folder}: {error}. {disk_state(folder, written)}"
        ) from error
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(fresh, folder)


def _write_policy(
    model: Any, tokenizer: Any, folder: Path, weights: Mapping[str, torch.Tensor] | None
) -> None:
    model.config.use_cache = True
    # A copy, since saving empties the mapping that it is given.
    model.save_pretrained(folder, state_dict=None if weights is None else dict(weights))
    tokenizer.save_pretrained(folder)
    # The trainer leaves the absolute path of the base model here, which differs per machine.
    for name in ("config.json", "tokenizer_config.json"):
        path = folder / name
        document = json.loads(path.read_text())
        for key in ("_name_or_path", "name_or_path"):
            document.pop(key, None)
        if weights is not None and "dtype" in document:  # else that of the model in memory
            kinds = [tensor.dtype for tensor in weights.values() if tensor.is_floating_point()]
            document["dtype"] = str(kinds[0]).removeprefix("torch.")
        path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")


def size_of(folder: Path) -> int:
    """Bytes of all files under a folder, which need not be there."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def disk_state(folder: Path, written: int) -> str:
    """What a message says of a disk that took no more: bytes written, bytes free, the repair."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return (
        f"{written:,} bytes were written, {shutil.disk_usage(there).free:,} are free on the disk "
        f"of {there}; free some, then run the same command again"
    )
