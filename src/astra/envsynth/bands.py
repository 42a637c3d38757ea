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

from astra.arena.state import state_of
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
class Offer:
    """A tool of the pool. ``text`` is what is embedded of it, written once."""

    tool: ArenaTool
    domain: str
    text: str

    @classmethod
    def of(cls, tool: ArenaTool, domain: str) -> Offer:
        return cls(tool, domain, document_text(tool.tool))


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
        self._offers: dict[Split, dict[str, list[Offer]]] = {split: {} for split in Split}
        for arena in sorted(arenas, key=lambda arena: arena.id):
            state = state_of(arena)
            for offer in arena.tools:
                if state is not None and offer.tool.name in state.writes:
                    # Its code needs the world of its own arena: elsewhere it is a document.
                    offer = offer.model_copy(update={"code": ""})
                self._add(arena.split, Offer.of(offer, arena.domain))
        for server in sorted(servers, key=lambda server: server.id):
            for tool in server.tools:
                bare = tool.model_copy(update={"original_name": None, "hints": {}})
                offer = Offer.of(ArenaTool(tool=bare), server.domain)
                for split in Split:
                    self._add(split, offer)
        for split, offers in self._offers.items():
            self._offers[split] = dict(sorted(offers.items()))

    def _add(self, split: Split, offer: Offer) -> None:
        """Keep the first tool of each name and domain; tools with code come first."""
        known = self._offers[split].setdefault(offer.tool.tool.name, [])
        if all(other.domain != offer.domain for other in known):
            known.append(offer)

    def candidates(self, split: Split, domain: str) -> list[Offer]:
        """One tool per name from other domains, by name."""
        found: list[Offer] = []
        for offers in self._offers[split].values():
            for offer in offers:
                if offer.domain != domain:
                    found.append(offer)
                    break
        return found


@dataclass(frozen=True)
class _Offered:
    """The candidates of one split and domain, and each one's row among the vectors."""

    offers: list[Offer]
    place: dict[str, int]
    rows: NDArray[np.intp]


def with_irrelevant(
    arenas: Sequence[Arena], pool: ToolPool, embedder: Embedder, per_band: int
) -> Iterator[Arena]:
    """The arenas with up to ``per_band`` candidates per band, drawn uniformly.

    Similarities are computed for a block of arenas at a time: memory grows with the pool, not
    with pool times arenas.
    """
    groups = sorted({(arena.split, arena.domain) for arena in arenas})
    candidates = {group: pool.candidates(*group) for group in groups}
    texts = {offer.text for offers in candidates.values() for offer in offers}
    texts |= {document_text(tool.tool) for arena in arenas for tool in arena.tools}
    ordered = sorted(texts)
    row = {text: at for at, text in enumerate(ordered)}
    vectors = embed_distinct(embedder, ordered)
    offered = {group: _offered(offers, row) for group, offers in candidates.items()}
    for start in range(0, len(arenas), BLOCK_ARENAS):
        block = arenas[start : start + BLOCK_ARENAS]
        scope = sorted({row[document_text(tool.tool)] for arena in block for tool in arena.tools})
        place = {at: number for number, at in enumerate(scope)}
        similar = vectors[scope] @ vectors.T
        np.round(similar, _DECIMALS, out=similar)
        for arena in block:
            mine = [place[row[document_text(tool.tool)]] for tool in arena.tools]
            yield _choose(arena, offered[arena.split, arena.domain], similar[mine], per_band)


def _offered(offers: list[Offer], row: dict[str, int]) -> _Offered:
    return _Offered(
        offers,
        {offer.tool.tool.name: at for at, offer in enumerate(offers)},
        np.array([row[offer.text] for offer in offers], dtype=np.intp),
    )


def _choose(arena: Arena, offered: _Offered, similar: NDArray[np.floating], per_band: int) -> Arena:
    taken = [offered.place[t.tool.name] for t in arena.tools if t.tool.name in offered.place]
    usable = np.delete(np.arange(len(offered.offers)), taken)
    if not usable.size or per_band == 0:
        return arena
    bands = band_of(similar[:, offered.rows[usable]])
    rng = random.Random(int(content_id([arena.id, "irrelevant"]), 16))
    chosen: dict[Band, tuple[ArenaTool, ...]] = {}
    for band in Band:
        members = usable[bands == band]
        drawn = rng.sample(range(len(members)), min(per_band, len(members)))
        tools = [offered.offers[members[at]].tool for at in drawn]
        chosen[band] = tuple(sorted(tools, key=lambda tool: tool.tool.name))
    return arena.model_copy(update={"irrelevant": chosen})


def band_of(similar: NDArray[np.floating]) -> NDArray[np.str_]:
    """Bands of the columns (candidates) of a similarity matrix, one row per tool in scope."""
    low = similar.min(axis=1, keepdims=True)
    spread = similar.max(axis=1, keepdims=True) - low
    scaled = np.where(spread > 0, (similar - low) / np.where(spread > 0, spread, 1.0), 0.0)
    best = np.round(scaled.max(axis=0), _DECIMALS).astype(np.float64)
    return np.where(
        best > HIGH_ABOVE,
        Band.HIGH.value,
        np.where(best < LOW_BELOW, Band.LOW.value, Band.MEDIUM.value),
    )
