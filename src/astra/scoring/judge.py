"""The seven dimensions of ASTRA section 3.4: rules decide structure, a judge decides about sense.

| dimension             | decided by                                                            |
|-----------------------|-----------------------------------------------------------------------|
| query_understanding   | ``conduct``: {0, 0.5, 1}; 0 if the judge calls an argument fabricated |
| query_planning        | ``conduct``: {0, 0.5, 1}; 0 if a tool that is not offered was called  |
| context_understanding | mean over turns j >= 2 of ``turn``, on the history only (TCU)         |
| context_planning      | mean over turns j >= 2 of ``turn``, on the history only (TCP)         |
| tool_status           | mean of 0/1 by call status, no judge                                  |
| conciseness           | ``conduct``: mean over calls of 0/1; 0 for one with a fabricated value|
| final_answer          | ``final_answer``: (correlation + faithfulness) / 2; faithfulness 0    |
|                       | with a URL that nobody gave                                           |

A trajectory of T turns takes T + 1 asks: ``conduct`` and ``final_answer`` over the whole, then one
``turn`` for each after the first. The latter are asked only if the trajectory can still pass. All
prompts begin with the same text as far as they show the same turns, so that an endpoint can
reuse what it has read.

Where the judge gives no usable answer, the dimension is Unscored: a failure never becomes a
number. Where a trajectory has no such turn or call, it is Unscored(not_applicable) and left out
of the mean; where it was not asked, Unscored(not_asked).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeVar

from pydantic import BaseModel

from astra.llm.pool import together
from astra.llm.protocol import Ask, ParseError, ProviderError, Teacher
from astra.records.message import CallStatus
from astra.records.score import Score, Scored, Unscored
from astra.records.trajectory import Trajectory
from astra.scoring import rules
from astra.scoring.asks import (
    CLAIM_GRADES,
    FABRICATED,
    NOTHING,
    UNASKED,
    AnswerGrade,
    CallVerdict,
    ConductGrade,
    TurnGrade,
)
from astra.scoring.config import SFTSetConfig
from astra.scoring.floors import DIMENSIONS, NOT_ASKED, SELECTION, JudgedTrajectory, shortfall
from astra.scoring.rules import NOT_APPLICABLE
from astra.scoring.suspects import Suspect, shown, suspects
from astra.scoring.view import Place, View, final_text, numbered, placed_calls, view_of

FAULT_CHARS = 500
"""How much of an error is kept as the reason why a dimension has no score."""
CONDUCT = ("query_understanding", "query_planning", "conciseness")
CONTEXT = ("context_understanding", "context_planning")
ANSWER = ("correlation", "faithfulness")


async def score(trajectory: Trajectory, judge: Teacher, config: SFTSetConfig) -> JudgedTrajectory:
    """A trajectory's scores in all dimensions; asking stops as soon as it cannot pass."""
    sheet = _Sheet(view_of(trajectory))
    for ask in (sheet.ask_decisive, sheet.ask_turns):
        judged = sheet.judged()
        if judged.faults or shortfall(judged, config):
            break
        await ask(judge)
    return sheet.judged()


Reply = TypeVar("Reply", bound=BaseModel)


@dataclass(frozen=True)
class _NoReply:
    """Why an ask has no answer: the reason of its scores, and the error's text."""

    score: Unscored
    fault: str


class _Sheet:
    """What is known of one trajectory so far: by the rules at first, then also by the judge."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._shared = {"told": view["told"], "tools": view["tools"], "question": view["question"]}
        self._suspects = suspects(view)
        self._scores: dict[str, Score] = dict.fromkeys(
            (*DIMENSIONS, *SELECTION), Unscored(reason=NOT_ASKED)
        )
        self._origins: tuple[str, ...] = ()
        self._fabricated: tuple[str, ...] = ()
        self._needless: tuple[str, ...] = ()
        self._said: list[str] = []
        self._faults: list[str] = []
        self._by_rules()

    def _by_rules(self) -> None:
        view = self._view
        self._scores["tool_status"] = rules.tool_status(view)
        self._scores["own_tool_status"] = rules.tool_status(view, rules.OUTAGES)
        absent = Unscored(reason=NOT_APPLICABLE)
        if not placed_calls(view):
            self._scores["conciseness"] = absent
        if len(view["rounds"]) < 2:
            self._scores |= dict.fromkeys(CONTEXT, absent)
        if not _closing(view):
            self._scores["closing"] = absent
        if rules.unknown_tools(view):
            self._zero("query_planning", "a tool that is not offered was called")
        if not final_text(view).strip():
            self._zero("correlation", "there is no final message")
            self._zero("faithfulness", "there is no final message")
        for url in rules.foreign_urls(view):
            self._zero("faithfulness", f"nobody gave the URL {url}")

    def _zero(self, name: str, rule: str) -> None:
        """A zero that a rule decides on, whatever the judge says."""
        self._scores[name] = Scored(value=0.0)
        self._said.append(f"{name}: 0: rule: {rule}")

    def _put(self, scores: Mapping[str, Score]) -> None:
        """Take over scores where no rule has decided."""
        for name, value in scores.items():
            if self._scores[name] == Unscored(reason=NOT_ASKED):
                self._scores[name] = value

    def judged(self) -> JudgedTrajectory:
        """What is known by now, as a record."""
        halves = [self._scores[name] for name in ANSWER]
        lost = next((half for half in halves if isinstance(half, Unscored)), None)
        values = [half.value for half in halves if isinstance(half, Scored)]
        answer = lost or Scored(value=fmean(values))
        scores = self._scores | {"final_answer": answer}
        return JudgedTrajectory(
            scores={name: scores[name] for name in DIMENSIONS},
            selection={name: scores[name] for name in SELECTION},
            origins=self._origins,
            fabricated=self._fabricated,
            needless_writes=self._needless,
            said=tuple(self._said),
            faults=tuple(self._faults),
        )

    async def ask_decisive(self, judge: Teacher) -> None:
        """Ask what decides most: the conduct over the whole conversation, and the answer."""
        shared = self._shared | {"rounds": self._view["rounds"]}
        marked = {
            "suspects": shown(self._suspects),
            "repeats": rules.repeats(self._view),
            "calls": [numbered(place) for place, _ in placed_calls(self._view)],
        }
        foreign = {"foreign": rules.foreign_messages(self._view)}
        asks: list[Ask[Any]] = [
            Ask("scoring/conduct", shared | marked, ConductGrade, check=self._fits)
        ]
        if any(self._scores[name] == Unscored(reason=NOT_ASKED) for name in ANSWER):
            asks.append(Ask("scoring/final_answer", shared | foreign, AnswerGrade))
        replies = await together(*(_ask(judge, ask) for ask in asks))
        for ask, reply in zip(asks, replies, strict=True):
            if isinstance(reply, ConductGrade):
                self._take_conduct(reply)
            elif isinstance(reply, AnswerGrade):
                self._take_answer(reply)
            else:
                self._miss(CONDUCT if ask.response is ConductGrade else ANSWER, reply)

    def _fits(self, reply: ConductGrade) -> None:
        """Raises ValueError if the reply has not one verdict for each value and call."""
        values = [verdict.value for verdict in reply.values]
        wanted = list(range(1, len(self._suspects) + 1))
        if values != wanted:
            raise ValueError(f"`values` must have one entry for each of {wanted}, got {values}")
        calls = [verdict.call for verdict in reply.calls]
        numbers = [numbered(place) for place, _ in placed_calls(self._view)]
        if calls != numbers:
            raise ValueError(f"`calls` must have one entry for each of {numbers}, got {calls}")

    def _take_conduct(self, reply: ConductGrade) -> None:
        grades = f"understanding {reply.understanding:g}, planning {reply.planning:g}"
        self._said.append(_line("conduct", grades, reply.reason))
        verdicts = list(zip(self._suspects, reply.values, strict=True))
        lines = [
            _line(_named(suspect), verdict.origin, verdict.reason) for suspect, verdict in verdicts
        ]
        self._said += lines
        self._origins = tuple(verdict.origin for verdict in reply.values)
        self._fabricated = tuple(
            line for line, (_, v) in zip(lines, verdicts, strict=True) if v.origin == FABRICATED
        )
        made_up = {suspect.place for suspect, v in verdicts if v.origin == FABRICATED}
        self._take_calls(reply.calls, made_up)
        understanding = 0.0 if made_up else reply.understanding
        self._put(
            {
                "query_understanding": Scored(value=understanding),
                "query_planning": Scored(value=reply.planning),
            }
        )

    def _take_calls(self, verdicts: Iterable[CallVerdict], made_up: set[Place]) -> None:
        needed: list[int] = []
        needless: list[str] = []
        for (place, call), verdict in zip(placed_calls(self._view), verdicts, strict=True):
            needed.append(0 if place in made_up else verdict.needed)
            grades = f"needed {verdict.needed}, changes {verdict.changes}"
            line = _line(f"call {verdict.call} {call['tool']}", grades, verdict.reason)
            self._said.append(line)
            unwanted = verdict.changes == UNASKED or not verdict.needed
            if call["status"] == CallStatus.OK and verdict.changes != NOTHING and unwanted:
                needless.append(line)
        self._needless = tuple(needless)
        if needed:
            self._put({"conciseness": Scored(value=fmean(needed))})

    def _take_answer(self, reply: AnswerGrade) -> None:
        for claim in reply.claims:
            if CLAIM_GRADES[claim.verdict] < 1:
                told = f"{claim.claim} ({claim.evidence})"
                self._said.append(_line("final_answer, claim", claim.verdict, told))
        grades = f"correlation {reply.correlation:g}, faithfulness {reply.faithfulness:g}"
        self._said.append(_line("final_answer", grades, reply.reason))
        worst = min((CLAIM_GRADES[claim.verdict] for claim in reply.claims), default=1.0)
        faithfulness = min(reply.faithfulness, worst)
        self._put(
            {
                "correlation": Scored(value=reply.correlation),
                "faithfulness": Scored(value=faithfulness),
            }
        )

    async def ask_turns(self, judge: Teacher) -> None:
        """Ask about each turn after the first, with what came before it only (TCU and TCP).

        So the outcome cannot colour the judgement.
        """
        rounds = self._view["rounds"]
        replies = await together(
            *(_ask(judge, self._turn(number)) for number in range(1, len(rounds)))
        )
        closing = _closing(self._view)
        given: dict[int, TurnGrade] = {}
        for number, reply in enumerate(replies, start=2):
            if isinstance(reply, _NoReply):
                self._miss((*CONTEXT, "closing"), reply)
                continue
            given[number] = reply
            grades = f"understanding {reply.understanding:g}, planning {reply.planning:g}"
            self._said.append(_line(f"turn {number}", grades, reply.reason))
        if given:
            grades = given.values()
            self._put(
                {
                    "context_understanding": Scored(value=fmean(g.understanding for g in grades)),
                    "context_planning": Scored(value=fmean(g.planning for g in grades)),
                }
            )
        told = [grade.understanding for number, grade in given.items() if number in closing]
        if told:
            self._put({"closing": Scored(value=min(told))})

    def _turn(self, number: int) -> Ask[TurnGrade]:
        rounds = self._view["rounds"]
        current = {
            "user": rounds[number]["user"],
            "text": rounds[number]["text"],
            "calls": [
                {"tool": call["tool"], "arguments": call["arguments"]}
                for call in rounds[number]["calls"]
            ],
        }
        variables = self._shared | {"history": rounds[:number], "turn": current}
        return Ask("scoring/turn", variables, TurnGrade)

    def _miss(self, names: Iterable[str], missing: _NoReply) -> None:
        self._put(dict.fromkeys(names, missing.score))
        self._faults.append(missing.fault)


async def _ask(judge: Teacher, ask: Ask[Reply]) -> Reply | _NoReply:
    """The judge's reply, or why there is none."""
    try:
        return ask.accepted(await judge.ask(ask))
    except (ProviderError, ParseError) as error:
        unavailable = isinstance(error, ProviderError)
        reason = "judge_unavailable" if unavailable else "judge_unparsable"
        fault = f"{ask.template.removeprefix('scoring/')}: {' '.join(str(error).split())}"
        return _NoReply(Unscored(reason=reason), fault[:FAULT_CHARS])


def _closing(view: View) -> set[int]:
    """The numbers of the turns after the first that speak to the user and call nothing."""
    rounds = enumerate(view["rounds"], start=1)
    return {number for number, turn in rounds if number > 1 and not turn["calls"]}


def _named(suspect: Suspect) -> str:
    values = ", ".join(repr(value) for value in suspect.unstated)
    return f"call {numbered(suspect.place)}, {suspect.argument} = {values}"


def _line(place: str, grade: str, reason: str) -> str:
    return f"{place}: {grade}: {' '.join(reason.split())}"
