"""Records of any stage's table as text for a person."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyarrow import parquet
from rich.text import Text

from astra.errors import AstraError
from astra.store.tables import record_name

INDENT = "  "
TEXT_LENGTH = 2000


class ShowError(AstraError):
    """The table or the filter cannot be used."""


def show_table(
    path: Path, identifier: str, where: Sequence[str], limit: int, as_json: bool
) -> Iterator[Text]:
    """One text per record that passes the filters; a last line says how many there are."""
    name = record_name(path) or "record"
    table = parquet.ParquetFile(path)
    conditions = [_condition(text, table.schema_arrow.names) for text in where]
    shown = matched = 0
    for batch in table.iter_batches(batch_size=1024):
        for row in batch.to_pylist():
            if not str(row.get("id", "")).startswith(identifier) or any(
                str(row[field]) != value for field, value in conditions
            ):
                continue
            matched += 1
            if limit and shown >= limit:
                continue
            shown += 1
            record = {field: _parsed(value) for field, value in row.items()}
            yield Text(json.dumps(record, ensure_ascii=False)) if as_json else _page(name, record)
    if not as_json:
        yield Text(f"{shown} shown, {matched} match, {table.metadata.num_rows} in {path}")


def _condition(text: str, fields: Sequence[str]) -> tuple[str, str]:
    field, equals, value = text.partition("=")
    if not equals or field not in fields:
        raise ShowError(f"--where {text!r}: give FIELD=VALUE with one of {', '.join(fields)}")
    return field, value


def _parsed(value: Any) -> Any:
    """Composite columns hold JSON text; a plain string that merely looks like it stays one."""
    if (isinstance(value, str) and value[:1] in ("{", "[", '"')) or value == "null":
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _page(name: str, record: dict[str, Any]) -> Text:
    page = Text()
    page.append(f"{name} {record.get('id', '')}\n", style="bold")
    for field, value in record.items():
        if field != "id" and value not in (None, "", [], {}):
            page.append_text(_field(field, value))
    return page


def _field(field: str, value: Any) -> Text:
    text = Text()
    text.append(f"{INDENT}{field}: ", style="cyan")
    if field == "messages" and isinstance(value, list):
        text.append("\n")
        for message in value:
            text.append_text(_message(message))
        return text
    if isinstance(value, str):
        shown = _cut(value)
        text.append(_indented(shown, 2) if "\n" in shown else shown)
    else:
        compact = json.dumps(value, ensure_ascii=False)
        if len(compact) > 100:
            compact = _indented(_cut(json.dumps(value, ensure_ascii=False, indent=2)), 2)
        text.append(compact)
    return text.append("\n")


def _message(message: dict[str, Any]) -> Text:
    """One turn of a conversation, its calls as ``-> name(arguments)``."""
    text = Text()
    role = message.get("role", "")
    who = f"tool {message.get('name')}" if role == "tool" else role
    text.append(f"{INDENT * 2}{who}: ", style="magenta")
    content = _cut(message.get("content") or "")
    text.append(_indented(content, 3) if "\n" in content else content)
    text.append("\n")
    for call in message.get("tool_calls") or ():
        text.append(f"{INDENT * 3}-> {call['name']}({_cut(call['arguments'])})\n", style="green")
    return text


def _indented(text: str, depth: int) -> str:
    return "".join(f"\n{INDENT * depth}{line}" for line in text.splitlines())


def _cut(text: str) -> str:
    left_out = len(text) - TEXT_LENGTH
    return text if left_out <= 0 else f"{text[:TEXT_LENGTH]} [{left_out} more characters]"
