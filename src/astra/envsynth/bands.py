"""Irrelevant-tool candidates by similarity band (ASTRA section 5.2).

The pool holds the tools of the other arenas of the same split, so that no entity crosses
splits, and document-only tools of servers. Per arena: one tool per name, none of the arena's
own domain or with a name in scope; cosine of document embeddings, min-max normalised per tool
in scope; each candidate lands in the highest band that any tool in scope gives it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from astra.embedding.protocol import Embedder, embed_distinct
from astra.records.base import content_id
from astra.records.environment import Arena, ArenaTool, Band
from astra.records.qa import Split
from astra.records.tool import Tool, ToolServer

HIGH_ABOVE, LOW_BELOW = 0.85, 0.4
BLOCK_ARENAS = 256
_DECIMALS = 4
"""Similarities are rounded, so that the last bits of a float never choose a band."""


@dataclass(frozen=True)
class _Offer:
    tool: ArenaTool
    domain: str


def document_text(tool: Tool) -> str:
    """What is embedded of a tool: its name, description and parameters."""
    parameters = tool.parameters.get("properties", {})
    described = [
        f"{name} ({schema['description']})"
        if isinstance(schema, dict) and schema.get("description")
        else name
        for name, schema in parameters.items()
    ]
    return f"{tool.name}: {tool.description} Parameters: {', '.join(described) or 'none'}"


class ToolPool:
    """Every tool that may distract, by split; document-only tools serve all splits."""

    def __init__(self, arenas: Iterable[Arena], servers: Iterable[ToolServer]) -> None:
        self._offers: dict[Split, dict[str, list[_Offer]]] = {split: {} for split in Split}
        for arena in sorted(arenas, key=lambda arena: arena.id):
            for offer in arena.tools:
                self._add(arena.split, _Offer(offer, arena.domain))
        for server in sorted(servers, key=lambda server: server.id):
            for tool in server.tools:
                bare = tool.model_copy(update={"original_name": None, "hints": {}})
                for split in Split:
                    self._add(split, _Offer(ArenaTool(tool=bare), server.domain))

    def _add(self, split: Split, offer: _Offer) -> None:
        """Keep the first tool of each name and domain; tools with code come first."""
        known = self._offers[split].setdefault(offer.tool.tool.name, [])
        if all(other.domain != offer.domain for other in known):
            known.append(offer)

    def candidates(self, split: Split, domain: str) -> list[ArenaTool]:
        """One tool per name from other domains, by name."""
        found: list[ArenaTool] = []
        for _, offers in sorted(self._offers[split].items()):
            offer = next((offer for offer in offers if offer.domain != domain), None)
            if offer is not None:
                found.append(offer.tool)
        return found


def with_irrelevant(
    arenas: Sequence[Arena], pool: ToolPool, embedder: Embedder, per_band: int
) -> Iterator[Arena]:
    """The arenas with up to ``per_band`` candidates per band, drawn uniformly."""
    groups = sorted({(arena.split, arena.domain) for arena in arenas})
    offered = {group: pool.candidates(*group) for group in groups}
    texts = {document_text(tool.tool) for tools in offered.values() for tool in tools}
    texts |= {document_text(tool.tool) for arena in arenas for tool in arena.tools}
    ordered = sorted(texts)
    row = {text: at for at, text in enumerate(ordered)}
    vectors = embed_distinct(embedder, ordered)
    for start in range(0, len(arenas), BLOCK_ARENAS):
        block = arenas[start : start + BLOCK_ARENAS]
        scope = sorted({row[document_text(tool.tool)] for arena in block for tool in arena.tools})
        place = {at: number for number, at in enumerate(scope)}
        similar = np.round(vectors[scope] @ vectors.T, _DECIMALS)
        for arena in block:
            tools = offered[arena.split, arena.domain]
            mine = [place[row[document_text(tool.tool)]] for tool in arena.tools]
            yield _choose(arena, tools, similar[mine], row, per_band)


def _choose(
    arena: Arena,
    offered: Sequence[ArenaTool],
    similar: NDArray[np.floating],
    row: dict[str, int],
    per_band: int,
) -> Arena:
    names = {tool.tool.name for tool in arena.tools}
    usable = [tool for tool in offered if tool.tool.name not in names]
    if not usable or per_band == 0:
        return arena
    columns = [row[document_text(tool.tool)] for tool in usable]
    bands = band_of(similar[:, columns])
    rng = random.Random(int(content_id([arena.id, "irrelevant"]), 16))
    chosen: dict[Band, tuple[ArenaTool, ...]] = {}
    for band in Band:
        members = [tool for tool, one in zip(usable, bands, strict=True) if one == band]
        drawn = rng.sample(members, min(per_band, len(members)))
        chosen[band] = tuple(sorted(drawn, key=lambda tool: tool.tool.name))
    return arena.model_copy(update={"irrelevant": chosen})


def band_of(similar: NDArray[np.floating]) -> list[Band]:
    """Bands of the columns (candidates) of a similarity matrix, one row per tool in scope."""
    low = similar.min(axis=1, keepdims=True)
    spread = similar.max(axis=1, keepdims=True) - low
    scaled = np.where(spread > 0, (similar - low) / np.where(spread > 0, spread, 1.0), 0.0)
    best = np.round(scaled.max(axis=0), _DECIMALS)
    return [
        Band.HIGH if value > HIGH_ABOVE else Band.LOW if value < LOW_BELOW else Band.MEDIUM
        for value in best.tolist()
    ]
