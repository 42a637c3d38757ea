"""Values against schemas: what is wrong is told in bounded words, and nothing is fetched."""

from __future__ import annotations

from typing import Any

import pytest

from astra.text.schemas import (
    MAX_TOLD,
    conforms,
    parameter_schema,
    parameter_violation,
    schema_fault,
    violation,
)

CITY = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
    "required": ["name"],
}


def test_a_violation_names_the_place() -> None:
    assert violation({"name": "Bern", "size": 4}, CITY) == ""
    assert (
        violation({"name": "Bern", "size": "big"}, CITY) == "size: 'big' is not of type 'integer'"
    )
    assert violation({}, CITY) == "'name' is a required property"
    assert [conforms(value, CITY) for value in ({"name": "Bern"}, {}, 7, None)] == [
        True, False, False, False
    ]  # fmt: skip


def test_a_problem_is_told_within_bounds() -> None:
    assert len(violation({"name": ["x" * 5000]}, CITY)) == MAX_TOLD
    assert len(schema_fault({"type": "x" * 5000})) == MAX_TOLD


@pytest.mark.parametrize(
    "schema", [True, {}, {"type": ["string", "null"]}, {"$ref": "#/$defs/a", "$defs": {"a": {}}}]
)
def test_what_is_a_schema_has_no_fault(schema: Any) -> None:
    assert schema_fault(schema) == ""
    assert conforms("x", schema)


@pytest.mark.parametrize(
    "schema",
    [7, "string", None, {"type": "text"}, {"required": "name"}, {"pattern": "[a"}, {"enum": 3}],
)
def test_what_is_no_schema_has_a_fault(schema: Any) -> None:
    assert schema_fault(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.com/city.json"},
        {"$ref": "#/$defs/absent"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    ],
)
def test_a_reference_that_does_not_resolve_is_a_violation(
    schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(*args: object, **kwargs: object) -> None:
        raise AssertionError("fetched")

    monkeypatch.setattr("urllib.request.urlopen", fetched)
    assert "cannot be resolved" in violation("x", schema)
    assert not conforms("x", schema)


@pytest.mark.parametrize("key", ["$defs", "definitions"])
def test_a_parameter_brings_the_definitions_that_it_points_to(key: str) -> None:
    city = {"$ref": f"#/{key}/City"}
    parameters = {"properties": {"at": city, "days": {"type": "integer"}}, key: {"City": CITY}}
    at = parameter_schema(parameters, "at")
    assert conforms({"name": "Bern"}, at)
    assert not conforms({"size": 4}, at)
    assert parameter_schema(parameters, "days") == {"type": "integer"}


def test_a_parameter_without_a_schema_takes_anything_and_a_forbidden_one_nothing() -> None:
    parameters = {"properties": {"any": True, "none": False}}
    assert all(conforms(7, parameter_schema(parameters, name)) for name in ("any", "unknown"))
    assert not conforms(7, parameter_schema(parameters, "none"))
    assert parameter_schema({}, "any") == {}


def test_a_parameters_references_point_into_the_whole_schema() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "origin": CITY,
            "goal": {"$ref": "#/properties/origin"},
            "inner": {"$ref": "#"},
            "by": {"$ref": "#/$defs/Way"},
            "none": False,
        },
        "required": ["origin"],
        "$defs": {"Way": {"enum": ["bus", "tram"]}},
    }
    bern = {"name": "Bern"}
    good = {"origin": bern, "goal": bern, "inner": {"origin": bern}, "by": "bus", "unknown": 7}
    bad = {"origin": {}, "goal": {"size": 3}, "inner": {"goal": bern}, "by": "car", "none": 7}
    assert not any(parameter_violation(value, parameters, name) for name, value in good.items())
    told = {name: parameter_violation(value, parameters, name) for name, value in bad.items()}
    assert all(told.values())
    assert told["goal"] == "'name' is a required property"
    assert not any("resolve" in one for one in told.values())
    assert parameter_schema(parameters, "goal")["properties"] == CITY["properties"]
