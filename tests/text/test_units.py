"""Units in usual spellings: what names the same one, and what does not."""

from __future__ import annotations

import pytest

from astra.text.units import same_unit


@pytest.mark.parametrize(
    ("expected", "written"),
    [
        ("USD", "$"), ("USD", "US dollars"), ("USD", "usd"), ("USD", "Dollar"), ("USD", "美元"),
        ("$", "USD"), ("EUR", "€"), ("euros", "EUR"), ("GBP", "pounds"), ("pounds", "lbs"),
        ("CNY", "元"), ("CNY", "￥"), ("元", "RMB"), ("JPY", "¥"), ("AUD", "$"), ("AUD", "A$"),
        ("km", "kilometres"), ("km", "kilometer"), ("km", "公里"), ("公里", "千米"), ("m", "米"),
        ("m²", "square metres"), ("m²", "平方米"), ("years", "year"), ("years", "yrs"),
        ("specimens", "specimen"), ("inches", "in"), ("feet", "foot"), ("%", "percent"),
        ("%", "％"), ("°C", "℃"), ("km/h", "kilometres per hour"), ("km/h", "kph"),
        ("USD per night", "$/night"), ("元/月", "CNY per month"), ("kg", "公斤"), ("", ""),
        ("km", "KM"), ("KG", "kg"), ("kg", "Kgs"), ("h", "hrs"), ("oz", "ozs"), ("mg", "mgs"),
        ("ms", "ms"), ("ms", "MS"), ("MW", "MW"), ("MW", "mw"), ("MHz", "mhz"), ("kWh", "KWH"),
        ("Mbps", "mbps"), ("Mbps", "MBPS"), ("kbps", "Kbps"), ("GB", "gb"), ("kB", "KB"),
        ("GB", "GBs"), ("ml", "mL"), ("mAh", "MAH"), ("dB", "db"), ("cm", "CM"), ("Pa", "PA"),
        ("USD/MWh", "$ per MWh"), ("mg/l", "mg/L"), ("Specimens", "specimen"), ("t", "T"),
    ],
)  # fmt: skip
def test_the_same_unit(expected: str, written: str) -> None:
    assert same_unit(expected, written)


@pytest.mark.parametrize(
    ("expected", "written"),
    [
        ("USD", "€"), ("USD", "EUR"), ("USD", "A$"), ("$", "AUD"), ("USD", ""), ("", "USD"),
        ("km", "m"), ("km", "miles"), ("m", "min"), ("m", "mm"), ("m²", "m"), ("h", "s"),
        ("USD/night", "USD"), ("USD/night", "EUR/night"), ("USD/night", "USD/week"),
        ("specimens", "rooms"), ("years", "months"), ("kg", "pounds"), ("km/h", "mph"),
        ("°C", "°F"), ("s", ""), ("", "s"), ("元", "美元"), ("米", "公里"), ("/", "//"),
        ("ms", "m"), ("m", "ms"), ("ms", "metres"), ("ms", "s"), ("gs", "g"), ("l", "ls"),
        ("h", "hs"), ("¥", "¥s"), ("W", "Ws"), ("mA", "mAs"), ("mPa", "mPas"),
        ("MW", "mW"), ("mW", "MW"), ("mg", "Mg"), ("milligrams", "Mg"), ("Mg", "mg"),
        ("mm", "Mm"), ("ml", "ML"), ("ML", "毫升"), ("MHz", "mHz"), ("MB", "Mb"), ("Gb", "GBs"),
        ("Mbps", "MBps"), ("kbps", "KBps"), ("Nm", "nm"), ("mM", "mm"), ("MWh", "mWh"),
        ("USD/MWh", "USD/mWh"), ("ＭＷ", "mW"),
    ],
)  # fmt: skip
def test_another_unit(expected: str, written: str) -> None:
    assert not same_unit(expected, written)
