"""Turns raw servers into ToolServer records: schemas, names, descriptions; filters of ASTRA 3.1.

Every tool or server that leaves is a Rejection; tool reasons start with ``tool_``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from astra.records.base import content_id
from astra.records.score import Rejection
from astra.records.tool import Execution, Tool, ToolServer
from astra.text.language import detect_language
from astra.toolbank.clean import (
    clean_description,
    described_length,
    domain_of,
    safe_name,
    scrub,
    storable,
)
from astra.toolbank.cleaner import clip
from astra.toolbank.config import FilterConfig
from astra.toolbank.properties import free_name, safe_properties
from astra.toolbank.raw import RawServer, RawTool
from astra.toolbank.repeats import KnownServers
from astra.toolbank.schema import Unmappable, normalise_output, normalise_parameters

MAX_LANGUAGE_CHARS = 20_000
"""How much of a server's text language and domain are told from."""


def normalise_tool(raw_tool: RawTool, max_text: int) -> tuple[Tool, list[str]]:
    """The tool in the function schema and what was changed. Raises Unmappable.

    Says nothing about quality: a tool without a description passes.
    """
    if not isinstance(raw_tool.name, str) or not raw_tool.name.strip():
        raise Unmappable("unnamed", "no name")
    original = storable(raw_tool.name)
    description = clean_description(raw_tool.description)
    parameters, notes = normalise_parameters(raw_tool.parameters, max_text)
    output, more = normalise_output(raw_tool.output, max_text)
    parameters, renamed = safe_properties(parameters)
    name = safe_name(original)
    # Longer than what is kept, so that no credential is cut in two before it is recognised.
    document: dict[str, Any]
    document, secrets = scrub(
        {"description": description[: 4 * max_text], "parameters": parameters, "output": output}
    )
    repairs: list[str] = []
    if name != original:
        repairs.append(f"renamed from {original[:100]!r}")
    repairs += [f"parameter {new} renamed from {old[:100]!r}" for new, old in renamed.items()]
    if len(description) > max_text:
        repairs.append(f"description of {len(description)} characters cut")
    if secrets:
        repairs.append(f"{secrets} credentials redacted")
    tool = Tool(
        name=name,
        description=clip(document["description"], max_text),
        parameters=document["parameters"],
        output_schema=document["output"],
        original_name=original if name != original else None,
        original_parameters=renamed,
        effect=raw_tool.effect,
    )
    return tool, [*repairs, *raw_tool.notes, *notes, *more]


class ServerNormaliser:
    """Normalises servers in order and remembers them, so that repeats are dropped.

    Names depend on the servers before, kept or not, and on nothing that a filter decides: a
    changed document leaves the others' names as they are.
    """

    def __init__(self, filters: FilterConfig, domains: Mapping[str, str] | None = None) -> None:
        self._filters = filters
        self._domains = dict(domains or {})
        self._known = KnownServers(filters.duplicate_similarity)
        self._rejections: list[Rejection] = []

    def drain(self) -> list[Rejection]:
        """What was rejected since this was last asked."""
        rejections, self._rejections = self._rejections, []
        return rejections

    def add(self, raw: RawServer) -> ToolServer | None:
        """The normalised server, or None; ``drain`` has the reason."""
        raw = replace(raw, name=storable(raw.name), source=storable(raw.source))
        name = self._known.new_name(raw.name or "server")
        item = f"{raw.name} ({raw.source})"
        repairs: list[str] = []
        beyond = self._beyond(raw)
        tools = [] if beyond else self._tools(raw, item, repairs)
        reason = beyond or self._unfit(raw, tools)
        if reason:
            return self._reject(item, *reason)
        server = self._server(raw, name, tools, repairs)
        if self._filters.languages and server.language not in self._filters.languages:
            return self._reject(item, "language", server.language)
        signatures = {content_id([t.name, sorted(t.parameters["properties"])]) for t in tools}
        known = self._known.same_tools(signatures)
        if known is not None:
            return self._reject(item, "duplicate_server", f"same tools as {known}")
        self._known.keep(raw.name, signatures)
        return server

    def _reject(self, item: str, reason: str, detail: str, part: str = "") -> None:
        self._rejections.append(
            Rejection(item=item, part=storable(part), reason=reason, detail=storable(detail))
        )

    def _beyond(self, raw: RawServer) -> tuple[str, str] | None:
        """Whether there are too many tools, however many of them may yet prove unusable.

        Told before they are normalised: the largest documents list thousands.
        """
        limits = self._filters
        usable = len(raw.tools) * (1 - limits.max_bad_description_share)
        return ("too_many_tools", f"{len(raw.tools)} listed") if usable > limits.max_tools else None

    def _unfit(self, raw: RawServer, tools: list[Tool]) -> tuple[str, str] | None:
        limits = self._filters
        if limits.deterministic_only and not raw.deterministic:
            return "not_deterministic", "repeated calls differ"
        unusable = len(raw.tools) - len(tools)
        if raw.tools and unusable / len(raw.tools) > limits.max_bad_description_share:
            return "vague_documents", f"{unusable} of {len(raw.tools)} tools are not usable"
        if len(tools) < limits.min_tools:
            return "too_few_tools", f"{len(tools)} usable of {len(raw.tools)}"
        if len(tools) > limits.max_tools:
            return "too_many_tools", str(len(tools))
        return None

    def _tools(self, raw: RawServer, item: str, repairs: list[str]) -> list[Tool]:
        tools: list[Tool] = []
        originals: set[str] = set()
        taken: set[str] = set()
        for index, raw_tool in enumerate(raw.tools):
            try:
                tool, notes = self._tool(raw_tool, originals)
            except Unmappable as error:
                part = f"tool {str(raw_tool.name)[:80] if raw_tool.name else index}"
                self._reject(item, f"tool_{error.reason}", error.detail, part)
                continue
            original = tool.original_name or tool.name
            name = free_name(tool.name, taken)
            originals.add(original)
            taken.add(name)
            if name != tool.name:
                tool = tool.model_copy(update={"name": name, "original_name": original})
                notes = [note for note in notes if not note.startswith("renamed from")]
                notes.insert(0, f"renamed from {original[:100]!r}")
            repairs += [f"{name}{note if note[:1] == '/' else ': ' + note}" for note in notes]
            hints = raw.hints.get(name)
            tools.append(tool.model_copy(update={"hints": hints}) if hints else tool)
        return tools

    def _tool(self, raw_tool: RawTool, originals: set[str]) -> tuple[Tool, list[str]]:
        limits = self._filters
        if isinstance(raw_tool.name, str) and raw_tool.name in originals:
            raise Unmappable("duplicate", f"{raw_tool.name!r} is listed twice")
        if isinstance(raw_tool.name, str) and raw_tool.name.strip():
            description = clean_description(raw_tool.description)
            if described_length(description) < limits.min_description_chars:
                raise Unmappable("description", f"{str(raw_tool.description)[:60]!r}")
            raw_tool = replace(raw_tool, description=description)
        return normalise_tool(raw_tool, limits.max_description_chars)

    def _server(
        self, raw: RawServer, name: str, tools: list[Tool], repairs: list[str]
    ) -> ToolServer:
        if name != raw.name:
            repairs.append(f"server renamed from {raw.name[:100]!r}")
        limit = self._filters.max_description_chars
        texts: dict[str, str]
        texts, secrets = scrub(
            {
                "title": clip(clean_description(raw.title), limit) or name,
                "description": clip(clean_description(raw.description), limit),
                "licence": clip(clean_description(raw.licence), limit) or "unknown",
                "source": raw.source,
            }
        )
        if secrets:
            repairs.append(f"{secrets} credentials redacted in the server's description")
        words = " ".join([texts["title"], texts["description"], *(t.description for t in tools)])
        words = words[:MAX_LANGUAGE_CHARS]
        return ToolServer(
            name=name,
            title=texts["title"],
            description=texts["description"],
            domain=domain_of(raw.domain, words, self._domains),
            source=texts["source"],
            licence=texts["licence"],
            language=detect_language(words),
            execution=Execution.LIVE if raw.launch else Execution.EMULATED,
            deterministic=raw.deterministic,
            launch=raw.launch,
            tools=tuple(tools),
            repairs=tuple(repairs),
        )
