"""Registries: recorded listings, listings over HTTP with faults, listed servers asked over HTTP."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from toolbank_flow import flowed

from astra.agent.mcp_http import free_port
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import ModelConfig, OfflineHandlers, ProviderError
from astra.prompting import template_hash
from astra.records.tool import Execution, HttpLaunch
from astra.settings import RuntimeConfig
from astra.store.metrics import StageMetrics
from astra.toolbank import registries
from astra.toolbank.config import DomainConfig, FilterConfig, ToolsConfig
from astra.toolbank.connectors import Connectors, Page
from astra.toolbank.documents import parse_document
from astra.toolbank.domains import DOMAIN, DomainLabel
from astra.toolbank.offline.handlers import HANDLERS
from astra.toolbank.raw import RawServer
from astra.toolbank.sources import ListingSource, SourceError, SourceList, load_sources
from walls_here import walls

TOY = Path(__file__).resolve().parents[1] / "fixtures" / "toy_server.py"
BASE = RawServer(name="base", source="listing", tools=())
TOOLS = [{"name": f"t{n}", "description": "Get one of the things.", "inputSchema": {}}
         for n in range(3)]  # fmt: skip


def parsed(kind: str, document: Any) -> list[RawServer]:
    return parse_document(kind, document, BASE)


def entry(name: str, **body: Any) -> dict[str, Any]:
    meta = {"io.modelcontextprotocol.registry/official": {"status": "active", "isLatest": True}}
    return {"server": {"name": name, "description": "D", "version": "1.0", **body}, "_meta": meta}


def remote(url: str, **more: Any) -> dict[str, Any]:
    return {"remotes": [{"type": "streamable-http", "url": url, **more}]}


def test_registry_entries_have_an_address_or_an_obstacle() -> None:
    old = entry("old", **remote("https://h/mcp"))
    old["_meta"]["io.modelcontextprotocol.registry/official"]["isLatest"] = False
    gone = entry("gone", **remote("https://h/mcp"))
    gone["_meta"]["io.modelcontextprotocol.registry/official"]["status"] = "deleted"
    page = {
        "servers": [
            entry("io.x/open", title="Open", **remote("https://h/mcp")),
            entry("io.x/key", **remote("https://h/mcp", headers=[{"isRequired": True}])),
            entry("io.x/template", **remote("https://{tenant}.h/mcp")),
            entry("io.x/sse", remotes=[{"type": "sse", "url": "https://h/sse"}]),
            entry("io.x/package", packages=[{"registryType": "pypi", "identifier": "x-mcp"}]),
            {"name": "flat", "description": "D", "remotes": remote("https://f/mcp")["remotes"]},
            old, gone, {"server": {"name": 3}}, 7,
        ],
        "metadata": {},
    }  # fmt: skip
    found = {server.name: server for server in parsed("mcp_registry", page)}
    assert list(found) == ["io.x/open", "io.x/key", "io.x/template", "io.x/sse", "io.x/package",
                           "flat"]  # fmt: skip
    assert found["io.x/open"].launch == HttpLaunch(url="https://h/mcp")
    assert (found["io.x/open"].title, found["io.x/open"].source) == (
        "Open", "mcp-registry:io.x/open@1.0",
    )  # fmt: skip
    assert {name for name, server in found.items() if server.launch} == {"io.x/open", "flat"}
    assert all(server.launch or server.obstacle for server in found.values())
    assert "pypi:x-mcp" in found["io.x/package"].obstacle


def test_smithery_details_hold_tools_or_an_open_connection() -> None:
    listed = {
        "qualifiedName": "@a/b", "displayName": "B", "description": "Does b.",
        "deploymentUrl": "https://h", "tools": TOOLS,
    }  # fmt: skip
    (server,) = parsed("smithery", listed)
    assert (server.name, server.title, len(server.tools)) == ("@a/b", "B", 3)
    connections = [{"type": "http", "deploymentUrl": "https://h"}]
    (asked,) = parsed("smithery", {**listed, "tools": [], "connections": connections})
    assert asked.launch == HttpLaunch(url="https://h/mcp")
    connections[0]["configSchema"] = {"required": ["key"]}  # type: ignore[assignment]
    (closed,) = parsed("smithery", {**listed, "tools": None, "connections": connections})
    assert closed.launch is None
    assert closed.obstacle


def test_docker_registry_folders(tmp_path: Path) -> None:
    for name, tools, extra in (
        ("full", TOOLS, {}),
        ("empty", [], {}),
        ("web", None, {"remote": {"transport_type": "streamable-http", "url": "https://h/mcp"}}),
    ):
        folder = tmp_path / "servers" / name
        folder.mkdir(parents=True)
        about = {"name": name, "about": {"title": name.title(), "description": "D"},
                 "meta": {"category": "boating"}, **extra}  # fmt: skip
        (folder / "server.yaml").write_text(yaml.safe_dump(about), encoding="utf-8")
        if tools is not None:
            (folder / "tools.json").write_text(json.dumps(tools), encoding="utf-8")
    sources = SourceList.model_validate(
        {"documents": [{"path": f"{tmp_path}/servers/*/server.yaml", "format": "docker"}]}
    )
    found = read(sources)
    (full,) = [server for one in found for server in one.servers]
    assert (full.name, full.title, full.domain, len(full.tools)) == ("full", "Full", "boating", 3)
    reasons = {r.item: r.detail for one in found for r in one.rejections}
    assert len(reasons) == 2
    assert {r.reason for one in found for r in one.rejections} == {"listed_without_tools"}
    assert any("`connect` is off" in detail for detail in reasons.values())


def read(sources: SourceList, runtime: RuntimeConfig | None = None) -> list[Page]:
    async def run() -> list[Page]:
        connectors = Connectors(runtime or RuntimeConfig(request_timeout_s=5), walls())
        return [found async for found in connectors.read(sources)]

    return asyncio.run(run())


class Registry:
    """A web registry: ``answer`` maps a path with its query to a status and a body."""

    def __init__(self, answer: Callable[[str, str | None], tuple[int, Any]]) -> None:
        self.paths: list[str] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.paths.append(self.path)
                status, body = answer(self.path, self.headers.get("Authorization"))
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Retry-After", "0")
                if status == 302:
                    self.send_header("Location", str(body))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v0/servers"

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "RETRY_S", 0.001)


def fetched(source: ListingSource) -> list[Any]:
    return asyncio.run(registries.fetch_listing(source, 5))


def test_pages_are_followed_to_the_limit_and_faults_are_retried() -> None:
    faults = iter([503, 429])

    def answer(path: str, _: str | None) -> tuple[int, Any]:
        status = next(faults, 200)
        page = int(path.rpartition("cursor=")[2]) if "cursor=" in path else 0
        servers = [entry(f"s{page}{n}") for n in range(2)]
        return status, {"servers": servers, "metadata": {"nextCursor": str(page + 1)}}

    with Registry(answer) as web:
        source = ListingSource(url=f"{web.url}?search=x", format="mcp_registry", limit=5)
        pages = fetched(source)
    assert [len(page["servers"]) for page in pages] == [2, 2, 1]
    assert all("search=x" in path for path in web.paths)
    assert len(web.paths) == 5


@pytest.mark.timeout(60)
def test_an_interrupted_listing_is_not_read_to_its_end() -> None:
    def answer(path: str, _: str | None) -> tuple[int, Any]:
        time.sleep(0.1)
        cursor = str(len(web.paths))
        return 200, {"servers": [entry("s")], "metadata": {"nextCursor": cursor}}

    async def interrupted(source: ListingSource) -> None:
        async with asyncio.timeout(0.5):
            await registries.fetch_listing(source, 5)

    with Registry(answer) as web:
        with pytest.raises(TimeoutError):
            asyncio.run(interrupted(ListingSource(url=web.url, format="mcp_registry", limit=900)))
        assert len(web.paths) < 20


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (404, {}, "status 404"),
        (500, {}, "status 500"),
        (200, b"<html>", "no JSON"),
        (200, {"items": []}, "without a list"),
        (200, {"servers": [1], "metadata": {"nextCursor": "same"}}, "repeats the cursor"),
    ],
)
def test_a_broken_listing_is_one_named_rejection(status: int, body: Any, message: str) -> None:
    with Registry(lambda path, key: (status, body)) as web:
        listing = {"url": web.url, "format": "mcp_registry", "limit": 100}
        (found,) = read(SourceList.model_validate({"listings": [listing]}))
    (rejection,) = found.rejections
    assert rejection.reason == "listing"
    assert message in rejection.detail


def test_smithery_pages_lead_to_details_with_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(path: str, key: str | None) -> tuple[int, Any]:
        if key != "Bearer t0k":
            return 401, {}
        if "page=" in path:
            number = int(path.rpartition("page=")[2])
            servers = [{"qualifiedName": f"@a/s{number}{n}"} for n in range(2)]
            return 200, {"servers": servers, "pagination": {"totalPages": 2}}
        name = path.rpartition("/servers/")[2]
        return 200, {"qualifiedName": name, "description": "D", "tools": TOOLS}

    with Registry(answer) as web:
        listing = {"url": f"{web.url}?q=is:deployed", "format": "smithery", "limit": 3,
                   "token_env": "ASTRA_SMITHERY"}  # fmt: skip
        sources = SourceList.model_validate({"listings": [listing]})
        (refused,) = read(sources)
        monkeypatch.setenv("ASTRA_SMITHERY", "t0k")
        found = [server for one in read(sources) for server in one.servers]
    assert "ASTRA_SMITHERY" in refused.rejections[0].detail
    assert [server.name for server in found] == ["@a/s10", "@a/s11", "@a/s20"]
    assert all(len(server.tools) == 3 for server in found)


def test_one_listed_server_that_is_gone_leaves_the_others() -> None:
    def answer(path: str, _: str | None) -> tuple[int, Any]:
        if "page=" in path:
            servers = [{"qualifiedName": name} for name in ("a", "gone", "b")]
            return 200, {"servers": servers, "pagination": {"totalPages": 1}}
        name = path.rpartition("/servers/")[2]
        return (404, {}) if name == "gone" else (200, {"qualifiedName": name, "tools": TOOLS})

    with Registry(answer) as web:
        listing = {"url": web.url, "format": "smithery", "limit": 9}
        found = read(SourceList.model_validate({"listings": [listing]}))
    assert [server.name for one in found for server in one.servers] == ["a", "b"]
    (rejection,) = [rejection for one in found for rejection in one.rejections]
    assert rejection.reason == "document"
    assert "/servers/gone answers with status 404" in rejection.detail


def test_a_token_does_not_follow_a_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str | None] = []

    def other(path: str, key: str | None) -> tuple[int, Any]:
        told.append(key)
        return 200, {"servers": [], "metadata": {}}

    with Registry(other) as elsewhere, Registry(lambda path, key: (302, elsewhere.url)) as web:
        monkeypatch.setenv("ASTRA_REGISTRY", "t0k")
        fetched(ListingSource(url=web.url, format="mcp_registry", limit=1,
                              token_env="ASTRA_REGISTRY"))  # fmt: skip
    assert told == [None]


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, str(TOY), "--http", str(port)], cwd=tmp_path,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def test_listed_server_is_asked_over_http_and_becomes_live(toy: str, tmp_path: Path) -> None:
    page = {"servers": [entry("io.x/toy", **remote(toy)), entry("io.x/none")]}
    path = tmp_path / "page.json"
    path.write_text(json.dumps(page), encoding="utf-8")
    document = {"path": str(path), "format": "mcp_registry", "connect": True,
                "deterministic": False}  # fmt: skip
    sources = tmp_path / "list.yaml"
    sources.write_text(yaml.safe_dump({"documents": [document]}), encoding="utf-8")
    deadline = time.monotonic() + 60
    while True:
        metrics = StageMetrics("tools")
        servers = collected(str(sources), metrics)
        if servers or time.monotonic() > deadline:
            break
        time.sleep(0.3)
    (server,) = servers
    assert server.execution is Execution.LIVE
    assert server.launch == HttpLaunch(url=toy)
    assert "read_note" in {tool.name for tool in server.tools}
    assert metrics.dropped["listed_without_tools"] == 1


FILTERS = FilterConfig(
    min_tools=1,
    max_tools=64,
    min_description_chars=5,
    max_description_chars=1024,
    max_bad_description_share=1.0,
    deterministic_only=False,
    languages=(),
    duplicate_similarity=1.0,
)
MODEL = ModelConfig(backend="offline", model="v1")


def collected(sources: str, metrics: StageMetrics, handlers: OfflineHandlers | None = None) -> Any:
    labels = ("travel", "development", "other")
    domains = DomainConfig(by="teacher" if handlers else "text", labels=labels,
                           mapping={"tourism": "travel"})  # fmt: skip
    config = ToolsConfig(
        sources=(sources,), max_failed_live_share=0.0, teacher=MODEL, domains=domains,
        infer_results=False, filters=FILTERS,
    )  # fmt: skip
    return flowed(config, metrics, OfflineTeacher(MODEL, handlers) if handlers else None)[0]


def labelled(
    tmp_path: Path, metrics: StageMetrics, handlers: OfflineHandlers | None
) -> list[tuple[str, str]]:
    """Domain and prompt hash of two servers."""
    rows = [
        {"server": {"name": "a", "domain": "Tourism"},
         "tools": [{"name": "book_hotel", "description": "Book a hotel room for a trip."}]},
        {"server": {"name": "b"},
         "tools": [{"name": "git_commit", "description": "Commit code to a repository."}]},
    ]  # fmt: skip
    (tmp_path / "d.json").write_text(json.dumps(rows), encoding="utf-8")
    path = tmp_path / "list.yaml"
    path.write_text(f"documents: [{{path: '{tmp_path}/d.json', format: mcp}}]", encoding="utf-8")
    found = collected(str(path), metrics, handlers)
    return [(server.domain, server.prompt_hash) for server in found]


def test_domains_by_mapping_and_by_teacher(tmp_path: Path) -> None:
    domains = ("travel", "development")
    assert labelled(tmp_path, StageMetrics("t"), None) == [(one, "") for one in domains]
    asked = template_hash(DOMAIN)
    assert labelled(tmp_path, StageMetrics("t"), HANDLERS) == [(one, asked) for one in domains]


@pytest.mark.parametrize(
    ("reply", "reason"), [("astrology", "domain_unparsable"), (None, "domain_ask_failed")]
)
def test_a_server_that_cannot_be_labelled_is_dropped(
    tmp_path: Path, reply: str | None, reason: str
) -> None:
    def handler(variables: Any, rng: Any) -> DomainLabel:
        if reply is None:
            raise ProviderError("down")
        return DomainLabel(domain=reply)

    metrics = StageMetrics("t")
    assert labelled(tmp_path, metrics, {DOMAIN: handler}) == []
    assert metrics.dropped == {reason: 2}


def test_a_live_source_needs_a_command_or_an_address(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    live = {"name": "x", "source": "x", "licence": "MIT", "deterministic": False}
    http = {"environment": "e", "command": "c", "url": "http://127.0.0.1:{port}/mcp"}
    for launch, fault in (
        ({"url": "https://h/mcp", "headers": {"Authorization": "Bearer ${T}"}}, ""),
        (http | {"network": True}, ""),
        (http, "needs `network: true`"),
        ({"environment": "e", "command": "c"}, ""),
        ({"environment": "e", "command": ""}, "a command, or the url"),
    ):
        path.write_text(yaml.safe_dump({"live": [{**live, "launch": launch}]}), encoding="utf-8")
        if not fault:
            assert isinstance(load_sources(path).live[0].launch, HttpLaunch) is ("url" in launch)
        else:
            with pytest.raises(SourceError, match=fault):
                load_sources(path)
