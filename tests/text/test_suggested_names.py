"""Names suggested to models: only where one has to be invented, and seldom the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from astra.text.language import detect_language
from astra.text.names import Pool, kinds_of_names, pool_of, suggested_names

TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("name", "schema", "kinds"),
    [
        ("assignee", TEXT, ("person",)),
        ("customerName", TEXT, ("person",)),
        ("X-Author", {"type": ["string", "null"]}, ("person",)),
        ("attendees", {"type": "array", "items": TEXT}, ("person",)),
        ("project_name", TEXT, ("thing",)),
        ("title", TEXT, ("thing",)),
        ("name", {"description": "what to call it"}, ("thing",)),
        ("plot", {"type": "string", "x-entity": "thing"}, ("thing",)),
        ("latitude", {"type": "number"}, ()),
        ("location", TEXT, ()),
        ("city_name", TEXT, ()),
        ("filename", TEXT, ()),
        ("host", TEXT, ()),
        ("owner", {"type": "integer"}, ()),
        ("author", {"type": "string", "format": "uuid"}, ()),
        ("team", {"type": "string", "enum": ["red", "blue"]}, ()),
        ("name", True, ()),
    ],
)
def test_only_free_names_are_wanted(name: str, schema: Any, kinds: tuple[str, ...]) -> None:
    assert kinds_of_names([(name, schema)]) == kinds


def test_people_come_first_whatever_the_order_of_the_parameters() -> None:
    both = [("title", TEXT), ("author", TEXT), ("city", TEXT)]
    assert kinds_of_names(both) == kinds_of_names(both[::-1]) == ("person", "thing")


def test_what_needs_no_name_gets_none() -> None:
    assert suggested_names("server", 0, kinds=()) == ()
    assert len(suggested_names("server", 0, kinds=("person",))) == 3


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_name_and_no_word_stamps_a_set(language: str) -> None:
    asks = 400
    drawn = [suggested_names("server", number, language=language) for number in range(asks)]
    names = Counter(name for one in drawn for name in one)
    assert names.most_common(1)[0][1] <= max(2, 0.03 * asks)
    assert all(pool_of(name) is Pool.SERVERS for name in names)
    if language == "en":
        words = Counter(word for one in drawn for word in {w for n in one for w in n.split()})
        assert words.most_common(1)[0][1] <= 0.05 * asks
    else:
        assert {detect_language(name) for name in names} == {"zh"}
