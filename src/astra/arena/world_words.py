"""The words that are a world's own, worked out once for each world."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from astra.arena import act_phrases as phrases
from astra.arena.agreements import options_of, verbs_of
from astra.arena.answers import normalise
from astra.arena.claims import name_stems, stems
from astra.records.world import ColumnType, ToolRole, World, WorldTool

SHORT = 6
"""A text of so few characters may be a word of any language."""
_WORD = re.compile(r"[^\W\d_]+")
_COMMON = frozenset("the of and for a an to in on with by at first new day time is".split())
_ENDING = (ToolRole.DECLINE, ToolRole.HAND_OVER)
_MOST = 64
"""So many worlds are remembered."""


class WorldWords(NamedTuple):
    """The words of a world."""

    changing: frozenset[str]
    """Stems of what the tools of the world do, and of what agents call it."""
    nouns: frozenset[str]
    """Stems of what the world's tables and columns are called."""
    names: frozenset[str]
    """The words of these, as they are."""
    states: tuple[str, ...]
    """What the cells of columns with options may be."""
    cells: frozenset[str]
    """The texts in the world's other cells, normalised."""
    people: frozenset[str]
    """The words of people's and things' names that are not everyday words."""
    kinds: Mapping[str, str]
    """What each tool does: it writes, ends a request, or reads."""
    keys: tuple[frozenset[str], ...]
    """The keys of each table's rows, casefolded."""
    options: tuple[tuple[str, ...], ...]
    """The options of each parameter of tools that change something."""
    known: frozenset[str]
    """The words, and their stems, of the policy, the tools, the columns and the rows."""


_remembered: OrderedDict[int, tuple[World, WorldWords]] = OrderedDict()
"""The words of the worlds seen last, by the identity of the world, which is kept here so that no
other has it: worlds that differ may share an id. The newest is last."""


def world_words(world: World) -> WorldWords:
    """The words of a world, which is not to be changed."""
    held = _remembered.get(id(world))
    if held is None:
        held = _remembered[id(world)] = (world, _words_of(world))
        if len(_remembered) > _MOST:
            _remembered.popitem(last=False)
    return held[1]


def changing_tools(world: World) -> list[WorldTool]:
    """The tools that change what the user has, not those that end a request."""
    return [one for one in world.tools
            if (one.changes or one.writes) and one.role not in _ENDING]  # fmt: skip


def _words_of(world: World) -> WorldWords:
    tools = changing_tools(world)
    verbs = phrases.CHANGING.union(*(verbs_of(one) for one in tools)) - phrases.IDLE
    columns = [column for table in world.tables for column in table.columns]
    names = [*(one.name for one in columns), *(one.name for one in world.tables)]
    singular = (one.name.rstrip("s") for one in world.tables)
    values = {one.replace("_", " ") for column in columns for one in column.values}
    named = {word for cell in _cells(world, "name") for word in cell.casefold().split()}
    return WorldWords(
        changing=verbs | {one.removesuffix("e") for one in verbs},
        nouns=frozenset[str]().union(*map(name_stems, names)),
        names=frozenset(word for name in (*names, *singular) for word in name.split("_")),
        states=tuple(normalise(one) for one in sorted(values)),
        cells=frozenset(normalise(one) for one in _cells(world) if len(one) > SHORT),
        people=frozenset(one for one in named if len(one) > 2) - _COMMON,
        kinds={one.tool.name: _kind(one) for one in world.tools},
        keys=tuple(frozenset(str(row[one.key]).casefold() for row in world.rows[one.name])
                   for one in world.tables),
        options=tuple(tuple(options) for one in tools for options in options_of(one).values()),
        known=_known(world, [*names, *values]),
    )  # fmt: skip


def _cells(world: World, ending: str = "") -> Iterator[str]:
    """The texts in the cells of columns whose names end so."""
    for table in world.tables:
        for column in table.columns:
            if column.type == ColumnType.STRING and column.name.endswith(ending):
                yield from (str(row[column.name]) for row in world.rows[table.name])


def _kind(tool: WorldTool) -> str:
    if tool.role in _ENDING:
        return "end"
    return "write" if tool.changes or tool.writes else "read"


def _known(world: World, names: Sequence[str]) -> frozenset[str]:
    tools = (f"{one.tool.name} {one.tool.description}" for one in world.tools)
    text = " ".join((world.policy, *tools, *names, *_cells(world))).replace("_", " ")
    return words_in(text) | stems(text)


def words_in(text: str) -> frozenset[str]:
    """The words of a text, casefolded."""
    return frozenset(_WORD.findall(text.casefold()))
