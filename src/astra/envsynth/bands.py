"""Irrelevant tools for each arena, drawn from three bands of similarity (ASTRA section 5.2).

An irrelevant tool is one that an arena's question does not need. How hard it is to leave alone
depends on how much it resembles the tools in scope (the arena's own), so each candidate falls into
a band: high above 0.85, low below 0.4, medium between. These similarities are relative to the
pool, in which something is always the most alike: high is only what is alike in itself too.

Candidates come from a ``ToolPool``: the tools of the other arenas of the same split, so that no
entity crosses splits, and document-only tools of servers. An arena is offered one tool per name,
none of its own domain and none with a name in scope. ``band_of`` compares embeddings of documents
by cosine, normalises per tool in scope (min-max), and gives a candidate the highest band that any
tool in scope gives it. ``with_irrelevant`` draws up to ``per_band`` candidates of each band.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Self

import numpy as np
from numpy.typing import NDArray

from astra.arena.state import state_of
from astra.embedding.protocol import Embedder, Vectors, embed_distinct
from astra.prompting import without_keywords
from astra.records.base import content_id
from astra.records.environment import Arena, ArenaTool, Band
from astra.records.qa import Split
from astra.records.tool import Tool, ToolServer
from astra.store.sqlite import scratch

HIGH_ABOVE, LOW_BELOW = 0.85, 0.4
"""Normalised similarities between the bands; the paper's."""
HIGH_FLOOR = 0.4
"""The cosine that the high band needs besides; ours, since a small pool may hold nothing alike."""
BLOCK_ARENAS = 256
"""The most arenas whose similarities are computed at once."""
BLOCK_CELLS = 1 << 23
"""Similarities held at once, in 4 bytes each: blocks get smaller where texts are many."""
_DECIMALS = 4
"""Similarities are rounded, so that the last bits of a float never choose a band."""


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


def _bare(tool: Tool) -> Tool:
    """The document without what no tool of an arena has, by which an agent could tell it apart."""
    plain = without_keywords(tool.parameters, lambda keyword: keyword.startswith("x-"))
    return tool.model_copy(update={"parameters": plain, "original_name": None, "hints": {}})


@dataclass(frozen=True)
class _OffersByName:
    """The offers of one split: two per name, so that one is left where a domain is excluded."""

    first: NDArray[np.int64]
    """Number of the first offer of each name."""
    second: NDArray[np.int64]
    """Number of the next one of another domain; -1 where one domain alone has the name."""
    domain: NDArray[np.int64]
    """Domain of the first."""


class ToolPool:
    """Every tool that may be offered as irrelevant, by split, on disk.

    Document-only tools serve all splits. The pool keeps the first tool of each name and domain by
    rank: arenas by id, then servers by id. The order in which they come makes no difference. Use
    it in ``with``.
    """

    def __init__(self, arenas: Iterable[Arena], servers: Iterable[ToolServer]) -> None:
        self._offers = scratch(
            "CREATE TABLE offers (n INTEGER PRIMARY KEY, split TEXT, name TEXT, domain INTEGER, "
            "rank TEXT, text TEXT, tool TEXT, UNIQUE (split, name, domain))",
            "CREATE TABLE places (split TEXT, name TEXT, place INTEGER, PRIMARY KEY (split, name)) "
            "WITHOUT ROWID",
        )
        self._domains: dict[str, int] = {}
        self._by_split: dict[Split, _OffersByName] = {}
        for arena in arenas:
            self._add_arena(arena)
        for server in servers:
            for at, tool in enumerate(server.tools):
                rank, offer = f"servers {server.id} {at:06}", ArenaTool(tool=_bare(tool))
                for split in Split:
                    self._add(split, server.domain, rank, offer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._offers.close()

    def _add_arena(self, arena: Arena) -> None:
        state = state_of(arena)
        for at, offer in enumerate(arena.tools):
            if state is not None and offer.tool.name in state.writes:
                # Its code needs the world of its own arena: elsewhere it is a document, which
                # answers that it knows nothing of what it is asked for.
                offer = offer.model_copy(update={"code": ""})
            self._add(arena.split, arena.domain, f"arenas {arena.id} {at:06}", offer)

    def _add(self, split: Split, domain: str, rank: str, offer: ArenaTool) -> None:
        """``rank`` sorts offers of one name; tools with code come before bare documents."""
        number = self._domains.setdefault(domain, len(self._domains))
        self._offers.execute(
            "INSERT INTO offers (split, name, domain, rank, text, tool) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET rank = excluded.rank, text = excluded.text, "
            "tool = excluded.tool WHERE excluded.rank < rank",
            (
                split,
                offer.tool.name,
                number,
                rank,
                document_text(offer.tool),
                offer.model_dump_json(),
            ),
        )

    def candidates(
        self, split: Split, domain: str, taken: Collection[str] = ()
    ) -> NDArray[np.int64]:
        """The numbers of the tools that an arena of ``split`` and ``domain`` may be offered.

        They are of other domains, one per name, sorted by name, and none is named as in ``taken``.
        """
        if split not in self._by_split:
            self._by_split[split] = self._by_name(split)
        offers = self._by_split[split]
        own = self._domains.get(domain, -1)
        chosen = np.where(offers.domain == own, offers.second, offers.first)
        places = (
            self._offers.execute(
                "SELECT place FROM places WHERE split = ? AND name = ?", (split, name)
            ).fetchone()
            for name in taken
        )
        chosen[[place[0] for place in places if place]] = -1
        return chosen[chosen >= 0]

    def _by_name(self, split: Split) -> _OffersByName:
        """Read the offers of a split once, and note the place of each name for ``candidates``."""
        rows = self._offers.execute(
            "SELECT name, n, domain FROM offers WHERE split = ? ORDER BY name, rank", (split,)
        )
        by_name: list[tuple[int, int, int]] = []
        for name, offers in groupby(rows, lambda row: row[0]):
            (_, first, domain), *others = islice(offers, 2)
            self._offers.execute("INSERT INTO places VALUES (?, ?, ?)", (split, name, len(by_name)))
            by_name.append((first, others[0][1] if others else -1, domain))
        # Two dimensions even where there is no offer at all.
        first_second_domain = np.array(by_name, dtype=np.int64).reshape(-1, 3).T
        return _OffersByName(*first_second_domain)

    def tool(self, number: int) -> ArenaTool:
        """The tool of one of the ``candidates``."""
        return ArenaTool.model_validate_json(self._field("tool", number))

    def text(self, number: int) -> str:
        """What is embedded of one of the ``candidates``."""
        return self._field("text", number)

    def _field(self, name: str, number: int) -> str:
        rows = self._offers.execute(f"SELECT {name} FROM offers WHERE n = ?", (int(number),))
        return rows.fetchone()[0]


class _Texts:
    """Distinct texts on disk and, once they are embedded, the row of each among the vectors."""

    def __init__(self) -> None:
        self._rows = scratch("CREATE TABLE texts (text TEXT PRIMARY KEY, row INTEGER)")

    def close(self) -> None:
        self._rows.close()

    def add(self, text: str) -> None:
        self._rows.execute("INSERT OR IGNORE INTO texts (text) VALUES (?)", (text,))

    def embed(self, embedder: Embedder) -> Vectors:
        texts = [text for (text,) in self._rows.execute("SELECT text FROM texts ORDER BY text")]
        self._rows.executemany("UPDATE texts SET row = ? WHERE text = ?", enumerate(texts))
        return embed_distinct(embedder, texts)

    def row(self, text: str) -> int:
        rows = self._rows.execute("SELECT row FROM texts WHERE text = ?", (text,))
        return rows.fetchone()[0]


def with_irrelevant(
    arenas: Iterable[Arena], pool: ToolPool, embedder: Embedder, per_band: int
) -> Iterator[Arena]:
    """The arenas, each with up to ``per_band`` irrelevant tools of each band, drawn uniformly.

    ``arenas`` are read twice. Memory grows with the distinct texts that are embedded, by a vector
    each: what else is known of tools and arenas stays on disk, and similarities are computed for a
    block of arenas.
    """
    with closing(_Texts()) as texts:
        offered = _offered(arenas, pool, texts)
        vectors = texts.embed(embedder)
        rows = np.full(max(offered, default=0) + 1, -1, dtype=np.int64)
        for number in offered:
            rows[number] = texts.row(pool.text(number))
        source = iter(arenas)
        # An arena has about three tools, and each takes a row of similarities to every text.
        size = max(1, min(BLOCK_ARENAS, BLOCK_CELLS // max(1, len(vectors)) // 3))
        while block := list(islice(source, size)):
            own_rows = [[texts.row(document_text(t.tool)) for t in arena.tools] for arena in block]
            scope = sorted({row for own in own_rows for row in own})
            place = {row: at for at, row in enumerate(scope)}
            similar = vectors[scope] @ vectors.T
            np.round(similar, _DECIMALS, out=similar)
            for arena, own in zip(block, own_rows, strict=True):
                to_own = similar[[place[row] for row in own]]
                yield _with_drawn(arena, pool, rows, to_own, per_band)


def _offered(arenas: Iterable[Arena], pool: ToolPool, texts: _Texts) -> set[int]:
    """The numbers of what may be offered to any arena.

    Their texts, and those of the arenas' own tools, are added to ``texts``.
    """
    groups: set[tuple[Split, str]] = set()
    for arena in arenas:
        groups.add((arena.split, arena.domain))
        for tool in arena.tools:
            texts.add(document_text(tool.tool))
    offered: set[int] = set()
    for group in groups:
        offered.update(map(int, pool.candidates(*group)))
    for number in offered:
        texts.add(pool.text(number))
    return offered


def _with_drawn(
    arena: Arena,
    pool: ToolPool,
    rows: NDArray[np.int64],
    similar: NDArray[np.floating],
    per_band: int,
) -> Arena:
    """The arena with the irrelevant tools drawn for it.

    ``rows`` holds the column of each offer in ``similar``, whose rows are the arena's own tools.
    The draw depends on the arena's id alone.
    """
    usable = pool.candidates(arena.split, arena.domain, {t.tool.name for t in arena.tools})
    if not usable.size or per_band == 0:
        return arena
    bands = band_of(similar[:, rows[usable]])
    rng = random.Random(int(content_id([arena.id, "irrelevant"]), 16))
    chosen: dict[Band, tuple[ArenaTool, ...]] = {}
    for band in Band:
        members = usable[bands == band]
        drawn = rng.sample(range(len(members)), min(per_band, len(members)))
        tools = [pool.tool(members[at]) for at in drawn]
        chosen[band] = tuple(sorted(tools, key=lambda tool: tool.tool.name))
    return arena.model_copy(update={"irrelevant": chosen})


def band_of(similar: NDArray[np.floating]) -> NDArray[np.str_]:
    """Bands of the columns (candidates) of a similarity matrix, one row per tool in scope.

    Each row is scaled to [0, 1]; a candidate's band follows from its largest scaled similarity.
    What is high by scale alone, below ``HIGH_FLOOR`` in every row, counts as medium.
    """
    low = similar.min(axis=1, keepdims=True)
    spread = similar.max(axis=1, keepdims=True) - low
    # A row without spread tells no candidate from another: all of them count as unlike.
    scaled = np.where(spread > 0, (similar - low) / np.where(spread > 0, spread, 1.0), 0.0)
    best = np.round(scaled.max(axis=0), _DECIMALS).astype(np.float64)
    return np.where(
        (best > HIGH_ABOVE) & (similar.max(axis=0) >= HIGH_FLOOR),
        Band.HIGH.value,
        np.where(best < LOW_BELOW, Band.LOW.value, Band.MEDIUM.value),
    )
