"""``astra show``: the records of any stage's table as text for a person."""

from __future__ import annotations

import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pyarrow import parquet
from rich.text import Text

from astra.cli.servers import of_server
from astra.cli.world_page import world_page
from astra.errors import AstraError
from astra.records.score import Rejection
from astra.records.world import World
from astra.report.workspace import DATA_STAGES, STAGES
from astra.store.tables import record_name

INDENT = "  "
DATA = Path("data")
TEXT_LENGTH = 2000
COMPARISON = re.compile(r"(?P<field>\w+)(?P<sign>!=|<=|>=|=|~|<|>)(?P<value>.*)", re.DOTALL)
NUMERIC: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class ShowError(AstraError):
    """The table or the filter cannot be used."""


def table_path(named: Path) -> Path:
    """The path of a table: ``named`` itself, or ``data/<named>.parquet`` (``rejected/tasks``).

    Raises ShowError where there is no such table, naming the stage that makes it or the tables
    that there are.
    """
    path = named
    if not named.suffix and not named.is_file():
        path = Path(f"{named if DATA in named.parents else DATA / named}.parquet")
    if path.is_file():
        return path
    stage = _makers().get(path.as_posix(), "")
    if stage:
        raise ShowError(f"{path} not found; build it with `dvc repro {stage}` or `dvc pull`")
    known = ", ".join(table_names()) or "none yet; `dvc repro` builds them, `dvc pull` brings them"
    raise ShowError(f"no table {str(named)!r}; tables in {DATA}/: {known}")


def table_names() -> list[str]:
    """The tables in ``data/`` as ``table_path`` takes them, those of rejections last."""
    names = sorted(path.stem for path in DATA.glob("*.parquet"))
    return names + sorted(f"rejected/{path.stem}" for path in DATA.glob("rejected/*.parquet"))


def _makers() -> dict[str, str]:
    """The stage that makes a table, by the table's path, as ``dvc.yaml`` declares it."""
    tables = {f"{DATA}/{stage}.parquet": stage for stage in STAGES}
    tables |= {f"{DATA}/rejected/{stage}.parquet": stage for stage in DATA_STAGES}
    file = Path("dvc.yaml")
    if file.is_file():
        stages: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))["stages"]
        tables = {
            out if isinstance(out, str) else next(iter(out)): name
            for name, stage in stages.items()
            for out in stage.get("do", stage).get("outs", [])
        }
    return {path: stage for path, stage in tables.items() if path.endswith(".parquet")}


def show_table(
    path: Path,
    identifier: str,
    where: Sequence[str],
    limit: int,
    as_json: bool,
    fields: Sequence[str] = (),
    server: str = "",
) -> Iterator[Text]:
    """One text per record that passes the filters; a last line says how many there are.

    ``fields``: what is shown of a record besides its id; empty: everything. ``server``: the name
    or id of the server whose records are wanted; empty: those of all. Raises ShowError or
    ServerFilterError for a field or a filter that the table cannot answer.
    """
    name = record_name(path) or "record"
    table = parquet.ParquetFile(path)
    known = table.schema_arrow.names
    conditions = [condition(text, known) for text in where]
    if server:
        conditions.append(of_server(path, DATA, server))
    for field in fields:
        if field not in known:
            raise ShowError(f"--fields: no field {field!r}; there are {', '.join(known)}")
    # Every field of a rejection is plain: refused text that looks like JSON is still text.
    parsed = _plain if name == Rejection.__name__ else _parsed
    shown = 0
    matched = Counter[str]()
    for batch in table.iter_batches(batch_size=1024):
        for row in batch.to_pylist():
            if not str(row.get("id", "")).startswith(identifier) or not all(
                holds(row) for holds in conditions
            ):
                continue
            matched[row.get("reason", "")] += 1
            if limit and shown >= limit:
                continue
            shown += 1
            record = {field: parsed(row[field]) for field in fields or row}
            if as_json:
                yield Text(json.dumps(record, ensure_ascii=False))
            elif name == World.__name__ and not fields:
                yield world_page(record)
            else:
                title = f"{name} {row.get('id', '')}"
                yield _page(title, record if fields else _telling(name, record))
    if not as_json:
        yield Text(f"{shown} shown, {matched.total()} match, {table.metadata.num_rows} in {path}")
    if name == Rejection.__name__ and matched and not as_json:
        yield Text(", ".join(f"{reason} {count}" for reason, count in matched.most_common()))


def condition(text: str, fields: Sequence[str]) -> Callable[[Mapping[str, Any]], bool]:
    """The test that ``FIELD=VALUE`` or another comparison stands for. Raises ShowError.

    ``=`` and ``!=`` compare the stored text (of a boolean in any case), ``~`` looks for it in any
    case, the others compare numbers; a record without a number there does not match.
    """
    comparison = COMPARISON.fullmatch(text)
    if comparison is None or comparison["field"] not in fields:
        raise ShowError(
            f"--where {text!r}: give FIELD=VALUE with one of {', '.join(fields)}; "
            "besides = there are != ~ < <= > >="
        )
    field, sign, value = comparison["field"], comparison["sign"], comparison["value"]
    if sign in NUMERIC:
        try:
            bound = float(value)
        except ValueError:
            raise ShowError(f"--where {text!r}: {sign} compares numbers") from None
        compare = NUMERIC[sign]
        return lambda row: isinstance(row[field], int | float) and compare(row[field], bound)
    if sign == "~":
        return lambda row: value.casefold() in str(row[field]).casefold()
    return lambda row: _equal(row[field], value) == (sign == "=")


def _equal(stored: Any, text: str) -> bool:
    if isinstance(stored, bool):
        return str(stored).lower() == text.lower()
    return str(stored) == text


def _plain(value: Any) -> Any:
    return value


def _telling(name: str, record: dict[str, Any]) -> dict[str, Any]:
    """The fields worth telling: of a rejection those that are not as usual, else all."""
    if name != Rejection.__name__:
        return record
    usual = {field: info.default for field, info in Rejection.model_fields.items()}
    return {
        field: value
        for field, value in record.items()
        if field != "repeat" and value != usual.get(field)
    }


def _parsed(value: Any) -> Any:
    """Composite columns hold JSON text; a plain string that merely looks like it stays one."""
    if (isinstance(value, str) and value[:1] in ("{", "[", '"')) or value == "null":
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _page(title: str, record: dict[str, Any]) -> Text:
    """A record below ``title``, which names it; its empty fields are left out."""
    page = Text()
    page.append(f"{title}\n", style="bold")
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
