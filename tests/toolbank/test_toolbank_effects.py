"""Whether a call changes anything: from annotations and HTTP methods, through every format."""

from __future__ import annotations

from typing import Any

import pytest

from astra.text.verbs import changes_state
from astra.toolbank.documents import parse_document
from astra.toolbank.effects import method_effect, stated_effect
from astra.toolbank.normalise import normalise_tool
from astra.toolbank.raw import RawServer

DEFAULTS = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
SAID = "Something of use that is said."


@pytest.mark.parametrize(
    ("annotations", "effect"),
    [
        ({"readOnlyHint": True}, "reads"),
        ({"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True}, "reads"),
        ({"readOnlyHint": False, "destructiveHint": False}, "writes"),
        ({"destructiveHint": True}, "writes"),
        ({"readOnlyHint": None, "destructiveHint": True}, "writes"),
        (DEFAULTS, ""),  # an SDK's, set on look-ups as well
        (DEFAULTS | {"destructiveHint": False}, "writes"),
        (DEFAULTS | {"title": None}, ""),
        ({"destructiveHint": False}, ""),
        ({"readOnlyHint": None, "destructiveHint": None, "title": "Get it"}, ""),
        ({"readOnlyHint": "false"}, ""),
        ({"idempotentHint": True, "openWorldHint": False}, ""),
        ({}, ""),
        (None, ""),
        (["readOnlyHint"], ""),
    ],
)
def test_annotations(annotations: Any, effect: str) -> None:
    assert stated_effect(annotations) == effect


@pytest.mark.parametrize(
    ("method", "name", "path", "description", "effect"),
    [
        ("GET", "getOrders", "/orders", "", "reads"),
        ("get", "delete_all", "/x", "", "reads"),
        ("HEAD", None, None, None, "reads"),
        ("PUT", "getOrCreate", "/x", "Get it.", "writes"),
        ("PATCH", "x", "/x", "", "writes"),
        ("DELETE", "findAndDrop", "/x", "", "writes"),
        ("POST", "createOrder", "/orders", "Place an order.", "writes"),
        ("POST", "post_/orders", "/orders", "", "writes"),
        ("POST", "post_/clubs/search", "/clubs/search", "", "reads"),
        ("POST", "searchesFor", "/a", "Sends nothing.", "writes"),
        ("POST", "records", "/record/v2/search.json", "Search for records", "reads"),
        ("POST", "zones_by_route_query_post", "/v1/zones/route-query", "", "reads"),
        ("POST", "fetchBoundaries", "/v4/boundaries/query", "Retrieve boundaries.", "reads"),
        ("POST", "computeDiagnosis", "/diagnosis", "", "reads"),
        ("POST", "GiftCardDetails", "/giftCards", "Returns the details of a card.", "reads"),
        ("POST", "post_/messages", "/messages", "Retrieves nothing: see below", "reads"),
        ("POST", "notes", "https://api.example.com/v1/notes/search?page=1", "", "reads"),
        ("POST", "CreateQuery", "/assistants/{id}/Queries", "Create a query.", "writes"),
        ("POST", "deletePicture", "/pictures/search", "", "writes"),
        ("POST", "getToken", "/token", "Creates a token.", "writes"),
        ("POST", None, 7, ["search"], "writes"),
        ("TRACE", "search", "/x", "", ""),
        ("", "search", "/x", "", ""),
        (None, "search", "/x", "", ""),
        ({"GET": 1}, "search", "/x", "", ""),
    ],
)
def test_methods(method: Any, name: Any, path: Any, description: Any, effect: str) -> None:
    assert method_effect(method, name, path, description) == effect


TOOL = {"name": "t", "description": SAID, "annotations": {"readOnlyHint": False}}
FUNCTION = {
    "name": "s.t",
    "description": SAID,
    "parameters": {},
    "annotations": {"readOnlyHint": 1},
}
OPERATIONS = {
    "get": {"operationId": "a", "description": SAID},
    "post": {"operationId": "b", "summary": "Add one.", "description": "Returns the one."},
    "delete": {"operationId": "c", "description": SAID},
}
API = {"tool_name": "s", "api_name": "t", "api_description": SAID}


@pytest.mark.parametrize(
    ("format_name", "document", "effects"),
    [
        ("mcp", {"tools": [TOOL]}, ["writes"]),
        ("mcp", [{**TOOL, "inputSchema": {"type": "object"}}], ["writes"]),
        ("mcp", {"tools": [{**TOOL, "annotations": {"readOnlyHint": True}}]}, ["reads"]),
        ("mcp", {"tools": [{**TOOL, "annotations": None}]}, [""]),
        (
            "mcp",
            {"server": {"name": "s"}, "tools": [
                {"name": "find", "description": SAID, "http": {"method": "GET", "path": "/a"}},
                {"name": "made", "description": SAID, "http": {"method": "POST", "path": "/a"}},
                {"name": "odd", "description": SAID, "http": "GET /a"},
                {**TOOL, "http": {"method": "GET"}},
            ]},
            ["reads", "writes", "", "writes"],
        ),
        ("openai", [{"type": "function", "function": TOOL}], ["writes"]),
        ("bfcl", [FUNCTION, {**FUNCTION, "annotations": {"destructiveHint": True}}],
         ["", "writes"]),
        ("astra", [{"base_info": {"group_info": {}, "tool_list": [TOOL]}}], ["writes"]),
        ("docker", {"server": {"name": "s"}, "tools": [TOOL]}, ["writes"]),
        ("smithery", {"qualifiedName": "s", "tools": [TOOL]}, ["writes"]),
        ("openapi", {"openapi": "3.1.0", "paths": {"/a": OPERATIONS}},
         ["reads", "writes", "writes"]),
        ("openapi", {"swagger": "2.0", "paths": {"/a": OPERATIONS}},
         ["reads", "writes", "writes"]),
        ("rapidapi", [{**API, "method": "GET"}, {**API, "method": "POST"}, API],
         ["reads", "writes", ""]),
    ],
)  # fmt: skip
def test_every_format_keeps_the_effect(format_name: str, document: Any, effects: list[str]) -> None:
    (server,) = parse_document(format_name, document, RawServer(name="s", source="x", tools=()))
    assert [normalise_tool(tool, 400)[0].effect for tool in server.tools] == effects


def test_a_tool_of_unknown_effect_is_stored_as_before() -> None:
    (server,) = parse_document("mcp", {"tools": [{**TOOL, "annotations": {}}]},
                               RawServer(name="s", source="x", tools=()))  # fmt: skip
    assert "effect" not in normalise_tool(server.tools[0], 400)[0].model_dump()


def test_a_known_effect_beats_the_name() -> None:
    assert changes_state("create_order", "")
    assert not changes_state("get_order", "")
    assert not changes_state("create_chart_text", "reads")
    assert changes_state("notion_update_page", "writes")
    assert changes_state("get_or_create", "writes")
    assert not changes_state("", "")


def test_order_of_parameters_is_the_publishers() -> None:
    names = ["name", "url", "description", "category", "a name with spaces", "archived"]
    listed = [{"name": name, "type": "string"} for name in names]
    schema = {"properties": {name: {"type": "string"} for name in names}, "required": ["url"]}
    wanted = ["name", "url", "description", "category", "a_name_with_spaces", "archived"]
    for parameters in (listed, schema, {"properties": {"type": "object", **schema}}):
        tool = {"name": "add", "description": SAID, "parameters": parameters}
        (server,) = parse_document("mcp", [tool], RawServer(name="s", source="x", tools=()))
        found = normalise_tool(server.tools[0], 400)[0].parameters["properties"]
        kept = [name for name in wanted if name in found]
        assert list(found) == kept
        assert len(kept) >= 5


def test_a_recorded_answer_of_a_listing_is_its_result() -> None:
    template = {
        "id": "int", "ok": "bool", "rate": "float", "note": "NoneType", "none": "empty list",
        "tags": ["list of str with length 3"], "rows": ["list of list with length 2"],
        "items": [{"name": "str", "_list_length": 3}], "owner": {"name": "str"}, "odd": 7,
    }  # fmt: skip
    text = {"type": "string"}
    wanted = {
        "id": {"type": "integer"}, "ok": {"type": "boolean"}, "rate": {"type": "number"},
        "note": {}, "none": {"type": "array", "items": {}},
        "tags": {"type": "array", "items": text},
        "rows": {"type": "array", "items": {"type": "array", "items": {}}},
        "items": {"type": "array", "items": {"type": "object", "properties": {"name": text}}},
        "owner": {"type": "object", "properties": {"name": text}}, "odd": {},
    }  # fmt: skip
    for recorded, output in (
        (template, {"type": "object", "properties": wanted}),
        ({"message": "str", "code": "int"}, None),
        ('{"id": "int", "na', None),
        ([], None),
        (None, None),
    ):
        api = {**API, "template_response": recorded}
        (server,) = parse_document("rapidapi", [api], RawServer(name="s", source="x", tools=()))
        assert normalise_tool(server.tools[0], 400)[0].output_schema == output
