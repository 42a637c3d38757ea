"""What tools of an arena may read and change, and the changes that a sub-question asks for."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from astra.records.base import Frozen

Row = dict[str, Any]
"""One JSON scalar per column."""
Tables = dict[str, list[Row]]
"""Rows by table; their order carries no meaning."""


class FieldClass(StrEnum):
    """How a column is compared between two states."""

    EXACT = "exact"
    TEXT = "text"  # up to case, spaces and Unicode form
    IGNORE = "ignore"  # ids and times that a tool makes


class WriteAction(StrEnum):
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


class Write(Frozen):
    """One change of one table.

    ``where`` selects the rows to update or delete by equality. ``values`` are the cells of the
    new row (columns of class IGNORE may be left out), or those that an update sets.
    """

    action: WriteAction
    table: str
    where: Row = {}
    values: Row = {}


class WorldState(Frozen):
    """Everything a stateful tool is given. ``clock`` stands still during an episode."""

    tables: Tables
    clock: str
    """ISO 8601, the only time that tools may know."""
    ids: dict[str, int] = {}
    """The last id made, per table."""


class ArenaState(Frozen):
    """Where an episode starts, and which of the arena's tools are stateful."""

    world: WorldState
    columns: dict[str, tuple[str, ...]]
    fields: dict[str, dict[str, FieldClass]] = {}
    """Columns compared otherwise than exactly, by table."""
    writes: dict[str, tuple[str, ...]]
    """Stateful tools, and the tables that each may write; all others take no world."""
