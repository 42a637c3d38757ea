"""GRPO with adaptive batch filling: TRL's trainer with our rollouts in front (ASTRA section 5.1).

One method of ``GRPOTrainer`` is overridden. It rolls groups until enough of them carry signal
and replays them through ``rollout_func``; padding, masks, advantages, the token-mean loss,
reduction over ranks and checkpoints stay TRL's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from astra.train.config import RLConfig
from astra.train.errors import TrainingError
from astra.train.filling import BatchFiller, Filled
from astra.train.groups import Group, GroupRoller, PromptStream, Sample, seed_of

STREAM_FILE = "prompt_stream.json"
BatchHook = Callable[[int, Filled[Group]], None]


def replay_reward(
    completions: list[Any], trajectory_reward: list[float | None], **_: Any
) -> list[float | None]:
    """The reward that the arena gave when the rollout was made."""
    return trajectory_reward


class AdaptiveGRPOTrainer(GRPOTrainer):
    """Trains on groups that ``roller`` makes of ``stream``; the data set only counts steps."""

    def __init__(
        self,
        *,
        roller: GroupRoller,
        stream: PromptStream,
        config: RLConfig,
        on_batch: BatchHook | None = None,
        **kwargs: Any,
    ) -> None:
        self.roller = roller
        self.stream = stream
        self.rl = config
        self.filler: BatchFiller[Group] = BatchFiller(self._informative, config.max_rounds)
        self.empty_batches = 0
        self._on_batch = on_batch
        self._replayed: list[Sample] = []
        super().__init__(
            reward_funcs=[replay_reward],
            rollout_func=lambda prompts, trainer: self._replay(),
            **kwargs,
        )
        world = self.accelerator.num_processes
        if config.groups % world:
            raise TrainingError(f"rl.groups ({config.groups}) must be a multiple of {world} ranks")

    def _informative(self, group: Group) -> bool:
        return group.informative(self.rl.min_reward_std)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        step, world = self.state.global_step, self.accelerator.num_processes
        rank = self.accelerator.process_index
        filled = self._collect(step)
        share = len(filled.groups) // world
        mine = filled.groups[rank * share : (rank + 1) * share]
        self._replayed = [sample for group in mine for sample in group.samples]
        if any(sample.weight_version != step for sample in self._replayed):
            raise AssertionError(f"a rollout is older than the weights of step {step}")
        self._log_filling(filled)
        if self._on_batch is not None:
            self._on_batch(step, filled)
        output = super()._generate_and_score_completions(inputs)
        if self.rl.old_logprobs == "sampler":
            # TRL uses the sampler's log-probabilities with vLLM only; the behaviour policy is
            # the right denominator for any engine.
            output["old_per_token_logps"] = output["sampling_per_token_logps"]
        return output

    def _collect(self, step: int) -> Filled[Group]:
        """A batch of groups; every rank sees the same ones, so all make the same rounds."""
        world, rank = self.accelerator.num_processes, self.accelerator.process_index
        self.roller.weights_are(step)
        model = self.accelerator.unwrap_model(self.model)
        training = model.training
        model.eval()

        def roll(count: int, round_: int) -> Sequence[Group]:
            taken = self.stream.take(-(-count // world) * world)
            groups = self.roller.roll(taken[rank::world], seed_of(self.rl.seed, step, round_, rank))
            if world == 1:
                return groups
            bare = [Group(g.uid, g.samples, g.figures) for g in groups]
            return sorted(gather_object(bare), key=lambda group: group.uid)

        try:
            filled = self.filler.fill(self.rl.groups, roll)
        except ValueError as error:
            raise TrainingError(f"step {step}: {error}; the sandbox seems to be down") from error
        finally:
            model.train(training)
        self.empty_batches = 0 if filled.informative else self.empty_batches + 1
        return filled

    def _replay(self) -> dict[str, list[Any]]:
        samples = self._replayed
        return {
            "prompt_ids": [sample.prompt_ids for sample in samples],
            "completion_ids": [sample.completion_ids for sample in samples],
            "logprobs": [sample.logprobs for sample in samples],
            "env_mask": [sample.mask for sample in samples],
            "trajectory_reward": [sample.reward for sample in samples],
        }

    def _log_filling(self, filled: Filled[Group]) -> None:
        metrics = self._metrics["train"]
        metrics["filling/informative"].append(float(filled.informative))
        metrics["filling/rolled"].append(float(filled.rolled))
        metrics["filling/rounds"].append(float(filled.rounds))
        metrics["filling/rate"].append(self.filler.rate)


class StreamState(TrainerCallback):
    """Keeps the prompt stream and the filler in the checkpoint, and ends a run without signal."""

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self.trainer: AdaptiveGRPOTrainer | None = None
        self.stopped = False

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.trainer is not None and state.is_world_process_zero:
            folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
            document = {"position": self.trainer.stream.position, "rate": self.trainer.filler.rate}
            (folder / STREAM_FILE).write_text(json.dumps(document))

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.trainer is not None and self.trainer.empty_batches >= self._patience:
            control.should_training_stop = True
            self.stopped = True


def restore_stream(trainer: AdaptiveGRPOTrainer, checkpoint: str | None) -> None:
    """Continue the prompt stream where the checkpoint left it."""
    if checkpoint is None:
        return
    path = Path(checkpoint) / STREAM_FILE
    if not path.is_file():
        raise TrainingError(f"cannot resume from {checkpoint}: {STREAM_FILE} is missing")
    document = json.loads(path.read_text())
    trainer.stream.position = document["position"]
    trainer.filler.rate = document["rate"]


def grpo_arguments(config: RLConfig, folder: Path, world: int, dtype: str) -> GRPOConfig:
    """TRL's settings: no KL, no entropy, token-mean loss, decoupled clipping."""
    cuda = torch.cuda.is_available()
    rows = config.groups * config.group_size
    accumulation = max(1, rows // (config.micro_batch_size * world))
    return GRPOConfig(
        output_dir=str(folder),
        seed=config.seed,
        max_steps=config.steps,
        per_device_train_batch_size=config.micro_batch_size,
        gradient_accumulation_steps=accumulation,
        steps_per_generation=accumulation,
        num_generations=config.group_size,
        num_iterations=1,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=config.warmup_steps,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        beta=0.0,
        loss_type="dapo",
        scale_rewards="group",
        epsilon=config.epsilon_low,
        epsilon_high=config.epsilon_high,
        importance_sampling_level="token",
        mask_truncated_completions=False,
        temperature=config.temperature,
        max_completion_length=config.limits.max_response_tokens,
        remove_unused_columns=False,
        save_strategy="steps",
        save_steps=config.save_steps,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        activation_checkpointing=config.activation_checkpointing,
        bf16=cuda and dtype == "bfloat16",
        use_cpu=not cuda,
        dataloader_pin_memory=cuda,
    )
