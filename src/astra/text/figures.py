"""Numbers, dates and addresses of a text in a form in which equal ones compare equal."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from urllib.parse import unquote

_SIGN = r"(?:(?<![\w.)\]])[-\u2212])?"
NUMBER = rf"{_SIGN}(?:\d{{1,3}}(?:,\d{{3}})+(?![\d,])|\d+)(?:\.\d+)?"
"""A number as the inside of a pattern: with its sign, with or without thousands separators."""
_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
_TEENS = "fifteen sixteen seventeen eighteen nineteen"
_SMALL = {word: n for n, word in enumerate((_ONES + _TEENS).split())}
_TENS = {
    word: 10 * n
    for n, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)
}
_SIZES = {
    "hundred": 10**2, "dozen": 12, "thousand": 10**3, "k": 10**3, "million": 10**6,
    "billion": 10**9, "万": 10**4, "亿": 10**8,
}  # fmt: skip
_WORDED = rf"({'|'.join(_TENS)})(?:[ -]({'|'.join(_SMALL)}))?|({'|'.join(_SMALL)}|an?)"
_SPELLED = re.compile(
    rf"(?:({NUMBER})|\b(?:{_WORDED}))(?:\s?({'|'.join(_SIZES)})(?![a-z]))?(?![a-z])",
    re.IGNORECASE,
)
_HAN_DIGITS = {sign: n for n, sign in enumerate("〇一二三四五六七八九")} | {"两": 2, "零": 0}
_HAN_NUMBER = re.compile(
    "[〇零一二三四五六七八九两]?十[一二三四五六七八九]?|[〇零一二三四五六七八九两]"
)
_MONTHS = "january february march april may june july august september october november december"
MONTHS = {month: n for n, month in enumerate(_MONTHS.split(), start=1)}
_MONTH = "|".join([*MONTHS, *(month[:3] for month in MONTHS), "sept"])
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_DATES = (
    (re.compile(r"(?<!\d)(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)"), "ymd"),
    (re.compile(r"(\d{4})年(\d{1,2})月(\d{1,2})日"), "ymd"),
    (re.compile(rf"\b({_MONTH})\.? {_DAY},? (\d{{4}})\b", re.IGNORECASE), "mdy"),
    (re.compile(rf"\b{_DAY}\.? (?:of )?({_MONTH})\.?,? (\d{{4}})\b", re.IGNORECASE), "dmy"),
    (re.compile(r"(?<!\d)(\d{1,2})[/.](\d{1,2})[/.](\d{4})(?!\d)"), "mdy"),
    (re.compile(r"(?<!\d)(\d{1,2})[/.](\d{1,2})[/.](\d{4})(?!\d)"), "dmy"),
)
"""Forms of a date, with what each group holds. 3/4/2026 has two readings."""
_URL_CHARS = r"[^\s<>\"')\]\\，。；：！？、）】」》|]"
_URL = re.compile(rf"(?:https?://|www\.){_URL_CHARS}+", re.IGNORECASE)
_HOST = r"(?<![a-z0-9-])[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::\d+)?"
_ADDRESS = re.compile(rf"https?://{_URL_CHARS}+|{_HOST}(?:[/?#]{_URL_CHARS}*)?", re.IGNORECASE)
_ENDS = ".,;:!?*_`"


def canonical(number: str) -> str:
    """``007`` is 7, ``1.50`` is 1.5, ``1,000`` is 1000."""
    number = number.replace(",", "").replace("\u2212", "-")
    sign, digits = ("-", number[1:]) if number.startswith("-") else ("", number)
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    digits = digits.lstrip("0") or "0"
    digits = f"0{digits}" if digits.startswith(".") else digits
    return digits if digits == "0" else sign + digits


def plain(number: float) -> str:
    """A JSON number in canonical form, without an exponent."""
    return canonical(format(Decimal(repr(number)), "f"))


def spelled_numbers(text: str) -> set[str]:
    """The numbers that words say: ``twenty-five``, ``2.5 million``, ``250k``, ``三``, ``十二``."""
    numbers: set[str] = set()
    for match in _SPELLED.finditer(text):
        digits, tens, unit, small, size = match.groups()
        if small and small.lower() in ("a", "an"):
            amount = Decimal(1) if size else None  # "a million"; a bare article is no number
        elif digits:
            amount = Decimal(canonical(digits))
        else:
            amount = Decimal(_word(tens) + _word(unit) + _word(small))
        if amount is not None:
            product = amount * _SIZES[size.lower()] if size else amount
            numbers.add(canonical(format(product, "f")))
    for match in _HAN_NUMBER.finditer(text):
        numbers.add(str(_han(match.group())))
    return numbers


def _word(word: str | None) -> int:
    return (_SMALL | _TENS)[word.lower()] if word else 0


def _han(text: str) -> int:
    if "十" not in text:
        return _HAN_DIGITS[text]
    tens, _, ones = text.partition("十")
    return 10 * (_HAN_DIGITS[tens] if tens else 1) + (_HAN_DIGITS[ones] if ones else 0)


def is_date(text: str) -> bool:
    """Whether a value is a date in ISO form."""
    return _ISO_DATE.fullmatch(text) is not None


def dates(text: str) -> set[date]:
    """The dates that a text gives with day, month and year, in any usual form."""
    found: set[date] = set()
    for pattern, order in _DATES:
        for groups in pattern.findall(text):
            part = dict(zip(order, groups, strict=True))
            month = _month(part["m"])
            try:
                found.add(date(int(part["y"]), month, int(part["d"])))
            except ValueError:
                continue  # a reading that is no date, such as 25/3/2026 with month first
    return found


def _month(text: str) -> int:
    if text.isdigit():
        return int(text)
    return next(n for name, n in MONTHS.items() if name.startswith(text.lower()[:3]))


def urls(text: str) -> list[str]:
    """The URLs in ``text``, without the punctuation that ends a sentence."""
    return [url.rstrip(_ENDS) for url in _URL.findall(text)]


def addresses(text: str) -> set[str]:
    """The addresses in ``text``, also those without a scheme, in the form of ``same_address``."""
    return {same_address(address.rstrip(_ENDS)) for address in _ADDRESS.findall(text)}


def same_address(url: str) -> str:
    """A URL without what makes no difference: scheme, ``www.``, case, escapes, closing slash."""
    bare = re.sub(r"^https?://", "", unquote(url).casefold())
    return bare.removeprefix("www.").rstrip("/")
