"""What is wrong with a goal, and whether a text states a value: what all proofs of goals share."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from astra.arena.statements import states
from astra.records.qa import Answer, AnswerType


class GoalFault(NamedTuple):
    """What is wrong with a goal, and where."""

    reason: str
    detail: str = ""


def stated(value: Any, text: str) -> bool:
    """Whether a text states a value of an argument, in any form."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    return _stated(value, text)


@lru_cache(maxsize=1 << 16)  # the wordings of users are the same in many goals
def _stated(value: int | float | str, text: str) -> bool:
    if not isinstance(value, str):
        return states(Answer(type=AnswerType.NUMBER, value=value), text)
    kind = AnswerType.DATE if is_date(value) else AnswerType.ENUM
    return states(Answer(type=kind, value=value), text)


def is_date(value: Any) -> bool:
    """Whether a cell is a date as worlds write it."""
    return isinstance(value, str) and bool(re.fullmatch(r"\d{4}-\d\d-\d\d", value))
