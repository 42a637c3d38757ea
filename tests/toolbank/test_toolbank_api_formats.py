"""API descriptions of Google and AWS: methods and operations become tools."""

from __future__ import annotations

from typing import Any

import pytest

from astra.toolbank.documents import parse_document
from astra.toolbank.normalise import normalise_tool
from astra.toolbank.raw import BadDocument, RawServer

BASE = RawServer(name="base", source="corpus", tools=(), licence="Apache-2.0")
DISCOVERY: dict[str, Any] = {
    "kind": "discovery#restDescription", "name": "shelf", "version": "v2", "title": "Shelf API",
    "description": "Books on shelves.",
    "schemas": {
        "Book": {"id": "Book", "type": "object", "description": "A book.", "properties": {
            "title": {"type": "string"},
            "sequel": {"$ref": "Book", "description": "What follows."}}},
        "Books": {"id": "Books", "type": "object", "properties": {
            "items": {"type": "array", "items": {"$ref": "Book"}}}},
    },
    "resources": {"shelves": {
        "methods": {"list": {
            "id": "shelf.shelves.list", "httpMethod": "GET", "flatPath": "v2/shelves",
            "description": "Lists the shelves.", "response": {"$ref": "Books"},
            "parameters": {
                "room": {"type": "string", "location": "query", "repeated": True,
                         "description": "Rooms."},
                "pageSize": {"type": "integer", "format": "int32", "location": "query"}}}},
        "resources": {"books": {"methods": {"insert": {
            "id": "shelf.shelves.books.insert", "httpMethod": "POST", "path": "v2/{+shelf}/books",
            "description": "Adds a book.", "request": {"$ref": "Book"},
            "response": {"$ref": "Book"},
            "parameters": {"shelf": {"type": "string", "location": "path", "required": True}}}}}},
    }},
}  # fmt: skip
AWS: dict[str, Any] = {
    "metadata": {"serviceId": "Parcel Desk", "serviceFullName": "Parcel Desk of AWS"},
    "documentation": "<p>Parcels &amp; letters.</p>",
    "operations": {
        "SendParcel": {"name": "SendParcel", "http": {"method": "POST", "requestUri": "/"},
                       "input": {"shape": "SendRequest"}, "output": {"shape": "Sent"},
                       "documentation": "<p>Sends a <b>parcel</b>.</p><p>At once.</p>"},
        "ListOffices": {"name": "ListOffices", "http": {"method": "POST", "requestUri": "/"},
                        "documentation": "<p>Lists the offices.</p>"},
    },
    "shapes": {
        "SendRequest": {"type": "structure", "required": ["To"], "members": {
            "To": {"shape": "Place", "documentation": "<p>Where it goes.</p>"},
            "Weights": {"shape": "Weights"}, "Label": {"shape": "Blob"},
            "Tags": {"shape": "Tags"}, "Day": {"shape": "Day"}}},
        "Place": {"type": "string", "min": 1, "max": 9, "enum": ["North", "South"]},
        "Weights": {"type": "list", "member": {"shape": "Weight"}, "max": 3},
        "Weight": {"type": "long", "min": 0},
        "Blob": {"type": "blob", "max": 5}, "Day": {"type": "timestamp"},
        "Tags": {"type": "map", "key": {"shape": "Place"}, "value": {"shape": "Place"}},
        "Sent": {"type": "structure", "members": {"Again": {"shape": "Sent"},
                                                  "Number": {"shape": "Weight"}}},
    },
}  # fmt: skip


def test_a_discovery_document_is_one_server_of_its_methods() -> None:
    (server,) = parse_document("discovery", DISCOVERY, BASE)
    assert (server.name, server.title, server.licence) == ("shelf-v2", "Shelf API", "Apache-2.0")
    listing, insert = server.tools
    assert (listing.name, listing.effect) == ("shelves.list", "reads")
    assert listing.parameters["properties"] == {
        "room": {"type": "array", "items": {"type": "string"}, "description": "Rooms."},
        "pageSize": {"type": "integer", "format": "int32"},
    }
    assert listing.parameters["required"] == []
    assert listing.output["properties"]["items"]["items"]["properties"]["title"]
    assert (insert.name, insert.effect) == ("shelves.books.insert", "writes")
    assert insert.parameters["required"] == ["shelf"]
    assert list(insert.parameters["properties"]) == ["shelf", "title", "sequel"]
    assert insert.parameters["properties"]["sequel"] == {"description": "What follows."}
    assert "schema cut: a recursive reference" in insert.notes
    assert normalise_tool(insert, 1024)[0].output_schema


def test_a_service_model_is_one_server_of_its_operations() -> None:
    (server,) = parse_document("aws", AWS, BASE)
    assert (server.name, server.title) == ("Parcel Desk", "Parcel Desk of AWS")
    assert server.description == "Parcels & letters."
    send, offices = server.tools
    assert (send.name, send.effect) == ("SendParcel", "writes")
    assert send.description == "Sends a parcel. At once."
    assert send.parameters["required"] == ["To"]
    assert send.parameters["properties"] == {
        "To": {"type": "string", "minLength": 1, "maxLength": 9, "enum": ["North", "South"],
               "description": "Where it goes."},
        "Weights": {"type": "array", "maxItems": 3, "items": {"type": "integer", "minimum": 0}},
        "Label": {"type": "string", "contentEncoding": "base64"},
        "Tags": {"type": "object", "additionalProperties": {
            "type": "string", "minLength": 1, "maxLength": 9, "enum": ["North", "South"]}},
        "Day": {"type": "string", "format": "date-time"},
    }  # fmt: skip
    assert send.output["properties"]["Number"] == {"type": "integer", "minimum": 0}
    assert (offices.effect, offices.output) == ("reads", None)
    assert offices.parameters["properties"] == {}
    assert normalise_tool(send, 1024)[0].parameters["required"] == ["To"]


@pytest.mark.parametrize(
    ("kind", "document", "reason"),
    [
        ("discovery", [], "`kind` is not"),
        ("discovery", {"kind": "discovery#directoryList"}, "`kind` is not"),
        ("discovery", {**DISCOVERY, "name": 3}, "no texts `name` and `version`"),
        ("aws", [], "expected an object"),
        ("aws", {**AWS, "shapes": []}, "no object `shapes`"),
    ],
)
def test_other_documents_are_refused(kind: str, document: Any, reason: str) -> None:
    with pytest.raises(BadDocument, match=reason):
        parse_document(kind, document, BASE)


@pytest.mark.parametrize(("kind", "document"), [("discovery", DISCOVERY), ("aws", AWS)])
def test_odd_parts_never_crash(kind: str, document: dict[str, Any]) -> None:
    for odd in (None, 3, "text", [], {}, [None], {"a": None}):
        for key in document:
            try:
                parse_document(kind, {**document, key: odd}, BASE)
            except BadDocument:
                continue
        for key, part in document.items():
            for inner in part if isinstance(part, dict) else ():
                (server,) = parse_document(kind, {**document, key: {**part, inner: odd}}, BASE)
                assert len(server.tools) <= len(document)
