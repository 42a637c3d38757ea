"""Groups of rollouts of one arena: rolled, downsampled, ready to be trained on."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from astra.arena.irrelevant import draw
from astra.arena.talk import talk_figures
from astra.arena.worlds import base_of, goal_of
from astra.records.base import content_id
from astra.records.environment import Arena
from astra.records.trajectory import StopReason
from astra.records.world import Enforced
from astra.rollout.driver import Driver
from astra.rollout.engine import Sampling
from astra.rollout.live import EpisodeJob, Rollout
from astra.train.advantages import is_informative
from astra.train.ahead import Ahead
from astra.train.curriculum import Failures, failures_of
from astra.train.distributed import barrier
from astra.train.errors import TrainingError
from astra.train.rl_config import RLConfig
from astra.train.roc import Graded, failed_share, penalty, select


@dataclass(frozen=True)
class TrainingSample:
    """One rollout as the trainer needs it: plain lists, cheap to send between ranks."""

    prompt_ids: list[int]
    completion_ids: list[int]
    mask: list[int]
    logprobs: list[float]
    reward: float
    weight_version: int


@dataclass
class Group:
    """``samples`` are the kept ones; figures describe every rollout of the group."""

    uid: int
    """Position in the prompt stream; ranks order groups by it."""
    samples: list[TrainingSample]
    figures: dict[str, float]
    kind: str = ""
    """The arena's kind (``QuestionKind``), which says what its reward measures."""
    difficulty: str = ""
    """The arena's difficulty: ``hard`` or ``lookup``."""
    rollouts: list[Rollout] = field(default_factory=list[Rollout])
    """The rank's own rollouts, for traces; they are never sent to another rank."""
    failures: Failures = field(default_factory=Failures)
    """What all that were rolled failed at, where a later phase asks for it."""

    @property
    def weight_version(self) -> int:
        """The weight version of its oldest sample."""
        return min(sample.weight_version for sample in self.samples)

    @property
    def bare(self) -> Group:
        """The group as other ranks get it: without its rollouts."""
        return Group(self.uid, self.samples, self.figures, self.kind, self.difficulty,
                     failures=self.failures)  # fmt: skip

    def informative(self, min_std: float) -> bool:
        return is_informative([sample.reward for sample in self.samples], min_std)


class PromptStream:
    """Arenas in seeded order, epoch after epoch; ``position`` is all its state.

    An epoch holds each arena as often as ``weights`` says, by id; once where it says nothing.
    """

    def __init__(
        self, arenas: Sequence[Arena], seed: int, weights: Mapping[str, int] | None = None
    ) -> None:
        often = weights or {}
        ordered = sorted(arenas, key=lambda arena: arena.id)
        self._arenas = [arena for arena in ordered for _ in range(often.get(arena.id, 1))]
        self._seed = seed
        self._epoch = -1
        self._order: list[int] = []
        self.position = 0

    def take(self, count: int) -> list[tuple[int, Arena]]:
        """The next ``count`` (uid, arena) pairs."""
        taken: list[tuple[int, Arena]] = []
        for uid in range(self.position, self.position + count):
            epoch, offset = divmod(uid, len(self._arenas))
            if epoch != self._epoch:
                self._epoch = epoch
                self._order = list(range(len(self._arenas)))
                random.Random(f"{self._seed}:{epoch}").shuffle(self._order)
            taken.append((uid, self._arenas[self._order[offset]]))
        self.position += count
        return taken


def seed_of(*parts: object) -> int:
    """A 62-bit seed that depends on every part."""
    return int(content_id([str(part) for part in parts])[:15], 16)


class GroupRoller:
    """Rolls whole groups: same arena, same irrelevant tools, ``rolled_size`` rollouts."""

    def __init__(self, driver: Driver, config: RLConfig) -> None:
        self.driver = driver
        self.ahead: Ahead[Any] = Ahead()
        """What is rolled with ``roll`` while the trainer trains."""
        self._config = config
        self.lost_to_infra = 0
        """Groups that were dropped because our own machinery failed repeatedly."""
        self.problem = ""
        """Why the newest of them was."""

    @property
    def infra_retries(self) -> int:
        """Episodes that were rolled again because our own machinery failed."""
        return self.driver.infra_retries

    def weights_are(self, version: int) -> None:
        """Roll with the weights of this optimizer step from now on, on every rank.

        What is rolled ahead ends before, with the weights that it began with.
        """
        self.ahead.wait()
        self.driver.weights_are(version)
        barrier()

    def roll(self, prompts: Sequence[tuple[int, Arena]], seed: int) -> list[Group]:
        """One group per prompt, less those lost to infrastructure. Never scored 0 for that."""
        if not prompts:
            return []
        config = self._config
        size = config.rolled_size
        jobs: list[EpisodeJob] = []
        for uid, arena in prompts:
            rng = random.Random(f"{config.seed}:{uid}:{arena.id}")
            extra = draw(arena, config.irrelevant_tools, config.irrelevant_per_band, rng)
            jobs += [EpisodeJob(arena, extra)] * size
        rollouts = self.driver.run(jobs, Sampling(config.temperature, seed))
        groups: list[Group] = []
        for index, (uid, arena) in enumerate(prompts):
            rolled = rollouts[index * size : (index + 1) * size]
            mine = [rollout for rollout in rolled if rollout.score is not None]
            if len(mine) < config.group_size:
                self.lost_to_infra += 1
                self.problem = next(r.problem for r in rolled if r.score is None)
                continue
            kept = self._downsample(mine, random.Random(f"{config.seed}:{uid}:keep"))
            samples, figures = [_sample(rollout) for rollout in kept], rollout_figures(mine)
            failures = failures_of(mine) if config.refreshes else Failures()
            groups.append(
                Group(uid, samples, figures, arena.kind.value, arena.difficulty, kept, failures)
            )
        return groups

    def _downsample(self, rollouts: list[Rollout], rng: random.Random) -> list[Rollout]:
        config = self._config
        if config.roc.mode == "off":
            return rollouts[: config.group_size]
        graded = [Graded(_reward(r), penalty(r.calls, r.final_text, r.turns)) for r in rollouts]
        mode, above = config.roc.mode, config.roc.positive_above
        return [rollouts[i] for i in select(graded, config.group_size, mode, above, rng)]


def _sample(rollout: Rollout) -> TrainingSample:
    if not len(rollout.completion_ids) == len(rollout.mask) == len(rollout.logprobs):
        raise AssertionError("completion, mask and log-probabilities differ in length")
    if not rollout.completion_ids:
        raise TrainingError(
            f"arena {rollout.arena.id}: a rollout has no token at all (its prompt has "
            f"{len(rollout.prompt_ids)}); raise rl.limits.max_prompt_tokens"
        )
    return TrainingSample(
        rollout.prompt_ids,
        rollout.completion_ids,
        rollout.mask,
        rollout.logprobs,
        _reward(rollout),
        rollout.weight_version,
    )


def _reward(rollout: Rollout) -> float:
    assert rollout.score is not None
    return rollout.score.reward


def rollout_figures(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Means over scored rollouts; a figure that nothing was measured for is left out.

    ``tool_errors_in_positives`` is the share of failed calls in rollouts with a reward;
    ``state_reached`` the share of worlds that ended as they should, of rollouts whose tools write.
    Of goals in worlds also the share of each part of the verdict that held, success by domain and
    trait (``implicit_success``), the share that broke each rule that no tool enforces
    (``broke_confirm``), and figures of the talk where there was one (``arena/talk.py``).
    """
    scored = [(r, r.score) for r in rollouts if r.score is not None]
    if not scored:
        return {}

    def mean(values: Iterator[float]) -> float:
        return sum(values) / len(scored)

    figures = {
        "reward": mean(s.reward for _, s in scored),
        "f1": mean(s.f1 for _, s in scored),
        "recall": mean(s.recall for _, s in scored),
        "precision": mean(s.precision for _, s in scored),
        "success": mean(float(s.success) for _, s in scored),
        "answer_correct": mean(float(s.answer_correct) for _, s in scored),
        "calls": mean(float(len(r.calls)) for r, _ in scored),
        "turns": mean(float(r.turns) for r, _ in scored),
        "answered": mean(float(r.stop_reason == StopReason.ANSWERED) for r, _ in scored),
        "truncated": mean(float(r.stop_reason == StopReason.MAX_TOKENS) for r, _ in scored),
        "tokens": mean(float(sum(r.mask)) for r, _ in scored),
    }
    positives = [r for r, s in scored if s.reward > 0 and r.calls]
    if positives:
        figures["tool_errors_in_positives"] = sum(failed_share(r.calls) for r in positives) / len(
            positives
        )
    ends = [float(s.state_reached) for _, s in scored if s.state_reached is not None]
    if ends:
        figures["state_reached"] = sum(ends) / len(ends)
    return figures | _means([one for r in rollouts if (one := _goal_figures(r))])


def _goal_figures(rollout: Rollout) -> dict[str, float]:
    """Figures of one rollout in a world; empty for any other."""
    verdict = rollout.score.verdict if rollout.score else None
    if verdict is None or rollout.trace is None:
        return {}
    parts = {
        "goal_outcome": verdict.outcome, "goal_said": verdict.said, "goal_read": verdict.read,
        "goal_rules": not verdict.rules_broken,
    }  # fmt: skip
    goal, world = goal_of(rollout.arena), base_of(rollout.arena).world
    rules = [rule.id for rule in world.rules if rule.enforced == Enforced.POLICY]
    return {
        **{name: float(held) for name, held in parts.items()},
        **{f"{label}_success": float(verdict.success) for label in (world.domain, *goal.traits)},
        **{f"broke_{rule}": float(rule in verdict.rules_broken) for rule in rules},
        **talk_figures(world, goal, rollout.trace, verdict),
    }


def mean_figures(groups: Sequence[Group]) -> dict[str, float]:
    """Each figure's mean over the groups that have it; where arenas of several kinds train
    together (read-only on F1, writing on their end state), or look-ups with hard ones, also each
    part's apart."""
    means = _means([group.figures for group in groups])
    for parts in ([group.kind for group in groups], [group.difficulty for group in groups]):
        for part in sorted(set(parts)) if len(set(parts)) > 1 else ():
            mine = [group.figures for group, of in zip(groups, parts, strict=True) if of == part]
            means |= {f"{part}_{name}": value for name, value in _means(mine).items()}
    return means


def _means(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for group in figures for name in group)
    columns = {name: [group[name] for group in figures if name in group] for name in names}
    return {name: sum(values) / len(values) for name, values in columns.items()}
