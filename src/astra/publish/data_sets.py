"""The SFT set, conversations and arenas as folders for `datasets`, with each row's licence.

A row goes out if the licence of everything it comes from is known and may be published, with the
notices that it asks for; the others are counted in ``build/counts.json`` and named in
``build/left_out.jsonl``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from astra.publish.conversation_rows import (
    CONVERSATION_COUNTED,
    CONVERSATION_SCHEMA,
    conversation_rows,
)
from astra.publish.data_rows import (
    ARENA_COUNTED,
    ARENA_SCHEMA,
    SFT_COUNTED,
    SFT_SCHEMA,
    RowGate,
    arena_rows,
    sft_rows,
)
from astra.publish.data_set_cards import COUNTS, body, front_matter
from astra.publish.evidence import BUILD, CardEvidence
from astra.publish.folder import published
from astra.publish.fresh import probed
from astra.publish.licences import BOOK, LicenceBook
from astra.publish.lineage import IDENTITY, identity
from astra.publish.notices import write_notices
from astra.publish.origins import (
    ARENA_TABLES,
    ARENAS,
    CONVERSATION_TABLES,
    CONVERSATIONS,
    SAMPLES,
    SFT_TABLES,
)
from astra.publish.provenance import BuildProvenance
from astra.publish.record import LOCK, BuildRecord, PublishError
from astra.publish.rows import SplitWriter
from astra.publish.sections import SOURCES

LEFT_OUT = "left_out.jsonl"


@dataclass(frozen=True)
class DataSet:
    """A table of the build as it is published."""

    kind: str
    table: Path
    needed: tuple[Path, ...]
    """The tables that it and its licences are read from."""
    schema: pa.Schema
    rows: Callable[[RowGate], None]
    counted: tuple[str, ...]
    """Columns whose values the card counts."""


SFT_SET = DataSet("sft_set", SAMPLES, SFT_TABLES, SFT_SCHEMA, sft_rows, SFT_COUNTED)
CONVERSATION_SET = DataSet(
    "conversations", CONVERSATIONS, CONVERSATION_TABLES, CONVERSATION_SCHEMA, conversation_rows,
    CONVERSATION_COUNTED,
)  # fmt: skip
ARENA_SET = DataSet("arenas", ARENAS, ARENA_TABLES, ARENA_SCHEMA, arena_rows, ARENA_COUNTED)


@dataclass(frozen=True)
class PublishedSet:
    """What became of a data set."""

    splits: dict[str, int]
    """Rows by split."""
    left_out: int
    outputs: tuple[str, ...]
    """What the stages made that it comes from, as DVC stores it."""


def publish_data_set(made: DataSet, out: Path, say: Callable[[str], None]) -> PublishedSet:
    """Write a data set to ``out``, and load it in a process of its own; ``say`` is told each step.

    Raises PublishError where the record does not fit, no row may be published, or it does not load.
    """
    book = LicenceBook.read()
    with BuildRecord([str(made.table)]) as record:
        record.refuse_misfits([str(path) for path in made.needed])
        provenance, outputs = BuildProvenance.of(record), tuple(record.outputs())
        itself = identity(str(made.table), record.md5(str(made.table)), provenance.commit)
    say(f"{made.table}: the build of commit {provenance.commit[:12]}, as {LOCK} records it")
    with published(out) as folder:
        evidence = CardEvidence(folder)
        provenance.take(evidence)
        gate = _written(made, folder, book)
        evidence.put(COUNTS, gate.document())
        evidence.put(IDENTITY, itself)
        evidence.put(SOURCES, gate.tally.document())
        write_notices(folder, gate.tally, f"{out.name}, a data set built by ASTRA-DVC")
        if not gate.splits:
            raise PublishError(
                f"no row of {made.table} may be published: left out were "
                f"{evidence.at(COUNTS, 'left_out', 'licence')} (licence: rows); {BOOK} says "
                "which licences may be published, those of knowledge sources, and the notices that "
                "licences ask for"
            )
        refused = evidence.at(COUNTS, "left_out", "rows")
        say(f"rows by split: {gate.splits}; left out for their licence: {refused}")
        front, card = front_matter(made.kind, out.name, evidence), folder / "README.md"
        card.write_text(front, encoding="utf-8")  # it tells `datasets` the splits
        evidence.put("loaded.json", _loaded(folder, gate.splits, made.schema.names))
        say("`datasets` loads all of them in a process of its own")
        evidence.write_list()
        text = front + body(made.kind, out, made.counted, evidence, provenance)
        card.write_text(text, encoding="utf-8")
    say(f"{out}: published, its card is {out / 'README.md'}")
    return PublishedSet(gate.splits, refused, outputs)


def _written(made: DataSet, folder: Path, book: LicenceBook) -> RowGate:
    with (
        (folder / BUILD / LEFT_OUT).open("w", encoding="utf-8") as left_out,
        SplitWriter(folder, made.schema) as writer,
    ):
        gate = RowGate(book, writer, left_out, made.counted)
        made.rows(gate)
    return gate


def _loaded(folder: Path, splits: dict[str, int], columns: Sequence[str]) -> dict[str, Any]:
    found = probed("load_data_set", folder)
    if found["rows"] != splits or list(found["features"]) != list(columns):
        raise PublishError(
            f"`datasets` loads other rows or columns than were written: {found['rows']} and "
            f"{sorted(found['features'])}, written were {splits} and {sorted(columns)}"
        )
    return found
