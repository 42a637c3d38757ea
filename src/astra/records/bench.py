"""Episodes of a benchmark run (stage ``bench``)."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from astra.records.base import Record
from astra.records.message import ExecutedCall, Message
from astra.records.qa import QuestionKind, Scenario
from astra.records.score import Score
from astra.records.trajectory import StopReason


class EpisodeClass(StrEnum):
    """What became of an episode; the first that applies, in this order."""

    INFRA = "infra"  # lost to our own machinery; scores nothing
    SUCCESS = "success"
    UNFINISHED = "unfinished"  # a limit ended it before a final message
    ANSWER_ONLY = "answer_only"  # right answer, but a sub-task unsolved
    WRONG_ANSWER = "wrong_answer"  # every sub-task solved, wrong answer
    MALFORMED = "malformed"  # failed, with a malformed call or an unknown tool
    NO_CALL = "no_call"  # failed without a single call
    FAILED = "failed"


class BenchEpisode(Record):
    identity: ClassVar[tuple[str, ...]] = ("suite", "checkpoint", "arena_id")
    suite: str
    checkpoint: str
    """base | sft | rl, or a scripted reference: floor | ceiling."""
    arena_id: str
    scenario: Scenario
    kind: QuestionKind
    hops: int
    domain: str
    tools: int
    """Tools offered, the irrelevant ones included."""
    scores: dict[str, Score]
    outcome: EpisodeClass
    stop_reason: StopReason
    messages: tuple[Message, ...]
    calls: tuple[ExecutedCall, ...]
