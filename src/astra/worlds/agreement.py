"""Whether a rule's sentence says what its expression says: calls judged by both, apart.

Cases are drawn from the rows. Most lie in pairs on both sides of a limit of the expression, about
half break the rule, and some are calls that it does not apply to. Whoever decides them sees the
sentence, the call, what was said and shown before, and the records that the call is about; the
expression is not shown.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from astra.arena.effects import EffectError, effects
from astra.arena.expressions import ExpressionError, Scope, evaluate, scope_of
from astra.records.base import canonical_json, content_id
from astra.records.state import Row
from astra.records.world import (
    EventKind,
    Expr,
    PolicyRule,
    ToolRole,
    TraceEvent,
    UserAct,
    World,
    WorldTable,
    WorldTool,
)
from astra.text.keys import key_of
from astra.worlds.asks import DecideReply
from astra.worlds.calls import CallDraw
from astra.worlds.limits import ORDERED_WAYS, Axis, TriedCall, allowed, limit_pairs
from astra.worlds.soundness import WorldFault, operations

_DRAWS = 4_000
_MOST_RECORDS = 40
"""The most records of one table that a case shows."""
_LIMIT_SHARE = 2 / 3
"""How many of the cases lie next to a limit of the rule, at most."""
_LIMIT_CALLS = 24
"""Calls whose values are varied in search of limits."""
_CHANGE_DRAWS = 20
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
    """``count`` cases, or fewer where no more are found: first pairs of calls on both sides of the
    rule's limits, then others; up to half of them are forbidden, and up to a quarter are calls that
    the rule does not apply to. The same world and rule give the same cases."""
    # By content, not by the world's id: a repaired tool elsewhere leaves the cases as they are.
    seed = content_id(["cases", world.domain, rule.model_dump(mode="json"), world.rows])
    rng = random.Random(int(seed, 16))
    drawn = _drawn(world, rule, count, rng)
    room = {"forbidden": count // 2, "beside": count // 4, "allowed": count}
    found: dict[str, tuple[str, RuleCase]] = {}
    at_limits = _at_limits(world, rule, [call for _, call in drawn], int(count * _LIMIT_SHARE))
    limits = 0
    for at, (kind, call) in enumerate((*at_limits, *drawn)):
        records = _records(world, rule, call)
        if room[kind] == 0 or records is None:
            continue
        verdict = kind != "forbidden"
        case = RuleCase(call.tool, call.arguments, call.events, records, verdict)
        identity = canonical_json([case.shown(0)])
        if identity not in found:
            room[kind] -= 1
            found[identity] = kind, case
            limits += at < len(at_limits)
    cases = list(found.values())
    first = cases[:limits]
    rest = sorted(cases[limits:], key=lambda one: one[0] == "allowed")
    chosen = [case for _, case in [*first, *rest][:count]]
    rng.shuffle(chosen)
    return chosen


def _drawn(
    world: World, rule: PolicyRule, count: int, rng: random.Random
) -> list[tuple[str, TriedCall]]:
    """Calls on the rows as they are, with what the rule says of each; enough of every kind where
    there are."""
    draw = CallDraw(world, rng)
    tools = {tool.tool.name: tool for tool in world.tools}
    kinds = ("forbidden", "allowed", *(("beside",) if rule.when is not None else ()))
    room = Counter(dict.fromkeys(kinds, 2 * count))
    calls: list[tuple[str, TriedCall]] = []
    for _ in range(_DRAWS):
        tool = tools[rng.choice(rule.tools)]
        arguments = draw.arguments(tool, world.rows)
        if not _known(world, arguments):
            continue
        try:
            events = tuple(_events(world, rule, arguments, draw, rng))
            call = TriedCall(tool.tool.name, arguments, events, world.rows)
            applies, right = allowed(world, rule, call)
        except ExpressionError:
            continue  # a date that is none: nobody could decide it
        kind = "beside" if not applies else "allowed" if right else "forbidden"
        if room[kind]:
            room[kind] -= 1
            calls.append((kind, call))
        if not any(room.values()):
            break
    return calls


def _at_limits(
    world: World, rule: PolicyRule, calls: list[TriedCall], most: int
) -> list[tuple[str, TriedCall]]:
    """Neighbours of which the rule allows one and forbids the other, each limit once: numbers and
    days first, then the values of closed sets."""
    tools = {tool.tool.name: tool for tool in world.tools}
    pairs: dict[Axis, tuple[TriedCall, TriedCall]] = {}
    for call in calls[:_LIMIT_CALLS]:
        for limit, inside, outside in limit_pairs(world, rule, tools[call.tool], call, pairs):
            pairs[limit] = inside, outside
    ordered = sorted(pairs, key=lambda limit: limit[-1] not in ORDERED_WAYS)
    chosen: list[tuple[str, TriedCall]] = []
    for axis in ordered[: most // 2]:
        inside, outside = pairs[axis]
        chosen += [("allowed", inside), ("forbidden", outside)]
    return chosen


def _known(world: World, arguments: Row) -> bool:
    """Whether all keys in a call are of rows that are there."""
    return all(
        any(row[table.key] == value for row in world.rows[table.name])
        for table, value in _keys_given(world, arguments)
    )


def _keys_given(world: World, arguments: Row) -> list[tuple[WorldTable, Any]]:
    """The keys in a call, each with a table whose key it is, in the order of the tables."""
    keys = [table.key for table in world.tables]
    given = [(key_of(name, keys), value) for name, value in arguments.items()]
    return [(table, value) for table in world.tables for key, value in given if key == table.key]


def _events(
    world: World, rule: PolicyRule, arguments: Row, draw: CallDraw, rng: random.Random
) -> Iterator[TraceEvent]:
    """Things that the rule asks for, each of them there or not, and other rows shown instead."""
    tools = {tool.tool.name: tool for tool in world.tools}
    scope = scope_of(world, arguments=arguments)
    for operator, operand in (*operations(rule.when), *operations(rule.require)):
        if operator == "confirmed":
            yield from _agreed(world, draw, rng)
        elif operator in ("seen", "distinct_seen"):
            wanted = evaluate(operand[2], scope) if operator == "seen" else None
            yield from _shown(world, tools[operand[0]], operand[1], wanted, rng)
        elif operator == "called" and rng.random() < _TRACE_SHARE:
            given = {name: _value(part, scope) for name, part in operand[1].items()}
            yield TraceEvent(kind=EventKind.CALL, tool=operand[0], arguments=given, result={})


def _agreed(world: World, draw: CallDraw, rng: random.Random) -> Iterator[TraceEvent]:
    """A consent or none, before or after a change that something else was made of, or alone."""
    consent = TraceEvent(kind=EventKind.USER, act=UserAct.CONFIRM, text="Yes, please do that.")
    before, agreed, after = (rng.random() < _TRACE_SHARE for _ in range(3))
    yield from _change(world, draw, rng) if before else ()
    yield from (consent,) if agreed else ()
    yield from _change(world, draw, rng) if after and agreed else ()


def _change(world: World, draw: CallDraw, rng: random.Random) -> Iterator[TraceEvent]:
    """A call of some tool that changed a row."""
    endings = (ToolRole.DECLINE, ToolRole.HAND_OVER)
    writing = [tool for tool in world.tools if tool.changes and tool.role not in endings]
    for _ in range(_CHANGE_DRAWS if writing else 0):
        tool = rng.choice(writing)
        arguments = draw.arguments(tool, world.rows)
        if not _known(world, arguments):
            continue
        try:
            made = effects(world, tool, scope_of(world, arguments=arguments))
        except (EffectError, ExpressionError, TypeError):
            continue
        if row := next((row for row in made.values() if row is not None), None):
            yield TraceEvent(kind=EventKind.CALL, tool=tool.tool.name, arguments=arguments,
                             result=row)  # fmt: skip
            return


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


def _records(world: World, rule: PolicyRule, call: TriedCall) -> dict[str, list[Row]] | None:
    """The rows whose keys a call has, the rows that these refer to, and those that the rule may
    have to count; None where these are too many to be shown, or are counted by no date."""
    tables = {table.name: table for table in world.tables}
    chosen: dict[str, dict[str, Row]] = {}

    def add(table: WorldTable, key: Any) -> None:
        row = next((row for row in call.tables[table.name] if row[table.key] == key), None)
        if row is None or key in chosen.get(table.name, {}):
            return
        chosen.setdefault(table.name, {})[key] = row
        for column in table.columns:
            if column.references:
                add(tables[column.references], row[column.name])

    for table, value in _keys_given(world, call.arguments):
        add(table, value)
    for operator, operand in (*operations(rule.when), *operations(rule.require)):
        if operator in ("count", "exists", "sum"):
            table = tables[operand[0]]
            try:
                counted = _countable(world, call, table, operand[-1])
            except ExpressionError:
                return None
            if len(counted) > _MOST_RECORDS:
                return None
            chosen.setdefault(table.name, {}).update({row[table.key]: row for row in counted})
    return {name: list(rows.values()) for name, rows in sorted(chosen.items())}


def _countable(
    world: World, call: TriedCall, table: WorldTable, where: Mapping[str, Expr]
) -> list[Row]:
    """The rows that refer to what the rule counts for, whatever else they hold: nobody else's. All
    that the rule counts where it does not go by a reference."""
    scope = scope_of(world, call.tables, arguments=call.arguments, events=call.events)
    wanted = {name: _value(part, scope) for name, part in where.items()}
    refers = {column.name for column in table.columns if column.references} | {table.key}
    going_by = wanted.keys() & refers or wanted.keys()
    return [row for row in call.tables[table.name]
            if all(row[name] == wanted[name] for name in going_by)]  # fmt: skip


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
