"""Checkpoints: weights often, optimizer state for the newest only, and a resume that is one.

Resuming from a checkpoint without optimizer state raises nothing in the trainer: moments and
schedule restart silently. So such a resume is refused here.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from astra.records.base import content_id
from astra.store.paths import repository_root
from astra.train.errors import TrainingError

OPTIMIZER_PATTERNS = ("optimizer.pt", "optimizer.bin", "optimizer_*", "global_step*")
FINISHED = "finished"


def run_folder(stage: str, config: BaseModel, inputs: dict[str, str]) -> Path:
    """``runs/<stage>/<key>``: one folder per parameters and input data, never shared."""
    key = content_id([stage, config.model_dump(mode="json"), sorted(inputs.values())])
    return repository_root() / "runs" / stage / key


def resume_point(folder: Path) -> str | None:
    """The newest checkpoint of an interrupted run, or None to start afresh.

    A finished run starts afresh. Raises TrainingError where optimizer state is missing.
    """
    if (folder / FINISHED).exists():
        shutil.rmtree(folder)
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
    found = [path for path in folder.glob("checkpoint-*") if path.is_dir()]
    return sorted(found, key=lambda path: int(path.name.rsplit("-", 1)[1]))


class PruneOptimizer(TrainerCallback):
    """Deletes optimizer state in all but the newest ``keep`` checkpoints; schedules stay."""

    def __init__(self, keep: int) -> None:
        self._keep = keep

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if not state.is_world_process_zero:
            return
        for checkpoint in _checkpoints(Path(str(args.output_dir)))[: -self._keep]:
            for path in optimizer_files(checkpoint):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def save_policy(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a complete policy folder (config, weights, tokenizer, template), replacing it."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    model.config.use_cache = True
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # The trainer leaves the absolute path of the base model here, which differs per machine.
    for name in ("config.json", "tokenizer_config.json"):
        path = folder / name
        document = json.loads(path.read_text())
        for key in ("_name_or_path", "name_or_path"):
            document.pop(key, None)
        path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")
