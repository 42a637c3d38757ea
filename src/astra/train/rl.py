"""Reinforcement learning of one policy in training arenas, watched on development arenas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PrinterCallback
from trl.trainer.grpo_config import GRPOConfig

from astra.arena.prompt import initial_messages
from astra.records.curriculum import CurriculumArena
from astra.records.environment import Arena
from astra.records.qa import QuestionKind, Split
from astra.records.score import Rejection
from astra.rollout.build import build_driver, build_engine
from astra.rollout.chat import ChatCodec, LoadedPolicy
from astra.rollout.driver import Driver, EpisodeSetting
from astra.rollout.engine import EngineInputs
from astra.rollout.live import RolloutLimits
from astra.sandbox.protocol import Sandbox
from astra.store.metrics import StageMetrics
from astra.tracking.mlflow import Run
from astra.train.checkpoints import (
    CompleteCheckpoint,
    restore_parts,
    resume_point,
    start_afresh_if_finished,
    train_from,
)
from astra.train.collector import Trouble
from astra.train.curriculum import Failures, weights
from astra.train.curves import Curves, tail_mean
from astra.train.distributed import world_size
from astra.train.errors import TrainingError
from astra.train.exchange import Exchange, patience_s
from astra.train.groups import GroupRoller, PromptStream
from astra.train.grpo import AdaptiveGRPOTrainer, StreamState, grpo_arguments
from astra.train.live_policy import LivePolicy
from astra.train.lora import add_adapters, merge_adapters, refuse_sharded_adapters
from astra.train.optimizers import RefuseRoundedUpdates, train_added_rows_only
from astra.train.prompts import prompt_lengths
from astra.train.rl_config import RLConfig
from astra.train.rl_watch import RLWatcher
from astra.train.schedule import Passes, Phase, in_band, passes_of, phases
from astra.train.watch import StepProgress, explained


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
    """Whether steps were left when no signal was found any more."""
    dev: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    """Means on the development arenas, ``before`` and ``after`` training."""
    trouble: Trouble = field(default_factory=Trouble)
    """What our own machinery cost, over all ranks, steps and looks at development arenas."""
    faults: dict[str, int] = field(default_factory=dict[str, int])
    """What went wrong with rollout servers since the process started, by kind, over all ranks."""
    curriculum: list[CurriculumArena] = field(default_factory=list[CurriculumArena])
    """What bands and refreshes made of the arenas, phase by phase."""
    failures: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """What the rollouts before the last refresh failed at: how many of how many, by demand."""
    weights: dict[str, Any] | None = None
    """The whole model's, where ranks share them; None: the policy's model holds them."""


def choose_arenas(
    arenas: Iterable[Arena], codec: ChatCodec, config: RLConfig, folder: Path
) -> Arenas:
    """Training arenas of ``config.kinds``, and the first ``dev_arenas`` of those kinds of the dev
    split; without those whose longest prompt does not fit.

    Every rank calls it; they share out the encoding through the run's ``folder``.
    """
    chosen, candidates, dev = Arenas(), list[Arena](), list[Arena]()
    kinds = set(config.kinds or QuestionKind)
    found = Counter[str]()
    for arena in arenas:
        if arena.split == Split.TRAIN:
            found[arena.kind] += 1
        if arena.kind not in kinds:
            continue
        if arena.split == Split.TRAIN:
            candidates.append(arena)
        elif arena.split == Split.DEV and len(dev) < config.dev_arenas:
            dev.append(arena)
    if found and not candidates:
        listed = ", ".join(f"{kind} {number}" for kind, number in sorted(found.items()))
        raise TrainingError(
            f"envs_merged has no training arena of rl.kinds [{', '.join(sorted(kinds))}], but "
            f"{listed}; choose among these, or make the others (code: envs_merged.code; all "
            "others: qa.kinds)"
        )
    # Beside the folder: a finished run's is emptied while other ranks may still read lengths.
    lengths = prompt_lengths(
        [*candidates, *dev], codec, folder.with_name(f"{folder.name}.prompts"), patience_s(config)
    )
    for arena, length in zip([*candidates, *dev], lengths, strict=True):
        if length > config.limits.max_prompt_tokens:
            chosen.rejections.append(Rejection(item=arena.id, reason="prompt_too_long"))
        elif arena.split == Split.TRAIN:
            chosen.train.append(arena)
        else:
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
    """Train ``policy.model`` in place, phase after phase; resumes what a kill left in ``folder``.

    ``servers`` are URLs of vLLM servers, for engine vllm. Raises TrainingError if training cannot
    go on, and where no group of rollouts differed in reward in ``patience`` steps from the first.
    A run of fewer steps ends as any other: scale ``test`` only shows that training runs.
    """
    start_afresh_if_finished(folder)
    if config.embedding_rows == "added":
        train_added_rows_only(policy.model, policy.codec.tokenizer)
    add_adapters(policy, config.lora)
    training = _Training(policy, arenas, config, sandbox, folder, run, servers)
    with explained(folder, "lower rl.micro_batch_size, rl.engine.rows or rl.limits"):
        result = training.run()
    merge_adapters(policy, config.lora)
    return result


@dataclass(frozen=True)
class _Trained:
    """A phase that ended."""

    trainer: AdaptiveGRPOTrainer
    watcher: RLWatcher
    stream: StreamState


class _Training:
    """One run through the phases of the schedule, and what they share."""

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
        self._arenas, self._config, self._sandbox = arenas, config, sandbox
        self._folder, self._run = folder, run
        self._policy = LivePolicy(policy, config.dtype)
        self._exchange: Exchange | None = None
        inputs = EngineInputs(
            policy, self._policy.save, self._policy.served, self._reference, servers,
            folder / "weights", world_size(), lambda value: self._with_all_ranks().gather(value),
        )  # fmt: skip
        self._engine = build_engine(config.engine, inputs)
        self._curves = Curves()
        self._progress = StepProgress(config.total_steps)
        self._newest: str | None = None
        """The last checkpoint of the phase that ended before."""
        self._curriculum: list[CurriculumArena] = []
        self._failures = Failures()
        """Those of the phase that ended before."""
        self._asked = Failures()
        """Those that the last refresh went by."""

    def _with_all_ranks(self) -> Exchange:
        """How ranks tell each other of servers and evaluations, once their process group is there;
        all of them ask for it first at the same point."""
        if self._exchange is None:
            self._exchange = Exchange(patience_s(self._config))
        return self._exchange

    def _reference(self) -> tuple[list[int], list[float]]:
        """Ids of a prompt and the trainer's log-probabilities of it, for servers to be held to."""
        prompt = initial_messages(self._arenas.train[0])
        ids = self._policy.loaded.codec.encode_prompt(prompt, [])
        return ids, self._policy.logprobs(ids)

    def run(self) -> RLResult:
        """Train every phase; a phase that found no signal any more is the last."""
        first, *later = phases(self._config)
        ended = self._train(first)
        for phase in later:
            if ended.stream.stopped:
                break
            ended = self._train(phase)
        steps = ended.trainer.first_step + int(ended.trainer.state.global_step)
        if ended.stream.stopped and not ended.trainer.collector.informative:
            raise TrainingError(
                f"no group of rollouts differed in reward in {steps} steps of "
                f"{self._config.groups} prompts x {self._config.rolled_size}: there is nothing to "
                "learn from. Is the policy able to call tools at all (dvc repro sft; raise "
                "rl.temperature), are all arenas too easy or too hard (plots/rl)?"
            )
        after = ended.watcher.evaluate(steps)
        faults = ended.watcher.faults()
        return RLResult(
            steps,
            self._curves,
            ended.stream.stopped and steps < self._config.total_steps,
            {"before": ended.watcher.before or {}, "after": after},
            ended.trainer.collector.trouble + ended.watcher.trouble,
            dict(faults),
            self._curriculum,
            {
                name: {"failed": self._asked.failed.get(name, 0), "tried": tried}
                for name, tried in sorted(self._asked.tried.items())
            },
            self._policy.weights(),
        )

    def _train(self, phase: Phase) -> _Trained:
        """Train one phase, from its own newest checkpoint if a kill interrupted it before."""
        folder = self._folder / f"phase-{phase.number}" if self._config.schedule else self._folder
        config = self._config
        driver = self._driver(phase.limits)
        # They set up the process group, through which ranks talk from here on.
        arguments = grpo_arguments(config, folder, phase.trainer_steps)
        often = self._often(phase, driver, folder)
        current = self._prepared(phase, driver, often, arguments)
        own = resume_point(folder)
        latest = own or self._newest
        if latest is not None:
            restore_parts(latest, {"watcher": current.watcher, "stream": current.stream})
        if own is None:
            current.trainer.collector.failures = Failures()  # of this phase, not of the one before
        # A phase with an optimizer of its own goes on from the weights alone, which the model has.
        inherited = None if phase.fresh_optimizer else self._newest
        train_from(current.trainer, own or inherited, current.stream.stopped)
        self._newest = resume_point(folder)
        self._failures = current.trainer.collector.failures
        return current

    def _driver(self, limits: RolloutLimits) -> Driver:
        config = self._config
        setting = EpisodeSetting(
            self._policy.loaded.codec, self._sandbox, limits, config.reward, config.final_answer
        )
        return build_driver(self._engine, config.engine, setting)

    def _often(self, phase: Phase, driver: Driver, folder: Path) -> dict[str, int]:
        """How often an epoch of the phase holds each of its training arenas, by id: once, unless
        a band leaves some out or a refresh draws some oftener."""
        every, config = self._arenas.train, self._config
        passes: dict[str, Passes] = {}
        kept = every
        if phase.band is not None:
            self._policy.loaded.model.eval()
            GroupRoller(driver, config).weights_are(phase.first_step)
            passes = passes_of(every, phase.band.rollouts, driver, config, folder)
            kept = in_band(every, passes, phase.band)
        often = {arena.id: 1 for arena in kept}
        if phase.refresh:
            often, self._asked = weights(kept, self._failures), self._failures
        if phase.band is not None or phase.refresh:
            for arena in every:
                found = passes.get(arena.id, Passes(0, 0))
                self._curriculum.append(CurriculumArena(
                    phase=phase.number, arena_id=arena.id, solver=f"step {phase.first_step}",
                    rollouts=found.rollouts, passes=found.passes, weight=often.get(arena.id, 0),
                ))  # fmt: skip
        return often

    def _prepared(
        self, phase: Phase, driver: Driver, often: Mapping[str, int], arguments: GRPOConfig
    ) -> _Trained:
        """The phase's trainer with what watches it; from here on the trainer holds the weights."""
        config, policy = self._config, self._policy.loaded
        roller = GroupRoller(driver, config)
        watcher = RLWatcher(
            self._curves, self._run, self._progress, phase.origin,
            model=policy.model, weights_are=roller.weights_are, driver=driver,
            dev_driver=self._driver(phases(config)[-1].limits), exchange=self._with_all_ranks(),
            dev=self._arenas.dev, config=config,
        )  # fmt: skip
        trainer = AdaptiveGRPOTrainer(
            roller=roller,
            stream=PromptStream(
                [arena for arena in self._arenas.train if arena.id in often], config.seed, often
            ),
            config=config,
            on_batch=watcher.on_batch,
            first_step=phase.origin,
            model=policy.model,
            args=arguments,
            train_dataset=Dataset.from_list([{"prompt": ""}] * config.groups),
            processing_class=policy.codec.tokenizer,
            callbacks=[RefuseRoundedUpdates(), watcher],
        )
        trainer.remove_callback(PrinterCallback)
        refuse_sharded_adapters(trainer, config.lora)
        stream = StreamState(trainer, config.patience)
        parts = {"watcher": watcher, "stream": stream}
        trainer.add_callback(stream)
        trainer.add_callback(
            CompleteCheckpoint(parts, config.keep_checkpoints, config.keep_optimizer_states)
        )
        self._policy.train_in(trainer)
        return _Trained(trainer, watcher, stream)


def report_rl(metrics: StageMetrics, arenas: Arenas, result: RLResult) -> None:
    """Put counts, drops, final figures and curves into the stage's metrics."""
    metrics.count("train_arenas", len(arenas.train))
    metrics.count("dev_arenas", len(arenas.dev))
    metrics.count("steps", result.steps)
    for rejection in arenas.rejections:
        metrics.reject(rejection)
    for name, count in (
        ("left_out_by_band", sum(not one.weight for one in result.curriculum)),
        ("infra_retries", result.trouble.retries),
        ("groups_lost_to_infra", result.trouble.lost),
        *((f"server_{kind}", count) for kind, count in sorted(result.faults.items())),
    ):
        if count:
            metrics.count(name, count)
    metrics.value("stopped_early", result.stopped_early)
    if result.failures:
        metrics.value("refreshed_by", result.failures)
    for name in ("reward", "f1", "recall", "precision", "answer_correct"):
        metrics.value(f"train_{name}", tail_mean(result.curves.values(f"train_{name}")))
    metrics.value("dev", result.dev)
    result.curves.plot(metrics)
