"""The seven dimensions of ASTRA section 3.4: rules first, then a judge for what needs judgement.

| dimension             | decided by                                                            |
|-----------------------|-----------------------------------------------------------------------|
| query_understanding   | 0 if an argument was invented, else judge {0, 0.5, 1}                 |
| query_planning        | 0 if a tool that is not offered was called, else judge {0, 0.5, 1}    |
| context_understanding | mean over turns j >= 2, judged on the history only (TCU)              |
| context_planning      | mean over turns j >= 2, judged on the history only (TCP)              |
| tool_status           | mean of 0/1 by call status, no judge                                  |
| conciseness           | mean over calls of judge 0/1; 0 by rule if redundant or invented      |
| final_answer          | (correlation + faithfulness) / 2; correlation 0 in a wrong language,  |
|                       | faithfulness 0 with a URL that nobody gave                            |

A turn with a redundant call scores 0 in both context dimensions. No answer from the judge is
Unscored, never a number. Where a trajectory has no such turn or call, the dimension is
Unscored(not_applicable) and left out of the mean.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, field_validator

from astra.llm.protocol import Ask, ParseError, ProviderError, Teacher
from astra.records.score import Score, Scored, Unscored
from astra.records.trajectory import StopReason, Trajectory
from astra.scoring import rules
from astra.scoring.rules import NOT_APPLICABLE
from astra.scoring.view import View, final_text, view_of

GRADES = (0.0, 0.5, 1.0)
DIMENSIONS = (
    "query_understanding",
    "query_planning",
    "context_understanding",
    "context_planning",
    "tool_status",
    "conciseness",
    "final_answer",
)


class Grade(BaseModel):
    """One judgement. ``score`` is 0, 0.5 or 1."""

    model_config = ConfigDict(extra="forbid")
    reason: str
    score: float

    @field_validator("score")
    @classmethod
    def _in_steps(cls, score: float) -> float:
        return _step(score)


class CallGrades(BaseModel):
    """One 0 or 1 per call, in the order of the calls."""

    model_config = ConfigDict(extra="forbid")
    reason: str
    needed: list[int]

    @field_validator("needed")
    @classmethod
    def _binary(cls, needed: list[int]) -> list[int]:
        if any(value not in (0, 1) for value in needed):
            raise ValueError("each entry must be 0 or 1")
        return needed


class AnswerGrade(BaseModel):
    """Does the answer address the question, and is it what the tools returned."""

    model_config = ConfigDict(extra="forbid")
    reason: str
    correlation: float
    faithfulness: float

    @field_validator("correlation", "faithfulness")
    @classmethod
    def _in_steps(cls, score: float) -> float:
        return _step(score)


def _step(score: float) -> float:
    if score not in GRADES:
        raise ValueError("a grade must be 0, 0.5 or 1")
    return score


Reply = TypeVar("Reply", bound=BaseModel)


async def score(trajectory: Trajectory, judge: Teacher) -> dict[str, Score]:
    """All seven dimensions of a trajectory, by name."""
    view = view_of(trajectory)
    marked = rules.redundant_calls(view)
    invented = rules.invented_arguments(view)
    asker = _Asker(view, judge)
    answered = trajectory.stop_reason == StopReason.ANSWERED and bool(final_text(view).strip())
    return {
        "query_understanding": Scored(value=0.0)
        if invented
        else await asker.grade("query_understanding"),
        "query_planning": Scored(value=0.0)
        if rules.unknown_tools(view)
        else await asker.grade("query_planning"),
        "context_understanding": await asker.turns("context_understanding", marked),
        "context_planning": await asker.turns("context_planning", marked),
        "tool_status": rules.tool_status(view),
        "conciseness": await asker.conciseness(marked | invented),
        "final_answer": await asker.final_answer() if answered else Scored(value=0.0),
    }


class _Asker:
    def __init__(self, view: View, judge: Teacher) -> None:
        self._view = view
        self._judge = judge

    async def _ask(
        self, name: str, variables: dict[str, Any], reply: type[Reply]
    ) -> Reply | Unscored:
        shared = {"question": self._view["question"], "tools": self._view["tools"]}
        try:
            return await self._judge.ask(Ask(f"scoring/{name}", shared | variables, reply))
        except ProviderError:
            return Unscored(reason="judge_unavailable")
        except ParseError:
            return Unscored(reason="judge_unparsable")

    async def grade(self, name: str) -> Score:
        reply = await self._ask(name, {"rounds": self._view["rounds"]}, Grade)
        return reply if isinstance(reply, Unscored) else Scored(value=reply.score)

    async def turns(self, name: str, redundant: set[tuple[int, int]]) -> Score:
        """Mean over the turns after the first; each is shown with what came before it only."""
        rounds = self._view["rounds"]
        if len(rounds) < 2:
            return Unscored(reason=NOT_APPLICABLE)
        repeated = {turn for turn, _ in redundant}
        total = 0.0
        for turn in range(1, len(rounds)):
            if turn in repeated:
                continue
            now = {
                "user": rounds[turn]["user"],
                "text": rounds[turn]["text"],
                "calls": [
                    {"tool": call["tool"], "arguments": call["arguments"]}
                    for call in rounds[turn]["calls"]
                ],
            }
            reply = await self._ask(name, {"history": rounds[:turn], "turn": now}, Grade)
            if isinstance(reply, Unscored):
                return reply
            total += reply.score
        return Scored(value=total / (len(rounds) - 1))

    async def conciseness(self, zero: set[tuple[int, int]]) -> Score:
        places = [
            (number, position)
            for number, round_ in enumerate(self._view["rounds"])
            for position in range(len(round_["calls"]))
        ]
        if not places:
            return Unscored(reason=NOT_APPLICABLE)
        if all(place in zero for place in places):
            return Scored(value=0.0)
        shown = {"rounds": self._view["rounds"], "calls": len(places)}
        reply = await self._ask("conciseness", shown, CallGrades)
        if isinstance(reply, Unscored):
            return reply
        if len(reply.needed) != len(places):
            return Unscored(reason="judge_unparsable")
        kept = [
            0 if place in zero else needed
            for place, needed in zip(places, reply.needed, strict=True)
        ]
        return Scored(value=sum(kept) / len(kept))

    async def final_answer(self) -> Score:
        foreign, urls = rules.wrong_language(self._view), rules.foreign_urls(self._view)
        if foreign and urls:
            return Scored(value=0.0)
        reply = await self._ask("final_answer", {"rounds": self._view["rounds"]}, AnswerGrade)
        if isinstance(reply, Unscored):
            return reply
        correlation = 0.0 if foreign else reply.correlation
        faithfulness = 0.0 if urls else reply.faithfulness
        return Scored(value=(correlation + faithfulness) / 2)


def mean_score(scores: dict[str, Score]) -> Score:
    """Arithmetic mean of the applicable dimensions; Unscored if any other measurement failed."""
    values: list[float] = []
    for name in DIMENSIONS:
        one = scores[name]
        if isinstance(one, Scored):
            values.append(one.value)
        elif one.reason != NOT_APPLICABLE:
            return Unscored(reason=f"{name}_{one.reason}")
    return Scored(value=sum(values) / len(values)) if values else Unscored(reason="nothing_scored")
