"""The index of benchmark suites that training data must not touch: built once, read by stages.

A declared input (`astra contamination build FOLDER`): a table of hashes, so that no benchmark
text is shipped and a stage that reads it reruns when it changes. An index without suites is
valid and finds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from astra.contamination.grams import text_hashes, tool_hashes
from astra.contamination.suites import SuiteTexts
from astra.errors import AstraError
from astra.settings import StageConfig
from astra.store.replacing import replacing

NGRAM = 10
"""How many words a gram has; the literature has 8 (PaLM) to 13 (GPT-3)."""
_KINDS = ("text", "name", "schema")
_SCHEMA = pa.schema(
    [pa.field("suite", pa.string()), pa.field("kind", pa.string()), pa.field("hash", pa.uint64())]
)


class ContaminationError(AstraError):
    """The index cannot be read."""


class ContaminationConfig(StageConfig):
    """The index to check against, and the overlap from which on an item is dropped.

    An item that shares a text with a suite is dropped in any case.
    """

    index: str
    """The file that `astra contamination build` wrote."""
    tool_names: float = Field(gt=0, le=1)
    """The share of an item's tools whose names one suite has."""
    schemas: float = Field(gt=0, le=1)
    """The share of an item's tools whose names and parameters one suite has."""


@dataclass(frozen=True)
class Overlap:
    """What an item shares with a suite; ``kind`` is text, names or schemas."""

    kind: str
    suite: str
    share: float


class ContaminationIndex:
    """Hashes by suite and kind. ``about`` says what went in."""

    def __init__(
        self, ngram: int, about: Mapping[str, Any], hashes: Mapping[str, Mapping[str, set[int]]]
    ) -> None:
        self.ngram = ngram
        self.about = about
        self._hashes = hashes

    @property
    def suites(self) -> list[str]:
        return sorted(self._hashes)

    @classmethod
    def of(cls, suites: Iterable[SuiteTexts], ngram: int = NGRAM) -> Self:
        hashes: dict[str, dict[str, set[int]]] = {}
        about: dict[str, Any] = {}
        for suite in suites:
            names, schemas = tool_hashes(suite.tools)
            texts = {gram for text in suite.texts for gram in text_hashes(text, ngram)}
            hashes[suite.name] = {"text": texts, "name": names, "schema": schemas}
            about[suite.name] = {
                "files": suite.files, "texts": len(suite.texts), "ngrams": len(texts),
                "tool_names": len(names), "schemas": len(schemas),
            }  # fmt: skip
        return cls(ngram, about, hashes)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read an index. Raises ContaminationError naming the file and the repair."""
        repair = "build it with `astra contamination build FOLDER`"
        try:
            table = pq.read_table(path)
            metadata: dict[bytes, bytes] = table.schema.metadata or {}
            header = json.loads(metadata[b"contamination"])
            hashes = {suite: {kind: set[int]() for kind in _KINDS} for suite in header["suites"]}
            columns = (table.column(name).to_pylist() for name in ("suite", "kind", "hash"))
            for suite, kind, value in zip(*columns, strict=True):
                hashes[suite][kind].add(value)
        except FileNotFoundError:
            raise ContaminationError(f"contamination index {path} not found; {repair}") from None
        except (pa.ArrowInvalid, KeyError, ValueError) as error:
            raise ContaminationError(
                f"{path} is no contamination index ({error}); {repair}"
            ) from None
        return cls(header["ngram"], header["suites"], hashes)

    def save(self, path: Path) -> None:
        """Write the index atomically and sorted: the same suites give the same bytes."""
        rows = [
            (suite, kind, value)
            for suite in self.suites
            for kind in _KINDS
            for value in sorted(self._hashes[suite][kind])
        ]
        header = json.dumps({"ngram": self.ngram, "suites": self.about}, sort_keys=True)
        schema = _SCHEMA.with_metadata({"contamination": header})
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)
        ]
        table = pa.Table.from_arrays(arrays, schema=schema)
        with replacing(path) as partial:
            pq.write_table(table, partial, compression="zstd")

    def shared_text(self, texts: Iterable[str]) -> Overlap | None:
        """The first suite (by name) with a gram of one of the texts."""
        grams = {gram for text in texts for gram in text_hashes(text, self.ngram)}
        for suite in self.suites:
            shared = grams & self._hashes[suite]["text"]
            if shared:
                return Overlap("text", suite, len(shared) / len(grams))
        return None

    def shared_tools(
        self, tools: Sequence[tuple[str, Mapping[str, Any]]], config: ContaminationConfig
    ) -> Overlap | None:
        """The suite with too many of the (name, parameters) pairs, schemas before names."""
        names, schemas = tool_hashes(tools)
        for kind, hashes, least in (
            ("schema", schemas, config.schemas),
            ("name", names, config.tool_names),
        ):
            for suite in self.suites:
                share = len(hashes & self._hashes[suite][kind]) / max(len(tools), 1)
                if share >= least:
                    return Overlap(f"{kind}s", suite, share)
        return None


def load_index(config: ContaminationConfig | None) -> ContaminationIndex | None:
    """The index of a stage's parameters; None where the check is off."""
    return ContaminationIndex.load(Path(config.index)) if config is not None else None
