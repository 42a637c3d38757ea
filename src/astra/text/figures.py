"""Numbers, dates and addresses of a text in a form in which equal ones compare equal."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
SIZES = {
    "hundred": 10**2, "dozen": 12, "thousand": 10**3, "k": 10**3, "million": 10**6,
    "billion": 10**9,
}  # fmt: skip
"""Words, and a letter, that a number is multiplied by."""
_FIGURE = re.compile(rf"({NUMBER})(?:\s?({'|'.join(SIZES)})(?![a-z]))?(?![a-z])", re.IGNORECASE)
_SIZE = rf"(?:{'|'.join(SIZES)})(?![a-z])"
_COUNT = rf"(?:{'|'.join(_TENS | _SMALL)})(?![a-z])"
_COMMA = rf"(?:(?<=thousand)|(?<=million)|(?<=billion)), (?={_COUNT}[ -]hundred)"
_WORDED = re.compile(
    rf"(?P<between>\bbetween )?(?P<run>\b(?:{_COUNT}|an?(?=[ -]{_SIZE}))"
    rf"(?:(?:,? and |-and-|[ -]|{_COMMA})(?:{_COUNT}|{_SIZE}))*)(?P<goes_on> and\b)?",
    re.IGNORECASE,
)
"""A run of words for numbers, which may say several: "one two", "one hundred and two hundred"."""
_TWO = rf"(?:(?:{'|'.join(_TENS)})(?: (?:{'|'.join(_ONES.split()[1:10])}))?|{'|'.join(_SMALL)})\b"
_GROUP = re.compile(
    rf"\b((?:{_TWO}|an?) hundred\b(?: (?:and )?{_TWO}(?! hundred))?|{_TWO}|an?\b)"
    r"(?: (dozen|thousand|k|million|billion)\b)?"
)
MEASURES = "个间张次位份天晚本台辆件名人层周年月小杯瓶套只条"
"""Signs before which a Chinese numeral counts things."""
HAN_DIGITS = {sign: n for n, sign in enumerate("〇一二三四五六七八九")} | {"两": 2, "零": 0}
_HAN_PLACES = {"十": 10, "百": 10**2, "千": 10**3}
_HAN_SIZES = {"万": 10**4, "亿": 10**8}
_ABOUT = "一[二两]|[二两]三|三[四五]|四五|五六|六七|七八|八九"
"""Two digits that stand for either: 三四天, 十七八个, 一两百."""
_HAN_COUNT = f"[〇零]?(?:{_ABOUT}|[一二两三四五六七八九])"
_HAN_LAST = (
    f"(?:(?<![百千万亿]){_HAN_COUNT}|(?<=[百千万亿])"
    f"(?:[〇零][一二三四五六七八九]|[二三四五六七八九](?![{MEASURES}十百千])))"
)
"""A last digit; right after hundreds it means tens (三百五), but not where it counts things."""
_HAN_TENS = f"(?:(?:{_HAN_COUNT})?十{_HAN_LAST}?|{_HAN_LAST})"
_HAN_HUNDREDS = rf"(?:(?:{NUMBER}\s?|{_HAN_COUNT})百{_HAN_TENS}?|{_HAN_TENS})"
_HAN_THOUSAND = rf"(?:{NUMBER}\s?千(?!米)|{_HAN_COUNT}千)(?![克瓦卡])"  # 5千克 are five of a unit
_HAN_THOUSANDS = f"(?:{_HAN_THOUSAND}{_HAN_HUNDREDS}?|{_HAN_HUNDREDS})"
_HAN_MYRIADS = rf"(?:(?:{NUMBER}\s?|{_HAN_THOUSANDS})万{_HAN_THOUSANDS}?|{_HAN_THOUSANDS})"
_HAN_WHOLE = rf"(?:(?:{NUMBER}\s?万?|{_HAN_MYRIADS})亿{_HAN_MYRIADS}?|{_HAN_MYRIADS})"
_HAN_ROW = (
    "[〇零一二三四五六七八九]{4,}(?![十百千万亿])|[一二三四五六七八九][〇零][一二三四五六七八九]"
)
"""Digits in a row, as of a year."""
_HAN_NUMBER = re.compile(
    rf"(?=[{''.join(HAN_DIGITS)}十]|{_SIGN}(?<!\d)\d[\d,.]{{0,24}}\s?[百千万亿])"
    rf"(?:(?P<row>{_HAN_ROW})|{_HAN_WHOLE}|[{''.join(HAN_DIGITS)}])"
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
    """The numbers that words say, each as a whole: ``twenty-five``, ``a hundred and five``,
    ``2.5 million``, ``250k``, ``三``, ``一百二十``, ``3万5千``.
    """
    numbers = {one for match in _HAN_NUMBER.finditer(text) for one in _han_numbers(match)}
    text = _HAN_NUMBER.sub(" ", text)
    for digits, size in _FIGURE.findall(text):
        amount = Decimal(canonical(digits))  # a product is rounded: none of a long code
        numbers.add(amount * SIZES[size.lower()] if size else amount)
    numbers.update(one for match in _WORDED.finditer(text) for one in _worded_numbers(match))
    return {canonical(format(number, "f")) for number in numbers}


def _worded_numbers(match: re.Match[str]) -> Iterator[Decimal]:
    """The numbers of a run of words."""
    run = " ".join(re.findall("[a-z]+", match["run"].lower()))
    found = [*_worded(run)]
    if match["between"] and not match["goes_on"] and len(found) == 1:
        # "between five hundred and two thousand" says two
        found = [number for part in run.split(" and ") for number in _worded(part)]
    yield from map(Decimal, found)


def _worded(run: str) -> Iterator[int]:
    """The numbers of a run: what is no smaller than what comes before it begins another."""
    total, least = 0, 0
    for group, size in _GROUP.findall(run):
        factor = SIZES.get(size, 1)
        if least and factor >= least:
            yield total
            total = 0
        total, least = total + _under_thousand(group) * factor, factor
    yield total


def _under_thousand(group: str) -> int:
    """The number that words from one to the hundreds say."""
    number = 0
    for word in group.split():
        if word == "hundred":
            number *= 100
        elif word != "and":
            number += (_SMALL | _TENS).get(word, 1)  # a hundred
    return number


def _han_numbers(match: re.Match[str]) -> Iterator[Decimal]:
    """The number of a run of Chinese numerals; both where two digits stand for either."""
    run = match.group()
    if match["row"]:
        yield Decimal("".join(str(HAN_DIGITS[sign]) for sign in run))
        return
    yield _han(re.sub(_ABOUT, lambda pair: pair[0][0], run))
    yield _han(re.sub(_ABOUT, lambda pair: pair[0][1], run))


def _han(run: str) -> Decimal:
    """The number of a run of signs for digits, places (十百千) and sizes (万亿)."""
    total = part = digit = Decimal(0)
    place = 10  # a last digit counts tenths of the place before it: 三百五, but 三百零五
    for sign in re.findall(rf"{NUMBER}|\S", run):
        if sign in _HAN_SIZES:
            part, size = part + digit, _HAN_SIZES[sign]
            total = (total + part) * size if total < size else total + part * size
            part, digit, place = Decimal(0), Decimal(0), size
        elif sign in _HAN_PLACES:
            place = _HAN_PLACES[sign]
            part, digit = part + (digit or 1) * place, Decimal(0)
        elif sign in "〇零":
            place = 10
        else:
            digit = Decimal(HAN_DIGITS[sign] if sign in HAN_DIGITS else canonical(sign))
    return total + part + digit * place / 10


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
