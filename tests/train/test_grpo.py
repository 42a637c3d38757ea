"""The trainer's overrides, driven by groups made by hand."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from datasets import Dataset
from training_world import make_arena

from astra.rollout.batched import BatchedEngine
from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_policy
from astra.rollout.engine import Sampling
from astra.rollout.errors import EngineError
from astra.train.advantages import group_std
from astra.train.ahead import Ahead
from astra.train.checkpoints import STATE_FILE, CompleteCheckpoint, restore_parts
from astra.train.errors import TrainingError
from astra.train.groups import Group, PromptStream, TrainingSample
from astra.train.grpo import AdaptiveGRPOTrainer, StreamState, grpo_arguments
from astra.train.live_policy import LivePolicy
from configs import engine_options, rl_config

SAMPLER = {"type": "sampler"}


class ScriptedRoller:
    """Groups of random tokens; one group in ``every`` has a spread of rewards."""

    ENDS_ON_TOOL_TEXT = False

    def __init__(self, size: int, informative: bool = True, every: int = 3) -> None:
        self.size, self.informative, self.every, self.version = size, informative, every, -1
        self.lost_to_infra = self.infra_retries = 0
        self.problem = ""
        self.ahead: Ahead[Any] = Ahead()
        self.rolled: list[int] = []

    def weights_are(self, version: int) -> None:
        self.ahead.wait()
        self.version = version

    def roll(self, prompts: Sequence[tuple[int, Any]], seed: int) -> list[Group]:
        return [self._group(uid) for uid, _ in prompts]

    def _group(self, uid: int) -> Group:
        rng = random.Random(uid)
        self.rolled.append(uid)
        samples: list[TrainingSample] = []
        prompt = [rng.randrange(2000) for _ in range(9)]
        for index in range(self.size):
            spans = [(1, rng.randrange(2, 6)), (0, rng.randrange(2, 9)), (1, rng.randrange(2, 6))]
            if self.ENDS_ON_TOOL_TEXT:
                spans.append((0, 3))
            mask = [m for m, count in spans for _ in range(count)]
            ids = [rng.randrange(2000) for _ in mask]
            reward = index / self.size if self.informative and uid % self.every == 0 else 0.5
            logprobs = [-3.0 * m for m in mask]
            samples.append(TrainingSample(prompt, ids, mask, logprobs, reward, self.version))
        return Group(uid, samples, {"reward": 0.5})


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """The paper's advantages of one group, by hand."""
    mean, std = sum(rewards) / len(rewards), group_std(rewards)
    return [(reward - mean) / (std + 1e-4) for reward in rewards]


@pytest.fixture
def policy() -> LoadedPolicy:
    torch.set_num_threads(1)
    return load_policy(PolicyConfig.saved("policies/tiny", "float32"))


def trainer(
    policy: LoadedPolicy, folder: Path, roller: ScriptedRoller, **options: Any
) -> AdaptiveGRPOTrainer:
    settings: dict[str, Any] = {
        "steps": 2, "groups": 2, "group_size": 4, "micro_batch_size": 4, "max_rounds": 4,
        "learning_rate": 1e-3, "save_steps": 1, "importance": {"type": "trainer"},
    }  # fmt: skip
    config = rl_config(**(settings | options))
    made: Any = AdaptiveGRPOTrainer(
        roller=roller,  # type: ignore[arg-type]
        stream=PromptStream([make_arena(seed) for seed in range(4)], config.seed),
        config=config,
        model=policy.model,
        args=grpo_arguments(config, folder, config.steps),
        train_dataset=Dataset.from_list([{"prompt": ""}] * config.groups),
        processing_class=policy.codec.tokenizer,
    )
    state = StreamState(made, config.patience)
    made.add_callback(state)
    made.add_callback(CompleteCheckpoint({"stream": state}, 9, 9))
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


def test_the_objective_is_the_papers_whatever_the_trainers_defaults(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    assert trl.__version__.startswith("1.16."), "rollout_func is experimental there"
    one = trainer(policy, tmp_path, ScriptedRoller(4), temperature=0.7)
    args = one.args
    assert (args.beta, one.ref_model) == (0.0, None), "no KL"
    assert (args.entropy_coef, args.use_adaptive_entropy) == (0.0, False)
    assert args.top_entropy_quantile == 1.0
    assert (args.loss_type, args.scale_rewards, args.num_iterations) == ("dapo", "group", 1)
    assert args.importance_sampling_level == "token"
    assert (args.epsilon, args.epsilon_high, args.delta) == (0.2, 0.28, None)
    assert args.mask_truncated_completions is False
    assert args.off_policy_mask_threshold is None, "it would drop rollouts without a word"
    assert args.use_vllm is False
    assert args.max_completion_length == one.rl.limits.max_response_tokens
    assert args.temperature == 0.7, "the trainer's is the engine's"
    assert (args.bf16, args.activation_checkpointing, args.use_cpu) == (False, False, True)
    assert (args.save_only_model, args.save_total_limit) == (False, None)


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
    one = trainer(policy, tmp_path, ScriptedRoller(4), steps=1, importance=SAMPLER)
    _, batches = record(one)
    one.train()
    for batch in batches:
        assert torch.equal(batch["old_per_token_logps"], batch["sampling_per_token_logps"])
        assert (batch["old_per_token_logps"] == -3.0).any()


def test_the_loss_is_the_papers_objective_worked_out_token_by_token(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    """-1/sum|o| * sum min(r A, clip(r, 1 - 0.2, 1 + 0.28) A) over sampled tokens of the batch."""
    one: Any = trainer(policy, tmp_path, ScriptedRoller(4), steps=1, importance=SAMPLER)
    _, batches = record(one)
    values: list[torch.Tensor] = []
    losses: list[float] = []
    logps, loss = one._get_per_token_logps_and_entropies, one._compute_loss
    one._get_per_token_logps_and_entropies = lambda *a, **k: (
        out := logps(*a, **k), values.append(out[0].detach()))[0]  # fmt: skip
    one._compute_loss = lambda *a: (out := loss(*a), losses.append(float(out.detach())))[0]
    one.train()
    total, tokens = 0.0, 0
    for batch, new in zip(batches, values, strict=True):
        tools = tool_tokens(one, batch)
        for row, column in (batch["completion_mask"].bool() & ~tools).nonzero().tolist():
            advantage = float(batch["advantages"][row])
            ratio = math.exp(float(new[row, column]) - -3.0)
            clipped = min(max(ratio, 0.8), 1.28)
            total -= min(ratio * advantage, clipped * advantage)
            tokens += 1
    assert sum(losses) == pytest.approx(total / tokens, rel=1e-4)
    assert {round(float(a), 3) for batch in batches for a in batch["advantages"]} == {
        round(a, 3) for a in group_advantages([0.0, 0.25, 0.5, 0.75])
    }


def test_a_trajectory_that_ends_on_tool_text_is_trained(
    policy: LoadedPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no EOS at its end: masking truncated completions would drop it whole."""
    monkeypatch.setattr(ScriptedRoller, "ENDS_ON_TOOL_TEXT", True)
    one = trainer(policy, tmp_path, ScriptedRoller(4), steps=1)
    gradients, batches = record(one)
    one.train()
    for gradient, batch in zip(gradients, batches, strict=True):
        sampled = batch["completion_mask"].bool() & ~tool_tokens(one, batch)
        moved = batch["advantages"].abs() > 1e-6
        assert (gradient[sampled & moved[:, None]] != 0).all()


def test_filling_off_trains_on_what_was_rolled_first(policy: LoadedPolicy, tmp_path: Path) -> None:
    roller = ScriptedRoller(4)
    one = trainer(policy, tmp_path, roller, steps=2, batch_filling=False)
    one.train()
    assert roller.rolled == [0, 1, 2, 3], "two prompts a step, no more"
    assert [round(r, 2) for r in (s.reward for s in one._replayed)] == [0, 0.25, 0.5, 0.75] + [
        0.5
    ] * 4
    assert one.state.log_history[0]["filling/informative"] == 1
    assert one.state.log_history[0]["filling/rolled_reward"] == 0.5


def test_surplus_groups_train_later_or_are_dropped(policy: LoadedPolicy, tmp_path: Path) -> None:
    """Rounds are sized for fewer informative groups than there are: all of them are.

    The first by a rate of 0.25, which it raises to 0.8 * 0.25 + 0.2 = 0.4 for the second.
    """
    for staleness, rolled, ages, surplus in (
        (0, [8, 5], [0.0, 0.0], [6, 3]),
        (1, [8, 0], [0.0, 1.0], [6, 4]),
    ):
        roller = ScriptedRoller(4, every=1)
        one = trainer(
            policy, tmp_path / str(staleness), roller, max_staleness=staleness,
            importance=SAMPLER,
        )  # fmt: skip
        one.collector.filler.rate = 0.25
        one.train()
        logged = [entry for entry in one.state.log_history if "filling/rolled" in entry]
        assert [entry["filling/rolled"] for entry in logged] == rolled
        assert [entry["filling/staleness"] for entry in logged] == ages
        assert [entry["filling/surplus"] for entry in logged] == surplus
        told = ["filling/rolled_reward" in entry for entry in logged]
        assert told == [count > 0 for count in rolled], "surplus alone was rolled before"
        assert len(roller.rolled) == sum(rolled)


def test_groups_without_signal_are_left_out_of_the_token_mean(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    """A batch of one group with signal and one without has the loss of the first alone."""
    losses: list[list[float]] = []
    for groups, every in ((1, 1), (2, 1000)):
        one: Any = trainer(
            policy, tmp_path / str(groups), ScriptedRoller(4, every=every), steps=1, groups=groups,
            batch_filling=False, learning_rate=1e-12, importance=SAMPLER,
        )  # fmt: skip
        gradients, batches = record(one)
        one.train()
        spare = [row for batch in batches for row in batch["advantages"].tolist() if row == 0.0]
        assert len(spare) == 4 * (groups - 1)
        assert {int(batch["num_items_in_batch"]) for batch in batches} == {
            sum(sum(s.mask) for s in one._replayed[:4])
        }
        losses.append(sorted(x for g in gradients for x in g.flatten().tolist() if x))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


class Overlapped(ScriptedRoller):
    """Says when it rolls, and which weights the servers had at the beginning and at the end."""

    def __init__(self, size: int, seconds: float = 0.0) -> None:
        super().__init__(size, every=1)
        self.seconds = seconds
        self.spans: list[tuple[float, float]] = []
        self.failure: Exception | None = None

    def roll(self, prompts: Sequence[tuple[int, Any]], seed: int) -> list[Group]:
        started, version = time.monotonic(), self.version
        time.sleep(self.seconds)
        if self.failure and self.version >= 0 and len(self.spans) == 1:
            raise self.failure
        groups = super().roll(prompts, seed)
        assert version == self.version, "new weights came in the middle of a rollout"
        self.spans.append((started, time.monotonic()))
        return groups


SERVERS: dict[str, Any] = {
    "engine": engine_options("vllm"), "importance": SAMPLER, "max_staleness": 1,
}  # fmt: skip


def test_servers_roll_the_next_batch_while_this_one_trains(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    roller = Overlapped(4, seconds=0.3)
    one: Any = trainer(policy, tmp_path, roller, steps=3, **SERVERS)
    computed: list[float] = []
    loss = one._compute_loss
    one._compute_loss = lambda *a: (computed.append(time.monotonic()), loss(*a))[1]
    one.train()
    logged = [entry for entry in one.state.log_history if "filling/staleness" in entry]
    assert [entry["filling/staleness"] for entry in logged] == [0.0, 1.0, 1.0]
    assert len(roller.spans) == 3, "after the last step nothing is left to roll for"
    for began, ended in roller.spans[1:]:
        assert any(began < at < ended for at in computed), "rolled during a training step"
    for entry in logged[1:]:
        assert entry["filling/waited"] < entry["filling/seconds"]


def test_engines_in_the_trainers_process_roll_in_turn(policy: LoadedPolicy, tmp_path: Path) -> None:
    roller = Overlapped(4)
    one = trainer(policy, tmp_path, roller, steps=3, max_staleness=1, importance=SAMPLER)
    one.train()
    logged = [entry for entry in one.state.log_history if "filling/staleness" in entry]
    assert [entry["filling/staleness"] for entry in logged] == [0.0, 0.0, 0.0]


def test_what_fails_while_rolling_ahead_ends_the_run_with_its_cause(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    roller = Overlapped(4)
    roller.failure = EngineError("no vLLM server is left")
    with pytest.raises(EngineError, match="no vLLM server is left"):
        trainer(policy, tmp_path, roller, steps=3, **SERVERS).train()


def test_a_run_that_ends_early_leaves_nothing_behind(policy: LoadedPolicy, tmp_path: Path) -> None:
    roller = Overlapped(4, seconds=0.3)
    roller.informative = False
    one = trainer(policy, tmp_path, roller, steps=9, patience=1, max_rounds=1, **SERVERS)
    one.train()
    assert one.state.global_step == 1
    assert len(roller.spans) == 2, "the batch that was begun is over"


def test_a_surplus_of_servers_trains_where_two_steps_of_age_are_allowed(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    """Rolled ahead, a batch is a step old when it trains and its surplus two.

    Only the first batch is rolled when it is due, and its surplus a step younger.
    """
    for staleness, rolled, ages in (
        (1, [8, 0, 5, 4, 4], [0, 1, 1, 1, 1]),
        (2, [8, 0, 0, 5, 0], [0, 1, 2, 1, 2]),
    ):
        roller = Overlapped(4)
        options = SERVERS | {"max_staleness": staleness}
        one = trainer(policy, tmp_path / str(staleness), roller, steps=5, **options)
        one.collector.filler.rate = 0.25
        one.train()
        logged = [entry for entry in one.state.log_history if "filling/rolled" in entry]
        assert [entry["filling/rolled"] for entry in logged] == rolled
        assert [entry["filling/staleness"] for entry in logged] == ages


def test_a_kill_loses_the_batch_that_was_rolled_ahead_and_nothing_else(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    whole = Overlapped(4)
    trainer(policy, tmp_path / "a", whole, steps=3, **SERVERS).train()
    fresh, killed = load_policy(PolicyConfig.saved("policies/tiny", "float32")), Overlapped(4)
    one = trainer(fresh, tmp_path / "b", killed, steps=3, **SERVERS)
    one.train()
    checkpoint = tmp_path / "b" / "checkpoint-2"
    state = json.loads((checkpoint / STATE_FILE).read_text())["stream"]
    assert state["position"] == 4, "the third batch, which was being rolled, is not counted"
    resumed, roller = load_policy(PolicyConfig.saved("policies/tiny", "float32")), Overlapped(4)
    again = trainer(resumed, tmp_path / "b", roller, steps=3, **SERVERS)
    restore_parts(str(checkpoint), {"stream": stream_of(again)})
    again.train(resume_from_checkpoint=str(checkpoint))
    assert roller.rolled == whole.rolled[-2:], "the same arenas"
    assert again.state.log_history[-2]["filling/staleness"] == 0.0, "by the newest weights"


def test_importance_weights_by_hand(policy: LoadedPolicy, tmp_path: Path) -> None:
    one: Any = trainer(
        policy, tmp_path, ScriptedRoller(4), steps=1, importance={"type": "truncated", "cap": 0.01}
    )
    _, batches = record(one)
    one.train()
    plain = group_advantages([0.0, 0.25, 0.5, 0.75])
    for batch in batches:
        tools = tool_tokens(one, batch)
        trained = batch["completion_mask"].bool() & ~tools
        assert (batch["sampling_per_token_logps"][trained] == -3.0).all()
        gaps = torch.exp(batch["old_per_token_logps"] + 3.0).clamp(max=0.01)
        for row, weights in enumerate(batch["advantages"]):
            scale = min(plain, key=lambda a: abs(a - float(weights[tools[row]][0]) / 0.01))
            expected = gaps[row][trained[row]] * scale
            assert torch.allclose(weights[trained[row]], expected, rtol=1e-3)
    (logged,) = [entry for entry in one.state.log_history if "importance/gap" in entry]
    assert logged["importance/gap"] > 0


def test_engine_and_trainer_agree_on_log_probabilities(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    """The engine's cached, batched decoding against the trainer's one pass, at one temperature."""
    engine = BatchedEngine(policy.model, policy.codec.eos_id, policy.codec.pad_id)
    prompts = [[5, 6, 7, 8], [9, 10]]
    engine.start(prompts, [6, 6], Sampling(0.7, seed=1))
    turns = {turn.row: turn for turn in iter_turns(engine)}
    one: Any = trainer(policy, tmp_path, ScriptedRoller(4), temperature=0.7)
    for row, prompt in enumerate(prompts):
        ids = torch.tensor([[*prompt, *turns[row].ids]])
        with torch.no_grad():
            own = one._get_per_token_logps_and_entropies(
                policy.model, ids, torch.ones_like(ids), len(turns[row].ids)
            )[0]
        assert own[0].tolist() == pytest.approx(turns[row].logprobs, abs=2e-5)


def test_servers_are_held_to_the_trainers_log_probabilities_at_temperature_1(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    ids = [5, 6, 7, 8, 9, 10, 11]
    live = LivePolicy(policy, "float32")
    alone = live.logprobs(ids)
    one: Any = trainer(policy, tmp_path, ScriptedRoller(4), temperature=0.7)
    live.train_in(one)
    one.model.train()
    calls: list[Any] = []
    policy.model.lm_head.register_forward_hook(lambda *_: calls.append(1))
    assert live.logprobs(ids) == pytest.approx(alone, abs=2e-5)
    assert not calls, "the pass is one of training's, which does not go through the head's module"
    assert one.model.training
    batch = torch.tensor([ids])
    with torch.no_grad():
        rollouts = one._get_per_token_logps_and_entropies(
            policy.model, batch, torch.ones_like(batch), len(ids) - 1
        )[0]
    assert rollouts[0].tolist() != pytest.approx(alone, abs=1e-2), "those are tempered"


def iter_turns(engine: BatchedEngine) -> Iterator[Any]:
    while turns := engine.poll():
        for turn in turns:
            engine.finish(turn.row)
            yield turn


def test_a_batch_that_does_not_divide_is_refused(
    policy: LoadedPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(TrainingError, match="a batch of 8 is no multiple of micro_batch_size 4"):
        trainer(policy, tmp_path, ScriptedRoller(4))


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
    fresh = load_policy(PolicyConfig.saved("policies/tiny", "float32"))
    trainer(fresh, tmp_path / "b", ScriptedRoller(4), steps=3).train()
    checkpoint = str(tmp_path / "b" / "checkpoint-2")
    resumed, roller = load_policy(PolicyConfig.saved("policies/tiny", "float32")), ScriptedRoller(4)
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


def test_trimmed_passes_give_the_numbers_and_gradients_of_the_padded_one(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    """Prompts and completions of many lengths, more rows than one pass holds."""
    one: Any = trainer(policy, tmp_path, ScriptedRoller(4))
    policy.model.double()  # the head still works in float32
    rng = random.Random(0)
    rows, prompt, width = 11, 12, 9
    ids = torch.tensor([[rng.randrange(2000) for _ in range(prompt + width)] for _ in range(rows)])
    mask = torch.zeros_like(ids)
    for row in mask:
        row[rng.randrange(prompt - 1) : prompt + rng.randrange(1, width)] = 1
    weights = torch.randn(
        rows, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    weights = weights * mask[:, prompt:]
    parent: Any = super(AdaptiveGRPOTrainer, one)
    found: list[tuple[torch.Tensor, ...]] = []
    for each in (parent, one):
        policy.model.zero_grad()
        logps, entropies, _ = each._get_per_token_logps_and_entropies(
            policy.model, ids, mask, width, compute_entropy=True
        )
        (logps * weights).sum().backward()
        gradients = torch.cat([p.grad.flatten() for p in policy.model.parameters()])
        real = mask[:, prompt:].bool()
        found.append((logps[real], entropies[real], gradients))
    for padded, trimmed in zip(*found, strict=True):
        assert (trimmed - padded).abs().max() < 1e-5 * padded.abs().max()
    assert found[0][2].abs().max() > 0
