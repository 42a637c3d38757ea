"""GRPO with adaptive batch filling: TRL's trainer with our rollouts in front (ASTRA section 5.1).

Two methods of ``GRPOTrainer`` are overridden, both private to TRL, so its version is pinned.
``_generate_and_score_completions`` rolls groups until enough of them carry signal and replays
them through ``rollout_func``. ``_get_per_token_logps_and_entropies`` gives the parent's numbers
without computing padding. Padding, masks, advantages, the token-mean loss, reduction over ranks
and checkpoints stay TRL's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate import DistributedType
from torch.nn.functional import pad
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from astra.train.collector import BatchCollector, Collected, samples_of
from astra.train.distributed import accumulation_steps, is_sharded
from astra.train.errors import TrainingError
from astra.train.exchange import Exchange, patience_s
from astra.train.filling import Filled
from astra.train.groups import Group, GroupRoller, PromptStream, TrainingSample
from astra.train.lora import bare
from astra.train.rl_config import RLConfig
from astra.train.token_tree import token_tree

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

    The samples of a batch, in order, are spread evenly over ranks; a group may lie on two. Where
    ``max_staleness`` allows it and servers roll, they roll the next batch while this one trains.
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
        self.rl = config
        self.first_step = first_step
        self._on_batch = on_batch
        self._replayed: list[TrainingSample] = []
        super().__init__(
            reward_funcs=[replay_reward],
            rollout_func=lambda prompts, trainer: self._replay(),
            **kwargs,
        )
        self.collector = BatchCollector(roller, stream, config, Exchange(patience_s(config)))
        if not config.engine.own_weights and is_sharded(self):
            raise TrainingError(
                f"engine {config.engine.type} generates with the trainer's own weights, which "
                "ZeRO-3 and FSDP spread over ranks; choose rl/engine=vllm, or use DDP or ZeRO-2"
            )

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        step = self.first_step + self.state.global_step
        started = time.monotonic()
        collected = self._collect(step)
        waited = time.monotonic() - started
        filled = collected.filled
        share = self._share(filled)
        self._replayed = samples_of(filled.groups)[share]
        ages = [step - sample.weight_version for sample in self._replayed]
        if not 0 <= min(ages) <= max(ages) <= self.rl.max_staleness:
            raise AssertionError(f"a rollout is older than the weights of step {step} allow")
        self._log_filling(collected, waited, sum(ages) / len(ages))
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
        self._leave_out(output, filled, share)
        return output

    def _share(self, filled: Filled[Group]) -> slice:
        """This rank's samples among all of the batch; TRL gathers rewards in this order."""
        share = len(filled.groups) * self.rl.group_size // self.accelerator.num_processes
        rank = self.accelerator.process_index
        return slice(rank * share, (rank + 1) * share)

    def _leave_out(self, output: dict[str, Any], filled: Filled[Group], share: slice) -> None:
        """Take groups without signal out of the loss: no advantage, no tokens in the mean.

        The paper trains on groups with signal alone (ASTRA section 5.1). Such groups follow those
        with signal, and are there where rolling did not fill the batch.
        """
        with_signal = filled.informative * self.rl.group_size
        output["advantages"][max(0, with_signal - share.start) :] = 0.0
        trained = samples_of(filled.groups[: filled.informative])
        tokens = sum(sum(sample.mask) for sample in trained)
        output["num_items_in_batch"] = torch.full_like(output["num_items_in_batch"], tokens)

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
        if self.rl.layout == "tree" and self.accelerator.distributed_type == DistributedType.NO:
            return self._along_tree(
                model, input_ids, attention_mask, logits_to_keep, compute_entropy
            )
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

    def _along_tree(
        self,
        model: Any,
        ids: torch.Tensor,
        mask: torch.Tensor,
        kept: int,
        compute_entropy: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        """The same, of rows that are laid out as a tree: their prompts begin alike, and those of a
        group are the same."""
        plain = bare(self.accelerator.unwrap_model(model))
        rows = [row[real].tolist() for row, real in zip(ids, mask.bool(), strict=True)]
        tree = token_tree(rows)
        completed = mask[:, -kept:].bool()
        predicted = [
            place
            for places, count in zip(tree.places, completed.sum(1).tolist(), strict=True)
            for place in places[len(places) - count - 1 : -1]
        ]
        with self.accelerator.autocast():
            hidden = tree.forward(plain.get_decoder(), ids.device)[predicted]
            logits = plain.get_output_embeddings()(hidden)
        scores = torch.log_softmax(logits.float() / self.temperature, -1)
        found = scores.gather(1, ids[:, -kept:][completed][:, None])[:, 0]
        blank = torch.zeros(completed.shape, device=ids.device)
        entropies = None
        if compute_entropy:
            with torch.no_grad():
                spread = -(scores.exp() * scores).sum(-1)
            entropies = blank.masked_scatter(completed, spread)
        return blank.masked_scatter(completed, found), entropies, None

    @torch.no_grad()
    def reference_logprobs(self, ids: list[int]) -> list[float]:
        """Log-probabilities (nats) of all ids but the first, at temperature 1. Collective where
        weights are spread.

        The pass is one of training's: DeepSpeed fetches ahead what the last pass used, and dies
        where one goes through the head's module and the next through TRL's fused head.
        """
        model: Any = self.model
        batch = torch.tensor([ids], device=self.accelerator.device)
        training = model.training
        model.eval()
        with self._untempered():
            found = self._get_per_token_logps_and_entropies(
                model, batch, torch.ones_like(batch), len(ids) - 1
            )[0]
        model.train(training)
        return found[0].float().tolist()

    @contextmanager
    def _untempered(self) -> Generator[None]:
        """Have forward passes give log-probabilities at temperature 1: TRL's head, built for the
        rollouts' temperature, divides by it what is multiplied by it here."""
        model = bare(self.accelerator.unwrap_model(self.model))

        def scaled(module: Any, inputs: Any, output: Any) -> Any:
            output.last_hidden_state = output.last_hidden_state * self.temperature
            return output

        hook = model.base_model.register_forward_hook(scaled)
        try:
            yield
        finally:
            hook.remove()

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

    def _collect(self, step: int) -> Collected:
        """The batch of ``step``; from then on servers roll the next one, if they may."""
        model = self.accelerator.unwrap_model(self.model)
        training = model.training
        model.eval()
        try:
            collected = self.collector.batch(step)
            overlaps = self.rl.max_staleness > 0 and self.rl.engine.own_weights
            if overlaps and step + 1 < self.first_step + self.args.max_steps:
                self.collector.roller.weights_are(step)
                self.collector.begin(step + 1)
        finally:
            model.train(training)
        return collected

    def _replay(self) -> dict[str, list[Any]]:
        samples = self._replayed
        return {
            "prompt_ids": [sample.prompt_ids for sample in samples],
            "completion_ids": [sample.completion_ids for sample in samples],
            "logprobs": [sample.logprobs for sample in samples],
            "env_mask": [sample.mask for sample in samples],
            "trajectory_reward": [sample.reward for sample in samples],
        }

    def _log_filling(self, collected: Collected, waited: float, staleness: float) -> None:
        filled, metrics = collected.filled, self._metrics["train"]
        kept = [sample.reward for sample in samples_of(filled.groups)]
        rolled = collected.rewards  # none where surplus filled the batch
        for name, value in {
            "informative": filled.informative,
            "rolled": filled.rolled,
            "rounds": filled.rounds,
            "rate": self.collector.filler.rate,
            "surplus": len(filled.surplus),
            "staleness": staleness,
            "seconds": collected.seconds,
            "waited": waited,
            "infra_retries": collected.trouble.retries,
            "lost_to_infra": collected.trouble.lost,
            "kept_reward": sum(kept) / len(kept),
            **({"rolled_reward": sum(rolled) / len(rolled)} if rolled else {}),
        }.items():
            metrics[f"filling/{name}"].append(float(value))


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
        if self._trainer.collector.empty_batches >= self._patience:
            control.should_training_stop = True
            self.stopped = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        # A run that ends early has begun a batch that nobody takes: it ends before its sandbox.
        self._trainer.collector.roller.ahead.wait()

    def state(self) -> dict[str, Any]:
        return {**self._trainer.collector.state(), "stopped": self.stopped}

    def restore(self, state: dict[str, Any]) -> None:
        self._trainer.collector.restore(state)
        self.stopped = state["stopped"]


def grpo_arguments(config: RLConfig, folder: Path, steps: int) -> GRPOConfig:
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
        bf16=config.dtype == "bfloat16",  # the compute's; the weights themselves stay float32
        use_cpu=not cuda,
        dataloader_pin_memory=cuda,
        ddp_timeout=patience_s(config),  # ranks meet after a hand-over, or development rollouts
        ddp_find_unused_parameters=False,  # all take part; looking costs a walk of the graph a step
    )
