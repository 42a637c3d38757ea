"""Every quirk that public tool documents were counted to have, each as a document in its format."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from astra.records.tool import Tool, ToolServer
from astra.toolbank.config import FilterConfig
from astra.toolbank.documents import parse_document
from astra.toolbank.normalise import ServerNormaliser
from astra.toolbank.raw import RawServer

SAID = "Get one of the things that are kept."
LIMITS = FilterConfig(
    min_tools=1,
    max_tools=300,
    min_description_chars=12,
    max_description_chars=1024,
    max_bad_description_share=1.0,
    deterministic_only=False,
    languages=(),
    duplicate_similarity=1.0,
)


def servers(kind: str, document: Any) -> tuple[list[ToolServer], list[str]]:
    """Servers of a document, and the reasons of what was dropped."""
    normaliser = ServerNormaliser(LIMITS)
    base = RawServer(name="base", source="test", tools=())
    kept = [normaliser.add(raw) for raw in parse_document(kind, document, base)]
    reasons = [rejection.reason for rejection in normaliser.drain()]
    found = [server for server in kept if server]
    for tool in (tool for server in found for tool in server.tools):
        Draft202012Validator.check_schema(tool.parameters)
    return found, reasons


def mcp(*tools: dict[str, Any]) -> tuple[ToolServer, list[str]]:
    """The server of a ``tools/list`` result whose tools are described unless they say otherwise."""
    listed = [{"name": f"tool_{n}", "description": SAID, **tool} for n, tool in enumerate(tools)]
    (server,), reasons = servers("mcp", {"tools": listed})
    return server, reasons


def only(kind: str, document: Any) -> Tool:
    (server,), _ = servers(kind, document)
    (tool,) = server.tools
    return tool


def properties(schema: Any, key: str = "inputSchema") -> dict[str, Any]:
    server, _ = mcp({key: schema})
    return server.tools[0].parameters["properties"]


def prop(schema: Any) -> Any:
    return properties({"type": "object", "properties": {"x": schema}})["x"]


# Names


@pytest.mark.parametrize(
    ("original", "safe"),
    [
        ("get weather", "get_weather"),
        ("math.factorial", "math_factorial"),
        ("pets/list/{id}", "pets_list_id"),
        ("café", "cafe"),
    ],
)
def test_names_with_spaces_dots_slashes_and_accents(original: str, safe: str) -> None:
    server, _ = mcp({"name": original})
    (tool,) = server.tools
    assert (tool.name, tool.original_name) == (safe, original)
    assert any("renamed" in repair for repair in server.repairs)


def test_names_beyond_64_characters_stay_apart() -> None:
    server, _ = mcp({"name": "a" * 80 + "b"}, {"name": "a" * 80 + "c"}, {"name": "查询天气"})
    names = [tool.name for tool in server.tools]
    assert len(set(names)) == 3
    assert all(len(name) <= 64 and name.isascii() for name in names)


def test_names_that_collide_once_sanitised() -> None:
    server, _ = mcp({"name": "a b"}, {"name": "a.b"}, {"name": "a_b_2"})
    assert [tool.name for tool in server.tools] == ["a_b", "a_b_2", "a_b_2_2"]
    assert [tool.original_name for tool in server.tools] == ["a b", "a.b", "a_b_2"]


def test_property_names_are_sanitised_everywhere_and_mapped_back() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a[]": {"type": "array", "items": {"type": "string"}},
            "$x": {"type": "integer"},
            "x@TypeHint": {"$ref": "#/properties/$x"},
            "two words": {"type": "string"},
            "a": {"type": "string"},
        },
        "required": ["a[]", "$x"],
        "dependentRequired": {"two words": ["$x"]},
        "anyOf": [{"required": ["two words"]}, {"required": ["a"]}],
    }
    server, _ = mcp({"inputSchema": schema})
    (tool,) = server.tools
    assert set(tool.parameters["properties"]) == {"a", "a_2", "x", "x_TypeHint", "two_words"}
    assert tool.parameters["required"] == ["a_2", "x"]
    assert tool.parameters["properties"]["x_TypeHint"] == {"$ref": "#/properties/x"}
    assert tool.parameters["dependentRequired"] == {"two_words": ["x"]}
    assert tool.parameters["anyOf"] == [{"required": ["two_words"]}, {"required": ["a"]}]
    assert tool.original_arguments({"a_2": ["q"], "x": 3, "a": "s"}) == {
        "a[]": ["q"], "$x": 3, "a": "s",
    }  # fmt: skip
    again = ToolServer.model_validate(server.model_dump(mode="json"))
    assert again.tools[0].original_parameters == tool.original_parameters


def test_tools_without_odd_parameters_are_written_as_ever() -> None:
    tool = Tool(name="t", description="d", parameters={})
    assert "original_parameters" not in tool.model_dump()


# Duplicates


def test_the_same_name_twice_in_one_server() -> None:
    server, reasons = mcp({"name": "shot"}, {"name": "shot", "description": f"{SAID} Again."})
    assert len(server.tools) == 1
    assert reasons == ["tool_duplicate"]


def test_the_same_server_22_times() -> None:
    rows = [{"server": {"name": f"s{n}"}, "tools": [{"name": "t", "description": SAID}]}
            for n in range(22)]  # fmt: skip
    found, reasons = servers("mcp", rows)
    assert len(found) == 1
    assert reasons == ["duplicate_server"] * 21


# Descriptions


@pytest.mark.parametrize(
    "text",
    ["", None, " ", "short", "Description not available", "No description.", 7,
     "Deploy Server Notion Try in Playground list-databases",
     "Access and manage servers by signing in."],
)  # fmt: skip
def test_missing_short_placeholder_and_debris_descriptions(text: Any) -> None:
    _, reasons = mcp({"description": text}, {})
    assert reasons == ["tool_description"]


def test_chinese_descriptions_say_more_with_fewer_characters() -> None:
    server, reasons = mcp({"description": "查询城市天气"}, {"description": "查询"})
    assert server.language == "zh"
    assert [tool.description for tool in server.tools] == ["查询城市天气"]
    assert reasons == ["tool_description"]


def test_long_descriptions_are_cut_between_words() -> None:
    server, _ = mcp({"description": "word " * 400})
    assert len(server.tools[0].description) <= 1024
    assert server.tools[0].description.endswith("word…")
    assert any("cut" in repair for repair in server.repairs)


def test_properties_without_description_are_fine() -> None:
    assert prop({"type": "string"}) == {"type": "string"}


# Schemas


@pytest.mark.parametrize("schema", [{"type": "object"}, {}, None, {"type": "object",
                                                                  "properties": {}}])  # fmt: skip
def test_no_properties_key_and_no_parameters(schema: Any) -> None:
    assert properties(schema) == {}


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({"description": "no type"}, {"description": "no type"}),
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
         {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}),
        ({"allOf": [{"minLength": 1}, {"type": "string"}]},
         {"allOf": [{"minLength": 1}, {"type": "string"}]}),
        ({"const": "fixed"}, {"const": "fixed"}),
        ({"type": "array", "items": [{"type": "integer"}, {"type": "string"}]},
         {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]}),
        ({"title": "X", "type": "string"}, {"type": "string"}),
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": True},
         {"type": "integer", "exclusiveMinimum": 0}),
        ({"type": "integer", "maximum": 9, "exclusiveMaximum": False},
         {"type": "integer", "maximum": 9}),
        ({"type": "any"}, {}),
        ({"anyOf": [[{"type": "string"}, {"type": "integer"}]]},
         {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"type": "object", "dependencies": {"a": ["b"], "b": {"required": ["c"]}}},
         {"type": "object", "dependentRequired": {"a": ["b"]},
          "dependentSchemas": {"b": {"required": ["c"]}}}),
        ({"not": {"required": ["a"]}}, {"not": {"required": ["a"]}}),
        ({"type": "array", "items": "string"}, {"type": "array", "items": {"type": "string"}}),
        ({"type": "string", "minLength": "4", "uniqueItems": "no"}, {"type": "string"}),
    ],
)  # fmt: skip
def test_schema_spellings(found: Any, wanted: Any) -> None:
    assert prop(found) == wanted


@pytest.mark.parametrize("key", ["$defs", "definitions"])
def test_definitions_and_references_stay(key: str) -> None:
    schema = {
        key: {"Unit": {"type": "string", "enum": ["m", "km"]}},
        "type": "object",
        "properties": {"unit": {"$ref": f"#/{key}/Unit"}},
    }
    server, _ = mcp({"inputSchema": schema})
    parameters = server.tools[0].parameters
    assert Draft202012Validator(parameters).is_valid({"unit": "km"})
    assert not Draft202012Validator(parameters).is_valid({"unit": "mile"})


def test_a_root_that_is_a_reference() -> None:
    inner = {"type": "object", "properties": {"gem": {"type": "string"}}, "required": ["gem"]}
    assert properties({"$ref": "#/definitions/Args", "definitions": {"Args": inner}}) == {
        "gem": {"type": "string"}
    }


def test_a_whole_schema_nested_inside_properties() -> None:
    inner = {
        "type": "object",
        "properties": {"gem": {"type": "string"}},
        "required": ["gem"],
        "$schema": "http://json-schema.org/draft-07/schema#",
    }
    server, _ = mcp({"inputSchema": {"type": "object", "properties": inner}})
    assert server.tools[0].parameters["properties"] == {"gem": {"type": "string"}}
    assert server.tools[0].parameters["required"] == ["gem"]
    assert any("hoisted" in repair for repair in server.repairs)


def test_a_server_of_302_tools_is_refused() -> None:
    many = {"tools": [{"name": f"t{n}", "description": SAID} for n in range(302)]}
    found, reasons = servers("mcp", many)
    assert not found
    assert reasons == ["too_many_tools"]


def test_every_repair_of_a_schema_is_recorded() -> None:
    server, _ = mcp(
        {"inputSchema": {"properties": {"x": {"type": "float"}, "y": {"$ref": "#/no"}, "z": 3}}}
    )
    text = "\n".join(server.repairs)
    assert "/properties/x: type 'float' became 'number'" in text
    assert "reference '#/no' dropped" in text
    assert "/properties/z: not a schema, dropped" in text


# Formats


@pytest.mark.parametrize("key", ["inputSchema", "input_schema", "parameters"])
def test_spellings_of_the_parameters_key(key: str) -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    assert properties(schema, key) == {"q": {"type": "string"}}


@pytest.mark.parametrize(
    "document",
    [
        {"result": {"tools": [{"name": "t", "description": SAID}]}},
        [{"name": "t", "description": SAID}],
        {"key": {"server_name": "n", "tools": [{"name": "t", "description": SAID}]}},
        [{"server": {"name": "n"}, "tools": [{"name": "t", "description": SAID}]}],
    ],
)
def test_shapes_of_recorded_tool_lists(document: Any) -> None:
    assert only("mcp", document).name == "t"


@pytest.mark.parametrize("wrap", [True, False])
def test_openai_functions(wrap: bool) -> None:
    function = {"name": "t", "description": SAID, "parameters": {"type": "object"}}
    item = {"type": "function", "function": function} if wrap else function
    for document in ([item], {"tools": [item]}, {"functions": [item]}):
        assert only("openai", document).parameters == {"type": "object", "properties": {}}


def bfcl(**schema: Any) -> Any:
    parameters = {"type": "dict", "properties": {"x": schema}, "required": ["x"]}
    tool = only("bfcl", [{"name": "f", "description": SAID, "parameters": parameters}])
    return tool.parameters["properties"]["x"]


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("dict", "object"), ("float", "number"), ("tuple", "array"), ("String", "string"),
        ("HashMap", "object"), ("ArrayList", "array"), ("long", "integer"), ("char", "string"),
        ("Boolean", "boolean"), ("any", None), ("", None),
    ],
)  # fmt: skip
def test_bfcl_types(kind: str, wanted: str | None) -> None:
    assert bfcl(type=kind).get("type") == wanted


def test_bfcl_optional_key_and_values_of_another_type() -> None:
    assert bfcl(type="string", optional=True) == {"type": "string"}
    assert bfcl(type="integer", default="7") == {"type": "integer", "default": 7}
    assert bfcl(type="integer", default="many") == {"type": "integer"}
    assert bfcl(type="integer", enum=["1", "2", "x"]) == {"type": "integer", "enum": [1, 2]}
    assert bfcl(type="float", enum=["x"]) == {"type": "number"}


def test_bfcl_rows_prefixes_repeats_and_responses() -> None:
    function = {
        "name": "Rides.get_ride",
        "description": SAID,
        "parameters": {"type": "dict", "properties": {}},
        "response": {"type": "dict", "properties": {"fare": {"type": "float"}}},
    }
    again = {**function, "description": f"{SAID} In other words."}
    (server,), reasons = servers("bfcl", [{"id": "q1", "function": [function]}, again])
    assert server.name == "Rides"
    (tool,) = server.tools
    assert (tool.name, tool.original_name) == ("Rides_get_ride", "Rides.get_ride")
    assert tool.output_schema is not None
    assert tool.output_schema["properties"]["fare"] == {"type": "number"}
    assert reasons == ["tool_duplicate"]


def rapid(**fields: Any) -> Tool:
    api = {"tool_name": "S", "api_name": "Get It", "api_description": SAID, **fields}
    return only("rapidapi", [api])


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("STRING", {"type": "string"}),
        ("NUMBER", {"type": "number"}),
        ("ENUM", {"type": "string"}),
        ("BINARY", {"type": "string"}),
        ("DATE (YYYY-MM-DD)", {"type": "string", "format": "date"}),
    ],
)
def test_rapidapi_types(kind: str, wanted: dict[str, Any]) -> None:
    tool = rapid(required_parameters=[{"name": "x", "type": kind}])
    assert tool.parameters["properties"]["x"] == wanted


def test_rapidapi_lists_defaults_and_names() -> None:
    tool = rapid(
        required_parameters=[{"name": "page", "type": "NUMBER", "default": "1"}],
        optional_parameters=[
            {"name": "size", "type": "NUMBER", "default": "ten"},
            {"name": "order by", "type": "STRING", "default": ""},
        ],
    )
    assert (tool.name, tool.original_name) == ("Get_It", "Get It")
    assert tool.parameters["required"] == ["page"]
    assert tool.parameters["properties"]["page"]["default"] == 1
    assert tool.parameters["properties"]["size"] == {"type": "number"}
    assert tool.original_parameters == {"order_by": "order by"}


def test_rapidapi_blank_descriptions() -> None:
    found, reasons = servers(
        "rapidapi", [{"tool_name": "S", "api_name": "a", "api_description": " "}]
    )
    assert not found
    assert reasons[0] == "tool_description"


def openapi(operation: dict[str, Any], version: str = "3.0.3", **more: Any) -> Tool:
    key = "swagger" if version == "2.0" else "openapi"
    paths = {"/things/{id}": {"post": {"summary": SAID, **operation}}}
    return only("openapi", {key: version, "paths": paths, **more})


def body(schema: Any, kind: str = "application/json") -> dict[str, Any]:
    return {"requestBody": {"content": {kind: {"schema": schema}}, "required": True}}


def test_openapi_nullable_format_and_examples() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "nullable": True, "format": "date", "example": "2024-01-01"},
            "b": {"type": "integer", "examples": [1, "2", "x"]},
        },
        "required": ["a", "ghost"],
    }
    parameters = openapi(body(schema)).parameters
    assert parameters["properties"]["a"] == {
        "type": ["string", "null"], "format": "date", "examples": ["2024-01-01"],
    }  # fmt: skip
    assert parameters["properties"]["b"]["examples"] == [1, 2]
    assert parameters["required"] == ["a"]


def test_openapi_recursive_references_end() -> None:
    node = {
        "type": "object",
        "properties": {"child": {"$ref": "#/components/schemas/N"}, "v": {"type": "string"}},
    }
    tool = openapi(body({"$ref": "#/components/schemas/N"}), components={"schemas": {"N": node}})
    assert tool.parameters["properties"] == {"child": {}, "v": {"type": "string"}}


@pytest.mark.parametrize(
    ("kind", "schema", "name"),
    [
        ("application/json", {"type": "array", "items": {"type": "string"}}, "body"),
        ("application/x-www-form-urlencoded",
         {"type": "object", "properties": {"f": {"type": "string"}}}, "f"),
        ("multipart/form-data", {"type": "object", "properties": {"f": {"type": "file"}}}, "f"),
    ],
)  # fmt: skip
def test_openapi_bodies_as_arrays_and_forms(kind: str, schema: Any, name: str) -> None:
    assert list(openapi(body(schema, kind)).parameters["properties"]) == [name]


def test_openapi_header_and_cookie_parameters_are_left_out_and_said() -> None:
    operation = {
        "summary": SAID,
        "parameters": [
            {"name": "X-Key", "in": "header", "required": True, "schema": {"type": "string"}},
            {"name": "sid", "in": "cookie", "schema": {"type": "string"}},
            {"name": "ids[]", "in": "query", "schema": {"type": "string"}},
        ],
    }
    (server,), _ = servers("openapi", {"openapi": "3.1.0", "paths": {"/a": {"get": operation}}})
    assert set(server.tools[0].parameters["properties"]) == {"ids"}
    text = "\n".join(server.repairs)
    assert "header parameter 'X-Key' left out" in text
    assert "cookie parameter 'sid' left out" in text


def test_swagger_2_bodies_definitions_and_inline_types() -> None:
    operation = {
        "parameters": [
            {"name": "id", "in": "path", "type": "integer", "required": True},
            {"name": "thing", "in": "body", "schema": {"$ref": "#/definitions/Thing"}},
            {"name": "color", "in": "formData", "type": "string", "enum": ["red", "blue"]},
        ]
    }
    thing = {"type": "object", "properties": {"size": {"type": "number"}}, "required": ["size"]}
    tool = openapi(operation, "2.0", definitions={"Thing": thing})
    assert tool.parameters["properties"] == {
        "id": {"type": "integer"},
        "size": {"type": "number"},
        "color": {"type": "string", "enum": ["red", "blue"]},
    }
    assert tool.parameters["required"] == ["id", "size"]


def test_docker_arguments() -> None:
    tools = [
        {"name": "scan", "description": SAID,
         "arguments": [{"name": "image", "type": "string", "desc": "An image"},
                       {"name": "deep", "type": "boolean", "desc": "", "optional": True}]},
    ]  # fmt: skip
    tool = only("docker", tools)
    assert tool.parameters["properties"]["image"]["description"] == "An image"
    assert tool.parameters["properties"]["deep"] == {"type": "boolean"}


def test_astra_server_rows_without_their_addresses() -> None:
    row = {
        "base_info": {
            "group_info": {"server_title": "Weather", "server_name": "w",
                           "server_description": "Forecasts.", "domain": "Weather"},
            "tool_list": [{"name": "t", "description": SAID, "parameters": {"type": "object"}}],
        },
        "call_info": {"python_sdk_url": "https://host/mcp?api_key=verysecretkey123"},
        "features": {},
    }  # fmt: skip
    for document in (row, [row], {"mcp_info": row, "graph": {}}):
        (server,), _ = servers("astra", document)
        assert (server.name, server.title, server.domain) == ("w", "Weather", "weather")
        assert "verysecretkey" not in server.model_dump_json()


# Secrets


@pytest.mark.parametrize(
    "secret",
    [
        "sk-" + "a1B2" * 8, "ghp_" + "Ab3d" * 6, "AKIA" + "ABCD1234" * 2, "xoxb-1234567890-abc",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc_def", "AIza" + "Sy1_" * 9,
    ],
)  # fmt: skip
def test_secrets_are_redacted_wherever_they_stand(secret: str) -> None:
    schema = {
        "properties": {
            "q": {"type": "string", "default": secret, "description": f"e.g. {secret}"},
            "h": {"type": "string", "enum": [secret, "none"]},
        }
    }
    server, _ = mcp({"description": f"{SAID} Use {secret}.", "inputSchema": schema})
    assert secret not in server.model_dump_json()
    assert any("credentials redacted" in repair for repair in server.repairs)


def test_a_licence_that_is_an_address_with_a_key() -> None:
    listed = {
        "server": {"name": "s", "licence": "https://host/licence?api_key=4f3c2b1a0d9e8f7a"},
        "tools": [{"name": "t", "description": SAID}],
    }
    (server,), _ = servers("mcp", listed)
    assert server.licence == "https://host/licence?api_key=<redacted>"


def test_values_of_parameters_that_name_a_secret() -> None:
    schema = {
        "properties": {
            "api_key": {"type": "string", "example": "9f8e7d6c5b4a39281706"},
            "token": {"type": "string", "enum": ["invitation-code"]},
        }
    }
    server, _ = mcp({"inputSchema": schema})
    found = server.tools[0].parameters["properties"]
    assert found["api_key"] == {"type": "string", "examples": ["<redacted>"]}
    assert found["token"] == {"type": "string", "enum": ["invitation-code"]}
