"""Texts drawn from regular expressions, and values of schemas with a ``pattern``."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astra.text.patterns import NoMatch, draw_match
from astra.text.schemas import conforms
from astra.text.values import NoValue, draw_value

# Forms met in public tool documents: postal codes, chain addresses, telephone numbers, colours,
# paths, boundaries, look-ahead, alternatives, back references.
FORMS = (
    "^[A-Z]{3}$", r"^\d{14}$", "^0x[a-fA-F0-9]{40}$", "^0x", r"^\d{1,4}\d{6,15}$",
    r"^([01]\d|2[0-3]):([0-5]\d)$", r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b", "^#[0-9a-f]{6}$",
    "^[^/]+/[^/]+$", r"^(?!-)[a-z0-9-]{1,63}$", "^(asc|desc)$", r"^\S+@\S+\.[a-z]{2,4}$",
    r"^(\w)\w\1$", "^[一-龥]{2,4}$", "^.{5,10}$", r"^[^\s]{2}$",
)  # fmt: skip


@pytest.mark.parametrize("pattern", FORMS)
def test_what_is_drawn_matches_and_is_short(pattern: str) -> None:
    for seed in range(20):
        text = draw_match(pattern, random.Random(seed), 0, 60)
        assert re.search(pattern, text)
        assert text == draw_match(pattern, random.Random(seed), 0, 60)


@pytest.mark.parametrize(
    "pattern",
    [
        "[A", "(?P<a>x)(?P=b)", "a{70000}", "((a{999}){999}){999}", "^(?=b)a$", "a{300}",
        r"(?>x)y", "x++y", r"(a)?(?(1)b|c)",
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_said(pattern: str) -> None:
    with pytest.raises(NoMatch, match=re.escape(pattern[:5])):
        draw_match(pattern, random.Random(1), 0, 200)


def test_length_bounds_hold_with_a_pattern() -> None:
    digits = {"type": "string", "pattern": r"^\d+$", "minLength": 8, "maxLength": 8}
    for seed in range(20):
        assert re.fullmatch(r"\d{8}", draw_value(digits, random.Random(seed), "cep"))
    with pytest.raises(NoValue, match="'cep'"):
        draw_value({**digits, "maxLength": 3}, random.Random(0), "cep")


def test_a_word_or_format_that_fits_its_pattern_is_preferred() -> None:
    word = {"type": "string"}
    for pattern in ("^[a-z]+$", ""):
        drawn = draw_value({**word, "pattern": pattern}, random.Random(3), "x")
        assert drawn == draw_value(word, random.Random(3), "x")
    day = {"type": "string", "format": "date", "pattern": r"^\d{4}-\d{2}-\d{2}$"}
    assert draw_value(day, random.Random(3), "x").startswith("202")


def test_patterns_inside_lists_and_objects_are_drawn() -> None:
    schema = {
        "type": "object",
        "required": ["codes"],
        "properties": {
            "codes": {
                "type": "array", "minItems": 2,
                "items": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
            }
        },
    }  # fmt: skip
    value = draw_value(schema, random.Random(0), "x")
    assert conforms(value, schema)
    assert len(value["codes"]) == 2


def test_what_is_drawn_depends_on_no_hash_seed() -> None:
    code = (
        "import random, json; from astra.text.patterns import draw_match;"
        "print(json.dumps([draw_match(p, random.Random(5), 0, 60) for p in "
        "('^[^a-z0-9A-Z]{20}$', r'^\\\\W{9}$', '^[^/]{9}$')]))"
    )
    drawn = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": "src"},
            capture_output=True, check=True, text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(drawn) == 1
    assert len(json.loads(drawn.pop())) == 3


@settings(max_examples=200)
@given(st.text(alphabet="ab01()[]{}|*+?.^$\\dwsDWSbB,-=!<>:", max_size=12), st.integers(0, 9))
def test_any_pattern_gives_a_match_or_a_reason(pattern: str, low: int) -> None:
    schema: dict[str, Any] = {"type": "string", "pattern": pattern, "minLength": low}
    try:
        value = draw_value(schema, random.Random(0), "x")
    except NoValue:
        return
    assert conforms(value, schema)
