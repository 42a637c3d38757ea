"""Every tool of a world called some hundred times from the start: what may come back, what not.

A call is done or refused in words that its code declares; whatever else happens is a fault. What
it writes is what its changes say, what it shows is declared and true, and a rule that it enforces
refuses exactly what the rule forbids.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from astra.arena.effects import EffectError, effects
from astra.arena.expressions import ExpressionError, Scope, holds, scope_of
from astra.arena.world_runner import CallEnd, WorldCall, WorldRunner
from astra.records.base import canonical_json
from astra.records.state import Row
from astra.records.world import (
    Enforced,
    PolicyRule,
    TraceEvent,
    World,
    WorldTool,
)
from astra.text.source import parsed
from astra.worlds.calls import CallDraw
from astra.worlds.shown import LiveRows, ShownRecords
from astra.worlds.soundness import WorldFault

KEPT_EVENTS = 6
"""Successful calls of each tool whose results are kept."""
_CONSTANT_AFTER = 8
"""Different calls that give one and the same: the tool does not look at what it is asked."""
MAX_REFUSAL = 160
"""The most characters of a refusal: one short line."""
_ENDS = {
    CallEnd.CRASHED: "unexpected_failure",
    CallEnd.ENDED: "unexpected_failure",
    CallEnd.VIOLATION: "undeclared_write",
    CallEnd.INVALID: "invalid_call",
}


@dataclass
class Fuzzed:
    """What the calls of all tools gave."""

    calls: int = 0
    done: dict[str, list[Row]] = field(default_factory=dict[str, list[Row]])
    """Arguments of calls that succeeded, by tool."""
    first: dict[str, list[TraceEvent]] = field(default_factory=dict[str, list[TraceEvent]])
    """The first few of them as they went, by tool."""
    refused: dict[str, list[tuple[Row, str]]] = field(
        default_factory=dict[str, list[tuple[Row, str]]]
    )
    """Arguments of calls that were refused, with what was said, by tool."""
    guarded: Counter[str] = field(default_factory=Counter[str])
    """Calls that a rule refused, by rule."""
    passed: Counter[str] = field(default_factory=Counter[str])
    """Calls that succeeded where a rule applied and held, by rule."""
    effects: int = 0
    """Successful calls whose writes were compared with their changes."""


def fuzz(
    world: World, runner: WorldRunner, draw: CallDraw, per_tool: int, fuzzed: Fuzzed,
    shown: Mapping[str, ShownRecords],
) -> Iterator[WorldFault]:  # fmt: skip
    """Call each tool ``per_tool`` times from the start, filling ``fuzzed`` and ``shown`` (one
    for each tool, by its name); faults as found."""
    start = LiveRows(world)
    for tool in world.tools:
        name = tool.tool.name
        done, refused = fuzzed.done.setdefault(name, []), fuzzed.refused.setdefault(name, [])
        first = fuzzed.first.setdefault(name, [])
        checker, results = _Checker(world, shown[name], start), set[str]()
        for _ in range(per_tool):
            arguments = draw.arguments(tool, world.rows)
            made = runner.call(name, arguments)
            fuzzed.calls += 1
            if made.event.changes:
                runner.reset()
            if fault := checker.fault(made, fuzzed):
                yield fault
                break
            if made.end is CallEnd.DONE:
                done.append(arguments)
                results.add(canonical_json(made.event.result))
                if len(first) < KEPT_EVENTS:
                    first.append(made.event)
            else:
                refused.append((arguments, made.event.failed))
        else:
            yield from _together(tool, per_tool, done, refused, results)
        runner.reset()
        runner.close()  # a session's CPU time is limited: each tool has one of its own


def _together(
    tool: WorldTool, calls: int, done: list[Row], refused: list[tuple[Row, str]], results: set[str]
) -> Iterator[WorldFault]:
    """What is wrong with all calls of a tool, none of which is wrong by itself."""
    name = tool.tool.name
    if _is_constant(tool, done, results):
        yield WorldFault("constant", f"{name}: {len(done)} calls, always {min(results)[:160]}")
    if not done:
        said = Counter(message for _, message in refused).most_common(3)
        yield WorldFault("never_succeeds", f"{name}: {calls} calls refused: {said}")


def _is_constant(tool: WorldTool, done: list[Row], results: set[str]) -> bool:
    """Whether a tool that reads gives the same whatever it is asked."""
    asked = {canonical_json(arguments) for arguments in done}
    return not tool.writes and len(asked) >= _CONSTANT_AFTER and len(results) == 1


class _Checker:
    """Judges single calls of one tool, made from the start of the world."""

    def __init__(self, world: World, records: ShownRecords, rows: LiveRows) -> None:
        self._world, self._tool = world, (tool := records.tool)
        self._records, self._start = records, rows
        self._declared = declared_refusals(tool.code)
        enforced = [rule for rule in world.rules if rule.enforced is Enforced.TOOL]
        self._rules = [rule for rule in enforced if tool.tool.name in rule.tools]
        self._by_key: dict[str, dict[str, Row]] = {}

    def fault(self, made: WorldCall, fuzzed: Fuzzed) -> WorldFault | None:
        event, name = made.event, self._tool.tool.name
        if made.end in _ENDS:
            return WorldFault(_ENDS[made.end], f"{name}({event.arguments}): {event.failed}")
        scope = scope_of(self._world, arguments=event.arguments, by_key=self._by_key)
        if made.end is CallEnd.REFUSED:
            if why := self._refusal_fault(event.failed):
                return WorldFault(why, f"{name}({event.arguments}): {event.failed!r}")
        elif fault := self._records.fault(event, self._start):
            return fault
        try:
            return self._rule_fault(made, scope, fuzzed) or self._effect_fault(made, scope, fuzzed)
        except (EffectError, ExpressionError) as error:
            return WorldFault("bad_expression", f"{name}({event.arguments}): {error}")

    def _refusal_fault(self, message: str) -> str:
        said = message.removeprefix("ValueError: ")
        if "\n" in said or not 0 < len(said) <= MAX_REFUSAL:
            return "unclean_refusal"
        return "" if any(one.fullmatch(said) for one in self._declared) else "undeclared_refusal"

    def _rule_fault(self, made: WorldCall, scope: Scope, fuzzed: Fuzzed) -> WorldFault | None:
        """A rule that the tool enforces refuses what it forbids and nothing else."""
        for rule in self._rules:
            named = names_rule(made.event.failed, rule)
            if made.end is not CallEnd.DONE and not named:
                continue  # refused for another reason, it may be no call that a rule can judge
            applies = rule.when is None or holds(rule.when, scope)
            broken = applies and not holds(rule.require, scope)
            if named and not broken:
                return self._guard("guard_too_strict", rule, made)
            if broken and not named:
                return self._guard("guard_missing", rule, made)
            fuzzed.passed[rule.id] += applies and not broken
            fuzzed.guarded[rule.id] += named
        return None

    def _guard(self, reason: str, rule: PolicyRule, made: WorldCall) -> WorldFault:
        event = made.event
        said = repr(event.failed) if event.failed else "was not refused"
        return WorldFault(reason, f"{rule.id}: {event.tool}({event.arguments}): {said}")

    def _effect_fault(self, made: WorldCall, scope: Scope, fuzzed: Fuzzed) -> WorldFault | None:
        """What a successful call wrote is what its changes say."""
        if made.end is not CallEnd.DONE or not self._tool.writes:
            return None
        expected = effects(self._world, self._tool, scope)
        found = {(change.table, change.key): change.row for change in made.event.changes}
        fuzzed.effects += 1
        if found == expected:
            return None
        return WorldFault(
            "other_effect",
            f"{self._tool.tool.name}({made.event.arguments}): wrote {found}, said {expected}",
        )


def names_rule(message: str, rule: PolicyRule) -> bool:
    """Whether a refusal names the rule by its code."""
    return message.removeprefix("ValueError: ").split(":", 1)[0] == rule.reason


def declared_refusals(code: str) -> list[re.Pattern[str]]:
    """What a tool says when it refuses, from its ``raise ValueError(...)`` statements.

    What stands between the fixed parts of a message may be anything; a message without any fixed
    part declares nothing.
    """
    declared: list[re.Pattern[str]] = []
    for node in ast.walk(parsed(code)):
        if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
            continue
        call = node.exc
        if isinstance(call.func, ast.Name) and call.func.id == "ValueError" and call.args:
            pattern = _message(call.args[0])
            if pattern.replace(".*", "").strip():
                declared.append(re.compile(pattern, re.DOTALL))
    return declared


def _message(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return re.escape(str(node.value))
    if isinstance(node, ast.JoinedStr):
        return "".join(_message(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return _message(node.left) + _message(node.right)
    return ".*"


def known_keys(world: World, arguments: Mapping[str, Any]) -> Row:
    """The keys in a call's arguments, and those that the rows of these keys refer to."""
    known: Row = {}
    for table in world.tables:
        value = arguments.get(table.key)
        row = next((r for r in world.rows[table.name] if r[table.key] == value), None)
        for column in table.columns if row is not None else ():
            if column.name == table.key or column.references:
                known.setdefault(column.name, cast("Row", row)[column.name])
    return known
