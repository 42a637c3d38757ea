"""The offline judge: each judgement computed from the transcript by rule."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from astra.agent.prompt import MISSING_VALUE, NO_TOOL, NOT_FOUND, extract_answer
from astra.llm.protocol import OfflineHandlers
from astra.records.message import CallStatus
from astra.scoring.asks import (
    AnswerGrade,
    CallVerdict,
    Claim,
    ConductGrade,
    TurnGrade,
    ValueVerdict,
)
from astra.scoring.lexical import content_words, joined, occurs, subjects, tokens
from astra.scoring.offline.declining import DECLINES, declining
from astra.scoring.offline.parts import (
    Grade,
    Part,
    Variables,
    calls_of,
    is_related,
    parts_of,
    plain,
    since_the_user,
    stepped,
    succeeded,
    useful_calls,
    values_of,
    words_heard,
)
from astra.scoring.rules import TRANSIENT, repeats
from astra.scoring.view import Round, SeenCall, SeenTool, View
from astra.text.verbs import changes_state, noun_of


def conduct(variables: Variables, rng: random.Random) -> ConductGrade:
    """The request, the plan and the calls, each by rule; every suspect is called fabricated.

    A conversation is judged by its worst request. Whether a call is needed: its tool is asked for,
    or its result is used later, and it is no exact repeat.
    """
    requests = parts_of(variables)
    understood = _least(_understanding(part) for part in requests)
    planned = _least(_planning(part) for part in requests)
    useful = [needed for part in requests for needed in useful_calls(part)]
    repeated = {repeat["call"] for repeat in variables["repeats"]}
    effects = {tool["name"]: tool["effect"] for tool in variables["tools"]}
    made = calls_of(variables["rounds"])
    calls: list[CallVerdict] = []
    for number, call, needed in zip(variables["calls"], made, useful, strict=True):
        writes = succeeded(call) and changes_state(call["tool"], effects.get(call["tool"], ""))
        calls.append(
            CallVerdict(
                call=number,
                reason="asked for or used later" if needed else "neither asked for nor used",
                needed=1 if needed and number not in repeated else 0,
                changes=("asked" if needed else "unasked") if writes else "nothing",
            )
        )
    return ConductGrade(
        reason=f"{understood.reason}; {planned.reason}",
        values=[
            ValueVerdict(value=one["value"], reason="stands nowhere", origin="fabricated")
            for one in variables["suspects"]
        ],
        calls=calls,
        understanding=understood.score,
        planning=planned.score,
    )


def _understanding(part: Part) -> Grade:
    """The share of a request's names and numbers that calls or answer take up."""
    calls = calls_of(part.rounds)
    if not calls:
        return declining(part)
    wanted = subjects(part.request)
    if not wanted:
        related = any(is_related(call["tool"], part) for call in calls)
        return Grade(1.0 if related else 0.5, "no names in the question; judged by tool names")
    output = joined(
        [str(plain(call["arguments"])) for call in calls] + [r["text"] for r in part.rounds]
    )
    words = tokens(output)
    count = sum(occurs(subject, output, words) for subject in wanted)
    return Grade(stepped(count / len(wanted)), f"{count} of {len(wanted)} names taken up")


def _planning(part: Part) -> Grade:
    """The share of calls that belong: the tool is asked for, or its result is used later."""
    if not calls_of(part.rounds):
        return declining(part)
    useful = useful_calls(part)
    return Grade(stepped(sum(useful) / len(useful)), f"{sum(useful)} of {len(useful)} belong")


def turn(variables: Variables, rng: random.Random) -> TurnGrade:
    """Whether a turn reads the history correctly, and whether it is the right next step.

    A turn with an exact repeat is neither.
    """
    if _repeats(variables):
        return TurnGrade(reason="repeats a call for nothing", understanding=0.0, planning=0.0)
    read, planned = _reading(variables), _next_step(variables)
    return TurnGrade(
        reason=f"{read.reason}; {planned.reason}",
        understanding=read.score,
        planning=planned.score,
    )


def _repeats(variables: Variables) -> bool:
    """Whether a call of the turn repeats one before it, as far as the history tells."""
    history: Sequence[Round] = variables["history"]
    known = {(call["tool"], str(call["arguments"])): call["result"] for call in calls_of(history)}
    current: list[SeenCall] = [
        SeenCall(
            tool=call["tool"],
            arguments=call["arguments"],
            status=CallStatus.OK,
            # Its own result is not shown; a read is taken to answer as before.
            result=known.get((call["tool"], str(call["arguments"])), ""),
        )
        for call in variables["turn"]["calls"]
    ]
    view = View(
        told=variables["told"],
        tools=list(variables["tools"]),
        question=variables["question"],
        rounds=[*history, Round(user="", text="", calls=current)],
    )
    place = f"{len(history) + 1}."
    return any(repeat["call"].startswith(place) for repeat in repeats(view))


def _reading(variables: Variables) -> Grade:
    """The share of the turn's values that the user or an earlier successful result states."""
    history: Sequence[Round] = variables["history"]
    turn = variables["turn"]
    source = joined(
        [
            words_heard(variables, [*history, turn]),
            *(c["result"] for c in calls_of(history) if succeeded(c)),
        ]
    )
    words = tokens(source)
    if turn["calls"]:
        values = [value for call in turn["calls"] for value in values_of(call["arguments"])]
        values = [value for value in values if not _from_enum(value, variables["tools"])]
    else:
        since = [] if turn["user"] else since_the_user(history)
        values = [answer for answer in _answers(turn["text"]) if answer not in _no_result(since)]
    count = sum(occurs(value, source, words) for value in values)
    share = count / len(values) if values else 1.0
    return Grade(stepped(share), f"{count} of {len(values)} values come from the context")


def _next_step(variables: Variables) -> Grade:
    """Whether going on (or stopping) is right: nothing left to retry, nothing left to ask."""
    history: Sequence[Round] = variables["history"]
    turn = variables["turn"]
    if turn["calls"]:
        lasting = [
            (call["tool"], call["arguments"])
            for call in calls_of(history)
            if call["status"] != CallStatus.OK and call["status"] not in TRANSIENT
        ]
        repeats = any((call["tool"], call["arguments"]) in lasting for call in turn["calls"])
        if repeats:
            return Grade(0.0, "repeats a lasting failure")
        return Grade(1.0, "goes on")
    since = [] if turn["user"] else since_the_user(history)
    open_failures = [call for call in calls_of(since) if not _resolved(call, since)]
    if open_failures and not DECLINES.search(turn["text"]):
        return Grade(0.0, "ends without the failed result and does not say so")
    if not calls_of(since):
        return Grade(1.0, "nothing was called")
    output = joined([turn["text"], *(str(plain(c["arguments"])) for c in calls_of(since))])
    words = tokens(output)
    request = since[0]["user"] or variables["question"]
    ignored = [name for name in subjects(request) if not occurs(name, output, words)]
    return Grade(0.5 if ignored else 1.0, f"ends with {len(ignored)} names not dealt with")


def final_answer(variables: Variables, rng: random.Random) -> AnswerGrade:
    """Two grades for the messages to the user.

    Correlation: each message shares words with the request or the tools called, marks an answer
    and is in the user's language. Faithfulness: the share of all answers that results (or the
    user) state.
    """
    claimed: list[tuple[str, bool]] = []
    correlation = 0.0 if variables["foreign"] else 1.0
    for part in parts_of(variables):
        text = part.rounds[-1]["text"]
        answers = _answers(text)
        if not answers:
            return AnswerGrade(
                claims=[], reason="no answer is marked", correlation=0.0, faithfulness=0.5
            )
        calls = calls_of(part.rounds)
        topic = content_words(part.heard) | {
            word for call in calls for word in content_words(noun_of(call["tool"]))
        }
        on_topic = bool(topic & content_words(text)) or bool(DECLINES.search(text))
        if not on_topic and not _all_stated(answers, calls):
            correlation = min(correlation, 0.5)
        earlier = [*calls_of(part.before), *calls]
        results = joined([part.heard, *(c["result"] for c in earlier if succeeded(c))])
        words = tokens(results)
        claimed += [
            (answer, answer in _no_result(part.rounds) or occurs(answer, results, words))
            for answer in answers
        ]
    stated = sum(found for _, found in claimed)
    faithfulness = stepped(stated / len(claimed))
    return AnswerGrade(
        claims=[_claim(answer, found, faithfulness) for answer, found in claimed],
        reason=f"{stated} of {len(claimed)} answers are stated by results",
        correlation=correlation,
        faithfulness=faithfulness,
    )


def _claim(answer: str, found: bool, faithfulness: float) -> Claim:
    if found:
        return Claim(claim=answer, evidence="stands in results or request", verdict="supported")
    verdict = "inexact" if faithfulness else "unsupported"
    return Claim(claim=answer, evidence="stands nowhere", verdict=verdict)


def _least(grades: Iterable[Grade]) -> Grade:
    return min(grades, key=lambda grade: grade.score)


def _resolved(call: SeenCall, history: Sequence[Round]) -> bool:
    """Whether the call, or another one of the same tool, succeeded at some point."""
    return succeeded(call) or any(
        succeeded(c) and c["tool"] == call["tool"] for c in calls_of(history)
    )


def _no_result(rounds: Sequence[Round]) -> set[str]:
    """The answers without a value (``not found`` and the like) that these rounds justify."""
    calls = calls_of(rounds)
    if not calls:
        return {NO_TOOL, MISSING_VALUE}
    empty = any(not succeeded(c) or c["result"].strip() in ("", "[]", "{}", "null") for c in calls)
    return {NOT_FOUND} if empty else set()


def _all_stated(answers: Sequence[str], calls: Sequence[SeenCall]) -> bool:
    results = joined(call["result"] for call in calls if succeeded(call))
    return bool(calls) and all(answer in results for answer in answers)


def _answers(text: str) -> list[str]:
    marked = extract_answer(text)
    return [part.strip() for part in marked.split(";") if part.strip()] if marked else []


def _from_enum(value: Any, tools: Sequence[SeenTool]) -> bool:
    properties = (
        schema
        for tool in tools
        for schema in tool["parameters"].get("properties", {}).values()
        if isinstance(schema, dict)
    )
    return any(
        value in (schema.get("enum") or ()) or schema.get("default") == value
        for schema in properties
    )


HANDLERS: OfflineHandlers = {
    "scoring/conduct": conduct,
    "scoring/turn": turn,
    "scoring/final_answer": final_answer,
}
