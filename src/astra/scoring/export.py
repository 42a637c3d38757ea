"""Export of the SFT set for other trainers: OpenAI messages with tools, a parquet file a split.

``messages`` and ``tools`` are lists of JSON values (Arrow's JSON type), so that `datasets` loads
them as lists of dicts exactly as written: Arrow structs would merge the tools' schemas and put
a null wherever another row has a key. Call arguments are objects, as chat templates want them;
only arguments that are no JSON object stay text. Thoughts are ``reasoning_content``, the name by
which the templates of thinking models know them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from astra.records.message import Message, MessageRole
from astra.records.trajectory import SFTSample
from astra.scoring.view import object_or_text
from astra.store.replacing import replacing

BATCH_ROWS = 512
_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("messages", pa.list_(pa.json_())),
        pa.field("tools", pa.list_(pa.json_())),
        pa.field("language", pa.string()),
        pa.field("domain", pa.string()),
        pa.field("mean_score", pa.float64()),
    ]
)


def write_openai(samples: Iterable[SFTSample], folder: Path) -> dict[str, int]:
    """Write ``<folder>/<split>.parquet`` for every split, each in one step; returns rows by split.

    Where a sample cannot be written, none is replaced.
    """
    batches: dict[str, list[dict[str, Any]]] = {}
    counts: dict[str, int] = {}
    writers: dict[str, pq.ParquetWriter] = {}
    with ExitStack() as files:
        for sample in samples:
            rows = batches.setdefault(sample.split, [])
            if sample.split not in writers:
                partial = files.enter_context(replacing(folder / f"{sample.split}.parquet"))
                writer = pq.ParquetWriter(partial, _SCHEMA, compression="zstd")
                writers[sample.split] = files.enter_context(writer)
            rows.append(_row(sample))
            counts[sample.split] = counts.get(sample.split, 0) + 1
            if len(rows) >= BATCH_ROWS:
                _flush(writers[sample.split], rows)
        for split, rows in batches.items():
            _flush(writers[split], rows)
    return counts


def _flush(writer: pq.ParquetWriter, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    columns = [
        # JSON text first: Arrow makes its JSON type from strings only by a cast.
        pa.array([row[field.name] for row in rows], _as_text(field.type)).cast(field.type)
        for field in _SCHEMA
    ]
    writer.write_table(pa.Table.from_arrays(columns, schema=_SCHEMA))
    rows.clear()


def _as_text(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.string()) if pa.types.is_list(kind) else kind


def _row(sample: SFTSample) -> dict[str, Any]:
    return {
        "id": sample.id,
        "messages": [_json(message_document(message)) for message in sample.messages],
        "tools": [_json(tool.openai()) for tool in sample.tools],
        "language": sample.language,
        "domain": sample.domain,
        "mean_score": sample.mean_score,
    }


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def message_document(message: Message) -> dict[str, Any]:
    """A message as chat templates take it; keys that do not apply are absent."""
    document: dict[str, Any] = {"role": message.role.value, "content": message.content}
    if message.reasoning:
        document["reasoning_content"] = message.reasoning
    if message.tool_calls:
        document["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": object_or_text(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.role == MessageRole.TOOL:
        document |= {"tool_call_id": message.tool_call_id, "name": message.name}
    return document
