"""Hostile documents: a valid schema or a reason, soon; never a crash, never a bad schema."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from astra.plugins import names
from astra.toolbank import formats
from astra.toolbank.clean import scrub
from astra.toolbank.config import FilterConfig
from astra.toolbank.documents import parse_document
from astra.toolbank.normalise import ServerNormaliser, normalise_tool
from astra.toolbank.raw import BadDocument, RawServer, RawTool
from astra.toolbank.schema import Unmappable, normalise_output, normalise_parameters
from astra.toolbank.validity import (
    BRANCHES,
    COUNTS,
    FLAGS,
    MAPPINGS,
    NUMBERS,
    SCHEMAS,
    TEXTS,
    compiles,
    surely_valid,
)

BASE = RawServer(name="s", source="test", tools=())
OPEN = FilterConfig(
    min_tools=1,
    max_tools=1000,
    min_description_chars=0,
    max_description_chars=100,
    max_bad_description_share=1.0,
    deterministic_only=False,
    languages=(),
    duplicate_similarity=1.0,
)
KEYWORDS = sorted(
    {*MAPPINGS, *SCHEMAS, *BRANCHES, *COUNTS, *NUMBERS, *FLAGS, *TEXTS}
    | {"type", "required", "enum", "const", "default", "examples", "$ref", "pattern", "multipleOf",
       "dependencies", "dependentRequired", "$schema", "$id", "$anchor", "$dynamicRef", "nullable",
       "optional", "example", "x"}
)  # fmt: skip
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats()
    | st.sampled_from(["string", "object", "array", "any", "dict", "#", "#/$defs/x", "(["])
    | st.text(max_size=6)
)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4)
    ),
    max_leaves=12,
)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["server", "servers", "tools", "functions", "function", "result", "name", "description",
             "inputSchema", "parameters", "arguments", "api_list", "tool_name", "category_name",
             "required_parameters", "optional_parameters", "api_name", "base_info", "mcp_info",
             "group_info", "tool_list", "openapi", "paths", "/a", "get", "operationId", "in",
             "schema", "requestBody", "content", "application/json", "responses", "200", "$ref",
             "info", "license", "_meta", "remotes", "headers", "url", "type", "packages", "about",
             "meta", "remote", "qualifiedName", "connections", "configSchema", "deploymentUrl",
             "properties", "required"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=25,
)  # fmt: skip


def tried(work: Callable[[], Any]) -> Any:
    """What ``work`` gives, or the refusal it raises; anything else it raises is a crash."""
    try:
        return work()
    except (Unmappable, BadDocument) as refusal:
        return refusal


@settings(max_examples=150)
@given(json_values)
def test_any_value_as_parameters_gives_a_valid_schema_or_a_reason(found: Any) -> None:
    result = tried(lambda: normalise_parameters(found))
    if isinstance(result, Unmappable):
        assert result.reason
        return
    document, _ = result
    Draft202012Validator.check_schema(document)
    json.dumps(document, allow_nan=False)
    assert document["type"] == "object"
    assert isinstance(document["properties"], dict)


@settings(max_examples=80)
@given(json_values)
def test_valid_output_schemas_or_none(found: Any) -> None:
    schema, notes = normalise_output(found)
    if schema is None:
        assert notes or found is None
    else:
        Draft202012Validator.check_schema(schema)


@settings(max_examples=150)
@given(json_values)
def test_the_quick_check_is_never_laxer_than_the_metaschema(found: Any) -> None:
    if surely_valid(found):
        try:
            Draft202012Validator.check_schema(found)
        except SchemaError as error:
            raise AssertionError(f"{found!r}: {error.message}") from None


@settings(max_examples=80)
@given(
    st.one_of(st.none(), st.integers(), st.text(max_size=90)),
    st.one_of(st.none(), st.integers(), st.text(max_size=150)),
    json_values,
)
def test_any_tool_is_usable_or_refused_with_a_reason(
    name: Any, description: Any, schema: Any
) -> None:
    result = tried(lambda: normalise_tool(RawTool(name, description, schema, schema), 100))
    if isinstance(result, Unmappable):
        assert result.reason
        return
    tool, _ = result
    assert 0 < len(tool.name) <= 64
    assert tool.name.isascii()
    assert len(tool.description) <= 100
    assert all(len(name) <= 64 and name.isascii() for name in tool.parameters["properties"])
    Draft202012Validator.check_schema(tool.parameters)
    tool.model_dump_json()


@pytest.mark.parametrize("kind", names(formats))
@settings(max_examples=30)
@given(documents)
def test_any_document_in_any_format_gives_servers_or_a_reason(kind: str, document: Any) -> None:
    result = tried(lambda: parse_document(kind, document, BASE))
    if isinstance(result, BadDocument):
        assert str(result)
        return
    normaliser = ServerNormaliser(OPEN)
    for raw in result:
        server = normaliser.add(raw)
        rejections = normaliser.drain()
        assert server or rejections
        assert all(rejection.reason for rejection in rejections)


def quick(work: Callable[[], Any], seconds: float = 5.0) -> Any:
    """A bound that only runaway work misses: the slowest case takes a tenth of it."""
    started = time.process_time()
    try:
        return work()
    finally:
        assert time.process_time() - started < seconds


def nested(key: str, depth: int) -> dict[str, Any]:
    root: dict[str, Any] = {"type": "object"}
    node = root
    for _ in range(depth):
        node[key] = {"x": {}} if key == "properties" else {}
        node = node[key]["x"] if key == "properties" else node[key]
    return root


@pytest.mark.parametrize("key", ["properties", "items", "not", "default"])
def test_depth_bombs_are_refused(key: str) -> None:
    with pytest.raises(Unmappable, match="schema_too_large"):
        quick(lambda: normalise_parameters(nested(key, 5000)))


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {"properties": {}}
    loop["properties"]["x"] = loop
    with pytest.raises(Unmappable, match="schema_too_large"):
        quick(lambda: normalise_parameters(loop))


def test_breadth_bombs_are_refused_and_large_enumerations_are_not_squared() -> None:
    wide = {"properties": {f"p{n}": {} for n in range(30_000)}}
    with pytest.raises(Unmappable, match="schema_too_large"):
        quick(lambda: normalise_parameters(wide))
    names = [f"value {n}" for n in range(15_000)]
    schema = {"properties": {"x": {"type": "string", "enum": [*names, *names[:100]]}}}
    document, _ = quick(lambda: normalise_parameters(schema))
    assert document["properties"]["x"]["enum"] == names


def test_megabyte_texts_are_cut_or_refused() -> None:
    text = "word " * 300_000
    tool, repairs = quick(
        lambda: normalise_tool(
            RawTool("t", text, {"properties": {"x": {"description": text, "title": text}}}), 1024
        )
    )
    assert len(tool.description) <= 1024
    assert len(tool.parameters["properties"]["x"]["description"]) <= 1024
    assert sum("cut" in repair for repair in repairs) == 2
    with pytest.raises(Unmappable, match="schema_too_large"):
        quick(lambda: normalise_parameters({"properties": {"x": {"default": text}}}))


@pytest.mark.parametrize(
    "unit", ["eyJaaaaaaaaaa", "sk-", "password ", "-----BEGIN ", "://a:b", "api_key=\\", "ghp_ a"]
)
def test_scrubbing_takes_linear_time(unit: str) -> None:
    quick(lambda: scrub({"x": unit * (400_000 // len(unit))}))


def test_recursive_references_stay_and_pure_loops_go() -> None:
    tree = {
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
        "properties": {"x": {"$ref": "#/$defs/Node"}, "y": {"$ref": "#"}},
    }
    document, repairs = normalise_parameters(tree)
    assert not repairs
    assert not Draft202012Validator(document).is_valid({"x": {"next": {"next": 3}}})
    loops = {
        "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}},
        "properties": {"x": {"$ref": "#/$defs/A"}},
    }
    document, repairs = normalise_parameters(loops)
    assert Draft202012Validator(document).is_valid({"x": 1})
    assert any("dropped" in repair for repair in repairs)


def test_self_referring_openapi_documents_are_cut_not_multiplied() -> None:
    names = [f"S{n}" for n in range(12)]
    schemas = {
        name: {
            "type": "object",
            "properties": {other: {"$ref": f"#/components/schemas/{other}"} for other in names},
        }
        for name in names
    }
    operation = {
        "summary": "Do the thing.",
        "requestBody": {
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}
        },
    }
    document = {
        "openapi": "3.1.0",
        "paths": {"/x": {"post": operation}},
        "components": {"schemas": schemas},
    }
    (server,) = quick(lambda: parse_document("openapi", document, BASE))
    (tool,) = server.tools
    assert any("cut" in note for note in tool.notes)
    assert set(tool.parameters["properties"]) == set(names)


def test_a_pattern_of_doubtful_syntax_is_kept_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiles("[[a-z]")
        assert not compiles("(")
