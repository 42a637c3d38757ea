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
        ({"type": "quaternion"}, {}),
        ({"type": "timestamp"}, {}),
        ({"type": "x" * 5000}, {}),
        ({"type": "TIME (24-hour HH:MM)"}, {"type": "string"}),
        *[({"type": name}, {"type": "integer"}) for name in ("int32", "int64", "uint", "UInt8")],
        *[({"type": name}, {"type": "number"}) for name in ("float64", "numeric", "decimal")],
        ({"type": "integer[]"}, {"type": "array", "items": {"type": "integer"}}),
        ({"type": "string[]"}, {"type": "array", "items": {"type": "string"}}),
        ({"type": "object[]"}, {"type": "array", "items": {"type": "object"}}),
        ({"type": "List[Optional[str]]"},
         {"type": "array", "items": {"type": ["string", "null"]}}),
        ({"type": "string[]", "items": {"enum": ["a"]}},
         {"type": "array", "items": {"enum": ["a"]}}),
        ({"type": "number | null"}, {"type": ["number", "null"]}),
        ({"type": "int | None", "default": "3"}, {"type": ["integer", "null"], "default": 3}),
        ({"type": "Optional[int]"}, {"type": ["integer", "null"]}),
        ({"type": "Union[int, List[str]]"},
         {"type": ["integer", "array"], "items": {"type": "string"}}),
        ({"type": "string|number"}, {"type": ["string", "number"]}),
        ({"type": "string | quaternion"}, {}),
        ({"type": "boolean?"}, {"type": ["boolean", "null"]}),
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


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
DAYS = {"properties": {"days": {"type": "integer"}}, "required": ["days"]}
BOTH = {"city": {"type": "string"}, "days": {"type": "integer"}}


def test_parameters_without_properties_around_them_are_hoisted() -> None:
    flat = {"city": {"type": "string", "required": True}, "type": {"enum": ["a", "b"]}}
    document, repairs = normalise_parameters(flat)
    assert document == {
        "type": "object",
        "properties": {"city": {"type": "string"}, "type": {"enum": ["a", "b"]}},
        "required": ["city"],
    }
    assert repairs[0] == "parameters without properties around them hoisted"


@pytest.mark.parametrize(
    "schema", [{}, {"description": "d"}, {"not": {"type": "null"}}, {"x-own": {"a": 1}}]
)
def test_what_names_no_parameter_is_not_hoisted(schema: dict[str, Any]) -> None:
    assert normalise_parameters(schema)[0]["properties"] == {}


def test_parameters_that_all_of_names_become_the_roots_own() -> None:
    parts = [{"$ref": "#/$defs/City"}, DAYS]
    document, repairs = normalise_parameters({"allOf": parts, "$defs": {"City": CITY}})
    assert document["properties"] == BOTH
    assert document["required"] == ["city", "days"]
    assert "allOf" not in document
    assert repairs == ["parameters named in branches of the root merged"]


def test_a_branch_that_says_more_stays_beside_what_is_taken_from_it() -> None:
    strict = {**CITY, "minProperties": 1}
    narrow = {"properties": {"city": {"minLength": 2}}}
    document, _ = normalise_parameters({"type": "object", "allOf": [strict, DAYS, narrow]})
    assert document["allOf"] == [strict]
    assert document["properties"]["city"] == {"allOf": [{"type": "string"}, {"minLength": 2}]}


@pytest.mark.parametrize("key", ["anyOf", "oneOf"])
def test_of_a_choice_only_what_every_branch_requires_is_required(key: str) -> None:
    schema = {"$defs": {"City": CITY}, key: [{"$ref": "#/$defs/City"}, {"allOf": [CITY, DAYS]}]}
    document, repairs = normalise_parameters(schema)
    assert (document["properties"], document["required"]) == (BOTH, ["city"])
    assert len(repairs) == 1
    either, _ = normalise_parameters({"type": "object", key: [CITY, DAYS]})
    assert (either["properties"], "required" in either) == (BOTH, False)
    assert not Draft202012Validator(either).is_valid({})
    kinds = [{"properties": {"kind": {"const": kind}}} for kind in ("a", "b")]
    assert normalise_parameters({key: kinds})[0]["properties"] == {
        "kind": {"anyOf": [{"const": "a"}, {"const": "b"}]}
    }


def test_branches_that_name_no_further_parameter_stay_as_they_are() -> None:
    schema = {"type": "object", "properties": BOTH, "anyOf": [{"required": ["city"]}, DAYS]}
    assert normalise_parameters(schema) == (schema, [])


def test_endless_and_countless_branches_end() -> None:
    loop = {
        "allOf": [{"$ref": "#/$defs/A"}],
        "$defs": {"A": {"allOf": [{"$ref": "#/$defs/A"}, CITY]}},
    }
    assert normalise_parameters(loop)[0]["properties"] == CITY["properties"]
    row: dict[str, Any] = {f"D{n}": {"allOf": [{"$ref": f"#/$defs/D{n + 1}"}]} for n in range(3000)}
    started = normalise_parameters({"allOf": [{"$ref": "#/$defs/D0"}], "$defs": row})[0]
    assert started["properties"] == {}
    many = {"properties": {f"p{n}": {} for n in range(300)}}
    with pytest.raises(Unmappable, match="schema_too_large"):
        normalise_parameters({"allOf": [many] * 20})
