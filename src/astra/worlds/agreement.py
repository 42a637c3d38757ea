"""Whether a rule's sentence says what its expression says: calls judged by both, apart.

Cases are drawn from the rows: about half of them break the rule by its expression, and of the
others some are calls that it does not apply to. Whoever decides them sees the sentence, the call,
what was said and shown before, and the records that the call is about; the expression is not shown.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from astra.arena.expressions import ExpressionError, Scope, evaluate, holds, scope_of
from astra.records.base import canonical_json, content_id
from astra.records.state import Row
from astra.records.world import (
    EventKind,
    Expr,
    PolicyRule,
    TraceEvent,
    UserAct,
    World,
    WorldTable,
    WorldTool,
)
from astra.worlds.asks import DecideReply
from astra.worlds.calls import CallDraw
from astra.worlds.replies import operations
from astra.worlds.soundness import WorldFault

_DRAWS = 4_000
_MOST_RECORDS = 40
"""The most records of one table that a case shows."""
_TRACE_SHARE = 0.5
"""How often each thing that a rule asks of the conversation has happened before a call."""


@dataclass(frozen=True)
class RuleCase:
    """One call on the rows at the start, after some events, and what the expression says of it."""

    tool: str
    arguments: Row
    events: tuple[TraceEvent, ...]
    records: Mapping[str, list[Row]]
    """The rows that the call is about, by table."""
    allowed: bool

    def shown(self, number: int) -> dict[str, Any]:
        """What the one who decides is shown."""
        before = [
            {"user": event.text}
            if event.kind is EventKind.USER
            else {"call": event.tool, "arguments": event.arguments, "result": event.result}
            for event in self.events
        ]
        return {"case": number, "before": before, "call": self.tool, "arguments": self.arguments,
                "records": self.records}  # fmt: skip


def rule_cases(world: World, rule: PolicyRule, count: int) -> list[RuleCase]:
    """``count`` cases, or fewer where no more are found: up to half of them forbidden, and up to a
    quarter that the rule does not apply to. The same world and rule give the same cases."""
    # By content, not by the world's id: a repaired tool elsewhere leaves the cases as they are.
    seed = content_id(["cases", world.domain, rule.model_dump(mode="json"), world.rows])
    rng = random.Random(int(seed, 16))
    draw = CallDraw(world, rng)
    tools = {tool.tool.name: tool for tool in world.tools}
    room = {"forbidden": count // 2, "beside": count // 4, "allowed": count}
    found: dict[str, tuple[str, RuleCase]] = {}
    for _ in range(_DRAWS):
        tool = tools[rng.choice(rule.tools)]
        arguments = draw.arguments(tool, world.rows)
        if not _known(world, arguments):
            continue
        events = tuple(_events(world, rule, arguments, tools, rng))
        scope = scope_of(world, arguments=arguments, events=events)
        try:
            applies = rule.when is None or holds(rule.when, scope)
            allowed = not applies or holds(rule.require, scope)
        except ExpressionError:
            continue  # a date that is none: nobody could decide it
        kind = "beside" if not applies else "allowed" if allowed else "forbidden"
        case = RuleCase(
            tool.tool.name, arguments, events, _records(world, rule, arguments), allowed
        )
        identity = canonical_json([case.shown(0)])
        if identity in found or room[kind] == 0:
            continue
        room[kind] -= 1
        found[identity] = kind, case
    cases = [case for kind, case in found.values() if kind != "allowed"]
    allowed_ones = [case for kind, case in found.values() if kind == "allowed"]
    chosen = cases + allowed_ones[: max(0, count - len(cases))]
    rng.shuffle(chosen)
    return chosen


def _known(world: World, arguments: Row) -> bool:
    """Whether all keys in a call are of rows that are there."""
    for table in world.tables:
        keys = {row[table.key] for row in world.rows[table.name]}
        for name, value in arguments.items():
            if (name == table.key or name.endswith(f"_{table.key}")) and value not in keys:
                return False
    return True


def _events(
    world: World, rule: PolicyRule, arguments: Row, tools: Mapping[str, WorldTool],
    rng: random.Random,
) -> Iterator[TraceEvent]:  # fmt: skip
    """Things that the rule asks for, each of them there or not, and other rows shown instead."""
    scope = scope_of(world, arguments=arguments)
    for operator, operand in (*operations(rule.when), *operations(rule.require)):
        if operator == "confirmed" and rng.random() < _TRACE_SHARE:
            yield TraceEvent(kind=EventKind.USER, act=UserAct.CONFIRM, text="Yes, please do that.")
        elif operator in ("seen", "distinct_seen"):
            wanted = evaluate(operand[2], scope) if operator == "seen" else None
            yield from _shown(world, tools[operand[0]], operand[1], wanted, rng)
        elif operator == "called" and rng.random() < _TRACE_SHARE:
            given = {name: _value(part, scope) for name, part in operand[1].items()}
            yield TraceEvent(kind=EventKind.CALL, tool=operand[0], arguments=given, result={})


def _value(expr: Expr, scope: Scope) -> Any:
    return evaluate(expr, scope)


def _shown(
    world: World, tool: WorldTool, column: str, wanted: Any, rng: random.Random
) -> Iterator[TraceEvent]:
    """Calls of a tool that showed the row wanted, another one, both or none."""
    for table, columns in tool.shows.items():
        if column not in columns or not world.rows[table]:
            continue
        rows = [row for row in world.rows[table] if row[column] == wanted][:1]
        rows = rows if rng.random() < _TRACE_SHARE else []
        if rng.random() < _TRACE_SHARE / 2:
            rows.append(rng.choice(world.rows[table]))
        for row in rows:
            names = tool.tool.parameters.get("properties", {})
            yield TraceEvent(
                kind=EventKind.CALL,
                tool=tool.tool.name,
                arguments={name: row[name] for name in names if name in row},
                result={name: row[name] for name in columns},
            )
        return


def _records(world: World, rule: PolicyRule, arguments: Row) -> dict[str, list[Row]]:
    """The rows whose keys a call has, the rows that these refer to, and, of the tables that the
    rule counts in, the rows that refer to one of them."""
    tables = {table.name: table for table in world.tables}
    chosen: dict[str, dict[str, Row]] = {}

    def add(table: WorldTable, key: Any) -> None:
        row = next((row for row in world.rows[table.name] if row[table.key] == key), None)
        if row is None or key in chosen.get(table.name, {}):
            return
        chosen.setdefault(table.name, {})[key] = row
        for column in table.columns:
            if column.references:
                add(tables[column.references], row[column.name])

    for table in world.tables:
        for name, value in arguments.items():
            if name == table.key or name.endswith(f"_{table.key}"):
                add(table, value)
    keys = {(name, key) for name, rows in chosen.items() for key in rows}
    for operator, operand in (*operations(rule.when), *operations(rule.require)):
        if operator in ("count", "exists", "sum"):
            table = tables[operand[0]]
            for row in world.rows[table.name]:
                near = any(
                    (column.references, row[column.name]) in keys for column in table.columns
                )
                if near and len(chosen.setdefault(table.name, {})) < _MOST_RECORDS:
                    chosen[table.name][row[table.key]] = row
    return {name: list(rows.values()) for name, rows in sorted(chosen.items())}


def agreement_fault(
    rule: PolicyRule, cases: list[RuleCase], count: int, reply: DecideReply | None
) -> WorldFault | None:
    """Why the decisions do not bear a rule out; None where they agree on every case.

    ``reply`` None: there are too few cases to ask about.
    """
    kinds = {case.allowed for case in cases}
    if reply is None or len(cases) < count or len(kinds) < 2:
        forbidden = sum(not case.allowed for case in cases)
        return WorldFault(
            "too_few_cases", f"{rule.id}: {len(cases)} of {count} calls, {forbidden} forbidden"
        )
    said = {verdict.case: verdict for verdict in reply.cases}
    if sorted(said) != list(range(1, count + 1)) or len(reply.cases) != count:
        return WorldFault("undecided", f"{rule.id}: decided {sorted(said)} of {count} cases")
    for number, case in enumerate(cases, start=1):
        verdict = said[number]
        if verdict.allowed != case.allowed:
            words = {True: "allowed", False: "forbidden"}
            return WorldFault(
                "other_reading",
                f"{rule.id}: by its text {case.tool}({case.arguments}) is {words[verdict.allowed]} "
                f"({verdict.reason[:200]}), by its expression {words[case.allowed]}; "
                f"{case.shown(number)}",
            )
    return None
