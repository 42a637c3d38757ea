"""GRPO with adaptive batch filling: TRL's trainer with our rollouts in front (ASTRA section 5.1).

Two methods of ``GRPOTrainer`` are overridden, both private to TRL, so its version is pinned.
``_generate_and_score_completions`` rolls groups until enough of them carry signal and replays
them through ``rollout_func``. ``_get_per_token_logps_and_entropies`` gives the parent's numbers
without computing padding. Padding, masks, advantages, the token-mean loss, reduction over ranks
and checkpoints stay TRL's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import gather_object
from torch.nn.functional import pad
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from astra.train.distributed import accumulation_steps, is_sharded
from astra.train.errors import TrainingError
from astra.train.filling import BatchFiller, Filled
from astra.train.groups import Group, GroupRoller, PromptStream, TrainingSample, seed_of
from astra.train.rl_config import RLConfig

BatchHook = Callable[[int, Filled[Group]], None]
TRIMMED_ROWS = 8
"""Rows of similar length that share a forward pass, cut to the longest of them."""


def replay_reward(
    completions: list[Any], trajectory_reward: list[float | None], **_: Any
) -> list[float | None]:
    """The reward that the arena gave when the rollout was made."""
    return trajectory_reward


class AdaptiveGRPOTrainer(GRPOTrainer):
    """Trains on groups that ``roller`` makes of ``stream``; the data set only counts steps.

    ``first_step`` is where this trainer's steps begin in the whole training.
    """

    def __init__(
        self,
        *,
        roller: GroupRoller,
        stream: PromptStream,
        config: RLConfig,
        on_batch: BatchHook | None = None,
        first_step: int = 0,
        **kwargs: Any,
    ) -> None:
        self.roller = roller
        self.stream = stream
        self.rl = config
        self.first_step = first_step
        self.filler: BatchFiller[Group] = BatchFiller(
            self._informative, config.max_rounds, config.batch_filling
        )
        self.carried: list[Group] = []
        self.informative = 0
        self.empty_batches = 0
        self._on_batch = on_batch
        self._replayed: list[TrainingSample] = []
        super().__init__(
            reward_funcs=[replay_reward],
            rollout_func=lambda prompts, trainer: self._replay(),
            **kwargs,
        )
        world = self.accelerator.num_processes
        if config.groups % world:
            raise TrainingError(f"rl.groups ({config.groups}) must be a multiple of {world} ranks")
        if not config.engine.own_weights and is_sharded(self):
            raise TrainingError(
                f"engine {config.engine.type} generates with the trainer's own weights, which "
                "ZeRO-3 and FSDP spread over ranks; choose rl/engine=vllm, or use DDP or ZeRO-2"
            )

    def _informative(self, group: Group) -> bool:
        return group.informative(self.rl.min_reward_std)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        step = self.first_step + self.state.global_step
        world, rank = self.accelerator.num_processes, self.accelerator.process_index
        started = time.monotonic()
        filled = self._collect(step)
        share = len(filled.groups) // world
        mine = filled.groups[rank * share : (rank + 1) * share]
        self._replayed = [sample for group in mine for sample in group.samples]
        ages = [step - sample.weight_version for sample in self._replayed]
        if not 0 <= min(ages) <= max(ages) <= self.rl.max_staleness:
            raise AssertionError(f"a rollout is older than the weights of step {step} allow")
        self._log_filling(filled, time.monotonic() - started, sum(ages) / len(ages))
        if self._on_batch is not None:
            self._on_batch(step, filled)
        output = super()._generate_and_score_completions(inputs)
        importance = self.rl.importance
        if importance.type == "sampler":
            # TRL uses the sampler's log-probabilities with vLLM only; the behaviour policy is
            # the right denominator for any engine.
            output["old_per_token_logps"] = output["sampling_per_token_logps"]
        elif importance.type == "truncated":
            self._weigh(output, importance.cap)
        return output

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **others: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """The parent's numbers without computing padding: (rows, logits_to_keep), 0 where padded.

        A batch is padded to its longest prompt and its longest completion, of which a tiny policy
        would compute twice as much as of text. Every rank makes the same number of passes.
        """
        if any(value is not None and value is not False for value in others.values()):
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size, compute_entropy,
                **others,
            )  # fmt: skip
        size = min(batch_size or TRIMMED_ROWS, TRIMMED_ROWS)
        prompt = input_ids.shape[1] - logits_to_keep
        order = attention_mask.sum(1).argsort(stable=True)
        logps, entropies = [], []
        for rows in order.split(size):
            seen = attention_mask[rows].any(0)
            before, after = int(seen[:prompt].sum()), int(seen[prompt:].sum())
            kept = slice(prompt - before, prompt + after)
            found, spread, _ = super()._get_per_token_logps_and_entropies(
                model, input_ids[rows, kept], attention_mask[rows, kept], after, None,
                compute_entropy,
            )  # fmt: skip
            logps.append(pad(found, (0, logits_to_keep - after)))
            if spread is not None:
                entropies.append(pad(spread, (0, logits_to_keep - after)))
        back = order.argsort()
        return torch.cat(logps)[back], torch.cat(entropies)[back] if entropies else None, None

    @torch.no_grad()
    def _weigh(self, output: dict[str, Any], cap: float) -> None:
        """Truncated importance sampling: advantages times min(trainer / engine, cap) by token."""
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], 1)
        mask = torch.cat([output["prompt_mask"], output["completion_mask"]], 1)
        width = output["completion_ids"].shape[1]
        rows = self.args.per_device_train_batch_size
        own = self._get_per_token_logps_and_entropies(self.model, ids, mask, width, rows)[0]
        trained = output["completion_mask"] * output["tool_mask"]
        gap = (own - output["sampling_per_token_logps"]) * trained
        weights = torch.exp(gap).clamp(max=cap)
        output["old_per_token_logps"] = own
        output["advantages"] = output["advantages"][:, None] * weights
        count = trained.sum().clamp(min=1)
        metrics = self._metrics["train"]
        metrics["importance/gap"].append((gap.abs().sum() / count).item())
        metrics["importance/capped"].append((((gap.exp() > cap) * trained).sum() / count).item())

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
            own = {group.uid: group for group in groups}
            everyones = cast(list[Group], gather_object([group.bare for group in groups]))
            kept = (own.get(group.uid, group) for group in everyones)  # with rollouts, for traces
            return sorted(kept, key=lambda group: group.uid)

        oldest = step - self.rl.max_staleness
        carried = [group for group in self.carried if group.weight_version >= oldest]
        try:
            filled = self.filler.fill(self.rl.groups, roll, carried)
        except ValueError as error:
            raise TrainingError(f"step {step}: {error}; the sandbox seems to be down") from error
        finally:
            model.train(training)
        self.carried = filled.surplus if self.rl.max_staleness else []
        self.informative += filled.informative
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

    def _log_filling(self, filled: Filled[Group], seconds: float, staleness: float) -> None:
        metrics = self._metrics["train"]
        metrics["filling/informative"].append(float(filled.informative))
        metrics["filling/rolled"].append(float(filled.rolled))
        metrics["filling/rounds"].append(float(filled.rounds))
        metrics["filling/rate"].append(self.filler.rate)
        metrics["filling/surplus"].append(float(len(filled.surplus)))
        metrics["filling/staleness"].append(staleness)
        metrics["filling/seconds"].append(seconds)
        kept = [sample.reward for group in filled.groups for sample in group.samples]
        metrics["filling/kept_reward"].append(sum(kept) / len(kept))


class StreamState(TrainerCallback):
    """Carries a trainer's filling through checkpoints; ends a run that finds no signal any more.

    The run ends after ``patience`` steps in a row without one informative group.
    """

    def __init__(self, trainer: AdaptiveGRPOTrainer, patience: int) -> None:
        self._trainer = trainer
        self._patience = patience
        self.stopped = False

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._trainer.empty_batches >= self._patience:
            control.should_training_stop = True
            self.stopped = True

    def state(self) -> dict[str, Any]:
        trainer = self._trainer
        return {
            "position": trainer.stream.position,
            "rate": trainer.filler.rate,
            "informative": trainer.informative,
            "empty_batches": trainer.empty_batches,
            "lost_to_infra": trainer.roller.lost_to_infra,
            "carried": [asdict(group.bare) for group in trainer.carried],
            "stopped": self.stopped,
        }

    def restore(self, state: dict[str, Any]) -> None:
        trainer = self._trainer
        trainer.stream.position = state["position"]
        trainer.filler.rate = state["rate"]
        trainer.informative = state["informative"]
        trainer.empty_batches = state["empty_batches"]
        trainer.roller.lost_to_infra = state["lost_to_infra"]
        trainer.carried = [_carried_group(document) for document in state["carried"]]
        self.stopped = state["stopped"]


def _carried_group(document: dict[str, Any]) -> Group:
    """A group as a checkpoint keeps it: without the rollouts of its rank."""
    samples = [TrainingSample(**sample) for sample in document["samples"]]
    figures, kind, difficulty = (document[name] for name in ("figures", "kind", "difficulty"))
    return Group(document["uid"], samples, figures, kind, difficulty)


def grpo_arguments(config: RLConfig, folder: Path, steps: int, dtype: str) -> GRPOConfig:
    """TRL's settings: no KL, no entropy, token-mean loss, decoupled clipping."""
    cuda = torch.cuda.is_available()
    rows = config.groups * config.group_size
    accumulation = accumulation_steps(rows, config.micro_batch_size, "rl")
    return GRPOConfig(
        output_dir=str(folder),
        seed=config.seed,
        max_steps=steps,
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
        logging_nan_inf_filter=False,  # would show the last good loss instead of NaN
        report_to="none",
        disable_tqdm=True,
        activation_checkpointing=config.activation_checkpointing,
        bf16=cuda and dtype == "bfloat16",
        use_cpu=not cuda,
        dataloader_pin_memory=cuda,
        ddp_find_unused_parameters=False,  # all take part; looking costs a walk of the graph a step
    )
