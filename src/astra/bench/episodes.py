"""Episodes in held-out arenas: how one is scored and classified, their means, examples to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from astra.arena.reward import FinalAnswer, RewardMode, score_episode
from astra.arena.talk import talk_figures
from astra.arena.worlds import goal_of
from astra.records.bench import BenchEpisode, EpisodeClass
from astra.records.message import CallStatus, MessageRole
from astra.records.score import Score, Scored, Unscored
from astra.records.trajectory import StopReason
from astra.rollout.driver import Rollout

_MALFORMED = (CallStatus.MALFORMED, CallStatus.UNKNOWN_TOOL)


def rollout_scores(rollout: Rollout) -> dict[str, Score]:
    """``f1`` counts the final answer as one more sub-task and call; ``f1_plain``, ``precision``
    and ``recall`` are the paper's and need at least one sub-task that needs a tool. In worlds the
    verdict on the goal decides. Of an episode that our own machinery failed nothing is known but
    whether its user did."""
    score = rollout.score
    if score is None:
        return {"user_fault": Scored(value=1.0)} if rollout.user_failed else {}
    if rollout.arena.world_id:
        return _goal_scores(rollout)
    text = rollout.messages[-1].content if rollout.stop_reason == StopReason.ANSWERED else None
    plain = score_episode(
        rollout.arena, rollout.calls, text, RewardMode.F1, FinalAnswer.IGNORE,
        end_state=rollout.end_state, trace=rollout.trace,
    )  # fmt: skip
    none = Unscored(reason="no sub-task needs a tool")
    return {
        "f1": Scored(value=score.f1),
        "f1_plain": Scored(value=plain.f1) if plain.subtasks else none,
        "precision": Scored(value=plain.precision) if plain.subtasks else none,
        "recall": Scored(value=plain.recall) if plain.subtasks else none,
        "success": Scored(value=float(score.success)),
        "answer": Scored(value=float(score.answer_correct)),
        **_effort(rollout),
    }


def _goal_scores(rollout: Rollout) -> dict[str, Score]:
    """Where a goal in a world decides: ``success``, which is also ``f1``, its parts, and figures of
    the talk with a user who talks."""
    verdict = rollout.score.verdict if rollout.score else None
    if rollout.trace is None or verdict is None:
        raise ValueError(f"arena {rollout.arena.id} plays in a world, and its rollout has no trace")
    talk = talk_figures(goal_of(rollout.arena), rollout.trace, verdict)
    if talk:
        talk["user_fault"] = 0.0
    success = Scored(value=float(verdict.success))
    return {
        "f1": success,
        "success": success,
        "goal_state": Scored(value=float(verdict.state)),
        "goal_outcome": Scored(value=float(verdict.outcome)),
        "goal_said": Scored(value=float(verdict.said)),
        "goal_read": Scored(value=float(verdict.read)),
        "goal_rules": Scored(value=float(not verdict.rules_broken)),
        **{name: Scored(value=value) for name, value in talk.items()},
        **_effort(rollout),
    }


def _effort(rollout: Rollout) -> dict[str, Score]:
    turns = [one for one in rollout.messages if one.role == MessageRole.ASSISTANT]
    return {
        "calls": Scored(value=float(len(rollout.calls))),
        "turns": Scored(value=float(len(turns))),
        "malformed": _malformed_share(rollout),
    }


def _malformed_share(rollout: Rollout) -> Score:
    """The share of an episode's calls with broken arguments or a tool that does not exist."""
    if not rollout.calls:
        return Unscored(reason="no call was made")
    bad = sum(call.result.status in _MALFORMED for call in rollout.calls)
    return Scored(value=bad / len(rollout.calls))


def classify(rollout: Rollout) -> EpisodeClass:
    """The first class that applies."""
    score = rollout.score
    if score is None:
        return EpisodeClass.INFRA
    if score.success:
        return EpisodeClass.SUCCESS
    if rollout.stop_reason not in (StopReason.ANSWERED, StopReason.USER_LEFT):
        return EpisodeClass.UNFINISHED
    if not rollout.arena.world_id:
        if score.answer_correct:
            return EpisodeClass.ANSWER_ONLY
        needed = score.subtasks - 1  # the final answer is the last one
        if needed and score.solved == needed:
            return EpisodeClass.WRONG_ANSWER
    if any(call.result.status in _MALFORMED for call in rollout.calls):
        return EpisodeClass.MALFORMED
    return EpisodeClass.FAILED if rollout.calls else EpisodeClass.NO_CALL


def mean_scores(episodes: Sequence[BenchEpisode]) -> dict[str, float]:
    """Plain means over what was measured, by score."""
    values: dict[str, list[float]] = {}
    for episode in episodes:
        for name, score in episode.scores.items():
            if isinstance(score, Scored):
                values.setdefault(name, []).append(score.value)
    return {name: sum(measured) / len(measured) for name, measured in values.items()}


def examples(episodes: Iterable[BenchEpisode], per_class: int) -> Iterator[BenchEpisode]:
    """The first episodes of each class, in arena order."""
    shown: Counter[EpisodeClass] = Counter()
    for episode in episodes:
        if shown[episode.outcome] < per_class:
            shown[episode.outcome] += 1
            yield episode
