"""What a tool's code knows: calls about the literals in it, where no table says what is true.

Data that a teacher made up stand in the code alone: as rows (dicts or tuples in a list), as keys
with a value, nested, or as constants that arguments are compared with. A *record* is one such row
as a mapping of its slots (names of fields, positions, levels of keys) to scalars.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from astra.arena.answers import same_value
from astra.records.base import canonical_json
from astra.text.source import parsed

MOST_RECORDS = 500
"""Records read from one source: far more than a tool's data have."""
MOST_LEVELS = 16
"""Levels of keys and fields that are read of one literal; what lies deeper is left out."""
Slot = tuple[Any, ...]
Path = tuple[Any, ...]
Record = dict[Slot, Any]


def known_calls(code: str, gold: Mapping[str, Any], answer: Any) -> list[dict[str, Any]]:
    """Calls that the code should answer otherwise than the gold call: whole rows, then the gold
    call with one value exchanged.

    A record that holds the gold answer may truly have it, so it is left out.
    """
    leaves = dict(leaves_of(gold))
    tree = _parsed(code)
    if tree is None or not leaves:
        return []
    found = _records(tree)
    calls: list[dict[str, Any]] = []
    single: list[dict[str, Any]] = []
    for slots in _readings(found, leaves):
        others = [
            {path: record[slot] for path, slot in slots.items()}
            for record in found
            if set(slots.values()) <= record.keys()
            and all(_alike(record[slot], leaves[path]) for path, slot in slots.items())
            and not _holds(record, slots, answer)
        ]
        calls += [replaced(gold, other) for other in others]
        single += [
            replaced(gold, {path: value}) for other in others for path, value in other.items()
        ]
    if not calls:
        for path, value in leaves.items():
            single += [replaced(gold, {path: other}) for other in _beside(tree, found, value)]
    distinct = {canonical_json(call): call for call in [*calls, *single]}
    distinct.pop(canonical_json(dict(gold)), None)
    return list(distinct.values())


def known_values(code: str, name: str) -> list[Any]:
    """The values that the code's records have in the field ``name``, or in the only field whose
    words hold those of ``name``.
    """
    tree = _parsed(code)
    found = _records(tree) if tree is not None else []
    slots = {slot for record in found for slot in record if isinstance(slot[-1], str)}
    words = set(name.split("_"))
    exact = [slot for slot in slots if slot[-1] == name]
    near = [slot for slot in slots if words <= set(slot[-1].split("_"))]
    if not exact and len(near) != 1:
        return []
    (slot, *_) = sorted(exact or near, key=repr)
    values = [record[slot] for record in found if record.get(slot) is not None]
    return list({canonical_json(value): value for value in values}.values())


def leaves_of(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The scalars inside a JSON value, each with the way to it."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from leaves_of(item, (*path, name))
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            yield from leaves_of(item, (*path, at))
    else:
        yield path, value


def replaced(value: Any, changes: Mapping[Path, Any], path: Path = ()) -> Any:
    """The same JSON value with other scalars at some paths."""
    if isinstance(value, Mapping):
        return {name: replaced(item, changes, (*path, name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [replaced(item, changes, (*path, at)) for at, item in enumerate(value)]
    return changes.get(path, value)


def _parsed(code: str) -> ast.AST | None:
    try:
        return parsed(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _records(tree: ast.AST) -> list[Record]:
    """The records of all literals with several scalars, the outermost of nested ones."""
    records: list[Record] = []
    waiting: list[ast.AST] = [tree]
    while waiting and len(records) < MOST_RECORDS:
        node = waiting.pop(0)
        if isinstance(node, ast.List | ast.Tuple | ast.Dict | ast.Set):
            try:
                records += _expanded(ast.literal_eval(node), 0, MOST_RECORDS - len(records))
                continue
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                pass
        waiting += ast.iter_child_nodes(node)
    return records


def _expanded(value: Any, level: int, most: int) -> list[Record]:
    """The first ``most`` records of a literal: a dict is read as one row, and as keys with what
    they lead to.
    """
    if level > MOST_LEVELS or most <= 0:
        return []
    if isinstance(value, Mapping):
        return _mapped(value, level, most)
    if not isinstance(value, list | tuple | set | frozenset):
        return [_cells({("value", level): value})]
    # Text has another hash in each process, so a set keeps no order of its own.
    items = sorted(value, key=repr) if isinstance(value, set | frozenset) else list(value)
    if not any(_is_nested(item) for item in items):
        return [_cells({(level, at): item for at, item in enumerate(items)})]
    records: list[Record] = []
    for item in items:
        if len(records) == most:
            break
        records += _expanded(item, level, most - len(records))
    return records


def _mapped(value: Mapping[Any, Any], level: int, most: int) -> list[Record]:
    """The first ``most`` records of a dict: its rows, then each key with what it leads to."""
    scalars = _cells({(level, key): item for key, item in value.items() if not _is_nested(item)})
    rows: list[Record] = []
    inner: dict[Any, list[Record]] = {}
    for key, item in value.items():
        if _is_nested(item):
            # Expanded once for both readings: to do it for each doubles the work with every level.
            inner[key] = _expanded(item, level + 1, most - len(rows))
            rows += [{**scalars, **record} for record in inner[key]]
        if len(rows) == most:
            return rows
    records = rows or [scalars]
    for key, item in value.items():
        if len(records) >= most:
            break
        parts = key if isinstance(key, tuple) else (key,)
        own = _cells({("key", level, at): part for at, part in enumerate(parts)})
        found = inner[key] if key in inner else _expanded(item, level + 1, 1)
        records += [{**own, **record} for record in found]
    return records[:most]


def _is_nested(value: Any) -> bool:
    return isinstance(value, list | tuple | dict | set | frozenset)


def _cells(named: Record) -> Record:
    """Those of a record's cells that a call can give; their names can be printed, too."""
    return {slot: cell for slot, cell in named.items() if _is_json(slot) and _is_json(cell)}


def _is_json(value: Any) -> bool:
    """Whether JSON can state a literal: no bytes, no infinity, no number too long to be printed."""
    try:
        canonical_json(value).encode()
    except (TypeError, ValueError):
        return False
    return True


def _readings(found: Sequence[Record], leaves: Mapping[Path, Any]) -> list[dict[Path, Slot]]:
    """The ways in which a record can be the gold call's: a slot of its own for every leaf."""
    readings: dict[str, dict[Path, Slot]] = {}
    for record in found:
        slots: dict[Path, Slot] = {}
        for path, value in leaves.items():
            free = [
                slot
                for slot, cell in record.items()
                if slot not in slots.values() and same_value(value, cell)
            ]
            named = [slot for slot in free if slot[-1] == path[-1]]
            if not free:
                break
            slots[path] = (named or free)[0]
        else:
            readings.setdefault(repr(sorted(slots.items(), key=repr)), slots)
    return list(readings.values())


def _holds(record: Record, slots: Mapping[Path, Slot], answer: Any) -> bool:
    """Whether a record states the answer in a slot that is no argument; true is not 1."""
    wanted = [value for _, value in leaves_of(answer)]
    cells = [cell for slot, cell in record.items() if slot not in slots.values()]
    return bool(wanted) and all(any(same_value(one, cell) for cell in cells) for one in wanted)


def _beside(tree: ast.AST, found: Sequence[Record], value: Any) -> list[Any]:
    """Values that stand where the value stands: in a slot of a record, or in a comparison."""
    slots = {slot for record in found for slot, cell in record.items() if same_value(value, cell)}
    cells = [cell for record in found for slot, cell in record.items() if slot in slots]
    compared = [
        node.value
        for outer in ast.walk(tree)
        if isinstance(outer, ast.Compare | ast.MatchValue)
        for node in ast.walk(outer)
        if isinstance(node, ast.Constant) and _is_json(node.value)
    ]
    if any(same_value(value, one) for one in compared):
        cells += compared
    alike = [cell for cell in cells if _alike(cell, value) and not same_value(value, cell)]
    return list({canonical_json(cell): cell for cell in alike}.values())


def _alike(one: Any, other: Any) -> bool:
    """Whether two scalars are of one type, as JSON has them."""
    types = {type(value) for value in (one, other)}
    return len(types) == 1 or types == {int, float}
