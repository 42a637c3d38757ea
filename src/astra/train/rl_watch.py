"""What watches reinforcement learning: means over rollouts, development arenas, traces."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from transformers import TrainerControl, TrainerState, TrainingArguments

from astra.arena.irrelevant import draw
from astra.records.environment import Arena
from astra.records.world import EventKind
from astra.rollout.driver import INFRA_ATTEMPTS, Driver
from astra.rollout.engine import Sampling
from astra.rollout.live import EpisodeJob, Rollout
from astra.stage import Progress
from astra.tracking.mlflow import Run
from astra.train.collector import Trouble
from astra.train.curves import Curves
from astra.train.errors import TrainingError
from astra.train.exchange import Exchange
from astra.train.filling import Filled
from astra.train.groups import Group, mean_figures, rollout_figures
from astra.train.rl_config import RLConfig
from astra.train.watch import Watcher

MOST_LOST = 0.1
"""The share of development rollouts that may have no score (ours)."""


class RLWatcher(Watcher):
    """Watches one phase: logs what the trainer logs, every batch's figures and sampled traces,
    and rolls the development arenas before the first step and every ``dev_every`` steps.
    ``trouble`` is what our own machinery cost these.

    ``weights_are`` hands weights over; ``driver`` rolls the phase, and ``dev_driver`` the
    development arenas with the same limits in every phase, so that looks can be compared. Each rank
    rolls a share, which ``exchange`` gathers. ``offset`` is the phase's first step.
    """

    LOGGED = ("loss", "grad_norm", "entropy", "filling/informative", "filling/rolled",
              "filling/staleness")  # fmt: skip

    def __init__(
        self,
        curves: Curves,
        run: Run,
        progress: Progress,
        offset: int,
        *,
        model: Any,
        weights_are: Callable[[int], None],
        driver: Driver,
        dev_driver: Driver,
        exchange: Exchange,
        dev: Sequence[Arena],
        config: RLConfig,
    ) -> None:
        super().__init__(curves, run, progress, offset)
        self._model, self._config = model, config
        self._weights_are, self._exchange = weights_are, exchange
        self._driver, self._dev_driver = driver, dev_driver
        self._jobs = [_greedy_job(arena, config) for arena in dev]
        self.trouble = Trouble()
        self.before: dict[str, float] | None = None
        """Figures on development arenas before the first step of the whole training; None until
        they are known."""

    def on_batch(self, step: int, filled: Filled[Group]) -> None:
        """Log means over the groups of the batch, each over all its rollouts before downsampling.

        Groups that ``batch_filling`` left out, for their rewards did not differ, are not in them;
        ``filling/rolled_reward``, which the trainer logs, is of every group that was rolled.
        """
        means = mean_figures(filled.groups)
        for name, value in means.items():
            self.curves.add(f"train_{name}", step, value)
        self.run.metrics({f"rollout/{name}": value for name, value in means.items()}, step)
        if self._driver.tool_calls:
            latency = self._driver.tool_seconds / self._driver.tool_calls
            self.run.metrics({"tools/seconds_per_call": latency}, step)
        faults = self.faults()
        self.run.metrics({f"servers/{kind}": float(n) for kind, n in faults.items()}, step)
        if step % self._config.trace_every == 0:
            self._trace(filled.groups, step)

    def _trace(self, groups: Sequence[Group], step: int) -> None:
        """Trace ``trace_rollouts`` rollouts, spread evenly over the batch."""
        wanted = self._config.trace_rollouts
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        stride = max(1, len(rollouts) // max(wanted, 1))
        for rollout in rollouts[::stride][:wanted]:
            trace_rollout(self.run, rollout, step)

    def faults(self) -> Counter[str]:
        """What went wrong with rollout servers since this process started, by kind, over all
        ranks, which call it together."""
        told = self._exchange.gather(Counter(self._driver.faults))
        return sum(told, Counter[str]())

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        # Not sooner: the trainer wraps the model as training begins, and only then can weights
        # that ranks share be gathered for servers.
        if self.before is None:
            self.before = self.evaluate(self.offset + state.global_step)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        step = self.offset + state.global_step
        # The last step is evaluated by the training itself, which also knows when it ends early.
        if step % self._config.dev_every == 0 and step < self._config.total_steps:
            self.evaluate(step)

    def evaluate(self, step: int) -> dict[str, float]:
        """Roll the development arenas greedily, each with its irrelevant tools; log the figures.

        Each rank rolls its share of them. Returns the figures rounded to four digits; empty
        without development arenas. Raises TrainingError where too many rollouts have no score.
        """
        if not self._jobs:
            return {}
        training = self._model.training
        self._model.eval()
        self._weights_are(step)
        world, rank = self._exchange.world, self._exchange.rank
        greedy, retries = Sampling(temperature=0.0, seed=0), self._dev_driver.infra_retries
        mine = self._dev_driver.run(self._jobs[rank::world], greedy)
        self._model.train(training)
        # What figures are not made of stays here: most of a rollout is ids.
        told = [replace(one, prompt_ids=[], completion_ids=[], logprobs=[]) for one in mine]
        everyones = self._exchange.gather((told, self._dev_driver.infra_retries - retries))
        rollouts = [everyones[at % world][0][at // world] for at in range(len(self._jobs))]
        self._account(step, rollouts, sum(again for _, again in everyones))
        figures = {name: round(v, 4) for name, v in rollout_figures(rollouts).items()}
        for name, value in figures.items():
            self.curves.add(f"dev_{name}", step, value)
        self.run.metrics({f"dev/{name}": value for name, value in figures.items()}, step)
        return figures

    def _account(self, step: int, rollouts: Sequence[Rollout], retries: int) -> None:
        """Count and log what was rolled again and lost. Raises TrainingError where means over the
        others would be means over other arenas than those of the look before."""
        problems = [one.problem for one in rollouts if one.score is None]
        self.trouble += Trouble(retries, problem=problems[-1] if problems else "")
        if len(problems) > MOST_LOST * len(rollouts):
            raise TrainingError(
                f"step {step}: {len(problems)} of {len(rollouts)} development rollouts have no "
                f"score, since our own machinery failed each {INFRA_ATTEMPTS} times; the last "
                f"problem was: {problems[-1] or 'not told'}. Mend that (docs/training.md for "
                "rollout servers, docs/sandbox.md for the sandbox), then run the same command "
                "again: it goes on from the last checkpoint"
            )
        if retries or problems:
            cost = {"dev/infra_retries": float(retries), "dev/lost_to_infra": float(len(problems))}
            self.run.metrics(cost, step)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "before": self.before, "trouble": asdict(self.trouble)}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.before = state["before"]
        self.trouble = Trouble(**state.get("trouble", {}))  # older checkpoints do not know it


def _greedy_job(arena: Arena, config: RLConfig) -> EpisodeJob:
    """A development arena with the same irrelevant tools every time."""
    rng = random.Random(f"dev:{arena.id}")
    return EpisodeJob(arena, draw(arena, config.irrelevant_tools, config.irrelevant_per_band, rng))


def trace_rollout(run: Run, rollout: Rollout, step: int) -> None:
    """Log one rollout as a trace, with what it earned. The words with which a user ends it, which
    are no message, are an attribute."""
    score = rollout.score
    attributes = {
        "step": step,
        "arena": rollout.arena.id,
        "reward": score.reward if score else None,
        "success": score.success if score else None,
        "stop_reason": str(rollout.stop_reason),
        "weight_version": rollout.weight_version,
    }
    if rollout.trace and rollout.trace[-1].kind == EventKind.USER and len(rollout.trace) > 1:
        attributes["last_words"] = rollout.trace[-1].text
    run.trace("rollout", rollout.messages, rollout.calls, attributes)
