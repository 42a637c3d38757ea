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

A turn with a redundant call scores 0 in both context dimensions. Where the judge gives no usable
answer, the dimension is Unscored: a failure never becomes a number. Where a trajectory has no
such turn or call, the dimension is Unscored(not_applicable) and left out of the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, field_validator

from astra.llm.pool import together
from astra.llm.protocol import Ask, ParseError, ProviderError, Teacher
from astra.records.score import Score, Scored, Unscored
from astra.records.trajectory import StopReason, Trajectory
from astra.scoring import rules
from astra.scoring.rules import NOT_APPLICABLE
from astra.scoring.view import View, final_text, view_of

GRADES = (0.0, 0.5, 1.0)
FOREIGN, UNGIVEN = "another language than the question's", "a URL that nobody gave"
FAULT_CHARS = 500
"""How much of an error is kept as the reason why a dimension has no score."""
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
    """The judge's reply for one dimension, or one turn of it. ``score`` is 0, 0.5 or 1."""

    model_config = ConfigDict(extra="forbid")
    reason: str
    score: float

    @field_validator("score")
    @classmethod
    def _in_steps(cls, score: float) -> float:
        return _step(score)


class CallGrades(BaseModel):
    """The judge's reply on conciseness: per call 1 if it was needed, else 0, in their order."""

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
    """The judge's reply on the final answer.

    ``correlation``: whether it addresses the question; ``faithfulness``: whether it is what the
    tools returned. Each is 0, 0.5 or 1.
    """

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


@dataclass(frozen=True)
class Mark:
    """One dimension's score and the reasons for it."""

    score: Score
    said: tuple[str, ...] = ()
    """The judge's or the rule's reasons, one line each."""
    fault: str = ""
    """Why there is no score; empty if there is one."""


@dataclass(frozen=True)
class JudgedTrajectory:
    """A trajectory with its score in every dimension, and the reasons for them.

    Lines of ``said`` are the judge's or the rules' reasons; lines of ``faults`` say why a
    dimension has no score.
    """

    scores: dict[str, Score]
    said: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


async def score(trajectory: Trajectory, judge: Teacher) -> JudgedTrajectory:
    """A trajectory's scores in all seven dimensions. The judge is asked everything at once."""
    view = view_of(trajectory)
    redundant = rules.redundant_calls(view)
    invented = rules.invented_arguments(view)
    asker = _Asker(view, judge)
    unfinished = trajectory.stop_reason != StopReason.ANSWERED or not final_text(view).strip()
    invention = "an argument was invented" if invented else ""
    unknown = "a tool that is not offered was called" if rules.unknown_tools(view) else ""
    dimensions = {
        "query_understanding": asker.grade("query_understanding", invention),
        "query_planning": asker.grade("query_planning", unknown),
        "context_understanding": asker.turns("context_understanding", redundant),
        "context_planning": asker.turns("context_planning", redundant),
        "conciseness": asker.conciseness(redundant | invented),
        "final_answer": asker.final_answer("there is no final message" if unfinished else ""),
    }
    marks = dict(zip(dimensions, await together(*dimensions.values()), strict=True))
    marks["tool_status"] = Mark(rules.tool_status(view))
    return JudgedTrajectory(
        {name: marks[name].score for name in DIMENSIONS},
        tuple(line for name in DIMENSIONS for line in marks[name].said),
        tuple(marks[name].fault for name in DIMENSIONS if marks[name].fault),
    )


class _Asker:
    """Asks the judge about one trajectory, one method a dimension (or kind of dimension)."""

    def __init__(self, view: View, judge: Teacher) -> None:
        self._view = view
        self._judge = judge

    async def _ask(self, name: str, variables: dict[str, Any], reply: type[Reply]) -> Reply | Mark:
        """The judge's reply, or an unscored mark where it gave none."""
        shared = {"question": self._view["question"], "tools": self._view["tools"]}
        try:
            return await self._judge.ask(Ask(f"scoring/{name}", shared | variables, reply))
        except (ProviderError, ParseError) as error:
            unavailable = isinstance(error, ProviderError)
            reason = "judge_unavailable" if unavailable else "judge_unparsable"
            fault = f"{name}: {' '.join(str(error).split())}"
            return Mark(Unscored(reason=reason), fault=fault[:FAULT_CHARS])

    async def grade(self, name: str, wrong: str) -> Mark:
        """One grade for the whole trajectory.

        ``wrong``: why the rules decide on zero without asking; empty if they do not.
        """
        if wrong:
            return _by_rule(name, wrong)
        reply = await self._ask(name, {"rounds": self._view["rounds"]}, Grade)
        if isinstance(reply, Mark):
            return reply
        return Mark(Scored(value=reply.score), (_line(name, f"{reply.score:g}", reply.reason),))

    async def turns(self, name: str, redundant: set[tuple[int, int]]) -> Mark:
        """The mean over the turns after the first (TCU and TCP of ASTRA section 3.4).

        A turn is shown with what came before it only, so that its outcome cannot colour the
        judgement. ``redundant``: (round, call) places; their turns score 0.
        """
        rounds = self._view["rounds"]
        if len(rounds) < 2:
            return Mark(Unscored(reason=NOT_APPLICABLE))
        repeated = {turn for turn, _ in redundant}
        marks = await together(
            *(self._turn(name, turn, turn in repeated) for turn in range(1, len(rounds)))
        )
        total = 0.0
        for mark in marks:
            if isinstance(mark.score, Unscored):
                return mark
            total += mark.score.value
        reasons = tuple(line for mark in marks for line in mark.said)
        return Mark(Scored(value=total / (len(rounds) - 1)), reasons)

    async def _turn(self, name: str, turn: int, repeated: bool) -> Mark:
        place = f"{name}, turn {turn + 1}"
        if repeated:
            return _by_rule(place, "a call is repeated for nothing")
        rounds = self._view["rounds"]
        current = {
            "user": rounds[turn]["user"],
            "text": rounds[turn]["text"],
            "calls": [
                {"tool": call["tool"], "arguments": call["arguments"]}
                for call in rounds[turn]["calls"]
            ],
        }
        reply = await self._ask(name, {"history": rounds[:turn], "turn": current}, Grade)
        if isinstance(reply, Mark):
            return reply
        return Mark(Scored(value=reply.score), (_line(place, f"{reply.score:g}", reply.reason),))

    async def conciseness(self, zero: set[tuple[int, int]]) -> Mark:
        """The share of calls that were needed; calls at the places ``zero`` count as needless."""
        places = [
            (number, position)
            for number, round_ in enumerate(self._view["rounds"])
            for position in range(len(round_["calls"]))
        ]
        if not places:
            return Mark(Unscored(reason=NOT_APPLICABLE))
        if all(place in zero for place in places):
            return _by_rule("conciseness", "every call is redundant or has an invented argument")
        variables = {"rounds": self._view["rounds"], "calls": len(places)}
        reply = await self._ask("conciseness", variables, CallGrades)
        if isinstance(reply, Mark):
            return reply
        reasons = (_line("conciseness", " ".join(map(str, reply.needed)), reply.reason),)
        if len(reply.needed) != len(places):
            fault = f"conciseness: {len(reply.needed)} grades for {len(places)} calls"
            return Mark(Unscored(reason="judge_unparsable"), reasons, fault)
        grades = [
            0 if place in zero else needed
            for place, needed in zip(places, reply.needed, strict=True)
        ]
        return Mark(Scored(value=sum(grades) / len(grades)), reasons)

    async def final_answer(self, wrong: str) -> Mark:
        """The mean of correlation and faithfulness; ``wrong`` as in ``grade``."""
        foreign, urls = rules.wrong_language(self._view), rules.foreign_urls(self._view)
        broken = [FOREIGN] if foreign else []
        if urls:
            broken.append(UNGIVEN)
        if wrong or len(broken) == 2:  # both halves are zero whatever the judge would say
            return _by_rule("final_answer", wrong or "; ".join(broken))
        reply = await self._ask("final_answer", {"rounds": self._view["rounds"]}, AnswerGrade)
        if isinstance(reply, Mark):
            return reply
        correlation = 0.0 if foreign else reply.correlation
        faithfulness = 0.0 if urls else reply.faithfulness
        grades = f"correlation {reply.correlation:g}, faithfulness {reply.faithfulness:g}"
        reasons = (
            _line("final_answer", grades, reply.reason),
            *(line for rule in broken for line in _by_rule("final_answer", rule).said),
        )
        return Mark(Scored(value=(correlation + faithfulness) / 2), reasons)


def _by_rule(place: str, wrong: str) -> Mark:
    """A zero that a rule decides on, with the rule as its reason."""
    return Mark(Scored(value=0.0), (_line(place, "0", f"rule: {wrong}"),))


def _line(place: str, grade: str, reason: str) -> str:
    return f"{place}: {grade}: {' '.join(reason.split())}"


def mean_score(scores: dict[str, Score]) -> Score:
    """Arithmetic mean of the applicable dimensions; Unscored if any other measurement failed."""
    values: list[float] = []
    for name in DIMENSIONS:
        dimension = scores[name]
        if isinstance(dimension, Scored):
            values.append(dimension.value)
        elif dimension.reason != NOT_APPLICABLE:
            return Unscored(reason=f"{name}_{dimension.reason}")
    return Scored(value=sum(values) / len(values)) if values else Unscored(reason="nothing_scored")
