"""Supervised fine-tuning on TRL's SFTTrainer, with loss on what the assistant writes alone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import (
    PrinterCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    get_cosine_schedule_with_warmup,
)
from trl.trainer.sft_config import SFTConfig as TRLSFTConfig

from astra.records.score import Rejection
from astra.records.trajectory import SFTSample
from astra.rollout.chat import ChatCodec, LoadedPolicy
from astra.rollout.template_traits import Thoughts
from astra.stage import Progress
from astra.store.metrics import StageMetrics
from astra.tracking.mlflow import Run
from astra.train.checkpoints import (
    CompleteCheckpoint,
    EpochOrder,
    Stateful,
    restore_parts,
    resume_point,
    start_afresh_if_finished,
    train_from,
)
from astra.train.curves import Curves, tail_mean
from astra.train.distributed import accumulation_steps, gathered_weights, world_size
from astra.train.errors import TrainingError
from astra.train.lora import add_adapters, merge_adapters, refuse_sharded_adapters
from astra.train.optimizers import MuonAdamW, RefuseRoundedUpdates, train_added_rows_only
from astra.train.sft_config import SFTConfig
from astra.train.sft_trainer import IGNORED, AssistantSFTTrainer
from astra.train.watch import StepProgress, Watcher, explained

COLLECTIVE_TIMEOUT_S = 7200
"""How long a rank waits for the others. The longest wait is for the first rank to write a
checkpoint: 400 GB (32B with moments) at 60 MB/s (ours)."""


@dataclass
class Encoded:
    """Samples as ids and labels; ``rejections`` are those that do not fit or train nothing."""

    rows: list[dict[str, list[int]]] = field(default_factory=list[dict[str, list[int]]])
    rejections: list[Rejection] = field(default_factory=list[Rejection])
    thoughts: int = 0
    """Messages with a thought that the samples hold, whether or not the template writes it."""

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
    """Whether steps were left when the evaluation loss stalled."""
    weights: dict[str, Any] | None = None
    """The whole model's, where ranks share them; None: the policy's model holds them."""


def encode_samples(samples: Iterable[SFTSample], codec: ChatCodec, max_tokens: int) -> Encoded:
    """Encode with the policy's own template; labels are -100 outside assistant spans.

    A conversation is one row, or one per user message (``ChatCodec.training_rows``).
    """
    encoded = Encoded()
    for sample in samples:
        encoded.thoughts += sum(bool(message.reasoning) for message in sample.messages)
        for ids, mask in codec.training_rows(sample.messages, sample.tools):
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
    _refuse_thoughtless(policy.codec, train)
    total = total_steps(len(train.rows), config)
    curves = Curves()
    watcher = _Watcher(curves, run, StepProgress(total), config.patience)
    order, parts = EpochOrder(), dict[str, Stateful](watcher=watcher)
    if config.length_grouped:  # any other order follows from the seed and the epoch
        parts["order"] = order
    if config.embedding_rows == "added":
        train_added_rows_only(policy.model, policy.codec.tokenizer)
    add_adapters(policy, config.lora)
    start_afresh_if_finished(folder)
    checkpoints = CompleteCheckpoint(parts, config.keep_checkpoints, config.keep_optimizer_states)
    trainer = AssistantSFTTrainer(
        layout=config.layout,
        model=policy.model,
        args=_arguments(config, folder, total, bool(evaluation.rows)),
        train_dataset=Dataset.from_list(train.rows),
        eval_dataset=Dataset.from_list(evaluation.rows) if evaluation.rows else None,
        processing_class=policy.codec.tokenizer,
        optimizers=_optimizer(policy.model, config, total),
        callbacks=[watcher, RefuseRoundedUpdates(), order, checkpoints],
    )
    trainer.remove_callback(PrinterCallback)
    refuse_sharded_adapters(trainer, config.lora)
    checkpoint = resume_point(folder)
    restore_parts(checkpoint, parts)
    with explained(folder, "lower sft.micro_batch_size or sft.max_tokens"):
        train_from(trainer, checkpoint, watcher.stopped)
        if evaluation.rows and curves.last_step("eval_loss") != trainer.state.global_step:
            trainer.evaluate()
    weights = gathered_weights(trainer)
    merge_adapters(policy, config.lora)
    steps = int(trainer.state.global_step)
    return SFTResult(steps, curves, watcher.stopped and steps < total, weights)


def _refuse_thoughtless(codec: ChatCodec, train: Encoded) -> None:
    """A model that thinks unlearns it from conversations without thoughts. Raises TrainingError."""
    if codec.thoughts == Thoughts.CURRENT and not train.thoughts:
        raise TrainingError(
            f"sft.policy.template is {codec.template!r}, the template of a model that thinks, and "
            f"none of the {len(train.rows)} training conversations holds a thought: it would be "
            "trained not to think. Make them with a teacher that thinks "
            "(trajectories.reasoning=keep, dvc repro sft_set), or train without thinking: "
            "-S policy.template=qwen3"
        )


def total_steps(samples: int, config: SFTConfig) -> int:
    """Optimizer steps of the whole training; a short last batch counts."""
    steps = max(1, math.ceil(math.ceil(samples / config.batch_size) * config.epochs))
    return min(steps, config.max_steps or steps)


def _arguments(config: SFTConfig, folder: Path, total: int, evaluate: bool) -> TRLSFTConfig:
    cuda = torch.cuda.is_available()
    parallel = config.context_parallel
    accumulation = accumulation_steps(config.batch_size, config.micro_batch_size, "sft", parallel)
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
        logging_nan_inf_filter=False,  # would show the last good loss instead of NaN
        report_to="none",
        disable_tqdm=True,
        parallelism_config=_context_parallelism(parallel),
        pad_to_multiple_of=2 * parallel if parallel > 1 else None,
        # Ids and labels come from the policy's own template; nothing is left to prepare.
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
        packing=False,
        activation_checkpointing=config.activation_checkpointing,
        bf16=config.policy.dtype == "bfloat16",  # the compute's; the weights stay float32
        use_cpu=not cuda,
        dataloader_pin_memory=cuda,
        ddp_timeout=COLLECTIVE_TIMEOUT_S,
        ddp_find_unused_parameters=False,  # all take part; looking costs a walk of the graph a step
    )


def _context_parallelism(size: int) -> Any:
    """How ``size`` devices split every sequence; accelerate wants FSDP2 for it."""
    if size == 1:
        return None
    from accelerate import ParallelismConfig

    return ParallelismConfig(cp_size=size, dp_shard_size=world_size() // size)


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


class _Watcher(Watcher):
    """A watcher that also ends training when the evaluation loss stalls."""

    LOGGED = ("loss", "eval_loss", "grad_norm", "learning_rate", "mean_token_accuracy",
              "eval_mean_token_accuracy")  # fmt: skip

    def __init__(self, curves: Curves, run: Run, progress: Progress, patience: int) -> None:
        super().__init__(curves, run, progress)
        self._patience = patience
        self._best, self._stalled = math.inf, 0
        self.stopped = False

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

    def state(self) -> dict[str, Any]:
        best = self._best if math.isfinite(self._best) else None
        return {**super().state(), "best": best, "stalled": self._stalled, "stopped": self.stopped}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._best = math.inf if state["best"] is None else state["best"]
        self._stalled, self.stopped = state["stalled"], state["stopped"]


def split_samples(samples: Iterable[SFTSample]) -> tuple[list[SFTSample], list[SFTSample]]:
    """Training and evaluation samples. Raises TrainingError on a split that is neither."""
    parts: dict[str, list[SFTSample]] = {"train": [], "eval": []}
    for sample in samples:
        if sample.split not in parts:
            raise TrainingError(f"sft_set sample {sample.id}: unknown split {sample.split!r}")
        parts[sample.split].append(sample)
    return parts["train"], parts["eval"]


def conversations_beside(
    conversations: Iterable[SFTSample], most: int, train: int, evaluation: int
) -> tuple[list[SFTSample], list[SFTSample]]:
    """The first conversations by id, to train on ``most``, and to evaluate on as many for each of
    ``evaluation`` other samples as there are for each of ``train``. Raises TrainingError where
    there is none to train on."""
    found = split_samples(sorted(conversations, key=lambda sample: sample.id))
    chosen = found[0][:most]
    if not chosen:
        raise TrainingError(
            f"sft.conversations asks for {most} conversations and data/conversations.parquet has "
            "none to train on; metrics/conversations.json says why"
        )
    return chosen, found[1][: round(evaluation * len(chosen) / max(train, 1))]


def report_sft(
    metrics: StageMetrics, train: Encoded, evaluation: Encoded, result: SFTResult
) -> None:
    """Put counts, drops, final losses and curves into the stage's metrics."""
    for name, part in (("train", train), ("eval", evaluation)):
        metrics.count(f"{name}_samples", len(part.rows))
        metrics.count(f"{name}_tokens", part.tokens)
        metrics.count(f"{name}_assistant_tokens", part.trained_tokens)
        if part.thoughts:
            metrics.count(f"{name}_thoughts", part.thoughts)
        for rejection in part.rejections:
            metrics.reject(rejection)
    metrics.count("steps", result.steps)
    metrics.value("stopped_early", result.stopped_early)
    metrics.value("loss", tail_mean(result.curves.values("loss")))
    metrics.value("eval_loss", tail_mean(result.curves.values("eval_loss"), 1))
    result.curves.plot(metrics)
