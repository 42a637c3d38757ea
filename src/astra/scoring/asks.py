"""What the judge of stage ``sft_set`` replies to each of its three asks.

Reasons come before verdicts, so that a model thinks before it decides. How many values and calls
there are is known only when asking: ``judge.py`` checks it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

GRADES = (0.0, 0.5, 1.0)
FABRICATED, UNASKED, NOTHING = "fabricated", "unasked", "nothing"
CLAIM_GRADES = {"supported": 1.0, "advice": 1.0, "inexact": 0.5, "unsupported": 0.0}
"""How faithful a message with such a claim can be at most."""


def _step(score: float) -> float:
    if score not in GRADES:
        raise ValueError("a grade must be 0, 0.5 or 1")
    return score


Graded = Annotated[float, AfterValidator(_step)]
"""0, 0.5 or 1."""


class _Reply(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ValueVerdict(_Reply):
    """Where a value comes from that the rules did not find."""

    value: int
    """The number that the prompt gives it."""
    reason: str
    origin: Literal["derived", "converted", "chosen", "fabricated"]


class CallVerdict(_Reply):
    """Whether a call was needed, and whether the user asked for what it changed."""

    call: str
    """The call's number, such as ``2.1``."""
    reason: str
    needed: Literal[0, 1]
    changes: Literal["nothing", "asked", "unasked"]


class ConductGrade(_Reply):
    """How the agent took up the request and which calls it made, over the whole conversation."""

    reason: str
    values: list[ValueVerdict]
    calls: list[CallVerdict]
    understanding: Graded
    planning: Graded


class TurnGrade(_Reply):
    """One turn, judged on what came before it.

    ``understanding``: whether it reads the conversation so far correctly; ``planning``: whether
    it is the right next step.
    """

    reason: str
    understanding: Graded
    planning: Graded


class Claim(_Reply):
    """A claim of a message to the user, with where it is found."""

    claim: str
    evidence: str
    verdict: Literal["supported", "advice", "inexact", "unsupported"]


class AnswerGrade(_Reply):
    """What the agent said to the user.

    ``correlation``: whether it addresses the request; ``faithfulness``: whether it is what the
    tools returned.
    """

    claims: list[Claim]
    reason: str
    correlation: Graded
    faithfulness: Graded
