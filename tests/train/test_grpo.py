"""The trainer's one override, driven by groups made by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from training_world import make_arena

from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_policy
from astra.train.advantages import group_advantages
from astra.train.checkpoints import STATE_FILE, CompleteCheckpoint, restore_parts
from astra.train.config import RLConfig
from astra.train.errors import TrainingError
from astra.train.groups import Group, PromptStream, Sample
from astra.train.grpo import AdaptiveGRPOTrainer, StreamState, grpo_arguments


class ScriptedRoller:
    """Groups of random tokens; every third group has a spread of rewards."""

    def __init__(self, size: int, informative: bool = True) -> None:
        self.size, self.informative, self.version = size, informative, -1
        self.lost_to_infra = 0
        self.rolled: list[int] = []

    def weights_are(self, version: int) -> None:
        self.version = version

    def roll(self, prompts: Sequence[tuple[int, Any]], seed: int) -> list[Group]:
        return [self._group(uid) for uid, _ in prompts]

    def _group(self, uid: int) -> Group:
        rng = random.Random(uid)
        self.rolled.append(uid)
        samples: list[Sample] = []
        prompt = [rng.randrange(2000) for _ in range(9)]
        for index in range(self.size):
            spans = [(1, rng.randrange(2, 6)), (0, rng.randrange(2, 9)), (1, rng.randrange(2, 6))]
            mask = [m for m, count in spans for _ in range(count)]
            ids = [rng.randrange(2000) for _ in mask]
            reward = index / self.size if self.informative and uid % 3 == 0 else 0.5
            logprobs = [-3.0 * m for m in mask]
            samples.append(Sample(prompt, ids, mask, logprobs, reward, self.version))
        return Group(uid, samples, {"reward": 0.5})


@pytest.fixture
def policy() -> LoadedPolicy:
    torch.set_num_threads(1)
    return load_policy(PolicyConfig(path="policies/tiny"))


def trainer(
    policy: LoadedPolicy, folder: Path, roller: ScriptedRoller, **options: Any
) -> AdaptiveGRPOTrainer:
    settings: dict[str, Any] = {
        "steps": 2, "groups": 2, "group_size": 4, "micro_batch_size": 4, "max_rounds": 4,
        "learning_rate": 1e-3, "save_steps": 1, "old_logprobs": "trainer",
    }  # fmt: skip
    config = RLConfig.model_validate(settings | options)
    state = StreamState(config.patience)
    made: Any = AdaptiveGRPOTrainer(
        roller=roller,  # type: ignore[arg-type]
        stream=PromptStream([make_arena(seed) for seed in range(4)], config.seed),
        config=config,
        model=policy.model,
        args=grpo_arguments(config, folder, config.steps, "float32"),
        train_dataset=Dataset.from_list([{"prompt": ""}] * config.groups),
        processing_class=policy.codec.tokenizer,
        callbacks=[state, CompleteCheckpoint({"stream": state}, 9)],
    )
    state.trainer = made
    return made


def stream_of(one: AdaptiveGRPOTrainer) -> StreamState:
    return next(c for c in one.callback_handler.callbacks if isinstance(c, StreamState))


def record(one: Any) -> tuple[list[torch.Tensor], list[dict[str, Any]]]:
    """Gradients of the per-token log-probabilities, and what the loss was given."""
    gradients: list[torch.Tensor] = []
    batches: list[dict[str, Any]] = []
    logps, loss = one._get_per_token_logps_and_entropies, one._compute_loss

    def hooked(*args: Any, **kwargs: Any) -> Any:
        out = logps(*args, **kwargs)
        if out[0].requires_grad:
            out[0].register_hook(lambda gradient: gradients.append(gradient.clone()))
        return out

    def seen(model: Any, inputs: dict[str, Any]) -> Any:
        batches.append(inputs)
        return loss(model, inputs)

    one._get_per_token_logps_and_entropies, one._compute_loss = hooked, seen
    return gradients, batches


def tool_tokens(one: AdaptiveGRPOTrainer, batch: dict[str, Any]) -> torch.Tensor:
    """Where a row holds tool text, found again by its ids."""
    masks = {tuple(s.completion_ids): s.mask for s in one._replayed}
    where = torch.zeros_like(batch["completion_ids"], dtype=torch.bool)
    for row, (ids, real) in enumerate(
        zip(batch["completion_ids"], batch["completion_mask"], strict=True)
    ):
        mask = masks[tuple(ids[real.bool()].tolist())]
        where[row, : len(mask)] = ~torch.tensor(mask, dtype=torch.bool)
    return where


def test_tool_tokens_get_exactly_no_gradient(policy: LoadedPolicy, tmp_path: Path) -> None:
    one = trainer(policy, tmp_path, ScriptedRoller(4), steps=1)
    gradients, batches = record(one)
    one.train()
    assert len(gradients) == len(batches) == 2
    for gradient, batch in zip(gradients, batches, strict=True):
        tools = tool_tokens(one, batch)
        sampled = batch["completion_mask"].bool() & ~tools
        assert tools.any()
        assert (gradient[tools] == 0).all()
        assert (gradient[~batch["completion_mask"].bool()] == 0).all()
        moved = batch["advantages"].abs() > 1e-6
        assert (gradient[sampled & moved[:, None]] != 0).all()


def test_without_the_mask_tool_text_would_be_trained(policy: LoadedPolicy, tmp_path: Path) -> None:
    """Negative control: the check above can fail."""
    one = trainer(policy, tmp_path, ScriptedRoller(4), steps=1)
    replay = one._replay
    one.rollout_func = lambda prompts, trainer: {
        key: value for key, value in replay().items() if key != "env_mask"
    }
    gradients, batches = record(one)
    one.train()
    assert any((g[tool_tokens(one, b)] != 0).any() for g, b in zip(gradients, batches, strict=True))


def test_only_informative_groups_train_and_advantages_are_the_groups(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    roller = ScriptedRoller(4)
    one = trainer(policy, tmp_path, roller)
    one.train()
    assert one.state.global_step == 2
    assert len(roller.rolled) > 4, "two thirds of the groups carry no signal"
    assert [s.reward for s in one._replayed] == [0.0, 0.25, 0.5, 0.75] * 2
    logged = list(one._logs["advantages"])[-8:]
    assert logged == pytest.approx(group_advantages([0.0, 0.25, 0.5, 0.75]) * 2, abs=1e-4)


def test_sampler_logprobs_become_the_denominator(policy: LoadedPolicy, tmp_path: Path) -> None:
    one = trainer(policy, tmp_path, ScriptedRoller(4), steps=1, old_logprobs="sampler")
    _, batches = record(one)
    one.train()
    for batch in batches:
        assert torch.equal(batch["old_per_token_logps"], batch["sampling_per_token_logps"])
        assert (batch["old_per_token_logps"] == -3.0).any()


def test_training_without_signal_ends_by_itself(policy: LoadedPolicy, tmp_path: Path) -> None:
    before = {n: p.clone() for n, p in policy.model.named_parameters()}
    one = trainer(
        policy, tmp_path, ScriptedRoller(4, informative=False), steps=9, patience=2, max_rounds=2
    )
    one.train()
    assert one.state.global_step == 2
    assert all(torch.equal(p, before[n]) for n, p in policy.model.named_parameters())


def test_stale_rollouts_are_refused(policy: LoadedPolicy, tmp_path: Path) -> None:
    roller = ScriptedRoller(4)
    roller.weights_are = lambda version: None  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="older than the weights"):
        trainer(policy, tmp_path, roller).train()


def test_resume_continues_the_prompt_stream(policy: LoadedPolicy, tmp_path: Path) -> None:
    whole = ScriptedRoller(4)
    trainer(policy, tmp_path / "a", whole, steps=3).train()
    uninterrupted = {n: p.clone() for n, p in policy.model.named_parameters()}
    fresh = load_policy(PolicyConfig(path="policies/tiny"))
    trainer(fresh, tmp_path / "b", ScriptedRoller(4), steps=3).train()
    checkpoint = str(tmp_path / "b" / "checkpoint-2")
    resumed, roller = load_policy(PolicyConfig(path="policies/tiny")), ScriptedRoller(4)
    one = trainer(resumed, tmp_path / "b", roller, steps=3)
    restore_parts(checkpoint, {"stream": stream_of(one)})
    one.train(resume_from_checkpoint=checkpoint)
    assert roller.rolled == whole.rolled[-len(roller.rolled) :]
    for name, parameter in resumed.model.named_parameters():
        assert torch.allclose(parameter, uninterrupted[name], atol=1e-6), name


def test_resume_without_stream_state_is_refused(policy: LoadedPolicy, tmp_path: Path) -> None:
    one = trainer(policy, tmp_path, ScriptedRoller(4))
    with pytest.raises(TrainingError, match=STATE_FILE):
        restore_parts(str(tmp_path / "checkpoint-1"), {"stream": stream_of(one)})
