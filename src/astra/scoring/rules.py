"""The rules of scoring: what statuses and texts tell without a judge.

Structure is decided here (statuses, tools that were not offered, addresses that nobody gave). What
needs sense is only marked, for a judge to decide: repeated calls, messages in another language,
and the values of ``suspects.py``.
"""

from __future__ import annotations

import re
from collections.abc import Set
from typing import TypedDict

from astra.records.base import canonical_json
from astra.records.message import CallStatus
from astra.records.score import Score, Scored, Unscored
from astra.scoring.lexical import joined, legible
from astra.scoring.view import Place, SeenCall, View, numbered, placed_calls, requests, spoken
from astra.text.figures import addresses, same_address, urls
from astra.text.language import UNKNOWN, detect_language, same_script
from astra.text.verbs import changes_state, words_of
from astra.text.words import words

NOT_APPLICABLE = "not_applicable"
"""Reason of a dimension that the trajectory gives nothing to measure by; it is left out of the
mean. Every other reason means that the measurement failed or was not made."""
OUTAGES = frozenset({CallStatus.TIMEOUT, CallStatus.UNREACHABLE})
"""Statuses of failures that are no fault of the agent."""
TRANSIENT = OUTAGES | {CallStatus.REFUSED}
"""Statuses of failures that may pass: after one of them the same call may be made again."""
_POLLED = frozenset("status progress state poll wait job".split())
"""Words in the names of tools that are asked again until something has happened."""
_ANSWER = re.compile(r"<answer>.*?</answer>", re.DOTALL)
ENOUGH_WORDS = 8
"""How many words tell languages of one script apart; another script shows at once."""


def tool_status(view: View, leaving_out: Set[CallStatus] = frozenset()) -> Score:
    """Mean over the calls of 1 for a success and 0 for a failure (ASTRA section 3.4).

    ``leaving_out``: calls of these statuses do not count.
    """
    statuses = [call["status"] for _, call in placed_calls(view)]
    counted = [status for status in statuses if status not in leaving_out]
    if not counted:
        return Unscored(reason=NOT_APPLICABLE)
    return Scored(value=sum(status == CallStatus.OK for status in counted) / len(counted))


def recovered(view: View) -> bool:
    """Whether a call failed and a later one of the same tool succeeded."""
    failed: set[str] = set()
    for _, call in placed_calls(view):
        if call["status"] != CallStatus.OK:
            failed.add(call["tool"])
        elif call["tool"] in failed:
            return True
    return False


class Repeat(TypedDict):
    """A call that repeats an earlier one exactly, by the calls' numbers."""

    call: str
    of: str


def repeats(view: View) -> list[Repeat]:
    """Calls with the tool and arguments of an earlier one, where nothing can have changed since.

    A repeat is none after a failure that may pass, after any write in between that succeeded or
    whose end is unknown, where the answer was another one, and of a tool that is there to be
    asked again (a job's status).
    """
    effects = {tool["name"]: tool["effect"] for tool in view["tools"]}
    found: list[Repeat] = []
    settled: dict[str, tuple[Place, SeenCall]] = {}
    for place, call in placed_calls(view):
        key = canonical_json([call["tool"], call["arguments"]])
        writes = changes_state(call["tool"], effects.get(call["tool"], ""))
        if key in settled and not _POLLED.intersection(words_of(call["tool"])):
            earlier, before = settled[key]
            twice = writes and before["status"] == CallStatus.OK
            if twice or before["result"] == call["result"]:
                found.append(Repeat(call=numbered(place), of=numbered(earlier)))
        if writes and call["status"] in OUTAGES | {CallStatus.OK}:
            settled.clear()
        if call["status"] not in TRANSIENT:
            settled[key] = (place, call)
    return found


def unknown_tools(view: View) -> bool:
    """Whether the agent called a tool that it was not offered."""
    names = {tool["name"] for tool in view["tools"]}
    return any(call["tool"] not in names for _, call in placed_calls(view))


def foreign_urls(view: View) -> list[str]:
    """URLs in messages to the user that nobody gave: user, system message, tool or tool document.

    Scheme, ``www.``, case and a closing slash make no difference.
    """
    named = [url for text in spoken(view) for url in urls(text)]
    if not named:
        return []
    documents = [f"{t['description']} {canonical_json(t['parameters'])}" for t in view["tools"]]
    results = [legible(call["result"]) for _, call in placed_calls(view)]
    given = addresses(joined([view["told"], *requests(view), *results, *documents]))
    return [url for url in named if same_address(url) not in given]


class Foreign(TypedDict):
    """A message that seems to be in another language than the user's last one."""

    turn: int
    language: str
    wanted: str


def foreign_messages(view: View) -> list[Foreign]:
    """The messages to the user that seem to be in another language than the user's.

    What stands inside the answer tags is mostly copied from results, so it is looked at only
    where the rest of the message tells nothing.
    """
    wanted = detect_language(view["question"])
    length = len(words(view["question"]))
    found: list[Foreign] = []
    for turn, round_ in enumerate(view["rounds"], start=1):
        if detect_language(round_["user"]) != UNKNOWN:
            wanted, length = detect_language(round_["user"]), len(words(round_["user"]))
        if round_["calls"]:
            continue
        text = _ANSWER.sub(" ", round_["text"])
        if detect_language(text) == UNKNOWN:
            text = round_["text"].replace("answer>", " ")
        language = detect_language(text)
        if UNKNOWN in (wanted, language) or wanted == language:
            continue
        # A few words tell no languages of one script apart.
        if not same_script(wanted, language) or min(length, len(words(text))) >= ENOUGH_WORDS:
            found.append(Foreign(turn=turn, language=language, wanted=wanted))
    return found
