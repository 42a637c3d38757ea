"""Reinforcement learning of one policy in training arenas, watched on development arenas."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerControl, TrainerState, TrainingArguments

from astra.arena.irrelevant import draw
from astra.arena.prompt import initial_messages
from astra.records.environment import Arena
from astra.records.qa import Split
from astra.records.score import Rejection
from astra.rollout.build import EngineOptions, build_driver, build_engine
from astra.rollout.chat import ChatCodec, LoadedPolicy
from astra.rollout.driver import Driver
from astra.rollout.engine import Sampling
from astra.rollout.live import EpisodeJob, Rollout
from astra.sandbox.protocol import Sandbox
from astra.store.metrics import StageMetrics
from astra.tracking.mlflow import Run
from astra.train.checkpoints import (
    CompleteCheckpoint,
    restore_parts,
    resume_point,
    save_policy,
    start_afresh_if_finished,
    train_from,
)
from astra.train.curves import Curves, tail_mean
from astra.train.distributed import gathered_weights, is_main
from astra.train.errors import TrainingError
from astra.train.filling import Filled
from astra.train.groups import Group, GroupRoller, PromptStream, mean_figures, rollout_figures
from astra.train.grpo import AdaptiveGRPOTrainer, StreamState, grpo_arguments
from astra.train.lora import add_adapters, merge_adapters, refuse_sharded_adapters
from astra.train.optimizers import train_added_rows_only
from astra.train.rl_config import RLConfig
from astra.train.schedule import Phase, drop_solved, phases
from astra.train.watch import Watcher, explained


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
    dropped_as_solved: int = 0
    """Arenas that the newest filter of the schedule left out."""
    weights: dict[str, Any] | None = None
    """Of a model that is spread over ranks; None: the policy's model holds them."""


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
    policy: LoadedPolicy,
    arenas: Arenas,
    config: RLConfig,
    sandbox: Sandbox,
    folder: Path,
    run: Run,
    servers: tuple[str, ...] = (),
) -> RLResult:
    """Train ``policy.model`` in place. Raises TrainingError if training cannot go on.

    ``servers`` are URLs of vLLM servers, for engine vllm.
    """
    start_afresh_if_finished(folder)
    if config.embedding_rows == "added":
        train_added_rows_only(policy.model, policy.codec.tokenizer)
    add_adapters(policy, config.lora)
    training = _Training(policy, arenas, config, sandbox, folder, run, servers)
    with explained(folder, "lower rl.micro_batch_size, rl.engine_rows or rl.limits"):
        result = training.run()
    merge_adapters(policy, config.lora)
    return result


class _Training:
    """One run through the phases; what they share."""

    def __init__(
        self,
        policy: LoadedPolicy,
        arenas: Arenas,
        config: RLConfig,
        sandbox: Sandbox,
        folder: Path,
        run: Run,
        servers: tuple[str, ...],
    ) -> None:
        self._policy, self._arenas, self._config = policy, arenas, config
        self._sandbox, self._folder = sandbox, folder
        self._options = EngineOptions(
            config.engine, config.engine_rows, config.kv_tokens, config.tool_overlap,
            config.rollout_timeout_s, servers, folder / "weights",
        )  # fmt: skip
        self._trainer: AdaptiveGRPOTrainer | None = None
        self._engine = build_engine(policy, self._options, self._save, self._reference)
        self._watcher = _Watcher(Curves(), run, policy, arenas.dev, config)
        self._last: str | None = None
        """The checkpoint that the finished phases left."""

    def _save(self, folder: Path) -> bool:
        weights = gathered_weights(self._trainer) if self._trainer is not None else None
        if is_main():
            save_policy(self._policy.model, self._policy.codec.tokenizer, folder, weights)
        return is_main()

    @torch.no_grad()
    def _reference(self) -> tuple[list[int], list[float]]:
        """Log-probabilities of a prompt by the weights as they are; every rank takes part."""
        policy = self._policy
        model: Any = self._trainer.model_wrapped if self._trainer is not None else policy.model
        ids = policy.codec.encode_prompt(initial_messages(self._arenas.train[0]), [])
        batch = torch.tensor([ids], device=next(policy.model.parameters()).device)
        training = model.training
        model.eval()
        scores = torch.log_softmax(model(input_ids=batch).logits[0, :-1].float(), -1)
        model.train(training)
        return ids, scores.gather(1, batch[0, 1:, None])[:, 0].tolist()

    def run(self) -> RLResult:
        state, dropped = StreamState(self._config.patience), 0
        watcher, config = self._watcher, self._config
        planned = phases(config)
        for phase in planned:
            gone = self._train(phase, state)
            dropped = gone or dropped
            if state.stopped:
                break
        trainer = self._trainer
        assert trainer is not None
        steps = trainer.first_step + int(trainer.state.global_step)
        if state.stopped and not trainer.informative:
            raise TrainingError(
                f"no group of rollouts differed in reward in {steps} steps of "
                f"{config.groups} prompts x {config.rolled_size}: there is nothing to learn from. "
                "Is the policy able to call tools at all (dvc repro sft; raise rl.temperature), "
                "are all arenas too easy or too hard (plots/rl)?"
            )
        after = watcher.evaluate(steps) if self._arenas.dev else {}
        return RLResult(
            steps,
            watcher.curves,
            state.stopped,
            {"before": watcher.before, "after": after},
            trainer.roller.lost_to_infra,
            dropped,
            gathered_weights(trainer),
        )

    def _train(self, phase: Phase, state: StreamState) -> int:
        """Run or resume one phase; returns how many arenas its filter dropped."""
        config, watcher = self._config, self._watcher
        folder = self._folder / f"phase-{phase.number}" if config.schedule else self._folder
        driver = build_driver(
            self._engine, self._policy, self._sandbox, phase.limits, config.reward,
            config.final_answer, self._options,
        )  # fmt: skip
        roller = GroupRoller(driver, config)
        chosen = self._arenas.train
        if phase.drop_solved is not None:
            self._policy.model.eval()
            roller.weights_are(phase.first_step)
            chosen = drop_solved(chosen, phase.drop_solved, driver, config, folder)
        dtype = str(self._policy.model.dtype).removeprefix("torch.")
        parts = {"watcher": watcher, "stream": state}
        trainer = AdaptiveGRPOTrainer(
            roller=roller,
            stream=PromptStream(chosen, config.seed),
            config=config,
            on_batch=watcher.on_batch,
            first_step=phase.origin,
            model=self._policy.model,
            args=grpo_arguments(config, folder, phase.trainer_steps, dtype),
            train_dataset=Dataset.from_list([{"prompt": ""}] * config.groups),
            processing_class=self._policy.codec.tokenizer,
            callbacks=[state, watcher, CompleteCheckpoint(parts, config.keep_optimizer_states)],
        )
        trainer.remove_callback(PrinterCallback)
        refuse_sharded_adapters(trainer, config.lora)
        state.trainer = self._trainer = trainer
        watcher.begin(driver, phase.origin)
        checkpoint = resume_point(folder)
        if self._last is not None or checkpoint is not None:
            restore_parts(checkpoint or self._last, parts)
        elif self._arenas.dev:
            watcher.before = watcher.evaluate(0)
        continued = None if phase.fresh_optimizer else self._last
        train_from(trainer, checkpoint or continued, state.stopped)
        self._last = resume_point(folder)
        return len(self._arenas.train) - len(chosen)


class _Watcher(Watcher):
    """Also sampled traces, and the development arenas."""

    LOGGED = ("loss", "grad_norm", "entropy", "filling/informative", "filling/rolled",
              "filling/staleness")  # fmt: skip

    def __init__(
        self, curves: Curves, run: Run, policy: LoadedPolicy, dev: Sequence[Arena], config: RLConfig
    ) -> None:
        super().__init__(curves, run, config.total_steps)
        self._policy, self._dev, self._config = policy, dev, config
        self._driver: Driver | None = None
        self.before: dict[str, float] = {}
        """Figures on development arenas before the first step."""

    def begin(self, driver: Driver, offset: int) -> None:
        """Watch a trainer whose first step is ``offset``."""
        self._driver, self.offset = driver, offset

    def on_batch(self, step: int, filled: Filled[Group]) -> None:
        """Means over every rollout of the step, before filtering and downsampling pick some."""
        groups = filled.groups
        means = mean_figures(groups)
        for name, value in means.items():
            self.curves.add(f"train_{name}", step, value)
        self.run.metrics({f"rollout/{name}": value for name, value in means.items()}, step)
        if self._driver is not None and self._driver.tool_calls:
            latency = self._driver.tool_seconds / self._driver.tool_calls
            self.run.metrics({"tools/seconds_per_call": latency}, step)
        if step % self._config.trace_every == 0:
            wanted = self._config.trace_rollouts
            rollouts = [rollout for group in groups for rollout in group.rollouts]
            stride = max(1, len(rollouts) // max(wanted, 1))
            for rollout in rollouts[::stride][:wanted]:
                trace_rollout(self.run, rollout, step)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        step = self.offset + state.global_step
        if self._dev and step % self._config.dev_every == 0 and step < self._config.total_steps:
            self.evaluate(step)

    def evaluate(self, step: int) -> dict[str, float]:
        """Roll the development arenas greedily, each with its irrelevant tools."""
        config, model = self._config, self._policy.model
        if self._driver is None:
            raise ValueError("begin has not been called")
        jobs = [
            EpisodeJob(arena, draw(arena, config.irrelevant_tools, config.irrelevant_per_band, rng))
            for arena in self._dev
            for rng in (random.Random(f"dev:{arena.id}"),)
        ]
        training = model.training
        model.eval()
        self._driver.weights_are(step)
        rollouts = self._driver.run(jobs, Sampling(0.0, 0))
        model.train(training)
        figures = {name: round(v, 4) for name, v in rollout_figures(rollouts).items()}
        for name, value in figures.items():
            self.curves.add(f"dev_{name}", step, value)
        self.run.metrics({f"dev/{name}": value for name, value in figures.items()}, step)
        return figures

    def state(self) -> dict[str, Any]:
        return {**super().state(), "before": self.before}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.before = state["before"]


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
    """Put counts, drops, final figures and curves into the stage's metrics."""
    metrics.count("train_arenas", len(arenas.train))
    metrics.count("dev_arenas", len(arenas.dev))
    metrics.count("steps", result.steps)
    for rejection in arenas.rejections:
        metrics.reject(rejection)
    if result.dropped_as_solved:
        metrics.count("dropped_as_solved", result.dropped_as_solved)
    metrics.value("stopped_early", result.stopped_early)
    for name in ("reward", "f1", "recall", "precision", "answer_correct"):
        metrics.value(f"train_{name}", tail_mean(result.curves.values(f"train_{name}")))
    metrics.value("dev", result.dev)
    result.curves.plot(metrics)
