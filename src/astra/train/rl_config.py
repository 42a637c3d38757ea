"""Parameters of stage ``rl``; conf/rl/base.yaml names each value's source."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from astra.arena.irrelevant import IrrelevantMode
from astra.arena.reward import FinalAnswer, RewardMode
from astra.records.qa import QuestionKind
from astra.rollout.build import engine_options
from astra.rollout.chat import Dtype
from astra.rollout.engine import EngineConfig
from astra.rollout.live import RolloutLimits
from astra.sandbox.limits import SandboxLimits
from astra.settings import StageConfig
from astra.train.layout import Layout, refuse_tree
from astra.train.lora import LoRAConfig


class SamplerImportance(StageConfig):
    """The importance ratio's denominator is the engine's log-probability of each token."""

    type: Literal["sampler"]


class TrainerImportance(StageConfig):
    """The denominator is the trainer's own log-probability; the engine is trusted to agree."""

    type: Literal["trainer"]


class TruncatedImportance(StageConfig):
    """The denominator is the trainer's; each token's loss is weighed by trainer over engine
    probability, at most ``cap`` (truncated importance sampling)."""

    type: Literal["truncated"]
    cap: float = Field(gt=0)


class RoCConfig(StageConfig):
    """GRPO-RoC: roll more, keep negatives uniformly and the cleanest positives."""

    mode: Literal["off", "sample", "sort"]
    """``sample``: positives by inverse penalty (its paper); ``sort``: the lowest penalties."""
    oversample: int = Field(ge=2)
    """Rollouts made per rollout kept."""
    positive_above: float
    """A rollout is positive when its reward exceeds this."""


class RLBand(StageConfig):
    """How often the policy may solve an arena before a phase, for the phase to train in it."""

    rollouts: int = Field(ge=1)
    """How often each arena is rolled to find out."""
    least: int = Field(default=0, ge=0)
    most: int = Field(ge=0)

    @model_validator(mode="after")
    def _is_a_band(self) -> Self:
        if not self.least <= self.most <= self.rollouts:
            raise ValueError(
                f"not least {self.least} <= most {self.most} <= rollouts {self.rollouts} (band)"
            )
        return self


class RLPhase(StageConfig):
    """One part of a training schedule (rStar2's "stages")."""

    steps: int = Field(ge=1)
    max_turns: int | None = Field(default=None, ge=1)
    """None: as in ``limits``."""
    max_response_tokens: int | None = Field(default=None, ge=1)
    """None: as in ``limits``."""
    band: RLBand | None = None
    """Arenas outside of it leave before the phase begins; None: all stay."""
    refresh: bool = False
    """Whether arenas that ask for what failed in the phase before come up to four times as often
    (train/curriculum.py)."""
    reset_optimizer: bool = False


class RLConfig(StageConfig):
    """Group-relative policy optimisation in arenas (ASTRA section 5)."""

    seed: int
    dtype: Dtype
    """The type that the policy computes and is served in; the policy itself is ``models/sft``."""
    steps: int = Field(ge=1)
    schedule: tuple[RLPhase, ...]
    """Phases, one after the other, in place of ``steps``."""
    kinds: tuple[QuestionKind, ...] | None = Field(min_length=1)
    """The kinds of arenas that train and watch training; None: all."""
    reward: RewardMode
    final_answer: FinalAnswer
    irrelevant_tools: IrrelevantMode
    irrelevant_per_band: int = Field(ge=0)
    groups: int = Field(ge=1)
    """Prompts per step, each with a spread of rewards above ``min_reward_std``."""
    group_size: int = Field(ge=2)
    min_reward_std: float = Field(ge=0)
    """The paper's delta: groups that spread less carry no signal and are rolled anew."""
    batch_filling: bool
    """Roll until the batch is full of informative groups; off: train on what was rolled first."""
    max_rounds: int = Field(ge=1)
    """Rounds of rolling per step; what is still missing then is filled with groups without
    signal, which take no part in the loss."""
    max_staleness: int = Field(ge=0)
    """Steps that a rollout may be older than the weights it trains; 0: none. From 1 on, servers
    roll the next step's batch while this one trains, with weights a step old; engines in the
    trainer's process roll in turn. Surplus groups train later while they are young enough:
    rolled ahead of their step, they are one step older than the rest, so from 2 on."""
    patience: int = Field(ge=1)
    """Steps in a row without one informative group before training ends."""
    roc: RoCConfig
    temperature: float = Field(gt=0)
    limits: RolloutLimits
    sandbox: SandboxLimits
    """Limits of one session."""
    engine: Annotated[SerializeAsAny[EngineConfig], BeforeValidator(engine_options)]
    """What generates, and what only this engine can be told: the ``Options`` of a file of
    ``rollout/engines``."""
    importance: Annotated[
        SamplerImportance | TrainerImportance | TruncatedImportance, Field(discriminator="type")
    ]
    """What each token's probability is divided by in the loss."""
    learning_rate: float = Field(gt=0)
    warmup_steps: int = Field(ge=0)
    weight_decay: float
    max_grad_norm: float
    epsilon_low: float = Field(gt=0)
    epsilon_high: float = Field(gt=0)
    layout: Layout
    micro_batch_size: int = Field(ge=1)
    """Rollouts per forward pass of one device."""
    dev_arenas: int = Field(ge=0)
    """Development arenas that are rolled greedily to watch training; 0: none."""
    dev_every: int = Field(ge=1)
    """Steps from one look at the development arenas to the next."""
    save_steps: int = Field(ge=1)
    """Steps from one checkpoint to the next."""
    keep_checkpoints: int = Field(ge=1)
    """How many of the newest checkpoints are kept; older ones are deleted."""
    keep_optimizer_states: int = Field(ge=1)
    """How many of those keep their optimizer's state; the others keep weights."""
    embedding_rows: Literal["all", "added"]
    """Which embedding rows get gradients; ``added``: those of added tokens, such as chat markers,
    only. ``weight_decay`` scales all rows in any case, and with adapters (``lora.rank`` above 0)
    none trains (optimizers.train_added_rows_only)."""
    trace_every: int = Field(ge=1)
    """Steps from one look at rollouts, as MLflow traces, to the next."""
    trace_rollouts: int = Field(ge=0)
    """Rollouts that are traced then."""
    activation_checkpointing: bool
    lora: LoRAConfig

    @model_validator(mode="before")
    @classmethod
    def _groups_are_chosen(cls, values: Any) -> Any:
        """Hydra forbids ``base`` to choose for the files above it, so every file chooses."""
        missing = {"engine", "importance"} - set(values) if isinstance(values, dict) else set()
        if missing:
            raise ValueError(
                f"no {' and no '.join(sorted(missing))} is chosen; begin the file in conf/rl with "
                "defaults: [base, engine: batched, importance: sampler, _self_]"
            )
        return values

    @property
    def total_steps(self) -> int:
        """Optimizer steps over all phases."""
        return sum(phase.steps for phase in self.schedule) or self.steps

    @property
    def rolled_size(self) -> int:
        """Rollouts made per group."""
        return self.group_size * (self.roc.oversample if self.roc.mode != "off" else 1)

    @property
    def refreshes(self) -> bool:
        """Whether some phase asks what failed in the one before."""
        return any(phase.refresh for phase in self.schedule)

    @model_validator(mode="after")
    def _a_refresh_has_a_phase_before(self) -> Self:
        if self.schedule and self.schedule[0].refresh:
            raise ValueError(
                "schedule: refresh asks what failed in the phase before; the first phase has none"
            )
        return self

    @model_validator(mode="after")
    def _micro_batches_fill_the_batch(self) -> Self:
        if (self.groups * self.group_size) % self.micro_batch_size:
            raise ValueError("groups * group_size must be a multiple of micro_batch_size")
        return self

    @model_validator(mode="after")
    def _stale_rollouts_are_corrected(self) -> Self:
        if self.max_staleness and self.importance.type == "trainer":
            raise ValueError(
                "max_staleness with importance trainer leaves stale rollouts uncorrected; use "
                "sampler or truncated"
            )
        return self

    @model_validator(mode="after")
    def _a_tree_is_computed_once(self) -> Self:
        if self.layout == "tree":
            refuse_tree(self.activation_checkpointing)
        return self

    @model_validator(mode="after")
    def _something_is_stale(self) -> Self:
        if self.max_staleness and not self.batch_filling and not self.engine.own_weights:
            raise ValueError(
                "max_staleness keeps the surplus of batch_filling, which is off, and lets servers "
                f"roll ahead, which engine {self.engine.type} does not have"
            )
        return self

    @model_validator(mode="after")
    def _adapters_are_not_handed_over(self) -> Self:
        if self.engine.own_weights and self.lora.rank:
            raise ValueError(
                f"engine {self.engine.type} takes whole weights over, adapters (lora.rank) it "
                "does not"
            )
        return self
