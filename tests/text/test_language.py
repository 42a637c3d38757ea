"""Languages of short texts, against a stated set of cases."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml

from astra.text.language import MAX_CHARS, UNKNOWN, detect_language, same_script

CASES: list[tuple[str, str]] = [
    (language, text)
    for language, texts in yaml.safe_load(
        Path(__file__).with_name("language_cases.yaml").read_text()
    ).items()
    for text in texts
]


def test_no_text_is_taken_for_another_language() -> None:
    wrong = [
        (language, detect_language(text), text)
        for language, text in CASES
        if language != UNKNOWN and detect_language(text) not in (language, UNKNOWN)
    ]
    assert not wrong


def test_languages_are_found() -> None:
    missed = Counter(code for code, text in CASES if detect_language(text) != code)
    assert missed.pop("en") <= 7  # short requests full of names are left open
    assert missed.pop(UNKNOWN) <= 2  # code of English words
    assert sum(missed.values()) <= 1, missed


@pytest.mark.parametrize(
    ("text", "never"),
    [
        ("Convert Los Angeles hotel prices", "es"),
        ("Berapa harga kamar hotel di dekat bandara?", "it"),
        ("Wat is het weer morgen in Utrecht?", "en"),
        ('Say "buona sera" to Anna in a chat message', "it"),
        ("Stock ticker symbol (e.g., AAPL)", "pt"),
        ("Send 20 euros to Jean de la Fontaine", "fr"),
    ],
)
def test_names_quotes_and_signs_are_no_evidence(text: str, never: str) -> None:
    assert detect_language(text) != never


@pytest.mark.parametrize(
    "text",
    ["", " ", "\ud800", "\0", "��", "!?", "x" * 100_000, "“" * 100_000, "ﬀ ǅ", "É́", "a b c d"],
)
def test_odd_texts_give_no_evidence(text: str) -> None:
    assert detect_language(text) == UNKNOWN


def test_long_texts_are_cut() -> None:
    english = "the price of a room in this town and the way to it "
    assert detect_language(english * (MAX_CHARS // len(english) + 1) + "中" * MAX_CHARS) == "en"


def test_scripts_tell_languages_apart_at_once() -> None:
    assert same_script("en", "id")
    assert same_script("ru", "uk")
    assert not same_script("en", "zh")
    assert not same_script("zh", "ja")
