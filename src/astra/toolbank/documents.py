"""Documents in the formats that tools are published in -> raw servers.

``parse_document(format, document, base)`` is the one interface; each format is a function of the
parsed document, here or, one file each, in ``known``. Unusable documents raise BadDocument; odd
tools inside a usable document are passed on, normalisation decides about them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import yaml

from astra.plugins import find
from astra.toolbank import formats
from astra.toolbank.catalogue import parse_catalogue
from astra.toolbank.listings import parse_docker, parse_mcp_registry, parse_smithery
from astra.toolbank.openapi import parse_openapi
from astra.toolbank.raw import BadDocument, RawServer, RawTool, raw_tool, raw_tools

MAX_BYTES = 64 * 2**20


def read_documents(path: Path, kind: str) -> Iterator[tuple[str, Any]]:
    """Each document of a file with its place: one, or one a line of JSON lines (``.jsonl``).

    A document that cannot be read is a BadDocument in its place; raises BadDocument for the file.
    """
    if path.suffix not in (".jsonl", ".ndjson"):
        yield "", _with_tools(path) if kind == "docker" else read_document(path)
        return
    with _opened(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield f"#{number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                yield f"#{number}", BadDocument(f"line {number} is no JSON: {_first_line(error)}")


def read_document(path: Path) -> Any:
    """Parse JSON, JSON lines or YAML, by content where the extension lies. Raises BadDocument."""
    with _opened(path) as file:
        text = file.read()
    try:
        if path.suffix in (".yaml", ".yml"):
            return yaml.safe_load(text)
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise BadDocument(
            f"{path} is neither JSON, JSON lines nor YAML: {_first_line(error)}"
        ) from None


@contextmanager
def _opened(path: Path) -> Generator[TextIO]:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES and path.suffix not in (".jsonl", ".ndjson"):
            raise BadDocument(f"{path} is larger than {MAX_BYTES} bytes")
        with path.open(encoding="utf-8-sig") as file:
            yield file
    except (OSError, UnicodeDecodeError) as error:
        raise BadDocument(f"{path} cannot be read: {error}") from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _with_tools(path: Path) -> Any:
    """A ``server.yaml`` of the docker registry with the ``tools.json`` beside it, if any."""
    document = read_document(path)
    if path.name != "server.yaml":
        return document
    tools = path.with_name("tools.json")
    return {"server": document, "tools": read_document(tools) if tools.is_file() else []}


def parse_document(kind: str, document: Any, base: RawServer) -> list[RawServer]:
    """Raw servers of a document in format ``kind``. Raises BadDocument."""
    return list(parsed_servers(kind, document, base))


def parsed_servers(kind: str, document: Any, base: RawServer) -> Iterator[RawServer]:
    """Those of ``parse_document`` one by one; BadDocument may come after some of them."""
    parse = FORMATS[kind] if kind in FORMATS else find(formats, kind).parse
    yield from parse(document, base)


def _mcp(document: Any, base: RawServer) -> Iterable[RawServer]:
    """``tools/list`` results, lists of them, and maps of servers."""
    if isinstance(document, list):
        if any(isinstance(item, dict) and "tools" in item for item in document):
            for index, item in enumerate(document):
                if isinstance(item, dict):
                    yield from _mcp(item, replace(base, source=f"{base.source}#{index}"))
            return
        yield replace(base, tools=raw_tools(document))
        return
    if not isinstance(document, dict):
        raise BadDocument("expected an object or a list")
    if isinstance(document.get("result"), dict):
        document = document["result"]
    if "tools" in document:
        found = document.get("server", document)
        name = found.get("name") or found.get("server_name") if isinstance(found, dict) else None
        named = replace(base, name=name if isinstance(name, str) and name else base.name)
        stated = found.get("source") if isinstance(found, dict) else None
        yield replace(
            named.described(found),
            source=stated if isinstance(stated, str) and stated else base.source,
            tools=raw_tools(document["tools"]),
        )
        return
    entries = {key: item for key, item in document.items() if isinstance(item, dict)}
    if not entries or not all("tools" in item for item in entries.values()):
        raise BadDocument("no key `tools`; expected a tools/list result")
    for key, item in entries.items():
        yield from _mcp(item, replace(base, name=key, source=f"{base.source}#{key}"))


def _openai(document: Any, base: RawServer) -> Iterable[RawServer]:
    items = document
    if isinstance(document, dict):
        items = document.get("tools", document.get("functions"))
    yield replace(base, tools=raw_tools(items))


def _rapidapi(document: Any, base: RawServer) -> Iterable[RawServer]:
    """API listings with separate required and optional parameters, grouped by service."""
    if isinstance(document, dict):
        title = document.get("tool_name") or document.get("title") or base.name
        base = base.described({"description": document.get("tool_description")})
        apis = document.get("api_list", [])
        if isinstance(apis, list):
            apis = [{"tool_name": title, **api} for api in apis if isinstance(api, dict)]
        document = apis
    if not isinstance(document, list):
        raise BadDocument("expected a list of APIs or an object with `api_list`")
    groups: dict[str, list[dict[str, Any]]] = {}
    for api in document:
        if isinstance(api, dict):
            groups.setdefault(str(api.get("tool_name") or base.name), []).append(api)
    for name, apis in groups.items():
        category = apis[0].get("category_name") or apis[0].get("category") or ""
        yield replace(
            base.described({"domain": category, "title": name}),
            name=name,
            source=f"{base.source}#{name}" if len(groups) > 1 else base.source,
            tools=tuple(_rapid_tool(api) for api in apis),
        )


def _rapid_tool(api: dict[str, Any]) -> RawTool:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for key in ("required_parameters", "optional_parameters"):
        listed = api.get(key)
        for parameter in listed if isinstance(listed, list) else []:
            if not isinstance(parameter, dict) or not isinstance(parameter.get("name"), str):
                continue
            name = parameter["name"]
            properties[name] = {
                field: parameter[field]
                for field in ("type", "description", "default", "enum", "example")
                if parameter.get(field) not in (None, "")
            }
            if key == "required_parameters":
                required.append(name)
    return RawTool(
        name=api.get("api_name", api.get("name")),
        description=api.get("api_description", api.get("description")),
        parameters={"type": "object", "properties": properties, "required": required},
    )


def _bfcl(document: Any, base: RawServer) -> Iterable[RawServer]:
    """Function lists; a dotted prefix is the server, loose functions share the base's name."""
    items = document if isinstance(document, list) else [document]
    flat: list[Any] = []
    for item in items:
        inner = item.get("function") if isinstance(item, dict) else None
        flat += inner if isinstance(inner, list) else [item]
    groups: dict[str, list[RawTool]] = {}
    for item in flat:
        tool = raw_tool(item)
        prefix = tool.name.rpartition(".")[0] if isinstance(tool.name, str) else ""
        groups.setdefault(prefix or base.name, []).append(tool)
    for name, tools in groups.items():
        source = f"{base.source}#{name}" if len(groups) > 1 else base.source
        yield replace(base, name=name, source=source, tools=tuple(tools))


def _astra(document: Any, base: RawServer) -> Iterable[RawServer]:
    """Server rows of the ASTRA release: ``base_info.group_info`` and ``base_info.tool_list``.

    Rows of its later stages keep them under ``mcp_info``. ``call_info`` is not read: it holds
    addresses and keys.
    """
    for index, row in enumerate(document if isinstance(document, list) else [document]):
        row = row.get("mcp_info", row) if isinstance(row, dict) else None
        info = row.get("base_info") if isinstance(row, dict) else None
        if not isinstance(info, dict) or "tool_list" not in info:
            raise BadDocument(f"row {index}: no base_info.tool_list")
        group = info.get("group_info")
        group = group if isinstance(group, dict) else {}
        name = group.get("server_name") or group.get("server_title") or base.name
        yield replace(
            base.described(group),
            name=str(name),
            source=f"{base.source}#{index}",
            tools=raw_tools(info["tool_list"]),
        )


def _openapi(document: Any, base: RawServer) -> Iterable[RawServer]:
    yield parse_openapi(document, base)


FORMATS: dict[str, Callable[[Any, RawServer], Iterable[RawServer]]] = {
    "mcp": _mcp,
    "openai": _openai,
    "openapi": _openapi,
    "rapidapi": _rapidapi,
    "bfcl": _bfcl,
    "astra": _astra,
    "docker": parse_docker,
    "smithery": parse_smithery,
    "mcp_registry": parse_mcp_registry,
    "catalogue": parse_catalogue,
}
