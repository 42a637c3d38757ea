"""Catalogue services: stable, usable, and apart from the question worlds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from astra.qa.knowledge.domains import DOMAINS
from astra.toolbank.documents import parse_document
from astra.toolbank.raw import BadDocument, RawServer

BASE = RawServer(name="catalogue", source="file:catalogue.yaml", tools=())


@pytest.fixture(scope="module")
def document(root: Path) -> dict[str, Any]:
    path = root / "sources" / "documents" / "catalogue.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_more_services_leave_earlier_ones_as_they_are(document: dict[str, Any]) -> None:
    few = parse_document("catalogue", {**document, "servers": 5}, BASE)
    many = parse_document("catalogue", {**document, "servers": 50}, BASE)
    assert few == many[:5]
    assert len({server.name for server in many}) == 50
    assert len({server.source for server in many}) == 50


def test_services_have_unique_tools_and_most_have_linked_ones(document: dict[str, Any]) -> None:
    linked = 0
    for server in parse_document("catalogue", document, BASE):
        names = [tool.name for tool in server.tools]
        assert len(set(names)) == len(names) >= 3
        told = [tool.output for tool in server.tools]
        told += [field for output in told for field in output.get("properties", {}).values()]
        outputs = {output["title"] for output in told if "x-entity" in output}
        asked = {name for tool in server.tools for name in tool.parameters["properties"]}
        linked += bool(outputs & asked)
    assert linked > 0.75 * document["servers"]


def test_no_relation_is_asked_in_both_tracks(root: Path, document: dict[str, Any]) -> None:
    """A service's entities are no entity types of the worlds that the committed build asks."""
    sources = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))["qa"]["sources"]
    asked = [domain for name, domain in DOMAINS.items() if sources[name]]
    assert len(asked) >= 3
    worlds = {kind.name for domain in asked for kind in domain.types}
    worlds |= {"city", "country", "airport", "element"}
    words = {word for group in document["subjects"].values() for word in group}
    assert not worlds & (words | set(document["roles"]) | set(document["links"]))


@pytest.mark.parametrize(
    "broken", [[], {"servers": 3}, {"servers": "many"}, {"servers": 1, "extra": 2}]
)
def test_a_broken_catalogue_is_a_bad_document(broken: Any) -> None:
    with pytest.raises(BadDocument, match="no catalogue"):
        parse_document("catalogue", broken, BASE)


def test_some_links_are_fields_of_records(document: dict[str, Any]) -> None:
    services = parse_document("catalogue", {**document, "vague": 0}, BASE)
    records = [
        (service, tool)
        for service in services
        for tool in service.tools
        if tool.output["type"] == "object"
    ]
    assert len(records) == pytest.approx(document["records"] * len(services), rel=0.2)
    for service, tool in records:
        fields = tool.output["properties"]
        link = next(name for name, field in fields.items() if "x-entity" in field)
        assert not {f"get_{link}", f"find_{link}"} & {other.name for other in service.tools}
        assert tool.output["required"] == list(fields)
        assert all(name.replace("_", " ") in tool.description for name in fields)
    without = parse_document("catalogue", {**document, "records": 0}, BASE)
    assert not any(t.output["type"] == "object" for service in without for t in service.tools)


def test_a_vague_name_says_nothing_and_its_description_everything(document: dict[str, Any]) -> None:
    vague = {f"{v}_{n}" for v in document["vague_verbs"] for n in document["vague_nouns"]}
    [whole] = parse_document("catalogue", {**document, "servers": 1, "vague": 1}, BASE)
    assert {tool.name for tool in whole.tools} <= vague
    services = parse_document("catalogue", {**document, "records": 0}, BASE)
    tools = [tool for service in services for tool in service.tools]
    named = [tool for tool in tools if tool.name in vague]
    assert len(named) / len(tools) == pytest.approx(document["vague"], abs=0.05)
    assert all(t.output["title"].replace("_", " ") in t.description for t in named)
