"""The rules of scoring: what statuses and texts decide without a judge."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from astra.records.base import canonical_json
from astra.records.message import CallStatus
from astra.records.score import Score, Scored, Unscored
from astra.scoring.lexical import joined, occurs, tokens, urls
from astra.scoring.view import Round, SeenCall, View, requests, spoken
from astra.text.language import UNKNOWN, detect_language
from astra.text.verbs import is_write

NOT_APPLICABLE = "not_applicable"
"""Reason of a dimension that the trajectory gives nothing to measure by; it is left out of the
mean. Every other reason means that the measurement failed."""
_ANSWER = re.compile(r"<answer>.*?</answer>", re.DOTALL)
TRANSIENT = frozenset({CallStatus.TIMEOUT, CallStatus.UNREACHABLE, CallStatus.REFUSED})
"""Statuses of failures that may pass: after one of them the same call may be made again."""


def tool_status(view: View) -> Score:
    """Mean over all calls of 1 for a success and 0 for a failure (ASTRA section 3.4)."""
    calls = [call for round_ in view["rounds"] for call in round_["calls"]]
    if not calls:
        return Unscored(reason=NOT_APPLICABLE)
    return Scored(value=sum(call["status"] == CallStatus.OK for call in calls) / len(calls))


def invented_arguments(view: View) -> set[tuple[int, int]]:
    """The (round, call) places of calls with a value that nobody stated.

    A value may come from what the user wrote, from results of earlier rounds, or from the schema
    (default, enumeration, constant, example); booleans and null always may.
    """
    schemas = {tool["name"]: tool["parameters"].get("properties", {}) for tool in view["tools"]}
    invented: set[tuple[int, int]] = set()
    stated = [view["question"]]
    for number, round_ in enumerate(view["rounds"]):
        if round_["user"]:
            stated.append(round_["user"])
        source = joined(stated)
        words = tokens(source)
        for position, call in enumerate(round_["calls"]):
            properties = schemas.get(call["tool"], {})
            if any(
                not _from_schema(value, properties.get(name)) and not occurs(value, source, words)
                for name, value in _values(call)
            ):
                invented.add((number, position))
        # Calls of one round run together: none of them may know another's result.
        stated += [call["result"] for call in round_["calls"]]
    return invented


def _values(call: SeenCall) -> Iterator[tuple[str, Any]]:
    """The call's arguments; none where they are no JSON object."""
    if isinstance(call["arguments"], dict):
        yield from call["arguments"].items()


def _from_schema(value: Any, schema: Any) -> bool:
    """Whether a parameter's schema names the value."""
    if not isinstance(schema, dict):
        return False
    if "default" in schema and schema["default"] == value:
        return True
    if "const" in schema and schema["const"] == value:
        return True
    return value in (schema.get("enum") or ()) or value in (schema.get("examples") or ())


def redundant_calls(view: View) -> set[tuple[int, int]]:
    """The (round, call) places of calls that repeat an earlier one for nothing.

    Such a call has the same tool and arguments as one that succeeded or failed for good, with
    no successful write in between. A repeat after a failure that may pass is a retry, and fine.
    """
    redundant: set[tuple[int, int]] = set()
    settled: set[str] = set()
    for number, round_ in enumerate(view["rounds"]):
        for position, call in enumerate(round_["calls"]):
            key = canonical_json([call["tool"], call["arguments"]])
            if key in settled:
                redundant.add((number, position))
            wrote = call["status"] == CallStatus.OK and is_write(call["tool"])
            if wrote:  # every earlier call may now answer differently
                settled.clear()
            if call["status"] not in TRANSIENT:
                settled.add(key)
    return redundant


def unknown_tools(view: View) -> bool:
    """Whether the agent called a tool that it was not offered."""
    names = {tool["name"] for tool in view["tools"]}
    return any(call["tool"] not in names for call in _calls(view["rounds"]))


def _calls(rounds: Sequence[Round]) -> Iterator[SeenCall]:
    for round_ in rounds:
        yield from round_["calls"]


def foreign_urls(view: View) -> list[str]:
    """URLs in messages to the user that neither the user nor a tool ever gave."""
    given = joined([*requests(view), *(call["result"] for call in _calls(view["rounds"]))])
    return [url for text in spoken(view) for url in urls(text) if url not in given]


def wrong_language(view: View) -> bool:
    """Whether a message to the user is in another language than the question, both being clear.

    What stands inside the answer tags is mostly copied from results, so it is looked at only
    where the rest of the message tells nothing.
    """
    wanted = detect_language(view["question"])
    for text in spoken(view):
        language = detect_language(_ANSWER.sub(" ", text))
        if language == UNKNOWN:
            language = detect_language(text.replace("answer>", " "))
        if UNKNOWN not in (wanted, language) and wanted != language:
            return True
    return False
