"""What a world has to hold before it ships, counted: its tools in the sandbox, its rules, its rows.

A world is rejected for the first thing that is wrong with it. Numbers of calls are the
specification's: 200 a tool, 500 successful ones in a row.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import product
from typing import Any

from astra.arena.expressions import ExpressionError, holds, scope_of
from astra.arena.state import state_hash
from astra.arena.world_runner import CallEnd, WorldRunner
from astra.records.base import content_id
from astra.records.state import Row, Tables
from astra.records.world import (
    Enforced,
    EventKind,
    PolicyRule,
    ToolRole,
    TraceEvent,
    UserAct,
    World,
    WorldShape,
    WorldTool,
)
from astra.sandbox.protocol import Sandbox, SandboxLoadError
from astra.worlds.calls import CallDraw
from astra.worlds.config import ProofConfig
from astra.worlds.dealings import DealingProof
from astra.worlds.declarations import declaration_faults
from astra.worlds.fuzz import Fuzzed, fuzz, known_keys
from astra.worlds.listings import listing_faults
from astra.worlds.parties import party_faults
from astra.worlds.rereads import RereadProof
from astra.worlds.sequels import SequelProof
from astra.worlds.shown import LiveRows, ShownRecords
from astra.worlds.soundness import (
    TRACE_OPERATORS,
    WorldFault,
    operators,
    reach_faults,
    row_faults,
    soundness_faults,
)

_CHECKED_EACH = 50
"""Successful calls of the walk after which all rows are checked."""
_RULE_DRAWS = 4_000
_RULE_CALLS = 300
"""Further calls that are drawn, and of them made, in which a rule may show that it bites."""
_REPLAYED = 100
_HIDDEN = 2
"""Tools of a full world that another tool has to prepare, at least."""
_ROLES_APART = (ToolRole.DECLINE, ToolRole.HAND_OVER)


class WorldProof:
    """The proofs of one world; ``checks`` counts what was checked."""

    def __init__(self, world: World, sandbox: Sandbox, config: ProofConfig) -> None:
        self._world, self._sandbox, self._config = world, sandbox, config
        self._rng = self._own_rng("proofs")
        self._draw = CallDraw(world, self._rng)
        self._tools = {tool.tool.name: tool for tool in world.tools}
        self._fuzzed = Fuzzed()
        self._records = {name: ShownRecords(world, tool) for name, tool in self._tools.items()}
        self.checks: Counter[str] = Counter()

    def fault(self) -> WorldFault | None:
        """The first thing that is wrong with the world; None where nothing is.

        Raises SandboxError where no session is to be had.
        """
        with closing(self.faults()) as found:
            return next(found, None)

    def faults(self) -> Generator[WorldFault]:
        """Everything that is wrong with the first part of the world in which something is, one
        after the other: later parts are not tried. Raises SandboxError as ``fault`` does."""
        try:
            for part in self._parts():
                found = False
                for fault in part:
                    found = True
                    yield fault
                if found:
                    return
        except SandboxLoadError as error:
            yield WorldFault("load_error", error.reason)

    def _parts(self) -> Iterator[Iterator[WorldFault]]:
        yield soundness_faults(self._world)
        self.checks["rows"] = sum(map(len, self._world.rows.values()))
        yield declaration_faults(self._world)
        yield party_faults(self._world, self._world.rows)
        with WorldRunner(self._world, self._sandbox) as runner:
            for part in (self._fuzz, self._rules, self._hidden, self._walk, self._declared,
                         self._shown, self._dealt, self._reread, self._sequels):  # fmt: skip
                yield part(runner)
        yield self._reach()
        yield self._reads()

    def _fuzz(self, runner: WorldRunner) -> Iterator[WorldFault]:
        calls = self._config.fuzz_calls
        yield from fuzz(self._world, runner, self._draw, calls, self._fuzzed, self._records)
        self.checks["fuzzed_calls"] = self._fuzzed.calls
        self.checks["effects"] = self._fuzzed.effects

    def _declared(self, runner: WorldRunner) -> Iterator[WorldFault]:
        """What a tool declares that it shows, some call of the fuzz or the walk has shown."""
        for records in self._records.values():
            yield from records.never_shown()

    def _reread(self, runner: WorldRunner) -> Iterator[WorldFault]:
        # Draws of its own: what the other proofs draw does not follow from what is read here.
        draw = CallDraw(self._world, self._own_rng("rereads"))
        yield from RereadProof(
            self._world, runner, draw, self._fuzzed, self._records, self.checks
        ).faults()

    def _sequels(self, runner: WorldRunner) -> Iterator[WorldFault]:
        draw = CallDraw(self._world, self._own_rng("sequels"))
        yield from SequelProof(self._world, runner, draw, self._fuzzed, self.checks).faults()

    def _own_rng(self, part: str) -> random.Random:
        return random.Random(int(content_id([part, self._world.id]), 16))

    def _shown(self, runner: WorldRunner) -> Iterator[WorldFault]:
        yield from listing_faults(self._world, runner, self._rng, self.checks)

    def _dealt(self, runner: WorldRunner) -> Iterator[WorldFault]:
        yield from DealingProof(
            self._world, runner, self._draw, self._fuzzed, self._rng, self.checks
        ).faults()

    def _rules(self, runner: WorldRunner) -> Iterator[WorldFault]:
        """Each rule has a call that keeps it and one that breaks it, and both go through.

        A tool refuses what breaks a rule that it enforces. A rule that no call breaks, or none
        keeps, is none.
        """
        for rule in self._world.rules:
            try:
                kept, broken = self._bites(runner, rule)
            except ExpressionError as error:
                yield WorldFault("bad_expression", f"rule {rule.id}: {error}")
                continue
            self.checks["rule_cases"] += (kept > 0) + (broken > 0)
            if not broken:
                yield WorldFault("rule_never_breaks", f"{rule.id}: no call breaks it")
            elif not kept:
                yield WorldFault("rule_never_holds", f"{rule.id}: no call keeps it")

    def _bites(self, runner: WorldRunner, rule: PolicyRule) -> tuple[int, int]:
        """How many successful calls kept a rule, and how many calls broke it."""
        traced = (operators(rule.when) | operators(rule.require)) & TRACE_OPERATORS
        if rule.enforced is Enforced.TOOL:
            kept, broken = self._fuzzed.passed[rule.id], self._fuzzed.guarded[rule.id]
        else:
            kept = broken = 0
            for arguments in (a for tool in rule.tools for a in self._fuzzed.done[tool][:40]):
                for events in self._traces(runner, arguments) if traced else ((),):
                    applies, right = self._judged(rule, arguments, events)
                    kept, broken = kept + (applies and right), broken + (applies and not right)
                if kept and broken:
                    return kept, broken
        called = 0
        for _ in range(_RULE_DRAWS if not (kept and broken) and not traced else 0):
            tool = self._tools[self._rng.choice(rule.tools)]
            arguments = self._draw.arguments(tool, self._world.rows)
            fault: ExpressionError | None = None
            applies = right = False
            try:
                applies, right = self._judged(rule, arguments, ())
            except ExpressionError as error:
                fault = error
            if fault is None and (not applies or (kept if right else broken)):
                continue
            made = runner.call(tool.tool.name, arguments)
            runner.reset()
            called += 1
            if fault is not None:
                if made.end is CallEnd.DONE:
                    raise fault  # what the tool does has to be something that a rule can judge
                continue
            refuses = rule.enforced is Enforced.TOOL and not right
            if (made.end is CallEnd.REFUSED) == refuses:
                kept, broken = kept + right, broken + (not right)
            if (kept and broken) or called == _RULE_CALLS:
                break
        return kept, broken

    def _judged(
        self, rule: PolicyRule, arguments: Row, events: tuple[TraceEvent, ...]
    ) -> tuple[bool, bool]:
        """Whether a rule applies to a call, and whether it is kept. Raises ExpressionError."""
        scope = scope_of(self._world, arguments=arguments, events=events)
        applies = rule.when is None or holds(rule.when, scope)
        return applies, holds(rule.require, scope)

    def _traces(self, runner: WorldRunner, arguments: Row) -> Iterator[tuple[TraceEvent, ...]]:
        """Ways into a call: nothing, a consent, one party looked up, and two of them."""
        consent = TraceEvent(kind=EventKind.USER, act=UserAct.CONFIRM, text="Yes, please.")
        looked = [self._looked_up(runner, self._owner(arguments)), self._looked_up(runner, {})]
        found = [event for event in looked if event is not None]
        for count, agreed in product(range(len(found) + 1), (False, True)):
            yield (*found[:count], *((consent,) if agreed else ()))

    def _owner(self, arguments: Row) -> Row:
        """The row that the finding tool would give for the party of a call, if it has one."""
        known = known_keys(self._world, arguments)
        find = next(tool for tool in self._world.tools if tool.role is ToolRole.FIND)
        for table in self._world.tables:
            if table.name in find.shows and table.key in known:
                rows = self._world.rows[table.name]
                return next((r for r in rows if r[table.key] == known[table.key]), {})
        return {}

    def _looked_up(self, runner: WorldRunner, wanted: Row) -> TraceEvent | None:
        """A successful call that shows the wanted party, or any."""
        find = next(tool for tool in self._world.tools if tool.role is ToolRole.FIND)
        names = [*find.tool.parameters.get("properties", {})]
        given = {name: wanted[name] for name in names if name in wanted}
        tries: list[Row] = [given] if given else self._fuzzed.done[find.tool.name][:5]
        for arguments in tries:
            made = runner.call(find.tool.name, arguments)
            if made.end is CallEnd.DONE:
                return made.event
        return None

    def _hidden(self, runner: WorldRunner) -> Iterator[WorldFault]:
        """Tools that refuse until another tool has put something right."""
        if self._world.shape is not WorldShape.FULL:
            return
        found: set[str] = set()
        writing = [tool for tool in self._world.tools
                   if tool.writes and tool.role not in _ROLES_APART]  # fmt: skip
        for tool in writing:
            seen: Counter[str] = Counter()
            for arguments, message in self._fuzzed.refused[tool.tool.name]:
                seen[message] += 1
                if seen[message] <= 8 and self._lifted(runner, tool, arguments, message, writing):
                    found.add(tool.tool.name)
                    break
            if len(found) >= _HIDDEN:
                break
        self.checks["hidden_prerequisites"] = len(found)
        if len(found) < _HIDDEN:
            yield WorldFault(
                "no_hidden_prerequisite", f"only {sorted(found)} wait for another tool"
            )

    def _lifted(
        self, runner: WorldRunner, tool: WorldTool, arguments: Row, message: str,
        writing: list[WorldTool],
    ) -> bool:  # fmt: skip
        """Whether some other call makes a refused one go further."""
        if not (known := known_keys(self._world, arguments)):
            return False
        for other in writing:
            if other is tool or other.role not in (ToolRole.PAY, ToolRole.UPDATE):
                continue
            for _ in range(4):
                runner.reset()
                first = self._draw.arguments(other, self._world.rows, known)
                if runner.call(other.tool.name, first).end is CallEnd.DONE:
                    again = runner.call(tool.tool.name, arguments)
                    if again.end is CallEnd.DONE or again.event.failed != message:
                        runner.reset()
                        return again.end is CallEnd.DONE
        runner.reset()
        return False

    def _walk(self, runner: WorldRunner) -> Iterator[WorldFault]:
        """Successful calls in a row: rows stay whole, and a second session does the same."""
        runner.reset()
        rows = LiveRows(self._world)
        done, tries, wanted = 0, 0, self._config.walk_calls
        tools = [tool for tool in self._world.tools if tool.role not in _ROLES_APART]
        weights = [3 if tool.writes else 1 for tool in tools]
        while done < wanted and tries < 40 * wanted:
            tries += 1
            (tool,) = self._rng.choices(tools, weights)
            arguments = self._draw.arguments(tool, runner.tables)
            made = runner.call(tool.tool.name, arguments)
            if made.end not in (CallEnd.DONE, CallEnd.REFUSED):
                yield WorldFault(
                    "unexpected_failure", f"{tool.tool.name}({arguments}): {made.event.failed}"
                )
                return
            if made.end is CallEnd.REFUSED:
                continue
            if fault := self._records[tool.tool.name].fault(made.event, rows):
                yield WorldFault(fault.reason, f"call {done + 1} in a row: {fault.detail}")
                return
            rows.take(made.event)
            done += 1
            if done % _CHECKED_EACH == 0 or done == wanted:
                for _ in row_faults(self._world, runner.tables):
                    yield self._culprit(runner)
                    return
        self.checks["walked_calls"] = done
        if done < wanted:
            yield WorldFault("dead_end", f"only {done} of {tries} calls in a row succeeded")
        yield from row_faults(self._world, runner.tables)
        yield from self._repeated(runner)

    def _culprit(self, runner: WorldRunner) -> WorldFault:
        """The first call of a walk after which the rows are no longer whole."""
        events = list(runner.trace)
        runner.reset()
        for at, event in enumerate(events, start=1):
            if not runner.call(event.tool, event.arguments).event.changes:
                continue
            for fault in row_faults(self._world, runner.tables):
                called = f"{event.tool}({event.arguments}), call {at}"
                return WorldFault(fault.reason, f"after {called}: {fault.detail}")
        return WorldFault("not_repeatable", f"{len(events)} calls made again leave other rows")

    def _repeated(self, runner: WorldRunner) -> Iterator[WorldFault]:
        """The same calls in a fresh session give the same, and changes add up to the rows."""
        fields = {table.name: table.fields for table in self._world.tables}
        summed = _summed(self._world, runner.trace)
        if state_hash(summed, fields) != state_hash(runner.tables, fields):
            yield WorldFault("delta_differs", "the changes of all calls do not give the rows")
        first = [event for event in runner.trace if not event.failed][:_REPLAYED]
        short = runner.trace[: runner.trace.index(first[-1]) + 1] if first else []
        with WorldRunner(self._world, self._sandbox) as other:
            for event in short:
                reads = not self._tools[event.tool].writes
                # What reads may be called twice and remembers nothing of it.
                made = [other.call(event.tool, event.arguments).event for _ in range(1 + reads)]
                if any((e.failed, e.result) != (event.failed, event.result) for e in made):
                    yield WorldFault("not_repeatable", f"{event.tool}({event.arguments})")
                    return
        self.checks["replayed_calls"] = len(short)

    def _reach(self) -> Iterator[WorldFault]:
        found = list(reach_faults(self._world))
        self.checks["reachable_tools"] = len(self._tools) - len(found)
        yield from found

    def _reads(self) -> Iterator[WorldFault]:
        """Calls give the same where the tables that the tool does not declare are empty.

        They are made in another order, each from the start: nothing but tables is remembered.
        """
        for name, tool in self._tools.items():
            declared = {*tool.reads, *tool.writes}
            rows: Tables = {table: rows if table in declared else []
                            for table, rows in self._world.rows.items()}  # fmt: skip
            # A copy is not validated: references into the emptied tables dangle on purpose.
            bare = self._world.model_copy(update={"rows": rows, "tools": (tool,)})
            with WorldRunner(bare, self._sandbox) as runner:
                for event in reversed(self._fuzzed.first[name]):
                    again = runner.call(name, event.arguments).event
                    self.checks["read_calls"] += 1
                    if _outcome(again) != _outcome(event):
                        yield WorldFault(
                            "undeclared_read", f"{name}({event.arguments}) needs other tables"
                        )
                        return
                    runner.reset()


def _outcome(event: TraceEvent) -> Any:
    return event.failed, event.result, event.changes


def _summed(world: World, events: list[TraceEvent]) -> Tables:
    """The rows at the start with all changes of a trace applied."""
    keys = {table.name: table.key for table in world.tables}
    rows = {name: {row[keys[name]]: row for row in rows} for name, rows in world.rows.items()}
    for event in events:
        for change in event.changes:
            if change.row is None:
                del rows[change.table][change.key]
            else:
                rows[change.table][change.key] = change.row
    return {name: list(by_key.values()) for name, by_key in rows.items()}
