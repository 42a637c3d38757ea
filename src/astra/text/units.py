"""Units in their usual spellings: symbols, codes, names, and the Chinese words.

A table of our own, since the code of arenas is carried into other frameworks: libraries of units
know no Chinese and those of currencies no lengths, and each is larger than all that it would serve.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

from astra.text.words import has_cjk, plain

_SPELLINGS = {
    "USD": "$, US$, dollar, US dollar, 美元, 美金",
    "EUR": "€, euro, 欧元",
    "GBP": "£, pound, pound sterling, pounds sterling, British pound, 英镑",
    "JPY": "¥, JP¥, yen, Japanese yen, 円, 日元",
    "CNY": "¥, CN¥, RMB, yuan, renminbi, Chinese yuan, 元, 人民币",
    "INR": "₹, Rs, rupee, Indian rupee, 卢比",
    "KRW": "₩, won, Korean won, 韩元",
    "CHF": "Fr, franc, Swiss franc, 瑞士法郎",
    "CAD": "~$, C$, CA$, ~dollar, Canadian dollar, 加元",
    "AUD": "~$, A$, AU$, ~dollar, Australian dollar, 澳元",
    "HKD": "~$, HK$, ~dollar, Hong Kong dollar, 港元, 港币",
    "SGD": "~$, S$, ~dollar, Singapore dollar, 新加坡元",
    "MXN": "~$, MX$, peso, Mexican peso, 比索",
    "ARS": "~$, AR$, ~peso, Argentine peso, 阿根廷比索",
    "BRL": "R$, real, reais, Brazilian real, 雷亚尔",
    "SEK": "kr, krona, kronor, Swedish krona, Swedish kronor",
    "NOK": "kr, krone, kroner, Norwegian krone, Norwegian kroner",
    "DKK": "kr, krone, kroner, Danish krone, Danish kroner",
    "mm": "millimetre, millimeter, 毫米",
    "cm": "centimetre, centimeter, 厘米",
    "m": "metre, meter, 米, 公尺",
    "km": "kilometre, kilometer, 公里, 千米",
    "in": "inch, inches, 英寸",
    "ft": "foot, feet, 英尺",
    "yd": "yard, 码",
    "mi": "mile, 英里",
    "m2": "m^2, sqm, sq m, square metre, square meter, 平方米",
    "km2": "km^2, sq km, square kilometre, square kilometer, 平方公里",
    "ft2": "ft^2, sqft, sq ft, square foot, square feet, 平方英尺",
    "ha": "hectare, 公顷",
    "ml": "millilitre, milliliter, 毫升",
    "l": "litre, liter, 升",
    "m3": "m^3, cubic metre, cubic meter, 立方米",
    "mg": "milligram, 毫克",
    "g": "gram, gramme, 克",
    "kg": "kilo, kilogram, kilogramme, 公斤, 千克",
    "t": "ton, tonne, metric ton, 吨",
    "lb": "pound, 磅",
    "oz": "ounce, 盎司",
    "s": "sec, second, 秒",
    "min": "minute, 分钟, ~分",
    "h": "hr, hour, 小时, 个小时",
    "day": "d, 天, 日",
    "week": "wk, 周, 星期, 个星期",
    "month": "mo, 月, 个月",
    "year": "y, yr, 年",
    "%": "percent, per cent, pct, 百分之",
    "°C": "celsius, degree celsius, degrees celsius, 摄氏度",
    "°F": "fahrenheit, degree fahrenheit, degrees fahrenheit, 华氏度",
    "mi/h": "mph",
    "km/h": "kmh, kph",
}
"""Unit -> how else it is written; ``~`` marks a name that without a country means another unit:
"dollar" is Canadian money only where that is asked for."""
_PER = re.compile(r"\s*/\s*|\s+per\s+|每")
_DIMENSIONS = (
    frozenset(
        {
            "USD", "EUR", "GBP", "JPY", "CNY", "INR", "KRW", "CHF", "CAD", "AUD", "HKD", "SGD",
            "MXN", "ARS", "BRL", "SEK", "NOK", "DKK",
        }
    ),
    frozenset({"mm", "cm", "m", "km", "in", "ft", "yd", "mi"}),
    frozenset({"m2", "km2", "ft2", "ha"}),
    frozenset({"ml", "l", "m3"}),
    frozenset({"mg", "g", "kg", "t", "lb", "oz"}),
    frozenset({"°C", "°F"}),
    frozenset({"mi/h", "km/h"}),
)  # fmt: skip
"""Units of which one can stand for another, converted."""
_TIMES = frozenset({"s", "min", "h", "day", "week", "month", "year"})
_CASED = re.compile(
    "[mM](?:[gmlsWVAJNFT]|Wh|Ah|VA|Hz|Pa|eV|Ω|bar|mol)|"  # milli and mega
    "[MGTPE]i?[bB](?:ps)?|k[bB]ps|"  # bits and bytes; "kb" and "mb" are careless for either
    "mM|nm|Nm|kn|kN|pA|Pa|ps|PS"
)
"""Symbols of which one in another case is another unit, a K written as k and an L as l."""
_NEVER_PLURAL = re.compile(r".|[kmMGμ]?(?:[AWVNJ]|Pa)", re.DOTALL)
"""What takes no plural s: ms and gs are seconds or no unit at all, as are Ws, mAs and mPas."""
_AROUND = ' \t\n"“”„«»「」『』《》'
"""What may stand around a unit."""
_HOMONYMS = frozenset({"in", "real", "won", "yard", "foot"})
"""Units whose singular is a common word of another sense, even where a unit may stand."""
_WORD = r"[^\s\d,.;:()（）/-]+"
_MEASURED = re.compile(
    rf"(?:\b(in)\s+(?:whole |full )?|\bper\s+|[(（]\s*(?!in\b))({_WORD}(?:\s+{_WORD}){{0,2}})",
    re.IGNORECASE,
)
_MEASURED_ZH = re.compile(r"以(\w{1,4}?)为单位|单位[为是：:]\s*(\w{1,4})")
_AMOUNT = re.compile(rf"([^\w\s])\s?\d|\d[ -]?({_WORD}(?:\s+{_WORD})?)")


def same_unit(expected: str, written: str) -> bool:
    """Whether ``written`` names the unit ``expected``, each in any usual spelling.

    Compound units are compared part by part ("USD per night", "dollars/night"); words outside
    the table up to case, width, spaces and a plural's s. Case counts only where two symbols are
    right and differ in nothing else: MW is not mW, KM is km. Nothing is converted: km is not m.
    """
    one, other = _PER.split(expected.strip()), _PER.split(written.strip())
    if len(one) == len(other) > 1:
        return all(map(same_unit, one, other))
    wanted, given = _singular_too(expected), _singular_too(written)
    if plain(expected) == plain(written):
        return not _differ_in_case(wanted[0], given[0])
    if _named(expected, _NAMES) & _named(written, _READINGS):
        return True
    return any(
        plain(unit) == plain(word) and not _differ_in_case(unit, word)
        for unit in wanted
        for word in given
    )


def says_unit(expected: str, written: str) -> bool:
    """Whether a number written with ``written`` says the unit: the whole of it, or of a compound
    one what is counted ("$39" where "USD per night" is asked for).
    """
    counted, *per = _PER.split(expected.strip())
    return same_unit(expected, written) or bool(per and same_unit(counted, written))


def units_of(unit: str) -> set[str]:
    """The units of the table that a stated unit is made of, each in every sense that it has."""
    return {one for part in _PER.split(unit.strip()) for one in _known(part)}


def is_money(unit: str) -> bool:
    """Whether a stated unit counts money: "USD per night" does."""
    return not units_of(unit).isdisjoint(_DIMENSIONS[0])


def is_alike(one: str, other: str) -> bool:
    """Whether two units measure the same: kg and lb do, kg and km do not."""
    return one == other or any({one, other} <= group for group in (*_DIMENSIONS, _TIMES))


def measures_in(text: str) -> Iterator[tuple[str, set[str]]]:
    """The units that a text says it measures in ("in kilograms", "(USD)"), as written, with every
    sense of each. A time counts only in the plural: a tool may find things "in a month".
    """
    for match in _MEASURED.finditer(text):
        for word, meant in _longest(match[2]):
            if not meant & _TIMES or (match[1] and plain(word) not in _NAMES):
                yield word, meant
    for match in _MEASURED_ZH.finditer(text):
        word = match[1] or match[2]
        if meant := _known(word):
            yield word, meant


def amounts_in(text: str) -> set[str]:
    """The units of the amounts that a text states, but for times and words of several senses."""
    found = [
        meant
        for match in _AMOUNT.finditer(text)
        for _, meant in _longest(match[1] or match[2])
        if all(is_alike(one, other) for one in meant for other in meant)
    ]
    return {unit for meant in found for unit in meant} - _TIMES


def mentioned_in(text: str) -> set[str]:
    """The units that any word or symbol of a text may mean."""
    words = re.findall(r"[^\W\d]+|[^\w\s]", text)
    pairs = [f"{one} {other}" for one, other in pairwise(words)]
    chinese = [unit for spelling, units in _READINGS.items() if _is_chinese(spelling, text)
               for unit in units]  # fmt: skip
    return {unit for word in (*words, *pairs) for unit in _known(word)}.union(chinese)


def _is_chinese(spelling: str, text: str) -> bool:
    return has_cjk(spelling) and spelling in text


def _longest(words: str) -> Iterator[tuple[str, set[str]]]:
    """The longest beginning of some words that names a unit, with its senses; none if none does."""
    split = words.split()
    for count in range(len(split), 0, -1):
        word = " ".join(split[:count])
        one_letter = len(word) == 1 and word.isalpha() and not has_cjk(word)
        if not one_letter and plain(word) not in _HOMONYMS and (meant := _known(word)):
            yield word, meant
            return


def _known(word: str) -> set[str]:
    """The units of the table that a word can mean."""
    return _named(word, _READINGS)


def _named(word: str, meanings: Mapping[str, set[str]]) -> set[str]:
    """What a word, or else its singular, means; nothing where it is a symbol outside the table
    but for its case: Mg is not mg."""
    for one in _singular_too(word):
        meant = meanings.get(plain(one), set())
        if found := {unit for unit in meant if not _differ_in_case(one, unit)}:
            return found
    return set()


def _singular_too(word: str) -> tuple[str, ...]:
    """A word as it stands, and without the s of a plural where it may have one."""
    word = unicodedata.normalize("NFKC", word).strip(_AROUND)
    singular = word[:-1] if word[-1:] in ("s", "S") else word
    is_plural = singular != word and singular and not _NEVER_PLURAL.fullmatch(singular)
    return (word, singular) if is_plural else (word,)


def _differ_in_case(one: str, other: str) -> bool:
    """Whether two symbols are different units though equal but for their case."""
    one, other = (text.replace("K", "k").replace("L", "l") for text in (one, other))
    cased = _CASED.fullmatch(one) and _CASED.fullmatch(other)
    return bool(cased) and one != other


_NAMES: defaultdict[str, set[str]] = defaultdict(set)
_READINGS: defaultdict[str, set[str]] = defaultdict(set)
for _unit, _others in _SPELLINGS.items():
    for _spelling in (_unit, *_others.split(", ")):
        _word = plain(_spelling.removeprefix("~"))
        _READINGS[_word].add(_unit)
        if not _spelling.startswith("~"):
            _NAMES[_word].add(_unit)
