"""Whether a sentence tells a value that it states, or asks, denies, or leaves it open."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

_CLAUSE = re.compile(r",(?!\d)|\s[-–—]+\s|[;:](?=\s)|\b(?:and|but|while|whereas|though)\b")
_ASKING = re.compile(
    r"\W*(?:is|are|was|were|do|does|did|can|could|shall|should|may|might|will|would|have|has|"
    r"which|what|when|who|whose|how|where|why|or)\b"
)
_NEGATION = re.compile(
    r"\b(?:not|never|neither|nor|cannot|hardly|without|instead of|rather than|other than|except|"
    r"no longer|anything but)\b|n['’]t\b|^\W*no\b(?!\W+(?:later|earlier|more|less|fewer))"
)
_DISBELIEF = re.compile(
    r"(?:\bnot|\bnever|n['’]t)\s+(?:\w+\s+)?(?:think|believe|say|saying|claim|suppose|sure|certain|"
    r"know|expect|mean|true|correct|right|case)\b|\b(?:wrong|false|untrue|incorrect|mistaken|"
    r"lie|doubt)\b.*\bthat\b|\bnobody\b"
)
_VERB = re.compile(r"\b(?:is|are|was|were|will|has|have|falls?|remains?|costs?|stands?)\b|['’]s\b")
_BOUND = re.compile(r"\b(?:until|till|before|beyond|after|later than|earlier than|sooner than|"
                    r"more than|less than|fewer than|only)\W*(?:the\s)?\W*$")  # fmt: skip
_REFUTED = re.compile(
    r"\W*(?:(?:is|was|are|would be)\s+|['’]s\s+)?(?:(?:certainly|definitely|simply|clearly)\s+)?"
    r"(?:(?:not|never)|(?:is|was|are)n['’]t)(?:\W*$|\s+(?:it|right|correct|true|the|your|its|when|"
    r"what)\b)|\W*(?:is|was|would be)\s+(?:\w+\s+)?(?:wrong|false|incorrect|untrue)\b"
)
_EITHER = re.compile(r"(?:^|\W)(?:or|alternatively|otherwise|respectively if|versus|vs)\b|\s?/\s?$")
_SPEAKER = re.compile(r"\b(?:you|we|i|let)\b")


class Mention(NamedTuple):
    """A value in a sentence, normalised, and where it stands. ``loose``: beside nothing that says
    that it is one of the column."""

    value: Any
    start: int
    end: int
    right: bool
    loose: bool = False


def is_told_in(sentence: str, one: Mention) -> bool:
    """Whether a sentence tells a value that it states: neither asks nor denies it."""
    clause, start, _ = next(
        (part for part in clauses(sentence) if part[1] <= one.start < part[2]),
        (sentence, 0, len(sentence)),
    )
    if is_question(sentence) or (
        sentence.endswith("?") and _CLAUSE.search(sentence, one.end) is None
    ):
        return False
    before, after = clause[: one.start - start], sentence[one.end :]
    return not (_REFUTED.match(after) or is_denied(before))


def is_question(sentence: str) -> bool:
    return sentence.endswith("?") and _ASKING.match(sentence) is not None


def is_denied(before: str) -> bool:
    """Whether the words before a value in its clause deny it."""
    if _DISBELIEF.search(before):
        return True
    found = [*_NEGATION.finditer(before)]
    if not found or _BOUND.search(before):
        return False
    return _VERB.search(before, found[-1].end()) is None


def is_either(sentence: str, told: Sequence[Mention]) -> bool:
    """Whether two of the values stand for each other: this one or that one."""
    for one, other in pairwise(told):
        gap = sentence[one.end : other.start]
        if one.value != other.value and _EITHER.search(gap) and not _SPEAKER.search(gap):
            return True
    return False


def clauses(sentence: str) -> Iterator[tuple[str, int, int]]:
    start = 0
    for gap in (*_CLAUSE.finditer(sentence), None):
        end = gap.start() if gap else len(sentence)
        yield sentence[start:end], start, end
        start = gap.end() if gap else end
