"""Episodes for a person to read: the same arena as each checkpoint played it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from astra.bench.names import CEILING, FLOOR
from astra.errors import AstraError
from astra.records.bench import BenchEpisode, EpisodeClass, SuiteEpisode
from astra.records.message import Message, MessageRole
from astra.records.score import Scored
from astra.report.charts import named
from astra.report.workspace import Workspace
from astra.store.tables import read_records

TABLE = "data/bench.parquet"
CHARACTERS = 3000
"""The most characters shown of one message or of one call's arguments; the rest is counted."""
CONTROLS = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)} | {
    0x7F: 0x2421,
    # Marks that turn the direction of what follows could make a page say other than it holds.
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD),
}


@dataclass(frozen=True)
class TurnView:
    """A message as shown: who speaks, what is said, and the calls made."""

    role: str
    who: str
    text: str
    calls: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class EpisodeView:
    """One checkpoint's way through a task. ``good`` decides its mark."""

    checkpoint: str
    outcome: str
    good: bool
    facts: tuple[tuple[str, str], ...]
    turns: tuple[TurnView, ...]


@dataclass(frozen=True)
class TaskView:
    """A question with the episodes it led to, in the order of the checkpoints."""

    id: str
    question: str
    about: str
    episodes: tuple[EpisodeView, ...]


@dataclass(frozen=True)
class TaskGroup:
    """Tasks on which the same checkpoints succeeded, and how many there are."""

    title: str
    count: int
    tasks: tuple[TaskView, ...]


def arena_groups(
    workspace: Workspace, checkpoints: Sequence[str], per_group: int
) -> list[TaskGroup]:
    """The first arenas of each pattern of successes; patterns that differ by checkpoint lead."""
    path = workspace.root / TABLE
    if not path.is_file():
        workspace.lacks(
            f"{TABLE}: no episodes to read; `dvc repro bench` or `dvc pull` brings them"
        )
        return []
    try:
        patterns = _patterns(path, checkpoints)
        chosen = {arena for arenas in patterns.values() for arena in arenas[:per_group]}
        shown = {*checkpoints, CEILING}
        episodes: dict[str, dict[str, BenchEpisode]] = {}
        for episode in read_records(path, BenchEpisode):
            if episode.arena_id in chosen and episode.checkpoint in shown:
                episodes.setdefault(episode.arena_id, {})[episode.checkpoint] = episode
    except (AstraError, pa.ArrowException, OSError) as error:
        workspace.lacks(f"{TABLE} cannot be read: {error}")
        return []
    order = sorted(patterns, key=lambda p: (len(set(p)) == 1, [not one for one in p]))
    return [
        TaskGroup(
            _title(pattern, checkpoints),
            len(patterns[pattern]),
            tuple(
                _task(arena, episodes[arena], checkpoints)
                for arena in patterns[pattern][:per_group]
            ),
        )
        for pattern in order
    ]


def _patterns(path: Path, checkpoints: Sequence[str]) -> dict[tuple[bool, ...], list[str]]:
    """Arenas, in id order, by which of the checkpoints succeeded; only those that all played."""
    table = parquet.read_table(path, columns=["arena_id", "checkpoint", "outcome"])
    outcomes: dict[str, dict[str, str]] = {}
    for row in table.to_pylist():
        outcomes.setdefault(row["arena_id"], {})[row["checkpoint"]] = row["outcome"]
    patterns: dict[tuple[bool, ...], list[str]] = {}
    for arena, found in sorted(outcomes.items()):
        if all(found.get(name, EpisodeClass.INFRA) != EpisodeClass.INFRA for name in checkpoints):
            pattern = tuple(found[name] == EpisodeClass.SUCCESS for name in checkpoints)
            patterns.setdefault(pattern, []).append(arena)
    return patterns


def _title(pattern: Sequence[bool], checkpoints: Sequence[str]) -> str:
    solved = [name for name, good in zip(checkpoints, pattern, strict=True) if good]
    failed = [name for name, good in zip(checkpoints, pattern, strict=True) if not good]
    if not failed:
        return "All succeed"
    if not solved:
        return "None succeeds"
    return f"{_and(solved)} succeed{'s' * (len(solved) == 1)}, {_and(failed)} " + (
        "does not" if len(failed) == 1 else "do not"
    )


def _and(names: Sequence[str]) -> str:
    names = [named(name) for name in names]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _task(arena: str, episodes: Mapping[str, BenchEpisode], checkpoints: Sequence[str]) -> TaskView:
    order = [name for name in (*checkpoints, CEILING) if name in episodes]
    first = episodes[order[0]]
    hops = f"{first.hops} hop{'s' * (first.hops > 1)}"
    about = f"{first.scenario}, {hops}, {first.domain}, {first.tools} tools offered"
    return TaskView(
        arena,
        clean(_question(first.messages)),
        about.replace("_", " "),
        tuple(_arena_episode(name, episodes[name]) for name in order),
    )


def _arena_episode(name: str, episode: BenchEpisode) -> EpisodeView:
    facts = [
        (score, f"{found.value:.2f}")
        for score in ("f1", "precision", "recall")
        if isinstance(found := episode.scores.get(score), Scored)
    ]
    facts.append(("ended", str(episode.stop_reason).replace("_", " ")))
    return EpisodeView(
        "gold calls" if name == CEILING else name,
        str(episode.outcome).replace("_", " "),
        episode.outcome == EpisodeClass.SUCCESS,
        tuple(facts),
        tuple(turns(episode.messages)),
    )


def suite_tasks(workspace: Workspace, path: Path, score: str, per_outcome: int) -> list[TaskView]:
    """The first entries of one suite and checkpoint that scored in full, and that did not."""
    wanted = {True: per_outcome, False: per_outcome}
    tasks: list[TaskView] = []
    try:
        for episode in read_records(path, SuiteEpisode):
            found = episode.scores.get(score)
            good = isinstance(found, Scored) and found.value >= 1.0
            if episode.checkpoint == FLOOR or not wanted[good]:
                continue
            wanted[good] -= 1
            tasks.append(_suite_task(episode, good, found))
    except (AstraError, pa.ArrowException, OSError) as error:
        workspace.lacks(f"{path.relative_to(workspace.root)} cannot be read: {error}")
    return tasks


def _suite_task(episode: SuiteEpisode, good: bool, score: Any) -> TaskView:
    value = f"{score.value:.2f}" if isinstance(score, Scored) else "none"
    facts = [("score", value), ("steps", str(episode.steps))]
    if episode.reason:
        facts.append(("harness", clean(episode.reason)))
    played = EpisodeView(
        episode.checkpoint, str(episode.outcome), good, tuple(facts), tuple(turns(episode.messages))
    )
    return TaskView(
        f"{episode.suite} {episode.entry_id}", clean(_question(episode.messages)),
        f"{episode.category}, try {episode.attempt + 1}", (played,),
    )  # fmt: skip


def _question(messages: Sequence[Message]) -> str:
    return next((one.content for one in messages if one.role == MessageRole.USER), "")


def turns(messages: Sequence[Message]) -> Iterator[TurnView]:
    """The messages without the system message, which is the same in every episode of a suite."""
    for message in messages:
        if message.role == MessageRole.SYSTEM:
            continue
        who = f"tool {message.name}" if message.role == MessageRole.TOOL else message.role.value
        calls = (
            (clean(call.name) or "unnamed", clean(call.arguments)) for call in message.tool_calls
        )
        yield TurnView(message.role.value, clean(who), clean(message.content), tuple(calls))


def clean(text: str, characters: int = CHARACTERS) -> str:
    """Text that a page can hold: cut, control characters visible, lone surrogates replaced.

    Escaping is the template's.
    """
    left_out = len(text) - characters
    if left_out > 0:
        text = f"{text[:characters]} [{left_out} more characters]"
    return text.translate(CONTROLS).encode("utf-8", "replace").decode("utf-8")
