"""Typed answers compared with values and with text. Never by substring.

``matches`` compares an executed tool's JSON value; ``final_matches`` first reads an agent's
final text as the answer's type. Both fail closed: what cannot be read as the type is wrong.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, cast

from astra.agent.prompt import extract_answer
from astra.records.qa import Answer, AnswerType
from astra.text.forms import clock
from astra.text.strict_json import no_constant
from astra.text.units import same_unit, says_unit

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_RELATIVE = 1e-9
"""Two floats this close (relative) are one number written twice."""
_SIGN = re.compile(r"^(?:[$€£¥₹₩]\s?)(?=\d)")
"""The sign of a currency before a number."""
_MINUS = str.maketrans(dict.fromkeys("\u2212\uff0d", "-"))
"""How a minus is written besides."""
_TRUE = frozenset({"true", "yes", "是", "是的"})
_FALSE = frozenset({"false", "no", "否", "不是", "不是的"})
_DATE_FORMATS = ("%Y/%m/%d", "%d %B %Y", "%B %d, %Y", "%B %d %Y", "%d %b %Y", "%b %d, %Y")
_CHINESE_DATE = re.compile(r"(\d{4})\s?年\s?(\d{1,2})\s?月\s?(\d{1,2})\s?[日号]")
SMALL_DOMAIN = 20
"""How many possible values an answer needs so that an equal one is no chance; our choice."""


def matches(answer: Answer, value: Any) -> bool:
    """Whether a tool's JSON ``value`` is the typed answer."""
    match answer.type:
        case AnswerType.NUMBER:
            return _number_matches(answer, value)
        case AnswerType.BOOLEAN:
            return isinstance(value, bool) and value is answer.value
        case AnswerType.DATE:
            day = _as_date(value)
            return day is not None and day == _as_date(answer.value)
        case AnswerType.STRING | AnswerType.ENUM:
            return isinstance(value, str) and normalise(value) == normalise(str(answer.value))
        case AnswerType.LIST:
            return isinstance(value, list) and _list_matches(answer, cast("list[Any]", value))
        case AnswerType.RECORD:
            return isinstance(value, dict) and same_value(answer.value, value, answer.tolerance)


def final_matches(answer: Answer, text: str, parts: Sequence[Answer] = ()) -> bool:
    """Whether ``text`` (of a final message, see ``parse_final``) states the typed answer.

    A list is JSON or separated by ``;``; a record is JSON, ``key: value; key: value`` or its values
    alone in the order of the keys. ``parts`` are answers that the typed one may be made of: an item
    of a list is read and compared as they are.
    """
    for written in (text.strip(), _trim(text)):
        if _states_parts(answer, written, parts):
            return True
        value = _read(answer, written)
        if value is not _UNREADABLE and matches(answer, _arranged(answer, value, parts)):
            return True
    return False


def _states_parts(answer: Answer, text: str, parts: Sequence[Answer]) -> bool:
    """Whether a text that is no JSON states each part of a list or record as an answer alone is
    stated.
    """
    if answer.type == AnswerType.RECORD:
        record: dict[str, Any] = answer.value
        fields = _fields(list(record), text)
        return record.keys() == fields.keys() and all(
            _states_field(part_of(record[key], answer), written) for key, written in fields.items()
        )
    if answer.type != AnswerType.LIST or _is_nested(answer):
        return False
    left = [_trim(part) for part in text.split(";")] if text else []
    if len(left) != len(answer.value):
        return False
    for item in answer.value:
        ways = [part for part in parts if same_value(item, part.value)]
        ways.append(part_of(item, answer))
        tried = left[:1] if answer.ordered else left
        found = next((one for one in tried if any(final_matches(way, one) for way in ways)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _states_field(answer: Answer, text: str) -> bool:
    """Whether text states a field of a record; where no unit is known, a number may have the sign
    of a currency.
    """
    signed = answer.type == AnswerType.NUMBER and not answer.unit
    return answer.value is not None and final_matches(
        answer, _SIGN.sub("", text) if signed else text
    )


def part_of(item: Any, whole: Answer) -> Answer:
    """A part of a list or record as an answer of its own, of the type that its value has."""
    kind = AnswerType.STRING
    if isinstance(item, bool):
        kind = AnswerType.BOOLEAN
    elif isinstance(item, int | float):
        kind = AnswerType.NUMBER
    elif isinstance(item, list | dict):
        kind = AnswerType.LIST if isinstance(item, list) else AnswerType.RECORD
    elif _as_date(item) is not None:
        kind = AnswerType.DATE
    return whole.model_copy(update={"type": kind, "value": item})


def _arranged(answer: Answer, value: Any, parts: Sequence[Answer]) -> Any:
    """The value with each inner list that matches its part as the part has it."""
    expected: Any = answer.value
    if not _is_nested(answer) or not isinstance(value, list) or len(value) != len(expected):
        return value
    own: dict[str, Answer] = {
        json.dumps(part.value): part for part in parts if part.type == AnswerType.LIST
    }
    return [
        item if (part := own.get(json.dumps(item))) and matches(part, one) else one
        for item, one in zip(expected, cast("list[Any]", value), strict=True)
    ]


def _is_nested(answer: Answer) -> bool:
    """Whether an answer is a list that holds lists or records."""
    items: Any = answer.value if answer.type == AnswerType.LIST else ()
    return any(isinstance(item, list | dict) for item in items)


def parse_final(text: str) -> str:
    """The content of the last ``<answer>..</answer>``, else the whole stripped text."""
    marked = extract_answer(text)
    return text.strip() if marked is None else marked


def render_answer(answer: Answer) -> str:
    """The answer as a final message writes it; ``final_matches`` reads it back."""
    if answer.type == AnswerType.LIST:
        if _is_nested(answer):
            return json.dumps(answer.value, ensure_ascii=False)
        return "; ".join(_render(item) for item in answer.value)
    if answer.type == AnswerType.RECORD:
        return json.dumps(answer.value, ensure_ascii=False)
    return _render(answer.value)


def _render(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def same_value(expected: Any, value: Any, tolerance: float = 0.0) -> bool:
    """Deep equality of JSON values: numbers within tolerance, text up to case and spaces.

    A boolean is never a number, and a number never text.
    """
    if isinstance(expected, bool) or isinstance(value, bool):
        return isinstance(expected, bool) and isinstance(value, bool) and expected == value
    if isinstance(expected, int | float):
        return isinstance(value, int | float) and _close(expected, value, tolerance)
    if isinstance(expected, str):
        return isinstance(value, str) and normalise(expected) == normalise(value)
    if isinstance(expected, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(cast("list[Any]", expected)) == len(cast("list[Any]", value))
            and all(
                same_value(one, other, tolerance)
                for one, other in zip(
                    cast("list[Any]", expected), cast("list[Any]", value), strict=True
                )
            )
        )
    if isinstance(expected, dict):
        return _same_mapping(cast("dict[str, Any]", expected), value, tolerance)
    return expected is None and value is None


def is_small_domain(answer: Answer) -> bool:
    """Whether an equal answer may be chance: fewer than ``SMALL_DOMAIN`` values were possible.

    Booleans always are, and an enumeration is unless its size is stated to be larger.
    """
    if answer.type == AnswerType.BOOLEAN:
        return True
    if answer.domain_size is None:
        return answer.type == AnswerType.ENUM
    return answer.domain_size < SMALL_DOMAIN


def normalise(text: str) -> str:
    """Unicode NFKC, one space between words, case folded."""
    return " ".join(unicodedata.normalize("NFKC", text).split()).casefold()


def _same_mapping(expected: Mapping[str, Any], value: Any, tolerance: float) -> bool:
    if not isinstance(value, dict):
        return False
    other = cast("dict[str, Any]", value)
    return set(expected) == set(other) and all(
        same_value(item, other[key], tolerance) for key, item in expected.items()
    )


def _list_matches(answer: Answer, value: list[Any]) -> bool:
    expected: list[Any] = list(answer.value)
    if answer.ordered or len(expected) != len(value):
        return same_value(expected, value, answer.tolerance)
    left = list(value)
    for item in expected:
        at = next((i for i, one in enumerate(left) if same_value(item, one, answer.tolerance)), -1)
        if at < 0:
            return False
        left.pop(at)
    return True


def _number_matches(answer: Answer, value: Any) -> bool:
    if isinstance(value, dict):  # {"value": 3, "unit": "km"}
        quantity = cast("dict[str, Any]", value)
        unit = quantity.get("unit")
        if set(quantity) != {"value", "unit"} or not isinstance(unit, str):
            return False
        if not same_unit(answer.unit, unit):
            return False
        value = quantity["value"]
    return same_value(answer.value, value, answer.tolerance)


def _close(expected: float, value: float, tolerance: float) -> bool:
    if isinstance(expected, int) and isinstance(value, int) and not tolerance:
        return expected == value
    try:
        one, other = float(expected), float(value)
    except OverflowError:
        return False
    if not (math.isfinite(one) and math.isfinite(other)):
        return False
    # The slack lets a stated tolerance of 0.01 accept 1.01 for 1.0 despite binary fractions.
    return abs(one - other) <= tolerance + _RELATIVE * max(1.0, abs(one))


def _as_date(value: Any) -> date | None:
    if not isinstance(value, str):
        return None
    text = value.strip()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    # A time of day matters where one is stated: only midnight is the bare date.
    return moment if moment.time() != datetime.min.time() else moment.date()


# Reading text ------------------------------------------------------------------------------

_UNREADABLE = object()


def _trim(text: str) -> str:
    """The text without surrounding spaces, quotes and a full stop that ends a sentence."""
    text = text.strip().removesuffix("。").rstrip()
    if text.endswith(".") and not text.endswith(".."):
        text = text[:-1].rstrip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'`":
        text = text[1:-1].strip()
    return text


def _read(answer: Answer, text: str) -> Any:
    readers: dict[AnswerType, Callable[[Answer, str], Any]] = {
        AnswerType.NUMBER: lambda gold, written: _read_number(written, gold.unit),
        AnswerType.BOOLEAN: lambda _, written: _read_boolean(written),
        AnswerType.DATE: lambda _, written: _read_date(written),
        AnswerType.STRING: _read_text,
        AnswerType.ENUM: _read_text,
        AnswerType.LIST: _read_list,
        AnswerType.RECORD: _read_record,
    }
    return readers[answer.type](answer, text)


def _read_text(answer: Answer, text: str) -> Any:
    """Text as it stands; a time of day as the answer writes it, if it is the same."""
    at = clock(answer.value) if isinstance(answer.value, str) else None
    if at is not None and clock(text) == at:
        return answer.value
    return text or _UNREADABLE


def _read_number(text: str, unit: str) -> Any:
    """A number, alone or with the answer's unit, usually spelt, before or after it: -$5, 5 USD."""
    text = text.translate(_MINUS)
    found = _GROUPED.search(text) or _NUMBER.search(text)
    if found is None or len(text) > 64:
        return _UNREADABLE
    before, number, after = text[: found.start()].strip(), found[0], text[found.end() :].strip()
    if before[:1] in ("-", "+") and number[0].isdigit():
        before, number = before[1:].lstrip(), before[0] + number
    around = f"{before} {after}".strip()  # $5 per night
    if around and not (unit and says_unit(unit, around)):
        return _UNREADABLE
    number = number.replace(",", "")
    try:
        return int(number)
    except ValueError:
        return float(number)


def _read_boolean(text: str) -> Any:
    word = normalise(text)
    if word in _TRUE:
        return True
    return False if word in _FALSE else _UNREADABLE


def _read_date(text: str) -> Any:
    if _as_date(text) is not None:
        return text
    if match := _CHINESE_DATE.fullmatch(text):
        text = "/".join(match.groups())
    for form in _DATE_FORMATS:
        try:
            return datetime.strptime(text, form).date().isoformat()
        except ValueError:
            continue
    return _UNREADABLE


def _read_list(answer: Answer, text: str) -> Any:
    parsed = _read_json(text) if text.startswith("[") else None
    if isinstance(parsed, list):
        return parsed
    expected: list[Any] = list(answer.value)
    if _is_nested(answer):
        return _read_nested(expected, text, answer.unit)
    return _UNREADABLE


def _read_nested(expected: list[Any], text: str, unit: str) -> Any:
    """A list of lists whose parts are separated by ``;``: each inner list is JSON, or its items
    stand one after the other like all others.
    """
    written = [_trim(part) for part in text.split(";")]
    items: list[Any] = []
    for one in expected:
        inner = cast("list[Any]", one) if isinstance(one, list) else [one]
        if isinstance(one, list) and written and written[0].startswith("["):
            items.append(_read_json(written.pop(0)))
            continue
        parts, written = written[: len(inner)], written[len(inner) :]
        if len(parts) < len(inner) or any(isinstance(item, list | dict) for item in inner):
            return _UNREADABLE
        read = [_read_like(gold, part, unit) for gold, part in zip(inner, parts, strict=True)]
        items.append(read if isinstance(one, list) else read[0])
    return _UNREADABLE if written else items


def _read_record(_: Answer, text: str) -> Any:
    parsed = _read_json(text) if text.startswith("{") else None
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else _UNREADABLE


def _fields(names: list[str], text: str) -> dict[str, str]:
    """The text of each field of a record that is no JSON; empty where it has none, or one twice."""
    keys = {normalise(name): name for name in names}
    parts = [part.partition(":") for part in text.split(";")]
    named = [keys.get(normalise(name)) if colon else None for name, colon, _ in parts]
    written = [value for _, _, value in parts]
    if not any(named) and len(parts) == len(names):
        named, written = list(names), text.split(";")
    fields = {
        key: _trim(value) for key, value in zip(named, written, strict=True) if key is not None
    }
    return fields if len(fields) == len(parts) else {}


def _read_like(expected: Any, text: str, unit: str) -> Any:
    """Text read as the type of ``expected``; text itself where that fails (it will not match)."""
    value: Any = text
    if isinstance(expected, bool):
        value = _read_boolean(text)
    elif isinstance(expected, int | float):
        value = _read_number(text, unit)
    elif isinstance(expected, str) and _as_date(expected) is not None:
        value = _read_date(text)
    return text if value is _UNREADABLE else value


def _read_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=no_constant)
    except (ValueError, RecursionError):
        return _UNREADABLE
