"""Tool results read the way an agent reads them: from their text."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from astra.agent.prompt import NOT_FOUND
from astra.text.source import parsed_expression
from astra.text.verbs import noun_of, singular, words_of

MAX_ANSWERS = 8
MAX_ANSWER_CHARS = 160
MAX_ANSWER_WORDS = 6
_EVERYDAY = "the a an of for in on at to and or is are what which who how many much"
_GLUE = frozenset(_EVERYDAY.split())
_LABELLED = re.compile(r"([A-Za-z][\w %./-]{1,40}(?:\([^()]*\))?):\s+(\S.*)")
_MONEY = re.compile(r"\$?(-?\d[\d,]*(?:\.\d+)?)")


class ReadError(Exception):
    """A result does not hold what is looked for."""


def parse_result(text: str) -> Any:
    """The typed value of a result: JSON, else a Python literal's list or dict, else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    if text.lstrip().startswith(("[", "{")):
        # Servers written in Python sometimes print rows as they are.
        try:
            return ast.literal_eval(parsed_expression(text.strip()))
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            pass
    return text


def follow(value: Any, path: Sequence[str | int]) -> Any:
    """The part of a result at ``path``. Raises ReadError if there is none."""
    for key in path:
        if key == "result" and not (isinstance(value, dict) and key in value):
            continue  # a wrapper that the SDK adds to structured results only
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            raise ReadError(f"no {key!r} in the result") from None
    return value


def fit(value: Any, schema: Mapping[str, Any]) -> Any:
    """A read value in the type that a parameter asks for. Raises ReadError if it cannot be."""
    wanted = schema.get("type")
    if wanted == "string" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return _number(value)
    if wanted in ("integer", "number") and isinstance(value, str):
        number = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*", value)
        if number is None:
            raise ReadError(f"{value[:40]!r} is no number")
        value = float(number.group(1))
    if wanted == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if wanted in ("string", "integer", "number", "boolean") and isinstance(value, (list, dict)):
        raise ReadError(f"a {type(value).__name__} where a {wanted} is needed")
    return value


def answers_from(value: Any, tool: str, question: str) -> list[str]:
    """The bare answers in a result: a scalar, the items of a list, or fields of an object.

    An object gives the fields that the tool's name tells, else those that the question's words
    tell, else all but prose; none that only repeats what the question states. Lines of text that
    are labelled (``Rate: 5 %``) are fields too.
    """
    if isinstance(value, list):
        if not value:
            return [NOT_FOUND]
        return [text for item in value[:MAX_ANSWERS] for text in _of_item(item, tool, question)]
    return _of_item(value, tool, question)


def _of_item(value: Any, tool: str, question: str) -> list[str]:
    if isinstance(value, str):
        value = _labelled(value) or value
    if not isinstance(value, dict):
        return [scalar_text(value)]
    scalars = {key: item for key, item in value.items() if not isinstance(item, (dict, list))}
    if not scalars:
        inner = next(iter(value.values()), None)
        return answers_from(inner, tool, question) if value else [NOT_FOUND]
    noun = {singular(word) for word in words_of(noun_of(tool))}
    subject = {singular(word) for word in words_of(question)} - _GLUE
    named = _named(scalars, noun)
    if not named:
        asked = _named(scalars, subject)
        # A column that is called `name` may hold the word: that repeats nothing.
        repeated = [key for key in asked if scalars[key] != key and _states(question, scalars[key])]
        named = [key for key in asked if key not in repeated]
        others = [key for key in scalars if key not in repeated and not _is_prose(scalars[key])]
        named = named or others or list(scalars)
    return [scalar_text(scalars[key]) for key in named]


def _named(scalars: Mapping[str, Any], words: Collection[str]) -> list[str]:
    """The fields whose names hold no other than these words."""
    return [key for key in scalars if {singular(word) for word in words_of(key)} <= set(words)]


def _states(question: str, value: Any) -> bool:
    """Whether the question holds the value: the number in any form (``$1,200.00``), the words."""
    text = scalar_text(value)
    if number := _MONEY.fullmatch(text):
        stated = (float(found) for found in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", question))
        return float(number[1].replace(",", "")) in stated
    return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", question) is not None


def _is_prose(value: Any) -> bool:
    """Whether a field is a remark, longer than any answer would be."""
    return isinstance(value, str) and len(value.split()) > MAX_ANSWER_WORDS


def _labelled(text: str) -> dict[str, str]:
    """The fields of a text in which two lines or more read ``label: value``; else none."""
    found = [match for line in text.splitlines() if (match := _LABELLED.fullmatch(line.strip()))]
    return {match[1]: match[2] for match in found} if len(found) > 1 else {}


def scalar_text(value: Any) -> str:
    """A scalar as it stands in an answer: no quotes, no ``.0``, one line, bounded length."""
    if value is None:
        return NOT_FOUND
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return _number(value)
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False)
    lines = [line.strip() for line in value.splitlines() if line.strip()]
    return (lines[0] if lines else NOT_FOUND)[:MAX_ANSWER_CHARS].strip()


def _number(value: float) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
