"""The worlds behind instances whose sub-questions write.

In such an instance every tool over a table is stateful: it reads and changes the tables of the
knowledge, which all of them share. Steps happen in the reference order: by hop level, then id.

A step barred as NO_CALL is never called by the reference, but its tool is offered, and works: it
refuses the step's call where the task is infeasible or done already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

from astra.arena.state import StateError, apply_writes, same_state
from astra.envsynth.static import Problem
from astra.qa.knowledge.references import resolve
from astra.records.base import content_id
from astra.records.qa import Bar, QAInstance, QuestionKind, SubQuestion, Table
from astra.records.state import ArenaState, FieldClass, Tables, WorldState, Write, WriteAction

Nodes = Literal["needed", "non_leaf"]
"""Which sub-questions get a tool: every one that needs it, or only those that others build on."""
_FIRST_MORNING = datetime(2024, 1, 1, 9)


def needing_tool(instance: QAInstance, nodes: Nodes) -> list[SubQuestion]:
    """The sub-questions that get a tool: all that may need one, or only those others build on;
    and those that are offered though they must not be called.
    """
    built_on = {number for question in instance.sub_questions for number in question.dependencies}
    return [
        question
        for question in instance.sub_questions
        if question.bar == Bar.NO_CALL
        or (question.tool_necessity is not False and (nodes == "needed" or question.id in built_on))
    ]


def acts(question: SubQuestion) -> bool:
    """Whether the step's tool writes, whether or not the reference calls it."""
    stated = question.operation is not None and question.operation.op in set(WriteAction)
    return stated or bool(question.writes)


def is_refused(instance: QAInstance, question: SubQuestion) -> bool:
    """Whether the step's own call is one that its tool must refuse."""
    barred = question.bar == Bar.NO_CALL and acts(question)
    return barred and instance.kind in (QuestionKind.INFEASIBLE, QuestionKind.ALREADY_SATISFIED)


def has_writes(instance: QAInstance) -> bool:
    """Whether any step's tool writes: then every tool over a table is stateful."""
    return any(acts(question) for question in instance.sub_questions)


def is_stateful(instance: QAInstance, question: SubQuestion) -> bool:
    """Whether the tool of a sub-question takes the world; arithmetic on its arguments does not."""
    over_table = question.operation is None or bool(question.operation.table)
    return has_writes(instance) and over_table


def arena_state(instance: QAInstance, writes: Mapping[str, Sequence[str]]) -> ArenaState:
    """The world as an episode meets it. ``writes``: stateful tools and what each may change."""
    seed = int(content_id([instance.id, "world"]), 16)
    fields = {table.name: table.fields for table in instance.knowledge if table.fields}
    with_ids = sorted(name for name, kinds in fields.items() if FieldClass.IGNORE in kinds.values())
    morning = _FIRST_MORNING + timedelta(days=seed % 366)
    return ArenaState(
        world=WorldState(
            tables={
                table.name: [dict(zip(table.columns, row, strict=True)) for row in table.rows]
                for table in instance.knowledge
            },
            clock=morning.isoformat(),
            # First ids differ between instances and between tables.
            ids={name: 100 + (seed >> 9 + at) % 800 for at, name in enumerate(with_ids)},
        ),
        columns={table.name: table.columns for table in instance.knowledge},
        fields=fields,
        writes={name: tuple(sorted(tables)) for name, tables in sorted(writes.items())},
    )


def may_write(question: SubQuestion) -> set[str]:
    """The tables that the tool of a sub-question may change."""
    stated = {question.operation.table} if question.operation and acts(question) else set[str]()
    return stated | {write.table for write in question.writes}


def key_of(table: Table) -> str:
    """The column that names the rows of a table, no two alike: the first, unless tools make it or
    rows share it already; empty where there is none.
    """
    first = table.columns[0]
    names = [row[0] for row in table.rows]
    generated = table.fields.get(first) == FieldClass.IGNORE
    return "" if generated or len(set(names)) < len(names) else first


def _named_rows(
    instance: QAInstance, writes: Sequence[Write]
) -> Iterator[tuple[Write, Table, str]]:
    """Each write that adds a row to a table with a key, the table as it starts, and the key."""
    tables = {table.name: table for table in instance.knowledge}
    for write in writes:
        key = key_of(tables[write.table]) if write.table in tables else ""
        if write.action == WriteAction.INSERT and key:
            yield write, tables[write.table], key


def taken(instance: QAInstance, question: SubQuestion, before: WorldState) -> WorldState | None:
    """The world ``before`` with another row under the key of each row that the step's call adds;
    None where the call adds no row with a key.
    """
    tables = dict(before.tables)
    for write, table, key in _named_rows(instance, effects(instance, question)):
        name = write.values[key]
        new = {column: write.values.get(column) for column in table.columns}
        others = [{**row, key: name} for row in tables[table.name]]
        other = next((row for row in others if row != new), new)
        tables[table.name] = [*tables[table.name], other]
    return before.model_copy(update={"tables": tables}) if tables != before.tables else None


def around(instance: QAInstance, question: SubQuestion) -> tuple[WorldState, Tables]:
    """The world that the gold call of a sub-question meets, and its tables afterwards."""
    order = _reference_order(instance)
    earlier = [write for other in order[: order.index(question)] for write in other.writes]
    state = arena_state(instance, {})
    before = _after(state, earlier)
    effect = () if is_refused(instance, question) else effects(instance, question)
    after = _after(state.model_copy(update={"world": before}), effect)
    return before, after.tables


def effects(instance: QAInstance, question: SubQuestion) -> tuple[Write, ...]:
    """What the step's call writes where it is made: the ``writes`` of the step.

    A barred step states none. Its write follows from its operation: an insertion's values are its
    arguments; otherwise ``select`` names the argument that is written, the others choose the row.
    """
    operation = question.operation
    if question.bar is None or operation is None or not acts(question):
        return question.writes
    answers = {other.id: other.answer.value for other in instance.sub_questions}
    given = {name: resolve(value, answers) for name, value in operation.arguments.items()}
    action, cell = WriteAction(operation.op), operation.select
    inserts = action == WriteAction.INSERT
    values = {name: value for name, value in given.items() if inserts or name == cell}
    where = {name: value for name, value in given.items() if name not in values}
    return (Write(action=action, table=operation.table, where=where, values=values),)


def afterwards(instance: QAInstance, question: SubQuestion) -> WorldState | None:
    """The world after all that an instance writes, where the step only reads; None where that is
    the world that it meets, or a write cannot happen.

    Rows under an id that a tool makes are left out: nobody knows the id.
    """
    if acts(question):
        return None
    made = {
        table.name for table in instance.knowledge if FieldClass.IGNORE in table.fields.values()
    }
    writes = [
        write
        for other in _reference_order(instance)
        for write in other.writes
        if not (write.action == WriteAction.INSERT and write.table in made)
    ]
    try:
        before, _ = around(instance, question)
        world = _after(arena_state(instance, {}), writes)
    except StateError:
        return None
    return None if same_state(before.tables, world.tables, {}) else world


def expected_state(instance: QAInstance) -> Tables:
    """The tables after every write of the instance in the reference order."""
    writes = [write for question in _reference_order(instance) for write in question.writes]
    return _after(arena_state(instance, {}), writes).tables


def _reference_order(instance: QAInstance) -> list[SubQuestion]:
    return sorted(instance.sub_questions, key=lambda question: (question.hop_level, question.id))


def _after(state: ArenaState, writes: Sequence[Write]) -> WorldState:
    tables = apply_writes(state.world.tables, writes, state.columns, state.fields)
    return state.world.model_copy(update={"tables": tables})


def world_problem(instance: QAInstance, question: SubQuestion) -> Problem | None:
    """Why a sub-question cannot be proved: a write up to it cannot happen, or its own changes
    nothing.
    """
    try:
        before, after = around(instance, question)
    except StateError as error:
        return "impossible_write", str(error)
    own_writes = () if is_refused(instance, question) else effects(instance, question)
    for write, table, key in _named_rows(instance, own_writes):
        name = write.values[key]
        if any(row[key] == name for row in before.tables[table.name]):
            return "impossible_write", f"{table.name} has a row named {name!r} already"
    fields = arena_state(instance, {}).fields
    if question.writes and same_state(before.tables, after, fields):
        return "idle_write", "what the sub-question writes changes nothing"
    return None


def tables_in(instance: QAInstance, world: WorldState) -> list[Table]:
    """The knowledge as a world has it."""
    return [
        table.model_copy(
            update={
                "rows": tuple(
                    tuple(row.get(column) for column in table.columns)
                    for row in world.tables[table.name]
                )
            }
        )
        for table in instance.knowledge
    ]
