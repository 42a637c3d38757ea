"""Whether it is right to call nothing for a request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from astra.scoring.lexical import content_words, occurs, subjects, tokens
from astra.scoring.offline.parts import Grade, Part
from astra.scoring.view import SeenTool
from astra.text.verbs import noun_of, singular, words_of

DECLINES = re.compile(
    r"\b(?:no|not|cannot|can't|unable|missing|please|which|what|need|problem|fail\w*|error)\b"
    r"|没有|无法|不能|缺少|需要|请|哪|问题|失败",
    re.IGNORECASE,
)
"""Words of a message that gives no result."""
_PART = re.compile(r"\bthe ([a-z]+(?: [a-z]+){0,3}?) of\b")
_WORD = re.compile(r"[^\W_]+")


def declining(part: Part) -> Grade:
    """The grade where nothing was called.

    That is right if no tool fits, or if the request does not give what a fitting tool needs.
    """
    text = part.rounds[-1]["text"] if part.rounds else ""
    if not DECLINES.search(text):
        return Grade(0.0, "answers without calling anything")
    fitting = [tool for tool in part.tools if _fits(tool, part.request)]
    if not fitting:
        return Grade(1.0, "no offered tool fits the question")
    subject_count = len(subjects(part.request))
    if _unmet_part(part) or _asks_for_choice(text, fitting, part.request):
        return Grade(1.0, "a part of the request cannot be done as it stands")
    ready = [tool for tool in fitting if _named_parameters(tool) <= subject_count]
    if ready:
        return Grade(0.0, f"{ready[0]['name']} fits and could have been called")
    reply = content_words(text)
    named = any(
        content_words(name) & reply
        for tool in fitting
        for name in tool["parameters"].get("required", [])
    )
    return Grade(1.0 if named else 0.5, "asks for what is missing" if named else "asks vaguely")


def _unmet_part(part: Part) -> bool:
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
