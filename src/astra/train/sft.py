"""Supervised fine-tuning on TRL's SFTTrainer, with loss on what the assistant writes alone."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import (
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    get_cosine_schedule_with_warmup,
)
from trl.trainer.sft_config import SFTConfig as TRLSFTConfig

from astra.records.score import Rejection
from astra.records.trajectory import SFTSample
from astra.rollout.chat import ChatCodec, LoadedPolicy
from astra.stage import Progress
from astra.store.metrics import StageMetrics
from astra.tracking.mlflow import Run
from astra.train.checkpoints import PruneOptimizer, resume_point
from astra.train.config import SFTConfig
from astra.train.curves import Curves, tail_mean
from astra.train.errors import TrainingError
from astra.train.optimizers import MuonAdamW, train_added_rows_only
from astra.train.sft_trainer import IGNORED, AssistantSFTTrainer


@dataclass
class Encoded:
    """Samples as ids and labels; ``rejections`` are those that do not fit or train nothing."""

    rows: list[dict[str, list[int]]] = field(default_factory=list[dict[str, list[int]]])
    rejections: list[Rejection] = field(default_factory=list[Rejection])

    @property
    def trained_tokens(self) -> int:
        return sum(label != IGNORED for row in self.rows for label in row["labels"])

    @property
    def tokens(self) -> int:
        return sum(len(row["input_ids"]) for row in self.rows)


@dataclass(frozen=True)
class SFTResult:
    steps: int
    curves: Curves
    stopped_early: bool


def encode_samples(samples: Iterable[SFTSample], codec: ChatCodec, max_tokens: int) -> Encoded:
    """Encode with the policy's own template; labels are -100 outside assistant spans."""
    encoded = Encoded()
    for sample in samples:
        ids, mask = codec.encode_conversation(sample.messages, sample.tools)
        if len(ids) > max_tokens:
            encoded.rejections.append(Rejection(item=sample.id, reason="too_long"))
        elif not any(mask):
            encoded.rejections.append(Rejection(item=sample.id, reason="no_assistant_text"))
        else:
            labels = [i if m else IGNORED for i, m in zip(ids, mask, strict=True)]
            encoded.rows.append({"input_ids": ids, "labels": labels})
    return encoded


def train_sft(
    policy: LoadedPolicy,
    train: Encoded,
    evaluation: Encoded,
    config: SFTConfig,
    folder: Path,
    run: Run,
) -> SFTResult:
    """Train ``policy.model`` in place. Raises TrainingError without data or a resume point."""
    if not train.rows:
        raise TrainingError("sft_set holds no training sample that fits; see metrics/sft_set.json")
    world = int(os.environ.get("WORLD_SIZE", "1"))
    accumulation = max(1, config.batch_size // (config.micro_batch_size * world))
    total = total_steps(len(train.rows), config)
    curves = Curves()
    watcher = _Watcher(curves, run, config.patience, total)
    if config.embedding_rows == "added":
        train_added_rows_only(policy.model, policy.codec.tokenizer)
    trainer = AssistantSFTTrainer(
        model=policy.model,
        args=_arguments(config, folder, accumulation, total, bool(evaluation.rows)),
        train_dataset=Dataset.from_list(train.rows),
        eval_dataset=Dataset.from_list(evaluation.rows) if evaluation.rows else None,
        processing_class=policy.codec.tokenizer,
        optimizers=_optimizer(policy.model, config, total),
        callbacks=[watcher, PruneOptimizer(config.keep_optimizer_states)],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=resume_point(folder))
    if evaluation.rows and curves.last_step("eval_loss") != trainer.state.global_step:
        trainer.evaluate()
    return SFTResult(trainer.state.global_step, curves, watcher.stopped)


def total_steps(samples: int, config: SFTConfig) -> int:
    """Optimizer steps of the whole training; a short last batch counts."""
    steps = max(1, math.ceil(math.ceil(samples / config.batch_size) * config.epochs))
    return min(steps, config.max_steps or steps)


def _arguments(
    config: SFTConfig, folder: Path, accumulation: int, total: int, evaluate: bool
) -> TRLSFTConfig:
    cuda = torch.cuda.is_available()
    return TRLSFTConfig(
        output_dir=str(folder),
        seed=config.seed,
        data_seed=config.seed,
        max_steps=total,
        per_device_train_batch_size=config.micro_batch_size,
        per_device_eval_batch_size=config.micro_batch_size,
        gradient_accumulation_steps=accumulation,
        train_sampling_strategy="group_by_length" if config.length_grouped else "random",
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        lr_scheduler_type="cosine",
        warmup_steps=warmup_steps(config, total),
        eval_strategy="steps" if evaluate else "no",
        eval_steps=config.eval_steps,
        save_strategy="steps",
        save_steps=config.save_steps,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        # Ids and labels come from the policy's own template; nothing is left to prepare.
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
        packing=False,
        activation_checkpointing=config.activation_checkpointing,
        bf16=cuda and config.policy.dtype == "bfloat16",
        use_cpu=not cuda,
        dataloader_pin_memory=cuda,
    )


def warmup_steps(config: SFTConfig, total: int) -> int:
    return math.ceil(config.warmup_share * total)


def _optimizer(model: Any, config: SFTConfig, total: int) -> tuple[Any, Any]:
    if config.optimizer == "adamw":
        return (None, None)  # the trainer's own, which DeepSpeed and FSDP know how to shard
    optimizer = MuonAdamW(
        model, config.muon_learning_rate, config.learning_rate, config.weight_decay
    )
    schedule = get_cosine_schedule_with_warmup(optimizer, warmup_steps(config, total), total)
    return optimizer, schedule


class _Watcher(TrainerCallback):
    """Copies logged values to curves and the run; ends training when evaluation stalls."""

    NAMES = ("loss", "eval_loss", "grad_norm", "learning_rate", "mean_token_accuracy")

    def __init__(self, curves: Curves, run: Run, patience: int, total: int) -> None:
        self._curves, self._run, self._patience = curves, run, patience
        self._progress = Progress("steps", total)
        self._best, self._stalled = math.inf, 0
        self.stopped = False

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        logs = logs or {}
        if "loss" in logs:
            self._progress.advance()
        for name in self.NAMES:
            if name in logs:
                self._curves.add(name, state.global_step, float(logs[name]))
        if state.is_world_process_zero:
            self._run.metrics(logs, state.global_step)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        loss = (metrics or {}).get("eval_loss", math.inf)
        self._stalled = 0 if loss < self._best else self._stalled + 1
        self._best = min(self._best, loss)
        if self._patience and self._stalled >= self._patience:
            control.should_training_stop = True
            self.stopped = True


def split_samples(samples: Iterable[SFTSample]) -> tuple[list[SFTSample], list[SFTSample]]:
    """Training and evaluation samples. Raises TrainingError on a split that is neither."""
    parts: dict[str, list[SFTSample]] = {"train": [], "eval": []}
    for sample in samples:
        if sample.split not in parts:
            raise TrainingError(f"sft_set sample {sample.id}: unknown split {sample.split!r}")
        parts[sample.split].append(sample)
    return parts["train"], parts["eval"]


def report_sft(
    metrics: StageMetrics, train: Encoded, evaluation: Encoded, result: SFTResult
) -> None:
    """Put counts, drops and final losses into the stage's metrics."""
    for name, part in (("train", train), ("eval", evaluation)):
        metrics.count(f"{name}_samples", len(part.rows))
        metrics.count(f"{name}_tokens", part.tokens)
        metrics.count(f"{name}_assistant_tokens", part.trained_tokens)
        for rejection in part.rejections:
            metrics.reject(rejection)
    metrics.count("steps", result.steps)
    metrics.value("stopped_early", result.stopped_early)
    metrics.value("loss", tail_mean(result.curves.values("loss")))
    metrics.value("eval_loss", tail_mean(result.curves.values("eval_loss"), 1))
