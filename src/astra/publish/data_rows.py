"""The rows of the published data sets, each with its sources and their licences."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import IO, Any

import pyarrow as pa

from astra.arena.env import offered
from astra.arena.prompt import initial_messages
from astra.arena.world_table import read_arenas
from astra.arena.worlds import goal_of
from astra.publish.licences import LicenceBook, RowOrigin, joined
from astra.publish.notices import SourceTally
from astra.publish.origins import ARENAS, SAMPLES, conversations, tool_origins
from astra.publish.rows import SplitWriter
from astra.records.environment import Arena, ArenaTool, Band, Trait
from astra.records.tool import Tool
from astra.records.trajectory import SFTSample
from astra.records.world import GoalTrait
from astra.scoring.export import message_document
from astra.stage import Progress
from astra.store.tables import read_records

_JSON, _TEXT = pa.json_(), pa.string()
SFT_SCHEMA = pa.schema(
    [
        ("id", _TEXT), ("messages", pa.list_(_JSON)), ("tools", pa.list_(_JSON)),
        ("language", _TEXT), ("domain", _TEXT), ("kind", _TEXT), ("execution", _TEXT),
        ("agent", _TEXT), ("mean_score", pa.float64()), ("sources", pa.list_(_TEXT)),
        ("licence", _TEXT),
    ]
)  # fmt: skip
ARENA_SCHEMA = pa.schema(
    [
        ("id", _TEXT), ("question", _TEXT), ("prompt", pa.list_(_JSON)),
        ("tools", pa.list_(_JSON)), ("language", _TEXT), ("domain", _TEXT), ("kind", _TEXT),
        ("scenario", _TEXT), ("hops", pa.int64()), ("hard", pa.bool_()),
        ("traits", pa.list_(_TEXT)), ("arena", _JSON), ("sources", pa.list_(_TEXT)),
        ("licence", _TEXT),
    ]
)  # fmt: skip
COUNTED = ("language", "domain", "kind", "licence")
"""Columns of all data sets whose values a card counts."""
SFT_COUNTED = (*COUNTED, "execution", "agent")
ARENA_COUNTED = (*COUNTED, "scenario", "hops", "hard", "traits")


class RowGate:
    """Lets rows out whose every licence may be published; counts them, and names the others.

    Of ``counted`` columns it counts the values, of lists every member.
    """

    def __init__(
        self, book: LicenceBook, writer: SplitWriter, left_out: IO[str], counted: Sequence[str]
    ) -> None:
        self.book = book
        self.tally = SourceTally(book)
        self._writer = writer
        self._left_out = left_out
        self._counted = counted
        self._counts = {name: Counter[str]() for name in ("split", *counted)}
        self._refused = Counter[str]()
        self._tools = Counter[str]()

    def add(self, split: str, row: dict[str, Any], origins: Sequence[RowOrigin]) -> None:
        """Write the row with ``sources`` and ``licence``, or name it in ``left_out``."""
        licence = joined(origin.licence for origin in origins)
        sources = sorted({origin.source for origin in origins})
        if not all(self.book.admits_origin(origin) for origin in origins):
            admitted = self.book.admits(licence)
            self._refused[f"{licence}, notice unknown" if admitted else licence] += 1
            named: dict[str, Any] = {"id": row["id"], "sources": sources, "licence": licence}
            if admitted:
                named["without_notice"] = sorted(
                    {one.source for one in origins if self.book.unnoticed(one.source, one.licence)}
                )
            self._left_out.write(json.dumps(named, ensure_ascii=False) + "\n")
            return
        row |= {"sources": sources, "licence": licence}
        self._writer.add(split, row)
        self.tally.add(origins)
        self._counts["split"][split] += 1
        for name in self._counted:
            found = row[name]
            self._counts[name].update(map(_named, found if isinstance(found, list) else [found]))

    def tool_left_out(self, licence: str) -> None:
        """Count a tool that was taken out of a row that goes out without it."""
        self._tools[licence] += 1

    @property
    def splits(self) -> dict[str, int]:
        """Rows that went out, by split."""
        return dict(sorted(self._counts["split"].items()))

    def document(self) -> dict[str, Any]:
        """The content of ``build/counts.json``."""
        found = {name: dict(sorted(counted.items())) for name, counted in self._counts.items()}
        return found | {
            "rows": self._counts["split"].total(),
            "left_out": {"rows": self._refused.total(), "licence": _sorted(self._refused)},
            "tools_left_out": {"tools": self._tools.total(), "licence": _sorted(self._tools)},
        }


def _named(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _sorted(counted: Counter[str]) -> dict[str, int]:
    return dict(sorted(counted.items()))


def sft_rows(gate: RowGate) -> None:
    """The conversations of the SFT set. A row comes from the servers whose tools it offers."""
    known = conversations()
    progress = Progress("rows")
    for sample in read_records(SAMPLES, SFTSample):
        found = known[sample.trajectory_id]
        row = {
            **chat_columns(sample),
            "kind": found.kind,
            "execution": found.execution,
            "agent": found.agent,
            "mean_score": sample.mean_score,
        }
        gate.add(sample.split, row, found.origins)
        progress.advance(1)


def chat_columns(sample: SFTSample) -> dict[str, Any]:
    """The columns that every set of conversations has, messages and tools in OpenAI's form."""
    return {
        "id": sample.id,
        "messages": [message_document(message) for message in sample.messages],
        "tools": [tool.openai() for tool in sample.tools],
        "language": sample.language,
        "domain": sample.domain,
    }


def arena_rows(gate: RowGate) -> None:
    """The arenas. A row comes from its knowledge source and from those of its irrelevant tools.

    A goal has its world in its row, with the tools that are offered at the start.
    An irrelevant tool that may not be published is taken out of its arena, which goes on without.
    """
    origins_of = tool_origins(gate.book)
    progress = Progress("rows")
    for arena in read_arenas(ARENAS):
        origins = [RowOrigin(arena.source, gate.book.of(arena.source))]
        whole = arena.model_copy(update={"irrelevant": _kept(arena, gate, origins_of, origins)})
        row = {
            "id": arena.id,
            "question": arena.main_question,
            "prompt": [message_document(message) for message in initial_messages(arena)],
            "tools": [offer.tool.openai() for offer in offered(arena, ())],
            "language": arena.language,
            "domain": arena.domain,
            "kind": arena.kind.value,
            "scenario": arena.scenario.value,
            "hops": arena.hops,
            "hard": arena.is_hard,
            "traits": [trait.value for trait in _traits(arena)],
            "arena": whole.model_dump(mode="json"),
        }
        gate.add(arena.split.value, row, origins)
        progress.advance(1)


def _traits(arena: Arena) -> Sequence[Trait | GoalTrait]:
    return goal_of(arena).traits if arena.world_id else arena.traits


def _kept(
    arena: Arena,
    gate: RowGate,
    origins_of: Callable[[Tool], Sequence[RowOrigin]],
    origins: list[RowOrigin],
) -> dict[Band, tuple[ArenaTool, ...]]:
    """The arena's irrelevant tools that may be published; where they come from joins ``origins``.

    Of several places that have the same document, the first that may be published counts.
    """
    kept: dict[Band, tuple[ArenaTool, ...]] = {}
    for band, offers in arena.irrelevant.items():
        staying: list[ArenaTool] = []
        for offer in offers:
            found = origins_of(offer.tool)
            fit = next((one for one in found if gate.book.admits_origin(one)), None)
            if fit is None:
                gate.tool_left_out(joined(one.licence for one in found))
                continue
            origins.append(fit)
            staying.append(offer)
        kept[band] = tuple(staying)
    return kept
