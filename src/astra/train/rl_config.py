"""Block ``rl``. Defaults are the paper's wherever it states one (ASTRA section 5)."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from astra.arena.irrelevant import IrrelevantMode
from astra.arena.reward import FinalAnswer, RewardMode
from astra.plugins import choice
from astra.rollout import engines
from astra.rollout.live import RolloutLimits
from astra.sandbox.limits import SandboxLimits
from astra.settings import StageConfig
from astra.train.lora import LoRAConfig

BuiltInEngine = Literal["batched", "continuous", "vllm"]
"""Those that come along; the files of ``rollout/known`` are further ones."""
Engine = Annotated[str, AfterValidator(choice("engine", get_args(BuiltInEngine), engines))]


class RoCConfig(StageConfig):
    """GRPO-RoC: roll more, keep negatives uniformly and the cleanest positives."""

    mode: Literal["off", "sample", "sort"] = "off"
    """``sample``: positives by inverse penalty (its paper); ``sort``: the lowest penalties."""
    oversample: int = Field(default=2, ge=2)
    """Rollouts made per rollout kept."""
    positive_above: float = 0.0
    """A rollout is positive when its reward exceeds this."""


class RLPhase(StageConfig):
    """One part of a training schedule (rStar2's "stages")."""

    steps: int = Field(ge=1)
    max_turns: int | None = Field(default=None, ge=1)
    """None: as in ``limits``."""
    max_response_tokens: int | None = Field(default=None, ge=1)
    """None: as in ``limits``."""
    drop_solved: int | None = Field(default=None, ge=1)
    """Before the phase, drop arenas that the policy then solves in so many of so many rollouts."""
    reset_optimizer: bool = False


class RLConfig(StageConfig):
    """Group-relative policy optimisation in arenas (ASTRA section 5)."""

    seed: int = 0
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights; the policy itself is ``models/sft``."""
    steps: int = Field(default=100, ge=1)
    schedule: tuple[RLPhase, ...] = ()
    """Phases, one after the other, in place of ``steps``."""
    reward: RewardMode = RewardMode.F1
    final_answer: FinalAnswer = FinalAnswer.SUBTASK
    irrelevant_tools: IrrelevantMode = IrrelevantMode.BANDED
    irrelevant_per_band: int = Field(default=1, ge=0)
    groups: int = Field(default=32, ge=1)
    """Prompts per step, each with a spread of rewards above ``min_reward_std``."""
    group_size: int = Field(default=8, ge=2)
    min_reward_std: float = Field(default=1e-6, ge=0)
    """The paper's delta: groups that spread less carry no signal and are rolled anew."""
    batch_filling: bool = True
    """Roll until the batch is full of informative groups; off: train on what was rolled first."""
    max_rounds: int = Field(default=4, ge=1)
    """Rounds of rolling per step; what is still missing then is filled with spare groups."""
    max_staleness: int = Field(default=0, ge=0)
    """Surplus informative groups train up to so many steps later; 0: they are dropped."""
    patience: int = Field(default=3, ge=1)
    """Steps in a row without one informative group before training ends."""
    roc: RoCConfig = RoCConfig()
    temperature: float = Field(default=1.0, gt=0)
    limits: RolloutLimits = RolloutLimits()
    sandbox: SandboxLimits = SandboxLimits()
    """Limits of one session."""
    engine: Engine = "batched"
    """``batched``: small policies; ``continuous``: transformers' continuous batching in the
    training process; ``vllm``: the servers in runtime.rollout_servers; else a file of
    ``rollout/known``."""
    engine_rows: int = Field(default=128, ge=1)
    """Conversations generated side by side by engine ``batched``."""
    kv_tokens: int | None = Field(default=None, ge=1)
    """Key-value memory in tokens (per server); None: what vLLM says. ``continuous`` needs it."""
    tool_overlap: bool = False
    """Engine ``batched``: run tools while other rows generate. Rollouts then depend on the clock;
    the other engines always overlap."""
    rollout_timeout_s: float | None = Field(default=None, gt=0)
    """Wall time of one episode; not with engine ``batched``."""
    old_logprobs: Literal["sampler", "trainer"] = "sampler"
    """Denominator of the importance ratio: the engine's log-probabilities, or the trainer's."""
    importance_cap: float | None = Field(default=None, gt=0)
    """With old_logprobs ``trainer``: weigh each token by trainer over engine probability, at most
    this (truncated importance sampling). None: trust the engine."""
    learning_rate: float = Field(default=2e-6, gt=0)
    warmup_steps: int = Field(default=0, ge=0)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    epsilon_low: float = Field(default=0.2, gt=0)
    epsilon_high: float = Field(default=0.28, gt=0)
    micro_batch_size: int = Field(default=1, ge=1)
    dev_arenas: int = Field(default=64, ge=0)
    """Development arenas that are rolled greedily to watch training; 0: none."""
    dev_every: int = Field(default=20, ge=1)
    save_steps: int = Field(default=20, ge=1)
    keep_optimizer_states: int = Field(default=1, ge=1)
    embedding_rows: Literal["all", "added"] = "all"
    """``added``: only rows of added tokens train (optimizers.train_added_rows_only)."""
    trace_every: int = Field(default=20, ge=1)
    trace_rollouts: int = Field(default=2, ge=0)
    activation_checkpointing: bool = False
    lora: LoRAConfig = LoRAConfig()

    @property
    def total_steps(self) -> int:
        """Optimizer steps over all phases."""
        return sum(phase.steps for phase in self.schedule) or self.steps

    @property
    def rolled_size(self) -> int:
        """Rollouts made per group."""
        return self.group_size * (self.roc.oversample if self.roc.mode != "off" else 1)

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        if (self.groups * self.group_size) % self.micro_batch_size:
            raise ValueError("groups * group_size must be a multiple of micro_batch_size")
        if self.importance_cap is not None and self.old_logprobs == "sampler":
            raise ValueError("importance_cap corrects old_logprobs: trainer; sampler needs none")
        if self.max_staleness and self.old_logprobs == "trainer" and self.importance_cap is None:
            raise ValueError(
                "max_staleness with old_logprobs: trainer leaves stale rollouts uncorrected; use "
                "sampler, or set importance_cap"
            )
        if self.max_staleness and not self.batch_filling:
            raise ValueError("max_staleness keeps the surplus of batch_filling, which is off")
        if self.engine == "continuous" and self.kv_tokens is None:
            raise ValueError("engine continuous needs kv_tokens: the cache it may allocate")
        if self.engine == "vllm" and self.lora.rank:
            raise ValueError(
                "engine vllm takes whole weights over, adapters (lora.rank) it does not"
            )
        if self.engine == "batched" and self.rollout_timeout_s is not None:
            raise ValueError("rollout_timeout_s: engine batched has no time limit, the others do")
        return self
