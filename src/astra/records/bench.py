"""Episodes of a benchmark run (stage ``bench``): our arenas, and external suites."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from astra.records.base import Record
from astra.records.message import ExecutedCall, Message
from astra.records.qa import QuestionKind, Scenario
from astra.records.score import Score
from astra.records.trajectory import StopReason
from astra.records.world import GoalTrait


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
    """One episode of one checkpoint in one of our arenas."""

    identity: ClassVar[tuple[str, ...]] = ("suite", "checkpoint", "arena_id")
    sparse: ClassVar[tuple[str, ...]] = ("hard", "world_id", "goal_traits", "goal_rule",
                                         "rules_broken")  # fmt: skip
    suite: str
    checkpoint: str
    """base | base_native | sft | rl or an endpoint's name; by rule: floor | ceiling, in worlds
    decline | hand_over | first_candidate too."""
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
    hard: bool = False
    """Whether its arena is a hard one, not a look-up."""
    world_id: str = ""
    """The persistent world that its arena plays in; empty for any other arena."""
    goal_traits: tuple[GoalTrait, ...] = ()
    """What makes the goal there harder than its calls."""
    goal_rule: str = ""
    """The rule that forbids what is wished for there."""
    rules_broken: tuple[str, ...] = ()
    """The rules without a tool that enforces them that were broken on the way."""


class SuiteOutcome(StrEnum):
    """What became of one attempt at one entry of an external suite."""

    SCORED = "scored"
    OVERFLOW = "overflow"  # the conversation outgrew the model's context: its failure, scored
    INFRA = "infra"  # harness, judge or endpoint failed: unscored, never a wrong answer


class SuiteEpisode(Record):
    """One attempt of one checkpoint at one entry of an external suite."""

    identity: ClassVar[tuple[str, ...]] = ("suite", "checkpoint", "entry_id", "attempt")
    suite: str
    checkpoint: str
    """base | base_native | sft | rl or an endpoint's name; floor: a model that does nothing."""
    entry_id: str
    category: str
    attempt: int
    """Which try of the entry it is, counted from 0."""
    outcome: SuiteOutcome
    scores: dict[str, Score]
    """The scores by name; every one is ``Unscored`` where the outcome is infra."""
    reason: str
    """Why a score is not full, in the harness's words; empty where there is nothing to say."""
    steps: int
    """Completions that the model was asked for."""
    prompt_tokens: int
    """The sum over the steps, as the endpoint counted them."""
    completion_tokens: int
    messages: tuple[Message, ...]


class SuiteRun(Record):
    """How the episodes of one suite and checkpoint were measured."""

    identity: ClassVar[tuple[str, ...]] = (
        "suite", "checkpoint", "model", "harness", "versions", "sample_count", "sample_seed",
        "tries", "decoding", "options",
    )  # fmt: skip
    suite: str
    checkpoint: str
    model: str
    """The name under which the endpoint serves it."""
    harness: str
    """The suite's name in the registry; ``suite`` may be a label, one per setting."""
    score: str
    """The name of the suite's headline score in ``SuiteEpisode.scores``."""
    versions: dict[str, str]
    """The versions of the harness, its data and what else the run used (user simulator, judge)."""
    sample_count: int
    """Entries played; the suite has ``sample_of``."""
    sample_of: int
    sample_seed: int
    tries: int
    decoding: dict[str, Any]
    options: dict[str, Any]
    outcomes: dict[str, int]
    """Episodes by ``SuiteOutcome``."""
    template: str = ""
    """The chat template's name (``PolicyConfig.template``); empty: the server's, which is not
    known."""
    template_hash: str = ""
    """The first 16 digits of the SHA-256 of its text."""
    thoughts: str = ""
    """Whether the model thinks: never | current | all (``Thoughts``); empty: not known."""
