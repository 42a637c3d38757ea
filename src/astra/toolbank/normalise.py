"""Raw server -> ToolServer: schemas, names, descriptions, secrets; filters of ASTRA section 3.1.

Every tool or server that leaves is a Rejection; tool reasons start with ``tool_``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from astra.records.base import canonical_json
from astra.records.score import Rejection
from astra.records.tool import Execution, Tool, ToolServer
from astra.text.language import detect_language
from astra.toolbank.clean import clean_description, domain_of, safe_name, scrub
from astra.toolbank.config import FilterConfig
from astra.toolbank.raw import RawServer, RawTool
from astra.toolbank.schema import Unmappable, normalise_output, normalise_parameters


class ServerNormaliser:
    """Normalises servers in order and remembers them, so that repeats are dropped."""

    def __init__(self, filters: FilterConfig) -> None:
        self._filters = filters
        self._names: set[str] = set()
        self._contents: dict[str, str] = {}
        self.rejections: list[Rejection] = []

    def add(self, raw: RawServer) -> ToolServer | None:
        """The normalised server, or None with the reason appended to ``rejections``."""
        item = f"{raw.name} ({raw.source})"
        repairs: list[str] = []
        tools = self._tools(raw, item, repairs)
        described = len(tools)
        reason = self._unfit(raw, tools, described)
        if reason:
            self.rejections.append(Rejection(item=item, reason=reason[0], detail=reason[1]))
            return None
        content = canonical_json(
            [
                [t.name, sorted(t.parameters["properties"])]
                for t in sorted(tools, key=lambda t: t.name)
            ]
        )
        if content in self._contents:
            detail = f"same tools as {self._contents[content]}"
            self.rejections.append(Rejection(item=item, reason="duplicate_server", detail=detail))
            return None
        server = self._server(raw, tools, repairs)
        if self._filters.languages and server.language not in self._filters.languages:
            self.rejections.append(Rejection(item=item, reason="language", detail=server.language))
            return None
        self._contents[content] = raw.name
        self._names.add(server.name)
        return server

    def _unfit(self, raw: RawServer, tools: list[Tool], described: int) -> tuple[str, str] | None:
        limits = self._filters
        if limits.deterministic_only and not raw.deterministic:
            return "not_deterministic", "repeated calls differ"
        undescribed = len(raw.tools) - described
        if raw.tools and undescribed / len(raw.tools) > limits.max_bad_description_share:
            return "vague_documents", f"{undescribed} of {len(raw.tools)} tools are not usable"
        if len(tools) < limits.min_tools:
            return "too_few_tools", f"{len(tools)} usable of {len(raw.tools)}"
        if len(tools) > limits.max_tools:
            return "too_many_tools", str(len(tools))
        return None

    def _tools(self, raw: RawServer, item: str, repairs: list[str]) -> list[Tool]:
        tools: list[Tool] = []
        originals: set[str] = set()
        taken: set[str] = set()
        for index, found in enumerate(raw.tools):
            where = f"{item} tool {str(found.name)[:80] if found.name else index}"
            try:
                tool = self._tool(found, originals, taken, repairs)
            except Unmappable as error:
                self.rejections.append(
                    Rejection(item=where, reason=f"tool_{error.reason}", detail=error.detail)
                )
                continue
            originals.add(tool.original_name or tool.name)
            taken.add(tool.name)
            hints = raw.hints.get(tool.name)
            tools.append(tool.model_copy(update={"hints": hints}) if hints else tool)
        return tools

    def _tool(
        self, found: RawTool, originals: set[str], taken: set[str], repairs: list[str]
    ) -> Tool:
        if not isinstance(found.name, str) or not found.name.strip():
            raise Unmappable("unnamed", "no name")
        original = found.name.encode("utf-8", "replace").decode()
        if original in originals:
            raise Unmappable("duplicate", f"{original!r} is listed twice")
        description = clean_description(found.description)
        if len(description) < self._filters.min_description_chars:
            raise Unmappable("description", f"{str(found.description)[:60]!r}")
        parameters, notes = normalise_parameters(found.parameters)
        output, more = normalise_output(found.output)
        name = _free_name(safe_name(original), taken)
        document: dict[str, Any]
        document, secrets = scrub(
            {"description": description, "parameters": parameters, "output": output}
        )
        if name != original:
            repairs.append(f"{name}: renamed from {original[:100]!r}")
        if secrets:
            repairs.append(f"{name}: {secrets} credentials redacted")
        repairs.extend(
            f"{name}{note if note[:1] == '/' else ': ' + note}" for note in [*notes, *more]
        )
        return Tool(
            name=name,
            description=document["description"],
            parameters=document["parameters"],
            output_schema=document["output"],
            original_name=original if name != original else None,
        )

    def _server(self, raw: RawServer, tools: list[Tool], repairs: list[str]) -> ToolServer:
        name = _free_name(safe_name(raw.name or "server"), self._names)
        if name != raw.name:
            repairs.append(f"server renamed from {raw.name[:100]!r}")
        texts: dict[str, str]
        texts, secrets = scrub(
            {
                "title": clean_description(raw.title) or name,
                "description": clean_description(raw.description),
                "licence": raw.licence or "unknown",
            }
        )
        if secrets:
            repairs.append(f"{secrets} credentials redacted in the server's description")
        words = " ".join([texts["title"], texts["description"], *(t.description for t in tools)])
        return ToolServer(
            name=name,
            title=texts["title"],
            description=texts["description"],
            domain=domain_of(raw.domain, words),
            source=raw.source,
            licence=texts["licence"],
            language=detect_language(words),
            execution=Execution.LIVE if raw.launch else Execution.EMULATED,
            deterministic=raw.deterministic,
            launch=raw.launch,
            tools=tuple(tools),
            repairs=tuple(repairs),
        )


def _free_name(name: str, taken: Iterable[str]) -> str:
    """``name``, or the first of ``name_2``, ``name_3``, ... that is not taken."""
    used = set(taken)
    candidate, number = name, 2
    while candidate in used:
        tail = f"_{number}"
        candidate, number = f"{name[: 64 - len(tail)]}{tail}", number + 1
    return candidate
