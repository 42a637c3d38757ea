"""Languages, near-duplicates and drawn values."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from astra.text.language import detect_language
from astra.text.names import Pool, pool_of
from astra.text.similarity import NearDuplicates, jaccard, shingles
from astra.text.values import NoValue, draw_value


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("What is the soil type of Amber Cove?", "en"),
        ("使用必应搜索指定的关键词", "zh"),
        ("指定された都市の天気を取得します", "ja"),
        ("L'état courant du colis dans le dépôt et la ville", "fr"),
        ("Die Liste der Züge ist nicht leer", "de"),
        ("Получить погоду", "ru"),
        ("查询 the API 的天气信息和温度", "zh"),
        ("12 + 4", "und"),
        ("", "und"),
    ],
)
def test_language(text: str, language: str) -> None:
    assert detect_language(text) == language


def test_near_duplicates_ignore_case_but_not_entities() -> None:
    index = NearDuplicates(0.9)
    assert index.add("What is the soil type of Amber Cove?")
    assert not index.add("what is the soil type of amber cove")
    assert index.add("What is the soil type of Amber Dale?")
    assert index.add("???")
    assert not index.add("???")


def test_bands_find_pairs_at_the_threshold() -> None:
    rng = random.Random(1)
    words = [f"w{n}" for n in range(40)]
    missed = pairs = 0
    for _ in range(300):
        text = rng.sample(words, 20)
        other = [*text[:-1], "changed"]
        same = jaccard(shingles(" ".join(text)), shingles(" ".join(other)))
        index = NearDuplicates(0.8)
        index.add(" ".join(text))
        if same >= 0.8:
            pairs += 1
            missed += index.add(" ".join(other))
    assert pairs == 300
    assert missed <= 3


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "enum": ["a", "b"]},
        {"type": "integer", "minimum": 5, "maximum": 7},
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "integer", "minimum": 500, "multipleOf": 100},
        {"type": "string", "format": "date"},
        {"type": "string", "minLength": 12, "maxLength": 13},
        {"type": ["null", "integer"]},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"const": 4},
        {"type": "array", "items": {"type": "integer"}, "minItems": 2},
        {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
        {"$ref": "#/$defs/N", "$defs": {"N": {"type": "integer"}}},
        {"allOf": [{"type": "string"}, {"maxLength": 3}]},
    ],
)
def test_values_conform(schema: dict[str, Any]) -> None:
    for seed in range(20):
        value = draw_value(schema, random.Random(seed), "x")
        assert Draft202012Validator(schema).is_valid(value)


def test_entities_come_from_the_servers_pool_and_are_capped() -> None:
    rng = random.Random(0)
    schema = {"type": "string", "x-entity": "person"}
    drawn = {draw_value(schema, rng, "courier") for _ in range(2000)}
    assert 100 < len(drawn) <= 150
    assert {pool_of(name) for name in drawn} == {Pool.SERVERS}


@pytest.mark.parametrize(
    "schema",
    [
        False,
        7,
        {"type": "integer", "minimum": 5, "maximum": 4},
        {"type": "array", "items": {"type": "integer"}, "minItems": 10**9},
        {"type": "string", "minLength": 10**9},
        {"$ref": "https://example.com/x"},
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {"type": "string", "pattern": "^(?=b)a$"},
    ],
)
def test_impossible_schemas_are_refused(schema: Any) -> None:
    with pytest.raises(NoValue):
        draw_value(schema, random.Random(0), "x")


schemas = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "number", "array", "object", "null", 3]),
            "minimum": st.integers() | st.floats(allow_nan=False) | st.text(max_size=2),
            "maximum": st.integers(),
            "enum": st.lists(st.integers() | st.none(), max_size=2),
            "minItems": st.integers(max_value=10**12),
            "pattern": st.text(max_size=4),
            "$ref": st.sampled_from(["#", "#/properties/a", "x"]),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
            "items": inner | st.booleans(),
            "anyOf": st.lists(inner, max_size=2),
            "allOf": st.lists(inner, max_size=2),
            "required": st.lists(st.sampled_from(["a", "b"]), max_size=2),
        },
    ),
    max_leaves=6,
)


@settings(max_examples=300)
@given(schemas)
def test_hostile_schemas_give_a_value_or_a_reason(schema: dict[str, Any]) -> None:
    try:
        value = draw_value(schema, random.Random(0), "x")
    except NoValue:
        return
    assert Draft202012Validator(schema).is_valid(value)


def test_a_value_is_drawn_whose_schema_points_to_another_parameter() -> None:
    point = {"type": "object", "properties": {"lat": {"type": "integer"}}, "required": ["lat"]}
    goal = {"$ref": "#/properties/origin"}
    root = {"type": "object", "properties": {"origin": point, "goal": goal}}
    value = draw_value(goal, random.Random(0), "goal", root)
    assert Draft202012Validator(point).is_valid(value)


POOL = "amber cove ruby mill find the price of a house and its age in days please".split()
similar_texts = st.lists(
    st.lists(st.sampled_from(POOL), max_size=9).map(" ".join)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    max_size=14,
)


def plainly(texts: list[str], threshold: float) -> list[bool]:
    """Every text compared with every one kept before it; no bands."""
    kept: list[frozenset[str]] = []
    new: list[bool] = []
    for text in texts:
        found = shingles(text)
        new.append(all(jaccard(found, other) < threshold for other in kept))
        if new[-1]:
            kept.append(found)
    return new


@settings(max_examples=150)
@given(similar_texts, st.sampled_from([0.8, 0.9, 1.0]))
def test_what_is_called_a_repeat_is_one_and_equal_texts_always_are(
    texts: list[str], threshold: float
) -> None:
    """Bands may miss a pair, so each answer is judged by the texts that were kept before it."""
    kept: list[frozenset[str]] = []
    with NearDuplicates(threshold) as index:
        for text in texts:
            found = shingles(text)
            nearest = max((jaccard(found, other) for other in kept), default=0.0)
            if index.add(text):
                assert nearest < 1.0
                kept.append(found)
            else:
                assert nearest >= threshold


def test_decisions_are_those_of_comparing_with_every_text() -> None:
    """However long the texts are: sizes and bands leave out only what would not decide."""
    rng = random.Random(7)
    texts = [" ".join(rng.choices(POOL, k=rng.randint(3, 14))) for _ in range(400)]
    texts += [f"{text} {rng.choice(POOL)}" for text in texts[:200]]
    for threshold in (0.8, 0.9, 0.95):
        with NearDuplicates(threshold) as index:
            decisions = [index.add(text) for text in texts]
        plain = plainly(texts, threshold)
        # A pair at the threshold shares a band with a probability of 0.998.
        assert sum(one != other for one, other in zip(decisions, plain, strict=True)) <= 2
        assert 0 < sum(decisions) < len(texts)
