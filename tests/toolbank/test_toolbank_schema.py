"""The quirks that parameter schemas have in the wild."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from astra.toolbank.schema import Unmappable, normalise_output, normalise_parameters


def prop(schema: Any) -> Any:
    document, _ = normalise_parameters({"type": "object", "properties": {"x": schema}})
    return document["properties"]["x"]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({"type": "float"}, {"type": "number"}),
        ({"type": "String"}, {"type": "string"}),
        ({"type": "HashMap"}, {"type": "object"}),
        ({"type": "long"}, {"type": "integer"}),
        ({"type": "tuple"}, {"type": "array", "items": {}}),
        ({"type": "any"}, {}),
        ({"type": ""}, {}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"type": "DATE (YYYY-MM-DD)"}, {"type": "string", "format": "date"}),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "NUMBER", "default": "4"}, {"type": "number", "default": 4}),
        ({"type": "integer", "default": "many"}, {"type": "integer"}),
        ({"type": "integer", "enum": ["1", "x", 2]}, {"type": "integer", "enum": [1, 2]}),
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": True},
         {"type": "integer", "exclusiveMinimum": 0}),
        ({"type": "string", "pattern": "(["}, {"type": "string"}),
        ({"$ref": "#/components/Missing"}, {}),
        ({"anyOf": [[{"type": "string"}], 3]}, {"anyOf": [{"type": "string"}]}),
        ({"type": "array", "items": [{"type": "integer"}]},
         {"type": "array", "prefixItems": [{"type": "integer"}]}),
        ({"type": "string", "title": "X", "optional": True}, {"type": "string"}),
        ("string", {"type": "string"}),
    ],
)  # fmt: skip
def test_quirk_is_repaired(found: Any, wanted: Any) -> None:
    assert prop(found) == wanted


def test_whole_schema_nested_in_properties_is_hoisted() -> None:
    inner = {"type": "object", "properties": {"gem": {"type": "string"}}, "required": ["gem"]}
    document, repairs = normalise_parameters({"type": "object", "properties": inner})
    assert document == inner
    assert repairs


def test_required_follows_properties_and_draft_3_flags() -> None:
    document, _ = normalise_parameters(
        {"properties": {"a": {"type": "string", "required": True}, "b": {}}, "required": ["b", "z"]}
    )
    assert document["required"] == ["b", "a"]
    assert "required" not in document["properties"]["a"]


def test_self_reference_is_cut_and_recursive_tree_is_kept() -> None:
    loop = {"$defs": {"A": {"$ref": "#/$defs/A"}}, "properties": {"x": {"$ref": "#/$defs/A"}}}
    document, _ = normalise_parameters(loop)
    assert Draft202012Validator(document).is_valid({"x": 1})
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}}
    tree, _ = normalise_parameters({"$defs": {"N": node}, "properties": {"x": node}})
    assert not Draft202012Validator(tree).is_valid({"x": {"next": {"next": 3}}})


@pytest.mark.parametrize(
    "found", [7, "text", {"type": "array"}, {"type": ["array", "null"]}, [{"no": "name"}]]
)
def test_unmappable_parameters_are_refused(found: Any) -> None:
    with pytest.raises(Unmappable):
        normalise_parameters(found)


def test_endless_nesting_is_refused_not_crashed() -> None:
    deep: dict[str, Any] = {}
    node = deep
    for _ in range(5000):
        node["properties"] = {"x": {}}
        node = node["properties"]["x"]
    with pytest.raises(Unmappable, match="schema_too_large"):
        normalise_parameters(deep)


def test_parameter_list_of_listing_pages() -> None:
    document, _ = normalise_parameters(
        [{"name": "q", "type": "string", "desc": "query"}, {"name": "n", "required": True}]
    )
    assert document["required"] == ["n"]
    assert document["properties"]["q"]["description"] == "query"


def test_unusable_output_schema_is_dropped_with_a_note() -> None:
    assert normalise_output(["string"])[0] is None
    assert normalise_output("oops")[1]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "additionalProperties": True, "title": "fetch_output"},
        {"type": "object", "properties": {}, "description": "The result."},
        {"additionalProperties": {}, "$schema": "http://json-schema.org/draft-07/schema#"},
    ],
)
def test_an_output_schema_that_says_nothing_counts_as_missing(schema: dict[str, Any]) -> None:
    assert normalise_output(schema) == (None, ["output schema dropped (output_says_nothing)"])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "array", "items": {}},
        {"type": "object", "additionalProperties": {"type": "number"}},
        {"type": "object", "additionalProperties": False},
        {"type": "object", "properties": {"result": {}}},
    ],
)
def test_an_output_schema_that_says_anything_is_kept(schema: dict[str, Any]) -> None:
    assert normalise_output(schema)[0] == schema
