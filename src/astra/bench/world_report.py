"""Goals in worlds: what each checkpoint reaches by kind, trait and domain, floors beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from astra.bench.config import BenchConfig
from astra.bench.names import REFERENCES, WORLD_FLOORS
from astra.bench.statistics import estimate
from astra.records.bench import BenchEpisode
from astra.records.score import Scored

PARTS = ("goal_state", "goal_outcome", "goal_said", "goal_read", "goal_rules")
"""The parts of a verdict: all of them hold where a goal is reached."""
TALK = ("user_turns", "questions_per_needed_fact", "unneeded_questions", "nudges", "rejections",
        "other_acts", "user_left", "early_end", "leaks", "user_fault")  # fmt: skip
"""Figures of conversations (``arena/talk.py``), of the goals whose user talks."""
DIGITS = 6


def world_document(
    played: Mapping[str, Sequence[BenchEpisode]],
    config: BenchConfig,
    users: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
    """The block ``worlds`` of metrics/bench.json; empty where no arena plays in a world.

    ``floors`` holds what is played by rule, with the same breakdowns: nothing at all (``floor``),
    the goal's own trace (``ceiling``), declining or handing over whatever is asked, and taking the
    first row wherever one has to be found, over the goals that leave one to be found. ``by_rule``
    is over the goals that a rule forbids; ``rules_broken`` is the share of all goals on whose way a
    rule was broken, by rule. ``talk`` is over the goals whose user talks. ``llm_user``, where a
    model plays the users (``users``, by checkpoint): turns that it was asked for, and per turn how
    often it was asked again, replaced by the automaton's words or failed, and why its words were
    refused.
    """
    goals = {name: [one for one in episodes if one.world_id] for name, episodes in played.items()}
    blocks = {name: _block(rows, config) for name, rows in goals.items() if rows}
    for name in blocks.keys() & users.keys():
        blocks[name]["llm_user"] = dict(users[name])
    scripted = (*REFERENCES, *WORLD_FLOORS)
    checkpoints = {name: block for name, block in blocks.items() if name not in scripted}
    floors = {name: block for name, block in blocks.items() if name in scripted}
    return {"checkpoints": checkpoints, "floors": floors} if blocks else {}


def _block(episodes: Sequence[BenchEpisode], config: BenchConfig) -> dict[str, Any]:
    values = _values(episodes, "success")
    block: dict[str, Any] = {"n": len(episodes)}
    if values:
        found = estimate(values, config.resamples, config.confidence, config.seed)
        block["success"] = {name: round(one, DIGITS) for name, one in asdict(found).items()}
    for part in PARTS:
        if held := _values(episodes, part):
            block[part] = round(sum(held) / len(held), DIGITS)
    means = {name: found for name in TALK if (found := _values(episodes, name))}
    if means:
        block["talk"] = {n: round(sum(one) / len(one), DIGITS) for n, one in means.items()}
    broken = Counter(rule for episode in episodes for rule in episode.rules_broken)
    if broken:
        block["rules_broken"] = {
            rule: round(count / len(episodes), DIGITS) for rule, count in sorted(broken.items())
        }
    groups: dict[str, dict[str, list[BenchEpisode]]] = {}
    for episode in episodes:
        traits = [trait.value for trait in episode.goal_traits] or ["none"]
        labels = {"kind": [episode.kind.value], "trait": traits, "domain": [episode.domain],
                  "rule": [episode.goal_rule] if episode.goal_rule else []}  # fmt: skip
        for name, found_labels in labels.items():
            for label in found_labels:
                groups.setdefault(f"by_{name}", {}).setdefault(label, []).append(episode)
    return block | {
        name: {label: _share(members) for label, members in sorted(group.items())}
        for name, group in groups.items()
    }


def _share(episodes: Sequence[BenchEpisode]) -> dict[str, float | int]:
    values = _values(episodes, "success")
    mean = {"success": round(sum(values) / len(values), DIGITS)} if values else {}
    return {"n": len(episodes), **mean}


def _values(episodes: Iterable[BenchEpisode], name: str) -> list[float]:
    return [
        score.value for episode in episodes if isinstance(score := episode.scores.get(name), Scored)
    ]
