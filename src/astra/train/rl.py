"""Reinforcement learning of one policy in training arenas, watched on development arenas."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import (
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from astra.arena.irrelevant import draw
from astra.arena.prompt import initial_messages
from astra.records.environment import Arena
from astra.records.qa import Split
from astra.records.score import Rejection
from astra.rollout.batched import BatchedEngine
from astra.rollout.chat import ChatCodec, LoadedPolicy
from astra.rollout.driver import Job, Rollout, RolloutDriver
from astra.rollout.engine import Sampling
from astra.sandbox.protocol import Sandbox
from astra.stage import Progress
from astra.store.metrics import StageMetrics
from astra.tracking.mlflow import Run
from astra.train.checkpoints import PruneOptimizer, resume_point
from astra.train.config import RLConfig
from astra.train.curves import Curves, tail_mean
from astra.train.errors import TrainingError
from astra.train.filling import Filled
from astra.train.groups import Group, GroupRoller, PromptStream, rollout_figures
from astra.train.grpo import AdaptiveGRPOTrainer, StreamState, grpo_arguments, restore_stream
from astra.train.optimizers import train_added_rows_only


@dataclass
class Arenas:
    """Arenas by use; held-out ones are never kept."""

    train: list[Arena] = field(default_factory=list[Arena])
    dev: list[Arena] = field(default_factory=list[Arena])
    rejections: list[Rejection] = field(default_factory=list[Rejection])


@dataclass
class RLResult:
    steps: int
    curves: Curves
    stopped_early: bool
    dev: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    """Figures on development arenas, ``before`` and ``after``."""
    lost_to_infra: int = 0


def choose_arenas(arenas: Iterable[Arena], codec: ChatCodec, config: RLConfig) -> Arenas:
    """Training arenas whose longest prompt fits, and the first ``dev_arenas`` of the dev split."""
    chosen = Arenas()
    for arena in arenas:
        if arena.split == Split.TRAIN:
            extra = [tool for band in arena.irrelevant.values() for tool in band]
            tools = [offer.tool for offer in (*arena.tools, *extra)]
            # Every candidate at once is an upper bound of what a draw offers.
            length = len(codec.encode_prompt(initial_messages(arena), tools))
            if length > config.limits.max_prompt_tokens:
                chosen.rejections.append(Rejection(item=arena.id, reason="prompt_too_long"))
            else:
                chosen.train.append(arena)
        elif arena.split == Split.DEV and len(chosen.dev) < config.dev_arenas:
            chosen.dev.append(arena)
    if not chosen.train:
        raise TrainingError(
            "envs_merged has no training arena that fits; see metrics/envs_merged.json and "
            "rl.limits.max_prompt_tokens"
        )
    return chosen


def train_rl(
    policy: LoadedPolicy, arenas: Arenas, config: RLConfig, sandbox: Sandbox, folder: Path, run: Run
) -> RLResult:
    """Train ``policy.model`` in place. Raises TrainingError if training cannot go on."""
    if config.embedding_rows == "added":
        train_added_rows_only(policy.model, policy.codec.tokenizer)
    engine = BatchedEngine(
        policy.model, policy.codec.eos_id, policy.codec.pad_id, config.engine_rows
    )
    driver = RolloutDriver(
        engine, policy.codec, sandbox, config.limits, config.reward, config.final_answer
    )
    roller = GroupRoller(driver, config)
    curves = Curves()
    state = StreamState(config.patience)
    watcher = _Watcher(curves, run, policy, driver, arenas.dev, config)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    trainer = AdaptiveGRPOTrainer(
        roller=roller,
        stream=PromptStream(arenas.train, config.seed),
        config=config,
        on_batch=watcher.on_batch,
        model=policy.model,
        args=grpo_arguments(config, folder, world, str(policy.model.dtype).removeprefix("torch.")),
        train_dataset=Dataset.from_list([{"prompt": ""}] * config.groups),
        processing_class=policy.codec.tokenizer,
        callbacks=[state, PruneOptimizer(config.keep_optimizer_states), watcher],
    )
    trainer.remove_callback(PrinterCallback)
    state.trainer = trainer
    checkpoint = resume_point(folder)
    restore_stream(trainer, checkpoint)
    before = watcher.evaluate(0) if arenas.dev and checkpoint is None else {}
    trainer.train(resume_from_checkpoint=checkpoint)
    steps = int(trainer.state.global_step)
    after = watcher.evaluate(steps) if arenas.dev else {}
    dev = {"before": before, "after": after}
    return RLResult(steps, curves, state.stopped, dev, roller.lost_to_infra)


class _Watcher(TrainerCallback):
    """Curves, tracking, sampled traces and the development arenas."""

    LOGGED = ("loss", "grad_norm", "entropy", "filling/informative", "filling/rolled")

    def __init__(
        self,
        curves: Curves,
        run: Run,
        policy: LoadedPolicy,
        driver: RolloutDriver,
        dev: Sequence[Arena],
        config: RLConfig,
    ) -> None:
        self._curves, self._run, self._policy = curves, run, policy
        self._driver, self._dev, self._config = driver, dev, config
        self._progress = Progress("steps", config.steps)

    def on_batch(self, step: int, filled: Filled[Group]) -> None:
        """Means over every rollout of the step, before filtering and downsampling pick some."""
        groups = filled.groups
        names = groups[0].figures
        means = {n: sum(g.figures[n] for g in groups) / len(groups) for n in names}
        for name, value in means.items():
            self._curves.add(f"train_{name}", step, value)
        self._run.metrics({f"rollout/{name}": value for name, value in means.items()}, step)
        if step % self._config.trace_every == 0:
            wanted = self._config.trace_rollouts
            rollouts = [rollout for group in groups for rollout in group.rollouts]
            stride = max(1, len(rollouts) // max(wanted, 1))
            for rollout in rollouts[::stride][:wanted]:
                trace_rollout(self._run, rollout, step)

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
        for name in self.LOGGED:
            if name in logs:
                self._curves.add(name.replace("/", "_"), state.global_step, float(logs[name]))
        if state.is_world_process_zero:
            self._run.metrics(logs, state.global_step)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        step = state.global_step
        if self._dev and step % self._config.dev_every == 0 and step < self._config.steps:
            self.evaluate(step)

    def evaluate(self, step: int) -> dict[str, float]:
        """Roll the development arenas greedily, each with its irrelevant tools."""
        config, model = self._config, self._policy.model
        jobs = [
            Job(arena, draw(arena, config.irrelevant_tools, config.irrelevant_per_band, rng))
            for arena in self._dev
            for rng in (random.Random(f"dev:{arena.id}"),)
        ]
        training = model.training
        model.eval()
        rollouts = self._driver.run(jobs, Sampling(0.0, 0))
        model.train(training)
        figures = {name: round(v, 4) for name, v in rollout_figures(rollouts).items()}
        for name, value in figures.items():
            self._curves.add(f"dev_{name}", step, value)
        self._run.metrics({f"dev/{name}": value for name, value in figures.items()}, step)
        return figures


def trace_rollout(run: Run, rollout: Rollout, step: int) -> None:
    """One rollout as a trace, with what it earned."""
    score = rollout.score
    attributes = {
        "step": step,
        "arena": rollout.arena.id,
        "reward": score.reward if score else None,
        "success": score.success if score else None,
        "stop_reason": str(rollout.stop_reason),
        "weight_version": rollout.weight_version,
    }
    run.trace("rollout", rollout.messages, rollout.calls, attributes)


def report_rl(metrics: StageMetrics, arenas: Arenas, result: RLResult) -> None:
    """Put counts, drops and final figures into the stage's metrics."""
    metrics.count("train_arenas", len(arenas.train))
    metrics.count("dev_arenas", len(arenas.dev))
    metrics.count("steps", result.steps)
    for rejection in arenas.rejections:
        metrics.reject(rejection)
    metrics.value("stopped_early", result.stopped_early)
    for name in ("reward", "f1", "recall", "precision", "answer_correct"):
        metrics.value(f"train_{name}", tail_mean(result.curves.values(f"train_{name}")))
    metrics.value("dev", result.dev)
