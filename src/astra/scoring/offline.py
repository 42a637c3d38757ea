"""The offline judge: each judgement computed from the transcript by rule."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from astra.agent.prompt import MISSING_VALUE, NO_TOOL, NOT_FOUND, extract_answer
from astra.llm.protocol import OfflineHandlers
from astra.records.message import CallStatus
from astra.scoring.judge import AnswerGrade, CallGrades, Grade
from astra.scoring.lexical import content_words, joined, occurs, subjects, tokens
from astra.scoring.rules import TRANSIENT
from astra.scoring.view import Round, SeenCall, SeenTool
from astra.text.verbs import noun_of, singular, words_of

_DECLINES = re.compile(
    r"\b(?:no|not|cannot|can't|unable|missing|please|which|what|need|problem|fail\w*|error)\b", re.I
)
_PART = re.compile(r"\bthe ([a-z]+(?: [a-z]+){0,3}?) of\b")
_WORD = re.compile(r"[^\W_]+")
Variables = Mapping[str, Any]


def understanding(variables: Variables, rng: random.Random) -> Grade:
    """Share of the question's names and numbers that calls or answer take up."""
    rounds: Sequence[Round] = variables["rounds"]
    if not _calls(rounds):
        return _declining(variables)
    wanted = subjects(variables["question"])
    if not wanted:
        related = any(_related(call["tool"], variables) for call in _calls(rounds))
        return _grade(1.0 if related else 0.5, "no names in the question; judged by tool names")
    said = joined(
        [str(_plain(call["arguments"])) for call in _calls(rounds)] + [r["text"] for r in rounds]
    )
    words = tokens(said)
    met = sum(occurs(subject, said, words) for subject in wanted)
    return _grade(_stepped(met / len(wanted)), f"{met} of {len(wanted)} names taken up")


def planning(variables: Variables, rng: random.Random) -> Grade:
    """Share of calls that belong: the tool's words are asked for, or its result is used later."""
    rounds: Sequence[Round] = variables["rounds"]
    calls = _calls(rounds)
    if not calls:
        return _declining(variables)
    useful = _useful(rounds, variables)
    return _grade(_stepped(sum(useful) / len(calls)), f"{sum(useful)} of {len(calls)} calls belong")


def context_understanding(variables: Variables, rng: random.Random) -> Grade:
    """Share of the turn's values that the question or an earlier successful result states."""
    history: Sequence[Round] = variables["history"]
    turn = variables["turn"]
    source = joined([variables["question"], *(c["result"] for c in _calls(history) if _ok(c))])
    words = tokens(source)
    if turn["calls"]:
        values = [value for call in turn["calls"] for value in _values(call["arguments"])]
        values = [value for value in values if not _from_enum(value, variables["tools"])]
    else:
        values = [answer for answer in _answers(turn["text"]) if answer not in _no_result(history)]
    known = sum(occurs(value, source, words) for value in values)
    share = known / len(values) if values else 1.0
    return _grade(_stepped(share), f"{known} of {len(values)} values come from the context")


def context_planning(variables: Variables, rng: random.Random) -> Grade:
    """Whether going on (or stopping) is right: nothing left to retry, nothing left to ask."""
    history: Sequence[Round] = variables["history"]
    turn = variables["turn"]
    if turn["calls"]:
        lasting = [
            (call["tool"], call["arguments"])
            for call in _calls(history)
            if call["status"] != CallStatus.OK and call["status"] not in TRANSIENT
        ]
        again = [c for c in turn["calls"] if (c["tool"], c["arguments"]) in lasting]
        return _grade(0.0 if again else 1.0, "repeats a lasting failure" if again else "goes on")
    open_failures = [call for call in _calls(history) if not _resolved(call, history)]
    if open_failures and not _DECLINES.search(turn["text"]):
        return _grade(0.0, "ends without the failed result and does not say so")
    if not _calls(history):
        return _grade(1.0, "nothing was called")
    said = joined([turn["text"], *(str(_plain(c["arguments"])) for c in _calls(history))])
    words = tokens(said)
    left = [name for name in subjects(variables["question"]) if not occurs(name, said, words)]
    return _grade(0.5 if left else 1.0, f"ends with {len(left)} names not dealt with")


def conciseness(variables: Variables, rng: random.Random) -> CallGrades:
    """A call is needed if its tool is asked for or its result used; a failed one that passes
    on retry counts as needed. (Repeats are the rules' to find.)"""
    useful = _useful(variables["rounds"], variables)
    return CallGrades(reason="asked for or used later", needed=[int(one) for one in useful])


def final_answer(variables: Variables, rng: random.Random) -> AnswerGrade:
    """Correlation: the message shares the question's or tools' words and ends in an answer.
    Faithfulness: share of answers that results (or the question) state."""
    rounds: Sequence[Round] = variables["rounds"]
    text = rounds[-1]["text"]
    answers = _answers(text)
    if not answers:
        return AnswerGrade(reason="no answer is marked", correlation=0.0, faithfulness=0.5)
    calls = _calls(rounds)
    asked = content_words(variables["question"]) | {
        word for call in calls for word in content_words(noun_of(call["tool"]))
    }
    on_topic = bool(asked & content_words(text)) or bool(_DECLINES.search(text))
    results = joined([variables["question"], *(c["result"] for c in calls if _ok(c))])
    words = tokens(results)
    known = sum(
        answer in _no_result(rounds) or occurs(answer, results, words) for answer in answers
    )
    return AnswerGrade(
        reason=f"{known} of {len(answers)} answers are stated by results",
        correlation=1.0 if on_topic or _all_stated(answers, calls) else 0.5,
        faithfulness=_stepped(known / len(answers)),
    )


def _declining(variables: Variables) -> Grade:
    """Nothing was called: right if no tool fits, or if what a fitting tool needs is not given."""
    rounds: Sequence[Round] = variables["rounds"]
    text = rounds[-1]["text"] if rounds else ""
    if not _DECLINES.search(text):
        return _grade(0.0, "answers without calling anything")
    fitting = [tool for tool in variables["tools"] if _fits(tool, variables["question"])]
    if not fitting:
        return _grade(1.0, "no offered tool fits the question")
    given = len(subjects(variables["question"]))
    if _unmet_part(variables) or _asks_for_choice(text, fitting, variables["question"]):
        return _grade(1.0, "a part of the request cannot be done as it stands")
    ready = [tool for tool in fitting if _named_parameters(tool) <= given]
    if ready:
        return _grade(0.0, f"{ready[0]['name']} fits and could have been called")
    said = content_words(text)
    named = any(
        content_words(name) & said
        for tool in fitting
        for name in tool["parameters"].get("required", [])
    )
    return _grade(1.0 if named else 0.5, "asks for what is missing" if named else "asks vaguely")


def _unmet_part(variables: Variables) -> bool:
    """Whether the question asks for "the ... of" something that no offered tool is about."""
    known = [
        {singular(word) for word in words_of(tool["name"])} | {"number"}
        for tool in variables["tools"]
    ]
    parts = (
        {singular(word) for word in part.split()} for part in _PART.findall(variables["question"])
    )
    return any(part and not any(part <= words for words in known) for part in parts)


def _asks_for_choice(text: str, fitting: Sequence[SeenTool], question: str) -> bool:
    """Whether the message asks for a listed value that a fitting tool needs and nobody chose."""
    said, words = content_words(text), tokens(question)
    for tool in fitting:
        properties: Mapping[str, Any] = tool["parameters"].get("properties", {})
        for name in tool["parameters"].get("required", []):
            listed = properties.get(name, {}).get("enum", ())
            open_choice = listed and not any(occurs(v, question, words) for v in listed)
            if open_choice and content_words(name) & said:
                return True
    return False


def _fits(tool: SeenTool, question: str) -> bool:
    """Whether the question names the tool's noun as a phrase of its own.

    The "guide" of "guide language" is another thing: a neighbouring plain word that is no
    parameter of the tool makes the phrase a longer one.
    """
    noun = [singular(word) for word in words_of(noun_of(tool["name"]))]
    parameters = {w for name in tool["parameters"].get("properties", {}) for w in words_of(name)}
    raw = _WORD.findall(question)
    words = [singular(word.lower()) for word in raw]
    for start in range(len(words) - len(noun) + 1) if noun else ():
        end = start + len(noun)
        if words[start:end] == noun and not any(
            0 <= beside < len(raw)
            and raw[beside].islower()
            and raw[beside] not in parameters
            and content_words(raw[beside])
            for beside in (start - 1, end)
        ):
            return True
    return False


def _named_parameters(tool: SeenTool) -> int:
    """How many required parameters take a free value (no default, no short list)."""
    properties: Mapping[str, Any] = tool["parameters"].get("properties", {})
    return sum(
        not {"default", "enum", "const"} & set(properties.get(name, {}))
        for name in tool["parameters"].get("required", [])
    )


def _useful(rounds: Sequence[Round], variables: Variables) -> list[bool]:
    """Per call: its tool is asked for, or a later turn takes a value from its result, or it
    failed for a passing reason and was made again."""
    useful: list[bool] = []
    for number, round_ in enumerate(rounds):
        later = joined(
            part
            for other in rounds[number + 1 :]
            for part in [other["text"], *(str(_plain(c["arguments"])) for c in other["calls"])]
        )
        for call in round_["calls"]:
            result = call["result"].strip()
            used = (
                _ok(call) and len(result) > 1 and any(piece in later for piece in _pieces(result))
            )
            useful.append(used or _related(call["tool"], variables))
    return useful


def _pieces(result: str) -> list[str]:
    """The values in a result: itself if short, and what stands between JSON punctuation."""
    parts = [part.strip(" \"'") for part in re.split(r"[\[\]{}:,\n]", result)]
    return [part for part in dict.fromkeys([result, *parts]) if len(part) > 1]


def _related(tool: str, variables: Variables) -> bool:
    described = next((t["description"] for t in variables["tools"] if t["name"] == tool), "")
    question = content_words(variables["question"])
    return bool(question & (content_words(noun_of(tool)) | content_words(described)))


def _resolved(call: SeenCall, history: Sequence[Round]) -> bool:
    """Whether a failed call succeeded with the same tool at some point."""
    return _ok(call) or any(_ok(c) and c["tool"] == call["tool"] for c in _calls(history))


def _no_result(rounds: Sequence[Round]) -> set[str]:
    """Which answers without a value this history justifies."""
    calls = _calls(rounds)
    if not calls:
        return {NO_TOOL, MISSING_VALUE}
    empty = any(not _ok(c) or c["result"].strip() in ("", "[]", "{}", "null") for c in calls)
    return {NOT_FOUND} if empty else set()


def _all_stated(answers: Sequence[str], calls: Sequence[SeenCall]) -> bool:
    results = joined(call["result"] for call in calls if _ok(call))
    return bool(calls) and all(answer in results for answer in answers)


def _answers(text: str) -> list[str]:
    marked = extract_answer(text)
    return [part.strip() for part in marked.split(";") if part.strip()] if marked else []


def _calls(rounds: Sequence[Round]) -> list[SeenCall]:
    return [call for round_ in rounds for call in round_["calls"]]


def _ok(call: SeenCall) -> bool:
    return call["status"] == CallStatus.OK


def _plain(arguments: Any) -> str:
    return joined(str(value) for value in _values(arguments))


def _values(arguments: Any) -> list[Any]:
    return list(arguments.values()) if isinstance(arguments, dict) else [arguments]


def _from_enum(value: Any, tools: Sequence[SeenTool]) -> bool:
    properties = (
        schema
        for tool in tools
        for schema in tool["parameters"].get("properties", {}).values()
        if isinstance(schema, dict)
    )
    return any(
        value in (one.get("enum") or ()) or one.get("default") == value for one in properties
    )


def _stepped(share: float) -> float:
    return 1.0 if share >= 1.0 else 0.5 if share >= 0.5 else 0.0


def _grade(score: float, reason: str) -> Grade:
    return Grade(score=score, reason=reason)


HANDLERS: OfflineHandlers = {
    "scoring/query_understanding": understanding,
    "scoring/query_planning": planning,
    "scoring/context_understanding": context_understanding,
    "scoring/context_planning": context_planning,
    "scoring/conciseness": conciseness,
    "scoring/final_answer": final_answer,
}
