"""RawServer and RawTool: what a source holds, nothing checked yet."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from astra.records.tool import Effect, Launch
from astra.toolbank.effects import method_effect, stated_effect


class BadDocument(ValueError):
    """A document is not what its declared format says; the message says what is wrong."""


@dataclass(frozen=True)
class RawTool:
    """``parameters`` and ``output`` are whatever the document holds."""

    name: Any
    description: Any
    parameters: Any
    output: Any = None
    notes: tuple[str, ...] = ()
    """What the connector itself had to leave out; recorded with the repairs."""
    effect: Effect = ""
    """What the document says of a call's effect."""


@dataclass(frozen=True)
class RawServer:
    name: str
    source: str
    tools: tuple[RawTool, ...]
    title: str = ""
    description: str = ""
    domain: str = ""
    licence: str = ""
    launch: Launch | None = None
    deterministic: bool = True
    hints: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    obstacle: str = ""
    """Why a listed server without tools cannot be asked for them."""

    def described(self, block: Any) -> RawServer:
        """Fill empty fields from a document's own server block."""
        if not isinstance(block, dict):
            return self

        def text(key: str, *names: str) -> str:
            own = getattr(self, key)
            values = (block.get(name) for name in names)
            return own or next((v.strip() for v in values if isinstance(v, str) and v.strip()), "")

        return replace(
            self,
            title=text("title", "title", "server_title"),
            description=text("description", "description", "server_description"),
            domain=text("domain", "domain"),
            licence=text("licence", "licence", "license"),
        )


def raw_tool(item: Any) -> RawTool:
    """A tool document in any of the spellings of MCP, OpenAI, BFCL and the docker registry."""
    if not isinstance(item, dict):
        return RawTool(name=None, description=None, parameters=None)
    function = item.get("function")
    body = function if isinstance(function, dict) else item
    keys = ("inputSchema", "input_schema", "parameters", "arguments")
    return RawTool(
        name=body.get("name"),
        description=body.get("description"),
        parameters=next((body[key] for key in keys if body.get(key) is not None), None),
        output=next(
            (body[k] for k in ("outputSchema", "output_schema", "response") if body.get(k)), None
        ),
        effect=stated_effect(body.get("annotations")) or _http_effect(body),
    )


def _http_effect(body: dict[str, Any]) -> Effect:
    """The effect of a tool that says which HTTP operation it stands for (``http``)."""
    http = body.get("http")
    if not isinstance(http, dict):
        return ""
    return method_effect(
        http.get("method"), body.get("name"), http.get("path"), body.get("description")
    )


def raw_tools(items: Any) -> tuple[RawTool, ...]:
    """Raises BadDocument if ``items`` is no list."""
    if not isinstance(items, list):
        raise BadDocument(f"tools are {type(items).__name__}, expected a list")
    return tuple(raw_tool(item) for item in items)
