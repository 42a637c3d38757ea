"""Further calls of a tool that writes, where operation and document say what they must do.

Five faults leave the gold call as it should be: a condition that the document states and the code
does not check, a new cell that is taken for the standing one because it is much alike, a name that
is written though no table knows it, one that is refused since nothing was written of it yet, and a
call about other rows that writes or answers as the gold call does, or that none is meant by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from astra.arena.answers import matches
from astra.arena.state import apply_writes
from astra.envsynth.near import near_names
from astra.envsynth.perturb import UNKNOWN_NAME
from astra.envsynth.static import call_problem
from astra.envsynth.truth import names_between
from astra.envsynth.worlds import effects, key_of, tables_in
from astra.qa.knowledge.operations import WRITE_OPS, Refused, evaluate, rows_meant, writes_of
from astra.qa.knowledge.references import EvaluationError, resolve
from astra.records.base import canonical_json
from astra.records.qa import Operation, QAInstance, SubQuestion, Table
from astra.records.state import Row, Tables, WorldState, Write, WriteAction
from astra.records.tool import Tool
from astra.text.words import says

MOST_ROWS = 4
"""Rows tried that a condition of the document leaves out."""
MOST_VALUES = 5
"""Other values tried of each argument."""
LEAST_ROWS = 3
"""Rows that a column needs so that cells without repeats show that it holds no categories."""


@dataclass(frozen=True)
class KnownEffect:
    """A call, and the tables that it must leave."""

    arguments: dict[str, Any]
    after: Tables | None
    """None where the call must be refused."""
    reason: str
    """Why it must do so."""
    answer: Any = None
    """What it must answer with; None where nothing says it."""
    required: bool = True
    """Whether it must be done; where not, a refusal will do, since the tool may have conditions."""
    before: WorldState | None = None
    """The world that the call meets; None: that of the gold call."""


def known_effects(
    instance: QAInstance,
    question: SubQuestion,
    tool: Tool,
    arguments: Mapping[str, Any],
    before: WorldState,
) -> tuple[KnownEffect, ...]:
    """The further calls with a known effect: about other names, and of a tool that changes or
    removes a row about that row and others.

    There are none where a parameter does not stand for an argument of the operation, value for
    value: then nobody knows how to write another.
    """
    operation, table = question.operation, _table(instance, question)
    if operation is None or table is None or operation.op not in WRITE_OPS:
        return ()
    answers = {other.id: other.answer.value for other in instance.sub_questions}
    try:
        plain = {name: resolve(value, answers) for name, value in operation.arguments.items()}
    except EvaluationError:
        return ()
    names = names_between(plain, arguments)
    if names is None or any(arguments[name] != plain[own] for name, own in names.items()):
        return ()
    found = [*_named_elsewhere(instance, question, arguments, names, before)]
    asked = operation.model_copy(update={"arguments": plain})
    if operation.op != "insert":
        found += _about_rows(instance, question, tool, arguments, names, plain, before)
    if _is_told(asked, instance, question, before):
        found += _others(instance, asked, arguments, names, before, tool.description)
    distinct = {(canonical_json(one.arguments), one.before is None): one for one in reversed(found)}
    return tuple(
        one for one in reversed(distinct.values()) if call_problem(tool, one.arguments) is None
    )


def _about_rows(
    instance: QAInstance,
    question: SubQuestion,
    tool: Tool,
    arguments: Mapping[str, Any],
    names: Mapping[str, str],
    plain: Mapping[str, Any],
    before: WorldState,
) -> list[KnownEffect]:
    """The calls about the one row that the gold call changes or removes, and about others."""
    operation, table = question.operation, _table(instance, question)
    assert operation is not None
    assert table is not None
    written = operation.select if operation.op == "update" else None
    where = {name: own for name, own in names.items() if own in table.columns and own != written}
    rows = before.tables[table.name]
    chosen = [row for row in rows if all(row[own] == plain[own] for own in where.values())]
    if not where or len(chosen) != 1:
        return []
    return [
        *_barred(tool, arguments, where, chosen[0], rows),
        *_nearly_standing(instance, question, arguments, names, chosen[0], before),
        *_among_alike(instance, question, arguments, chosen[0], before),
    ]


def _among_alike(
    instance: QAInstance,
    question: SubQuestion,
    arguments: Mapping[str, Any],
    gold: Row,
    before: WorldState,
) -> Iterator[KnownEffect]:
    """The gold update where every other row has the new cell already: those rows stay as they are,
    though code may take them back. The tool may refuse, as a seat goes to one guest alone.
    """
    write = _only_write(instance, question)
    if write is None or write.action != WriteAction.UPDATE:
        return
    rows = [row if row == gold else {**row, **write.values} for row in before.tables[write.table]]
    world = before.model_copy(update={"tables": {**before.tables, write.table: rows}})
    after = _after(instance, world, write)
    reason = "where all other rows have the new cell already, only its own row changes"
    yield KnownEffect(dict(arguments), after, reason, required=False, before=world)


def _named_elsewhere(
    instance: QAInstance,
    question: SubQuestion,
    arguments: Mapping[str, Any],
    names: Mapping[str, str],
    before: WorldState,
) -> Iterator[KnownEffect]:
    """The gold call with another name in a cell that it writes, where that column is the key of
    another table: nobody's name, and where a row is added, one that no row has so far.
    """
    write = _only_write(instance, question)
    if write is None:
        return
    keyed = {key_of(table): table for table in instance.knowledge if table.name != write.table}
    for name, column in names.items():
        if column not in write.values or column not in keyed:
            continue
        owner, value = keyed[column], arguments[name]
        known = {row[column]: row for row in before.tables[owner.name]}
        cells = {value, *(row[column] for row in before.tables[write.table])}
        if not isinstance(value, str) or not cells <= known.keys():
            continue
        reason = f"{owner.name} has no such {column}, so it must raise ValueError"
        yield KnownEffect({**arguments, name: UNKNOWN_NAME}, None, reason)
        constants = [write.values[own] for own in write.values if own not in names.values()]
        copied = any(cell in known[value].values() for cell in constants)
        if write.action == WriteAction.INSERT and not copied:
            used = {row[column] for row in before.tables[write.table]}
            rest = [given for other, given in arguments.items() if other != name]
            alike = _alike(known[value], list(known.values()), rest)
            for other in [row[column] for row in alike if row[column] not in used][:1]:
                changed = write.model_copy(update={"values": {**write.values, column: other}})
                reason = f"{owner.name} has {other!r}, so the row is added"
                after = _after(instance, before, changed)
                yield KnownEffect({**arguments, name: other}, after, reason)


def _alike(gold: Row, rows: list[Row], stated: list[Any]) -> list[Row]:
    """The other rows that no condition is likely to tell from the gold one: they have its cell
    where that is a word in lower case (a state, no name) and where the call states it, and no 0 or
    blank where it has something.
    """
    shared = [column for column in gold if gold[column] in stated or _is_state(gold[column])]
    return [
        row
        for row in rows
        if row != gold
        and all(row[column] == gold[column] for column in shared)
        and all(row[column] or not gold[column] for column in gold)
    ]


def _is_state(cell: Any) -> bool:
    """Whether a cell is plain words in lower case, as states are and names are not."""
    return isinstance(cell, str) and cell.islower() and cell.replace(" ", "").isalpha()


def _only_write(instance: QAInstance, question: SubQuestion) -> Write | None:
    """What the gold call writes; None where that is nothing, or several changes."""
    writes = effects(instance, question)
    return writes[0] if len(writes) == 1 else None


def _after(instance: QAInstance, before: WorldState, *writes: Write) -> Tables:
    """The tables that writes leave."""
    columns = {table.name: table.columns for table in instance.knowledge}
    fields = {table.name: table.fields for table in instance.knowledge}
    return apply_writes(before.tables, writes, columns, fields)


def _table(instance: QAInstance, question: SubQuestion) -> Table | None:
    named = question.operation.table if question.operation else ""
    return next((table for table in instance.knowledge if table.name == named), None)


def _barred(
    tool: Tool,
    arguments: Mapping[str, Any],
    where: Mapping[str, str],
    gold: Row,
    rows: list[Row],
) -> Iterator[KnownEffect]:
    """The call about other rows, where the description names a cell of the gold row as what a row
    has to be ("an available listing") and they have another one.

    A description that names several cells of a column lists what there is.
    """
    for column, cell in gold.items():
        cells = {row[column] for row in rows if isinstance(row[column], str)}
        named = [one for one in cells if says(one, tool.description)]
        if column in where.values() or named != [cell]:
            continue
        others = [row for row in rows if row[column] != cell]
        for row in others[:MOST_ROWS]:
            other = {**arguments, **{name: row[own] for name, own in where.items()}}
            alike = [one for one in rows if all(one[own] == row[own] for own in where.values())]
            if len(alike) == 1:
                reason = f"the description says {cell!r}, its {column} is {row[column]!r}"
                yield KnownEffect(other, None, f"{reason}, so it must raise ValueError")


def _is_told(
    asked: Operation, instance: QAInstance, question: SubQuestion, before: WorldState
) -> bool:
    """Whether the operation says what the gold call writes and answers."""
    try:
        answer = evaluate(asked, tables_in(instance, before), {})
    except EvaluationError:
        return False
    return writes_of(asked, {}) == effects(instance, question) and matches(question.answer, answer)


def _others(
    instance: QAInstance,
    asked: Operation,
    arguments: Mapping[str, Any],
    names: Mapping[str, str],
    before: WorldState,
    described: str,
) -> Iterator[KnownEffect]:
    """The call with another value of one argument, that of another row or one that nothing has, and
    the insertion of rows that stand already.

    ``asked`` holds the plain values, and alone says what the gold call writes.
    """
    tables = tables_in(instance, before)
    standing = before.tables[asked.table] if asked.op == "insert" else []
    for row in [*standing[:2], *standing[-1:]]:
        if all(own in row for own in names.values()):
            there = {own: row[own] for own in names.values()}
            other = asked.model_copy(update={"arguments": {**asked.arguments, **there}})
            given = {name: row[own] for name, own in names.items()}
            yield from _effect(instance, other, given, tables, before)
    for name, own in names.items():
        owner = _owner(tables, asked, own)
        column = (owner.name, owner.columns[0]) if owner else (asked.table, own)
        rows = before.tables[column[0]]
        cells = [row[column[1]] for row in rows if column[1] in row]
        cells = [cell for cell in dict.fromkeys(cells) if type(cell) is type(arguments[name])]
        step = max(1, len(cells) // MOST_VALUES)
        chosen = [*cells[::step][:MOST_VALUES], *cells[-1:]]
        for cell in dict.fromkeys(one for one in chosen if one != arguments[name]):
            other = asked.model_copy(update={"arguments": {**asked.arguments, own: cell}})
            must = _is_alike(asked, other, before.tables[asked.table], described)
            given = {**arguments, name: cell}
            yield from _effect(instance, other, given, tables, before, must=must)
        filters = asked.op != "insert" and own in asked.arguments and own != asked.select
        if isinstance(arguments[name], str) and (owner or filters or asked.op == "delete"):
            for strange in (UNKNOWN_NAME, *near_names(arguments[name])):
                reason = f"no {own} is named {strange!r}, so it must raise ValueError"
                if strange not in cells:
                    yield KnownEffect({**arguments, name: strange}, None, reason)


def _owner(tables: Sequence[Table], asked: Operation, own: str) -> Table | None:
    """The table whose rows an argument of an insertion names by their key."""
    if asked.op != "insert":
        return None
    value = asked.arguments[own]
    return next(
        (
            table
            for table in tables
            if table.name != asked.table
            and key_of(table)
            and any(row[0] == value for row in table.rows)
        ),
        None,
    )


def _is_alike(asked: Operation, other: Operation, rows: Sequence[Row], described: str) -> bool:
    """Whether an update of another row has to be done as the gold one is: the cell to be changed is
    now the same in both rows, and the description names no cell that tells them apart.
    """
    written = asked.select
    if asked.op != "update" or asked.arguments[written] != other.arguments[written]:
        return False
    (gold, *_), (row, *more) = (_meant(one, rows) or [{}] for one in (asked, other))
    differing = [column for column in gold if row.get(column) != gold[column]]
    told = any(isinstance(gold[one], str) and says(gold[one], described) for one in differing)
    return bool(row) and not more and written not in differing and not told


def _meant(operation: Operation, rows: Sequence[Row]) -> list[Row]:
    """The rows that an update chooses."""
    chosen = {own: value for own, value in operation.arguments.items() if own != operation.select}
    return [row for row in rows if chosen.items() <= row.items()]


def _effect(
    instance: QAInstance,
    asked: Operation,
    arguments: dict[str, Any],
    tables: Sequence[Table],
    before: WorldState,
    *,
    must: bool = False,
) -> Iterator[KnownEffect]:
    """What the operation says of a call; nothing where it means several rows. ``must``: it has to
    be done where it can be.
    """
    try:
        answer = evaluate(asked, tables, {})
    except Refused as refusal:
        table = next(one for one in tables if one.name == asked.table)
        if asked.op == "insert" and not key_of(table):
            return  # its rows may look alike
        yield KnownEffect(arguments, None, f"{refusal}, so it must raise ValueError")
        return
    except EvaluationError:
        if asked.op != "insert" and not rows_meant(asked, tables):
            yield KnownEffect(arguments, None, "no row is meant, so it must raise ValueError")
        return
    after = _after(instance, before, *writes_of(asked, {}))
    reason = f"it must do to {canonical_json(asked.arguments):.100} what the gold call does"
    yield KnownEffect(arguments, after, reason, answer, required=must)


def _nearly_standing(
    instance: QAInstance,
    question: SubQuestion,
    arguments: Mapping[str, Any],
    names: Mapping[str, str],
    gold: Row,
    before: WorldState,
) -> Iterator[KnownEffect]:
    """The gold call with a new cell that is nearly the standing one; only of free text or numbers,
    not of categories, names that other cells have, or what has a form of its own.
    """
    write = _only_write(instance, question)
    if write is None or write.action != WriteAction.UPDATE or len(write.values) != 1:
        return
    ((column, new),) = write.values.items()
    parameter = next((name for name, own in names.items() if own == column), None)
    cells = [row[column] for row in before.tables[write.table]]
    near = _near(gold[column])
    elsewhere = [
        cell
        for name, rows in before.tables.items()
        for row in rows
        for own, cell in row.items()
        if (name, own) != (write.table, column)
    ]
    if (
        parameter is None
        or near is None
        or near in (new, gold[column])
        or len(cells) < LEAST_ROWS
        or len({repr(cell) for cell in cells}) < len(cells)
        or (isinstance(new, str) and (new in elsewhere or gold[column] in elsewhere))
    ):
        return
    changed = write.model_copy(update={"values": {column: near}})
    after = _after(instance, before, changed)
    reason = f"{column} is {gold[column]!r}, so it must become {near!r}"
    yield KnownEffect({**arguments, parameter: near}, after, reason)


def _near(cell: Any) -> Any:
    """A value near a cell: of text of several words its last letter less, of a number one more."""
    if isinstance(cell, bool) or cell is None:
        return None
    if isinstance(cell, int | float):
        return cell + 1
    if isinstance(cell, str) and " " in cell and cell[-1:].isalpha() and "@" not in cell:
        return cell[:-1]
    return None
