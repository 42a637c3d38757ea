"""Units in their usual spellings: symbols, codes, names, and the Chinese words.

A table of our own, since the code of arenas is carried into other frameworks: libraries of units
know no Chinese and those of currencies no lengths, and each is larger than all that it would serve.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from astra.text.words import plain

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


def same_unit(expected: str, written: str) -> bool:
    """Whether ``written`` names the unit ``expected``, each in any usual spelling.

    Compound units are compared part by part ("USD per night", "dollars/night"); words outside
    the table up to case, width, spaces and a plural's s. Nothing is converted: km is not m.
    """
    if plain(expected) == plain(written):
        return True
    if _named(expected, _NAMES) & _named(written, _READINGS):
        return True
    one, other = _PER.split(expected.strip()), _PER.split(written.strip())
    return len(one) == len(other) > 1 and all(map(same_unit, one, other))


def _named(text: str, meanings: Mapping[str, set[str]]) -> set[str]:
    """The units that a text can mean; a word outside the table is a unit of its own."""
    word = plain(text)
    singular = word.removesuffix("s")
    return meanings.get(word) or meanings.get(singular) or {singular}


_NAMES: defaultdict[str, set[str]] = defaultdict(set)
_READINGS: defaultdict[str, set[str]] = defaultdict(set)
for _unit, _others in _SPELLINGS.items():
    for _spelling in (_unit, *_others.split(", ")):
        _word = plain(_spelling.removeprefix("~"))
        _READINGS[_word].add(_unit)
        if not _spelling.startswith("~"):
            _NAMES[_word].add(_unit)
