"""Sources to servers: formats, names, secrets, filters; broken sources are rejections."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from toolbank_flow import flowed

from astra.llm.protocol import ModelConfig
from astra.records.tool import Execution, ToolServer
from astra.store.metrics import StageMetrics
from astra.toolbank.config import DomainConfig, FilterConfig, ToolsConfig
from astra.toolbank.documents import parse_document
from astra.toolbank.normalise import ServerNormaliser
from astra.toolbank.raw import RawServer, RawTool
from astra.toolbank.sources import SourceError

MODEL = ModelConfig(backend="offline", model="v1")
TEXT = DomainConfig(by="text", labels=(), mapping={})
FILTERS = FilterConfig(
    min_tools=3,
    max_tools=10,
    min_description_chars=10,
    max_bad_description_share=0.5,
    deterministic_only=True,
    languages=(),
    max_description_chars=1024,
    duplicate_similarity=1.0,
)


def collected(
    sources: tuple[str, ...], metrics: StageMetrics, filters: FilterConfig = FILTERS
) -> list[ToolServer]:
    config = ToolsConfig(
        sources=sources, max_failed_live_share=0.0, teacher=MODEL, domains=TEXT,
        infer_results=False, filters=filters,
    )  # fmt: skip
    return flowed(config, metrics)[0]


def tools(count: int, **changes: Any) -> tuple[RawTool, ...]:
    fields = {"description": "Get one of the things.", "parameters": None} | changes
    return tuple(RawTool(name=f"get_{index}", **fields) for index in range(count))


def add(raw: RawServer) -> tuple[ToolServer | None, list[str]]:
    normaliser = ServerNormaliser(FILTERS)
    server = normaliser.add(raw)
    return server, [rejection.reason for rejection in normaliser.drain()]


def raw(found: tuple[RawTool, ...], **fields: Any) -> RawServer:
    return RawServer(name=fields.pop("name", "shop"), source="test", tools=found, **fields)


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (raw(tools(2)), "too_few_tools"),
        (raw(tools(11)), "too_many_tools"),
        (raw(tools(3), deterministic=False), "not_deterministic"),
        (raw(tools(3, description="Description not available")), "vague_documents"),
        (raw(tools(3, description="List it. Try in Playground")), "vague_documents"),
    ],
)
def test_filters(server: RawServer, reason: str) -> None:
    kept, reasons = add(server)
    assert kept is None
    assert reasons[-1] == reason


def test_names_are_safe_distinct_and_keep_the_original() -> None:
    found = tuple(
        RawTool(name=name, description="Get one of the things.", parameters={})
        for name in ("get item", "get/item", "get item", "x" * 80, "天气")
    )
    server, reasons = add(raw(found))
    assert server is not None
    names = [tool.name for tool in server.tools]
    assert names[:2] == ["get_item", "get_item_2"]
    assert all(len(name) <= 64 and name.isascii() for name in names)
    assert [tool.original_name for tool in server.tools][:2] == ["get item", "get/item"]
    assert reasons == ["tool_duplicate"]


def test_secrets_are_redacted() -> None:
    key = "sk-" + "a1B2" * 8
    server, _ = add(
        raw(
            tools(3, description=f"Call with api_key={key} please."),
            description="See https://user:hunter22@example.com",
        )
    )
    assert server is not None
    assert key not in server.model_dump_json()
    assert "hunter22" not in server.model_dump_json()
    assert any("redacted" in repair for repair in server.repairs)


def test_repeated_server_is_dropped_and_same_name_is_told_apart() -> None:
    normaliser = ServerNormaliser(FILTERS)
    assert normaliser.add(raw(tools(3)))
    assert normaliser.add(raw(tools(3), name="copy")) is None
    assert normaliser.drain()[-1].reason == "duplicate_server"
    other = normaliser.add(raw(tools(4)))
    assert other is not None
    assert other.name == "shop_2"


def test_openapi_body_path_and_reference(root: Path) -> None:
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Shop"},
        "paths": {
            "/items/{id}": {
                "post": {
                    "summary": "Change the item.",
                    "parameters": [
                        {"name": "id", "in": "path", "schema": {"type": "string"}},
                        {"name": "X-Key", "in": "header", "schema": {"type": "string"}},
                    ],
                    "requestBody": {
                        "content": {"application/json": {"schema": {"$ref": "#/components/Item"}}}
                    },
                }
            },
            "/broken": 3,
        },
        "components": {
            "Item": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer"},
                    "parent": {"$ref": "#/components/Item"},
                },
            }
        },
    }
    (server,) = parse_document("openapi", document, RawServer(name="s", source="t", tools=()))
    (tool,) = server.tools
    assert tool.name == "post_items/{id}"
    assert set(tool.parameters["properties"]) == {"id", "size", "parent"}
    assert tool.parameters["required"] == ["id"]


def test_every_committed_format_is_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    metrics = StageMetrics("tools")
    servers = collected(("sources/formats.yaml", "sources/business.yaml"), metrics)
    assert len(servers) >= 40
    assert metrics.dropped == {}
    assert {server.execution for server in servers} == {Execution.EMULATED}
    assert all(server.language == "en" for server in servers)


class Session:
    """What a live server lists, in the protocol's spelling."""

    server_name, server_title, instructions = "notes", "Notes", "Keeps notes."

    async def list_tools(self) -> list[dict[str, Any]]:
        said = {"description": "Does it to a note.", "inputSchema": {"type": "object"}}
        output = {"type": "object", "properties": {"id": {"type": "integer"}}}
        return [
            {"name": "show", **said, "outputSchema": output, "annotations": {"readOnlyHint": True}},
            {"name": "drop", **said, "annotations": {"destructiveHint": True}},
            {"name": "keep", **said},
        ]


def test_a_live_server_says_what_its_calls_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def opened(*_: object) -> AsyncIterator[Session]:
        yield Session()

    monkeypatch.setattr("astra.toolbank.connectors.open_server", opened)
    entry = "{name: notes, source: x, launch: {url: 'http://h/mcp'}, licence: MIT, "
    path = tmp_path / "list.yaml"
    path.write_text(f"live: [{entry}deterministic: true}}]", encoding="utf-8")
    (server,) = collected((str(path),), StageMetrics("tools"))
    found = [(tool.name, tool.effect, tool.output_schema is not None) for tool in server.tools]
    assert found == [("show", "reads", True), ("drop", "writes", False), ("keep", "", False)]


def test_broken_sources_are_counted_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources/environments.yaml").write_text("{}", encoding="utf-8")
    (tmp_path / "bad.json").write_text("{not json", encoding="utf-8")
    (tmp_path / "wrong.json").write_text("[1, 2]", encoding="utf-8")
    good = {"tools": [{"name": t.name, "description": t.description} for t in tools(3)]}
    (tmp_path / "good.json").write_text(json.dumps(good), encoding="utf-8")
    launch = "{environment: nowhere, command: x}"
    (tmp_path / "list.yaml").write_text(
        "documents:\n"
        "  - {path: bad.json, format: mcp}\n"
        "  - {path: wrong.json, format: openapi}\n"
        "  - {path: absent.json, format: mcp}\n"
        "  - {path: good.json, format: mcp}\n"
        "live:\n"
        f"  - {{name: gone, source: x, launch: {launch}, licence: MIT, deterministic: true}}\n",
        encoding="utf-8",
    )
    caplog.set_level(logging.INFO, "astra")
    metrics = StageMetrics("tools")
    servers = collected(("list.yaml",), metrics)
    assert [server.name for server in servers] == ["good"]
    assert caplog.messages[-1].startswith("sources 4/4, ")
    assert "dropped 4: document 3, environment_or_start_failed 1" in caplog.messages[-1]
    assert caplog.messages[-1].endswith("1 servers, 3 tools")
    assert metrics.dropped == {"document": 3, "environment_or_start_failed": 1}
    for named in ("bad.json", "wrong.json", "absent.json", "gone"):
        assert named in caplog.text


def test_bad_source_list_names_the_entry(tmp_path: Path) -> None:
    from astra.toolbank.sources import load_sources

    path = tmp_path / "list.yaml"
    path.write_text("documents: [{path: x, format: soap}]", encoding="utf-8")
    with pytest.raises(SourceError, match=r"documents.0.format.*mcp, "):
        load_sources(path)
    with pytest.raises(SourceError, match="not found"):
        load_sources(tmp_path / "absent.yaml")


def test_json_lines_are_read_one_by_one_and_a_bad_line_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {"server": {"name": name, "source": source, "licence": "MIT"},
         "tools": [{"name": f"{name}_{n}", "description": "Get one of them."} for n in range(3)]}
        for name, source in (("a", "npm:a==1"), ("b", ""))
    ]  # fmt: skip
    lines = [json.dumps(rows[0]), "{broken", "", json.dumps(rows[1]), "[1]"]
    (tmp_path / "all.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "list.yaml").write_text(
        f"documents: [{{path: '{tmp_path}/*.jsonl', format: mcp}}]", encoding="utf-8"
    )
    metrics = StageMetrics("tools")
    first, second = collected(("list.yaml",), metrics)
    assert (first.source, first.licence) == ("npm:a==1", "MIT")
    assert second.source.endswith("all.jsonl#4")
    assert metrics.dropped == {"document": 1, "vague_documents": 1, "tool_unnamed": 1}
    assert "line 2" in caplog.text


def test_similar_servers_are_duplicates_from_the_threshold_on() -> None:
    filters = FILTERS.model_copy(update={"duplicate_similarity": 0.6})
    for similarity, kept in ((filters, False), (FILTERS, True)):
        normaliser = ServerNormaliser(similarity)
        assert normaliser.add(raw(tools(4)))
        assert bool(normaliser.add(raw(tools(3), name="older"))) is kept
        assert normaliser.add(raw(tools(9), name="larger"))


def test_a_changed_document_leaves_the_names_of_others() -> None:
    for first in (raw(tools(5)), raw(tools(1))):  # kept, filtered out
        normaliser = ServerNormaliser(FILTERS)
        normaliser.add(first)
        second = normaliser.add(raw(tools(4)))
        assert second is not None
        assert second.name == "shop_2"
