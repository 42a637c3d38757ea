"""A conversation cut into its requests: what each asked for, and what was done about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from astra.records.message import CallStatus
from astra.scoring.lexical import content_words, joined
from astra.scoring.view import Round, SeenCall, SeenTool
from astra.text.verbs import noun_of

Variables = Mapping[str, Any]
"""The variables of an ask, which its prompt shows to a model."""


@dataclass(frozen=True)
class Grade:
    """0, 0.5 or 1, and why."""

    score: float
    reason: str


def stepped(share: float) -> float:
    """A share as a grade: 1 for all, 0.5 from a half on, else 0."""
    return 1.0 if share >= 1.0 else 0.5 if share >= 0.5 else 0.0


@dataclass(frozen=True)
class Part:
    """What one user message asked for and what was done about it."""

    request: str
    heard: str
    """Everything the user had written by then."""
    tools: Sequence[SeenTool]
    rounds: Sequence[Round]
    before: Sequence[Round]
    after: Sequence[Round]


def parts_of(variables: Variables) -> list[Part]:
    """The conversation cut before each of the user's messages."""
    rounds: Sequence[Round] = variables["rounds"]
    starts = [0, *(number for number, r in enumerate(rounds) if number and r["user"])]
    parts: list[Part] = []
    for start, end in zip(starts, [*starts[1:], len(rounds)], strict=True):
        request = rounds[start]["user"] if start else variables["question"]
        heard = words_heard(variables, rounds[:end])
        inner = rounds[start:end]
        parts.append(Part(request, heard, variables["tools"], inner, rounds[:start], rounds[end:]))
    return parts


def words_heard(variables: Variables, rounds: Sequence[Round]) -> str:
    """Everything the user has written up to the end of ``rounds``."""
    return joined([variables["question"], *(r["user"] for r in rounds if r["user"])])


def since_the_user(history: Sequence[Round]) -> Sequence[Round]:
    """The rounds after the user's last message, the first of them carrying it."""
    starts = [number for number, round_ in enumerate(history) if round_["user"]]
    return history[starts[-1] :] if starts else history


def useful_calls(part: Part) -> list[bool]:
    """Whether each call is useful: its tool is asked for, or a later turn uses its result."""
    useful: list[bool] = []
    rounds = [*part.rounds, *part.after]
    for number, round_ in enumerate(part.rounds):
        later = joined(
            text
            for other in rounds[number + 1 :]
            for text in [other["text"], *(str(plain(c["arguments"])) for c in other["calls"])]
        )
        for call in round_["calls"]:
            result = call["result"].strip()
            used = (
                succeeded(call)
                and len(result) > 1
                and any(piece in later for piece in _pieces(result))
            )
            useful.append(used or is_related(call["tool"], part))
    return useful


def _pieces(result: str) -> list[str]:
    """The values in a result: itself if short, and what stands between JSON punctuation."""
    parts = [part.strip(" \"'") for part in re.split(r"[\[\]{}:,\n]", result)]
    return [part for part in dict.fromkeys([result, *parts]) if len(part) > 1]


def is_related(tool: str, part: Part) -> bool:
    described = next((t["description"] for t in part.tools if t["name"] == tool), "")
    question = content_words(part.heard)
    return bool(question & (content_words(noun_of(tool)) | content_words(described)))


def calls_of(rounds: Sequence[Round]) -> list[SeenCall]:
    return [call for round_ in rounds for call in round_["calls"]]


def succeeded(call: SeenCall) -> bool:
    return call["status"] == CallStatus.OK


def plain(arguments: Any) -> str:
    return joined(str(value) for value in values_of(arguments))


def values_of(arguments: Any) -> list[Any]:
    return list(arguments.values()) if isinstance(arguments, dict) else [arguments]
