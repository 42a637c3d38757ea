"""Environments that others wrote, hosted as worlds: the session that a runner gets in a driver.

A driver in the bench environment (``drivers/play_*_world.py``) executes calls with its package's
own code and tells the rows that changed as sessions of worlds tell them (``drivers/world_lines.py``
has its end of the wire). So ``WorldRunner`` carries the calls out, holds the tables and compares
digests, and ``judge`` says what it says of our own goals.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from astra.arena.delta import DELTA
from astra.arena.state import apply_writes
from astra.bench.harness.environment import caged_driver
from astra.bench.harness.protocol import SuiteError
from astra.records.base import canonical_json
from astra.records.qa import Split
from astra.records.state import Row, Tables, Write, WriteAction
from astra.records.world import (
    OUTCOMES,
    ColumnType,
    World,
    WorldColumn,
    WorldShape,
    WorldTable,
    WorldTool,
)
from astra.sandbox.cage import Cage
from astra.sandbox.protocol import SandboxResult, SandboxStatus

CLOCK = "2025-01-01T00:00:00"
"""The packages' tools know the time themselves."""
Changes = Mapping[str, Mapping[str, Row | None]]
"""Rows by table and key; None where a row is gone."""
Call = tuple[str, dict[str, Any]]


def hosted_world(
    name: str,
    shapes: Sequence[WorldTable],
    tables: Tables,
    tools: tuple[WorldTool, ...],
    policy: str = "",
) -> World:
    """A world with these rows, and with the table of outcomes that others' environments lack."""
    outcome = ("outcome_id", "outcome", "reason")
    columns = tuple(WorldColumn(name=name, type=ColumnType.STRING) for name in outcome)
    outcomes = WorldTable(name=OUTCOMES, key="outcome_id", columns=columns)
    return World(
        domain=name, title=name, split=Split.HELDOUT, variant=0, shape=WorldShape.FULL,
        language="en", clock=CLOCK, tables=(*shapes, outcomes), rows={**tables, OUTCOMES: []},
        tools=tools, rules=(), invariants=(), policy=policy, topics={}, refusals={}, checks={},
    )  # fmt: skip


def table_of(name: str, key: str, rows: Sequence[Row]) -> WorldTable:
    """The shape of a table, read off its rows."""
    first = rows[0] if rows else {key: ""}
    columns = tuple(
        WorldColumn(
            name=column,
            type=ColumnType.ID if column == key else
            ColumnType.JSON if isinstance(cell, list | dict) else ColumnType.STRING,
            optional=column != key,
        )
        for column, cell in first.items()
    )  # fmt: skip
    return WorldTable(name=name, key=key, columns=columns)


def changed(tables: Tables, keys: Mapping[str, str], changes: Changes) -> Tables:
    """The tables after the changes, by definition of the writes that say them."""
    columns = {name: list(rows[0]) if rows else [keys[name]] for name, rows in tables.items()}
    return apply_writes(tables, writes_of(tables, keys, changes), columns, {})


def writes_of(tables: Tables, keys: Mapping[str, str], changes: Changes) -> tuple[Write, ...]:
    """The changes as a goal's effect: of rows that were there, only the cells that differ."""
    made: list[Write] = []
    for table, rows in changes.items():
        before = {row[keys[table]]: row for row in tables[table]}
        for key, row in rows.items():
            where = {keys[table]: key}
            if key not in before:
                made.append(Write(action=WriteAction.INSERT, table=table, values=row or {}))
            elif row is None:
                made.append(Write(action=WriteAction.DELETE, table=table, where=where))
            else:
                old = before[key]
                cells = {
                    name: cell
                    for name, cell in row.items()
                    if canonical_json(cell) != canonical_json(old.get(name))
                }
                made.append(
                    Write(action=WriteAction.UPDATE, table=table, where=where, values=cells)
                )
    return tuple(made)


# A package's environments as a session -------------------------------------------------------


class HostedDesk:
    """A driver, and what it gives to a runner: sessions in which its environments are worlds.

    One episode at a time. Raises SuiteError where the driver ends or fails.
    """

    def __init__(self, driver: str, *reads: Path) -> None:
        """``reads``: what the driver sees besides, read-only."""
        self.name = driver
        self.failed_writes: list[str] = []
        """Calls that failed and changed rows nevertheless."""
        started = caged_driver(driver)
        self._cage = Cage((*started.reads, *reads))
        self._cage.start(started.command, dict(started.environment))
        self._errors: list[str] = []
        threading.Thread(target=self._drain, daemon=True).start()

    def ask(self, do: str, **given: Any) -> Any:
        """One request to the driver and its answer."""
        stdin = cast("IO[bytes]", self._cage.process.stdin)
        stdout = cast("IO[bytes]", self._cage.process.stdout)
        try:
            stdin.write(json.dumps({"do": do, **given}).encode() + b"\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise SuiteError(f"driver {self.name} ended at {do}.\n" + "\n".join(self._errors[-12:]))
        answer = json.loads(line)
        if "fault" in answer:
            raise SuiteError(f"driver {self.name} failed at {do} {given}: {answer['fault']}")
        return answer["reply"]

    def session(self, sources: Mapping[str, str]) -> _Environment:
        """The environment that the driver started last, in a session's place."""
        return _Environment(self)

    def close(self) -> None:
        """End the driver."""
        self._cage.close()

    def _drain(self) -> None:
        for line in cast("IO[bytes]", self._cage.process.stderr):
            self._errors.append(line.decode(errors="replace").rstrip()[:500])
            del self._errors[:-50]


class _Environment:
    """A session whose world is the package's own environment, which has its rows from the start."""

    def __init__(self, desk: HostedDesk) -> None:
        self._desk, self.alive = desk, True

    def call(self, function: str, arguments: Mapping[str, Any]) -> SandboxResult:
        if function != DELTA or arguments["op"] not in ("open", "load", "reset", "call"):
            raise SuiteError(f"driver {self._desk.name} knows no {function} {arguments.get('op')}")
        if arguments["op"] == "reset":
            self._desk.ask("reset")
        if arguments["op"] != "call":
            return _result(None)
        tool, given = arguments["tool"], arguments["arguments"]
        answer = self._desk.ask("call", tool=tool, arguments=given)
        if answer["failed"]:
            if answer["writes"]:
                self._desk.failed_writes.append(f"{tool} {given}")
            return _result(None, f"ValueError: {answer['value']}")
        return _result({key: answer[key] for key in ("value", "writes", "digest")})

    def close(self) -> None:
        self.alive = False


def _result(value: Any, error: str = "") -> SandboxResult:
    status = SandboxStatus.EXCEPTION if error else SandboxStatus.OK
    return SandboxResult(status, value, error, "", 0.0)
