"""The batches of groups that a trainer trains on: filled by all ranks, ahead of time by servers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from astra.train.curriculum import Failures
from astra.train.errors import TrainingError
from astra.train.exchange import Exchange
from astra.train.filling import BatchFiller, Filled
from astra.train.groups import Group, GroupRoller, PromptStream, TrainingSample, seed_of
from astra.train.rl_config import RLConfig


@dataclass(frozen=True)
class Trouble:
    """What our own machinery cost, over all ranks."""

    retries: int = 0
    """Episodes that were rolled again."""
    lost: int = 0
    """Groups that were dropped since too few of their episodes ever worked."""
    problem: str = ""
    """What went wrong last."""

    def __add__(self, other: Trouble) -> Trouble:
        problem = other.problem or self.problem
        return Trouble(self.retries + other.retries, self.lost + other.lost, problem)


@dataclass(frozen=True)
class Collected:
    """A batch and what it took; ``seconds`` of rolling, whoever waited for it."""

    filled: Filled[Group]
    trouble: Trouble
    seconds: float
    failures: Failures
    """What every group that was rolled for it failed at, on all ranks."""
    rewards: list[float]
    """Mean reward of every group that was rolled for it, in the batch or not, on all ranks."""


class BatchCollector:
    """Fills one batch a step from ``stream``. Every rank holds one and gets the same batches.

    A batch is rolled when it is asked for, with the weights of its step, or ahead: ``begin`` rolls
    it in a thread with the weights that the servers have then. They keep them until the whole batch
    is rolled, since GroupRoller.weights_are waits for it: no conversation mixes two weights.

    What a checkpoint keeps is the state after the last batch that was taken. A batch that is
    rolled ahead of it is rolled anew by a run that resumes there.
    """

    def __init__(
        self, roller: GroupRoller, stream: PromptStream, config: RLConfig, exchange: Exchange
    ) -> None:
        self.roller, self.stream = roller, stream
        self.filler: BatchFiller[Group] = BatchFiller(
            lambda group: group.informative(config.min_reward_std),
            config.max_rounds,
            config.batch_filling,
        )
        self.carried: list[Group] = []
        """Surplus groups of the last batch."""
        self.informative = 0
        """Groups with signal in all batches so far."""
        self.empty_batches = 0
        """The newest batches without one, in a row."""
        self.trouble = Trouble()
        """That of all batches so far."""
        self.failures = Failures()
        """What the rollouts of all batches of this phase failed at."""
        self._config, self._exchange = config, exchange
        self._taken: tuple[int, float] | None = None
        """Position of the stream and rate of the filler after the last batch."""

    def begin(self, step: int) -> None:
        """Roll the batch of ``step`` from now on, while the caller does something else."""
        self.roller.ahead.start(lambda: self._collect(step))

    def batch(self, step: int) -> Collected:
        """The batch of ``step``, which may have begun before; else it is rolled now.

        Raises TrainingError where not even groups without signal are enough, and what the engine
        raises.
        """
        if self.roller.ahead.pending:
            collected = self.roller.ahead.take()
        else:
            self.roller.weights_are(step)
            collected = self._collect(step)
        filled = collected.filled
        self.carried = filled.surplus if self._config.max_staleness else []
        self.informative += filled.informative
        self.empty_batches = 0 if filled.informative else self.empty_batches + 1
        self.trouble += collected.trouble
        self.failures += collected.failures
        self._taken = self.stream.position, self.filler.rate
        return collected

    def _collect(self, step: int) -> Collected:
        started, trouble, failures = time.monotonic(), Trouble(), Failures()
        rewards: list[float] = []

        def roll(count: int, round_: int) -> list[Group]:
            nonlocal trouble, failures
            groups, cost = self._round(count, step, round_)
            trouble += cost
            failures = sum((group.failures for group in groups), failures)
            rewards.extend(group.figures["reward"] for group in groups)
            return groups

        oldest = step - self._config.max_staleness
        carried = [group for group in self.carried if group.weight_version >= oldest]
        try:
            filled = self.filler.fill(self._config.groups, roll, carried)
        except ValueError as error:
            raise TrainingError(
                f"step {step}: {error}: our own machinery lost {trouble.lost} groups after "
                f"{trouble.retries} episodes were rolled again; the last problem was: "
                f"{trouble.problem or 'not told'}"
            ) from error
        return Collected(filled, trouble, time.monotonic() - started, failures, rewards)

    def _round(self, count: int, step: int, round_: int) -> tuple[list[Group], Trouble]:
        """``count`` groups by all ranks together, less those that were lost, by their uid."""
        world, rank = self._exchange.world, self._exchange.rank
        if not self._config.engine.own_weights:
            # Each rank rolls by itself: rolling as many as the others takes it no longer.
            count = -(-count // world) * world
        prompts = self.stream.take(count)[rank::world]
        before = self.roller.infra_retries, self.roller.lost_to_infra
        own = self.roller.roll(prompts, seed_of(self._config.seed, step, round_, rank))
        cost = Trouble(
            self.roller.infra_retries - before[0],
            self.roller.lost_to_infra - before[1],
            self.roller.problem,
        )
        heard = self._exchange.gather(([group.bare for group in own], cost))
        mine = {group.uid: group for group in own}  # with rollouts, for traces
        everyones = [mine.get(group.uid, group) for groups, _ in heard for group in groups]
        whole = sum((cost for _, cost in heard), Trouble())
        return sorted(everyones, key=lambda group: group.uid), whole

    def state(self) -> dict[str, Any]:
        """Everything that continues, as JSON."""
        position, rate = self._taken or (self.stream.position, self.filler.rate)
        return {
            "position": position,
            "rate": rate,
            "informative": self.informative,
            "empty_batches": self.empty_batches,
            "trouble": asdict(self.trouble),
            "failures": asdict(self.failures),
            "carried": [asdict(group.bare) for group in self.carried],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on after the batch that ``state`` was taken after."""
        self.stream.position, self.filler.rate = state["position"], state["rate"]
        self._taken = None
        self.informative, self.empty_batches = state["informative"], state["empty_batches"]
        self.trouble = Trouble(**state["trouble"])
        self.failures = Failures(**state["failures"])
        self.carried = [_carried_group(document) for document in state["carried"]]


def samples_of(groups: Sequence[Group]) -> list[TrainingSample]:
    """The samples of all groups, one group after the other."""
    return [sample for group in groups for sample in group.samples]


def _carried_group(document: dict[str, Any]) -> Group:
    """A group as a checkpoint keeps it: without the rollouts of its rank."""
    samples = [TrainingSample(**sample) for sample in document["samples"]]
    figures, kind, difficulty = (document[name] for name in ("figures", "kind", "difficulty"))
    failures = Failures(**document["failures"])
    return Group(document["uid"], samples, figures, kind, difficulty, failures=failures)
