"""The offline judge: each judgement computed from the transcript by rule."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
    r"\b(?:no|not|cannot|can't|unable|missing|please|which|what|need|problem|fail\w*|error)\b"
    r"|没有|无法|不能|缺少|需要|请|哪|问题|失败",
    re.IGNORECASE,
)
_PART = re.compile(r"\bthe ([a-z]+(?: [a-z]+){0,3}?) of\b")
_WORD = re.compile(r"[^\W_]+")
Variables = Mapping[str, Any]
"""The variables of an ask, which its prompt shows to a model."""


def understanding(variables: Variables, rng: random.Random) -> Grade:
    """The share of a request's names and numbers that calls or answer take up.

    A conversation is judged by its worst request, here and in ``planning``.
    """
    return _least(_understanding(part) for part in _parts(variables))


def _understanding(part: _Part) -> Grade:
    calls = _calls(part.rounds)
    if not calls:
        return _declining(part)
    wanted = subjects(part.request)
    if not wanted:
        related = any(_related(call["tool"], part) for call in calls)
        return _grade(1.0 if related else 0.5, "no names in the question; judged by tool names")
    output = joined(
        [str(_plain(call["arguments"])) for call in calls] + [r["text"] for r in part.rounds]
    )
    words = tokens(output)
    count = sum(occurs(subject, output, words) for subject in wanted)
    return _grade(_stepped(count / len(wanted)), f"{count} of {len(wanted)} names taken up")


def planning(variables: Variables, rng: random.Random) -> Grade:
    """The share of calls that belong: the tool is asked for, or its result is used later."""
    return _least(_planning(part) for part in _parts(variables))


def _planning(part: _Part) -> Grade:
    if not _calls(part.rounds):
        return _declining(part)
    useful = _useful(part)
    return _grade(_stepped(sum(useful) / len(useful)), f"{sum(useful)} of {len(useful)} belong")


def context_understanding(variables: Variables, rng: random.Random) -> Grade:
    """The share of the turn's values that the user or an earlier successful result states."""
    history: Sequence[Round] = variables["history"]
    turn = variables["turn"]
    source = joined(
        [_heard(variables, [*history, turn]), *(c["result"] for c in _calls(history) if _ok(c))]
    )
    words = tokens(source)
    if turn["calls"]:
        values = [value for call in turn["calls"] for value in _values(call["arguments"])]
        values = [value for value in values if not _from_enum(value, variables["tools"])]
    else:
        since = [] if turn["user"] else _since_the_user(history)
        values = [answer for answer in _answers(turn["text"]) if answer not in _no_result(since)]
    count = sum(occurs(value, source, words) for value in values)
    share = count / len(values) if values else 1.0
    return _grade(_stepped(share), f"{count} of {len(values)} values come from the context")


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
        repeats = any((call["tool"], call["arguments"]) in lasting for call in turn["calls"])
        if repeats:
            return _grade(0.0, "repeats a lasting failure")
        return _grade(1.0, "goes on")
    since = [] if turn["user"] else _since_the_user(history)
    open_failures = [call for call in _calls(since) if not _resolved(call, since)]
    if open_failures and not _DECLINES.search(turn["text"]):
        return _grade(0.0, "ends without the failed result and does not say so")
    if not _calls(since):
        return _grade(1.0, "nothing was called")
    output = joined([turn["text"], *(str(_plain(c["arguments"])) for c in _calls(since))])
    words = tokens(output)
    request = since[0]["user"] or variables["question"]
    ignored = [name for name in subjects(request) if not occurs(name, output, words)]
    return _grade(0.5 if ignored else 1.0, f"ends with {len(ignored)} names not dealt with")


def conciseness(variables: Variables, rng: random.Random) -> CallGrades:
    """Whether each call is needed: its tool is asked for, or its result is used later.

    The rules of ``scoring.rules`` find the repeats, so that they need not be found here.
    """
    useful = [needed for part in _parts(variables) for needed in _useful(part)]
    return CallGrades(reason="asked for or used later", needed=[int(needed) for needed in useful])


def final_answer(variables: Variables, rng: random.Random) -> AnswerGrade:
    """Two grades for the messages to the user.

    Correlation: each message shares words with the request or the tools called, and marks an
    answer. Faithfulness: the share of all answers that results (or the user) state.
    """
    stated = total = 0
    correlation = 1.0
    for part in _parts(variables):
        text = part.rounds[-1]["text"]
        answers = _answers(text)
        if not answers:
            return AnswerGrade(reason="no answer is marked", correlation=0.0, faithfulness=0.5)
        calls = _calls(part.rounds)
        topic = content_words(part.heard) | {
            word for call in calls for word in content_words(noun_of(call["tool"]))
        }
        on_topic = bool(topic & content_words(text)) or bool(_DECLINES.search(text))
        if not on_topic and not _all_stated(answers, calls):
            correlation = 0.5
        earlier = [*_calls(part.before), *calls]
        results = joined([part.heard, *(c["result"] for c in earlier if _ok(c))])
        words = tokens(results)
        total += len(answers)
        stated += sum(
            answer in _no_result(part.rounds) or occurs(answer, results, words)
            for answer in answers
        )
    return AnswerGrade(
        reason=f"{stated} of {total} answers are stated by results",
        correlation=correlation,
        faithfulness=_stepped(stated / total),
    )


@dataclass(frozen=True)
class _Part:
    """What one user message asked for and what was done about it."""

    request: str
    heard: str
    """Everything the user had written by then."""
    tools: Sequence[SeenTool]
    rounds: Sequence[Round]
    before: Sequence[Round]
    after: Sequence[Round]


def _parts(variables: Variables) -> list[_Part]:
    """The conversation cut before each of the user's messages."""
    rounds: Sequence[Round] = variables["rounds"]
    starts = [0, *(number for number, r in enumerate(rounds) if number and r["user"])]
    parts: list[_Part] = []
    for start, end in zip(starts, [*starts[1:], len(rounds)], strict=True):
        request = rounds[start]["user"] if start else variables["question"]
        heard = _heard(variables, rounds[:end])
        inner = rounds[start:end]
        parts.append(_Part(request, heard, variables["tools"], inner, rounds[:start], rounds[end:]))
    return parts


def _heard(variables: Variables, rounds: Sequence[Round]) -> str:
    """Everything the user has written up to the end of ``rounds``."""
    return joined([variables["question"], *(r["user"] for r in rounds if r["user"])])


def _since_the_user(history: Sequence[Round]) -> Sequence[Round]:
    """The rounds after the user's last message, the first of them carrying it."""
    starts = [number for number, round_ in enumerate(history) if round_["user"]]
    return history[starts[-1] :] if starts else history


def _least(grades: Iterable[Grade]) -> Grade:
    return min(grades, key=lambda grade: grade.score)


def _declining(part: _Part) -> Grade:
    """The grade where nothing was called.

    That is right if no tool fits, or if the request does not give what a fitting tool needs.
    """
    text = part.rounds[-1]["text"] if part.rounds else ""
    if not _DECLINES.search(text):
        return _grade(0.0, "answers without calling anything")
    fitting = [tool for tool in part.tools if _fits(tool, part.request)]
    if not fitting:
        return _grade(1.0, "no offered tool fits the question")
    subject_count = len(subjects(part.request))
    if _unmet_part(part) or _asks_for_choice(text, fitting, part.request):
        return _grade(1.0, "a part of the request cannot be done as it stands")
    ready = [tool for tool in fitting if _named_parameters(tool) <= subject_count]
    if ready:
        return _grade(0.0, f"{ready[0]['name']} fits and could have been called")
    reply = content_words(text)
    named = any(
        content_words(name) & reply
        for tool in fitting
        for name in tool["parameters"].get("required", [])
    )
    return _grade(1.0 if named else 0.5, "asks for what is missing" if named else "asks vaguely")


def _unmet_part(part: _Part) -> bool:
    """Whether the question asks for "the ... of" something that no offered tool is about."""
    offered = [
        {singular(word) for word in words_of(tool["name"])} | {"number"} for tool in part.tools
    ]
    nouns = ({singular(word) for word in noun.split()} for noun in _PART.findall(part.request))
    return any(noun and not any(noun <= words for words in offered) for noun in nouns)


def _asks_for_choice(text: str, fitting: Sequence[SeenTool], question: str) -> bool:
    """Whether the message asks for a listed value that a fitting tool needs and nobody chose."""
    reply, words = content_words(text), tokens(question)
    for tool in fitting:
        properties: Mapping[str, Any] = tool["parameters"].get("properties", {})
        for name in tool["parameters"].get("required", []):
            listed = properties.get(name, {}).get("enum", ())
            open_choice = listed and not any(occurs(v, question, words) for v in listed)
            if open_choice and content_words(name) & reply:
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


def _useful(part: _Part) -> list[bool]:
    """Whether each call is useful: its tool is asked for, or a later turn uses its result."""
    useful: list[bool] = []
    rounds = [*part.rounds, *part.after]
    for number, round_ in enumerate(part.rounds):
        later = joined(
            text
            for other in rounds[number + 1 :]
            for text in [other["text"], *(str(_plain(c["arguments"])) for c in other["calls"])]
        )
        for call in round_["calls"]:
            result = call["result"].strip()
            used = (
                _ok(call) and len(result) > 1 and any(piece in later for piece in _pieces(result))
            )
            useful.append(used or _related(call["tool"], part))
    return useful


def _pieces(result: str) -> list[str]:
    """The values in a result: itself if short, and what stands between JSON punctuation."""
    parts = [part.strip(" \"'") for part in re.split(r"[\[\]{}:,\n]", result)]
    return [part for part in dict.fromkeys([result, *parts]) if len(part) > 1]


def _related(tool: str, part: _Part) -> bool:
    described = next((t["description"] for t in part.tools if t["name"] == tool), "")
    question = content_words(part.heard)
    return bool(question & (content_words(noun_of(tool)) | content_words(described)))


def _resolved(call: SeenCall, history: Sequence[Round]) -> bool:
    """Whether the call, or another one of the same tool, succeeded at some point."""
    return _ok(call) or any(_ok(c) and c["tool"] == call["tool"] for c in _calls(history))


def _no_result(rounds: Sequence[Round]) -> set[str]:
    """The answers without a value (``not found`` and the like) that these rounds justify."""
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
        value in (schema.get("enum") or ()) or schema.get("default") == value
        for schema in properties
    )


def _stepped(share: float) -> float:
    """A share as a grade: 1 for all, 0.5 from a half on, else 0."""
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
