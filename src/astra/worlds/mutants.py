"""Wrong ways to end a goal, all of which its checker has to reject.

Their letters and numbers are those of ``docs/worlds.md``.
They are made of the goal's own program; what no tool can do is done to the rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from typing import Any

from astra.arena.cells import cells_seen
from astra.arena.statements import states
from astra.arena.traces import is_success, records_in
from astra.records.qa import AnswerType
from astra.records.state import Row, Tables, WriteAction
from astra.records.world import EventKind, OutcomeKind, Say, TraceEvent, UserAct, WorldGoal
from astra.worlds.executions import Executions
from astra.worlds.soundness import operators
from astra.worlds.turns import form
from astra.worlds.variants import (
    ExecutedGoal,
    Trace,
    Variant,
    call_of,
    message,
    with_arguments,
    without,
)
from astra.worlds.view import CONVERSATION, WorldView
from astra.worlds.wishes import Wish, WishPool

_MOST_CELLS = 12
"""Cells of one goal that are corrupted."""
_MOST_OTHERS = 3
_FURTHER = 2
"""Further writes that are tried on rows of the party, and of others."""


class Mutants(ExecutedGoal):
    """The mutants of one goal. ``undone`` are pairs of calls that leave rows behind."""

    def __init__(
        self, view: WorldView, executions: Executions, pool: WishPool, goal: WorldGoal,
        undone: Sequence[tuple[Wish, ...]],
    ) -> None:  # fmt: skip
        super().__init__(view, executions, pool, goal)
        self._undone = undone

    def all(self) -> Iterator[Variant]:
        """Every wrong way that applies."""
        yield Variant("M1", tuple(event for event in self.trace if event.kind == EventKind.USER))
        for make in (self._m2_m3, self._m4, self._m5_m6, self._m7_m8, self._m9, self._m10,
                     self._m11_m12, self._m13, self._m14, self._m15):  # fmt: skip
            yield from make()

    # Writes that are left out, doubled, spoiled or added ----------------------------------------

    def _m2_m3(self) -> Iterator[Variant]:
        for at in self.acts:
            yield Variant("M2", without(self.trace, {at}))
            doubled = (*self.trace[: at + 1], self.trace[at], *self.trace[at + 1 :])
            again = self.executions.run(doubled, self.goal.withheld)
            if again.trace[at + 1].changes:
                yield Variant("M3", doubled)
                continue
            for change in self.run.trace[at].changes:
                if change.row is not None and change.key not in self.view.rows[change.table]:
                    yield Variant("M3", self.trace, self._doubling(change.table, change.row))

    def _doubling(self, table: str, row: Row) -> Callable[[Tables], Tables]:
        twin = {**row, self.view.tables[table].key: f"{row[self.view.tables[table].key]}-2"}
        return lambda tables: {**tables, table: [*tables[table], twin]}

    def _m4(self) -> Iterator[Variant]:
        left = _MOST_CELLS
        for write in self.goal.effect:
            key = self.view.tables[write.table].key
            row_key = str(write.where.get(key) or write.values[key])
            for column, cell in write.values.items():
                if column != key and left:
                    left -= 1
                    other = _corrupted(self.view, write.table, column, cell)
                    yield Variant("M4", self.trace, self._setting(write.table, row_key, column,
                                                                  other))  # fmt: skip
            if write.action is WriteAction.DELETE:
                before = self.view.rows[write.table][row_key]
                yield Variant("M4", self.trace, lambda tables, t=write.table, r=before:
                             {**tables, t: [*tables[t], r]})  # fmt: skip

    def _setting(
        self, table: str, row_key: str, column: str, cell: Any
    ) -> Callable[[Tables], Tables]:
        key = self.view.tables[table].key
        return lambda tables: {
            **tables,
            table: [{**row, column: cell} if row[key] == row_key else row for row in tables[table]],
        }

    def _m5_m6(self) -> Iterator[Variant]:
        """One more legal write: on another row of the party's, and on another party's."""
        party = self.party
        taken = {value for at in self.acts for value in
                 self.trace[at].arguments.values() if isinstance(value, str)}  # fmt: skip
        found = {"M5": 0, "M6": 0}
        for wishes in self.pool.legal.values():
            for wish in wishes:
                name = "M5" if wish.party == party else "M6"
                if found[name] >= _FURTHER or taken & {v for v in wish.arguments.values()
                                                if isinstance(v, str)} - {party}:  # fmt: skip
                    continue
                further = self._with_wish(self.trace, wish)
                if self.executions.run(further, self.goal.withheld).trace[-1].changes:
                    found[name] += 1
                    yield Variant(name, further)

    def _with_wish(self, trace: Trace, wish: Wish) -> Trace:
        """The trace with one more call, as well prepared as any: looked up and agreed to."""
        return (*trace, *_agreed(wish.tool), call_of(wish.tool, wish.arguments))

    def _m7_m8(self) -> Iterator[Variant]:
        """The right call for another row that the words might mean; the first version of a wish."""
        for reference in self.goal.references:
            event = self.trace[reference.at]
            if event.arguments.get(reference.argument) != reference.key:
                continue
            key = self.view.tables[reference.table].key
            open_ = [row.get(key) for row in self.goal.candidates]
            others = open_[1:] if reference.key in open_[:1] else self._shown(reference.table)
            for other in [key for key in others if key != reference.key][:_MOST_OTHERS]:
                wrong = with_arguments(event, {**event.arguments, reference.argument: other})
                yield Variant("M7", (*self.trace[: reference.at], wrong,
                                    *self.trace[reference.at + 1 :]))  # fmt: skip
        if self.goal.wish and self.goal.outcome.kind is OutcomeKind.DONE:
            first = self.goal.wish[0]
            at = next(at for at in self.acts if self.trace[at].tool == first.tool)
            yield Variant("M8", (*self.trace[:at], with_arguments(self.trace[at], first.arguments),
                                *self.trace[at + 1 :]))  # fmt: skip

    def _shown(self, table: str) -> list[str]:
        """The keys of a table that the reads have shown, in order."""
        key = self.view.tables[table].key
        keys = [record[key] for at in self.reads for record in records_in(
            self.run.trace[at].result) if record.get(key) in self.view.rows[table]]  # fmt: skip
        return list(dict.fromkeys(keys))

    def _m9(self) -> Iterator[Variant]:
        table = self.goal.effect[0].table if self.goal.effect else self.view.party.name
        yield Variant("M9", self.trace, lambda tables: {**tables, table: []})
        yield Variant("M9", self.trace, lambda tables: {
            name: rows for name, rows in tables.items() if name != table})  # fmt: skip

    # Rules and refusals -------------------------------------------------------------------------

    def _m10(self) -> Iterator[Variant]:
        """Each rule that no tool enforces broken on the way to the same end."""
        trace, view = self.trace, self.view
        governed = {trace[at].tool for at in self.acts}
        for rule in view.policy_rules:
            if not governed & {*rule.tools}:
                continue
            asked = operators(rule.require)
            if "seen" in asked:
                gone = {at for at, event in enumerate(trace) if event.tool == view.find.tool.name}
                yield Variant("M10", without(trace, gone))
            if "confirmed" in asked:
                gone = {at for at, event in enumerate(trace) if event.act is UserAct.CONFIRM}
                yield Variant("M10", without(trace, gone))
            if "distinct_seen" in asked:
                yield from self._second_party()
            if not asked & CONVERSATION:
                yield from self._other_argument(rule.id)

    def _second_party(self) -> Iterator[Variant]:
        """Another party is looked up before the first write."""
        view, first = self.view, self.acts[0]
        for key, row in view.rows[view.party.name].items():
            given = {
                name: row[name] for name in view.parameters(view.find.tool.name) if name in row
            }
            made = self.executions.call(view.find.tool.name, given).event
            if key != self.party and not made.failed:
                call = call_of(view.find.tool.name, given)
                yield Variant("M10", (*self.trace[:first], call, *self.trace[first:]))
                return

    def _other_argument(self, rule: str) -> Iterator[Variant]:
        """Another argument of a short list that breaks the rule, whatever the call then does."""
        for at in self.acts:
            event = self.trace[at]
            for name, value in event.arguments.items():
                schema = self.view.parameters(event.tool)[name]
                table = self.view.table_of(name)
                options = schema.get("enum") or (self._shown(table.name) if table else [])
                for other in [one for one in options if one != value][:4]:
                    arguments = {**event.arguments, name: other}
                    if any(broken.id == rule for broken in self.view.broken(event.tool, arguments)):
                        yield Variant("M10", (*self.trace[:at], with_arguments(event, arguments),
                                             *self.trace[at + 1 :]))  # fmt: skip
                        return

    def _m11_m12(self) -> Iterator[Variant]:
        """A refusal that leaves no row, another reason, both ways out, or what was forbidden."""
        goal, view = self.goal, self.view
        if goal.outcome.kind is OutcomeKind.DONE:
            declined = call_of(view.decline.tool.name, {"reason": self._other_reason("")})
            yield Variant("M11", (*self.trace, declined))
            return
        at = next(at for at in self.writes if self.trace[at].tool in
                  (view.decline.tool.name, view.hand_over.tool.name))  # fmt: skip
        yield Variant("M11", without(self.trace, {at}))
        declined = goal.outcome.kind is OutcomeKind.DECLINED
        codes = view.parameters(self.trace[at].tool)["reason"].get("enum", ())
        for other in [code for code in codes if code != goal.outcome.reason][:_MOST_OTHERS]:
            wrong = with_arguments(self.trace[at], {**self.trace[at].arguments, "reason": other})
            yield Variant("M11", (*self.trace[:at], wrong, *self.trace[at + 1 :]))
        topic = next(iter(sorted(view.world.topics)), "")
        names = view.required(view.hand_over.tool.name)
        also = call_of(view.hand_over.tool.name, dict.fromkeys(names, topic)) if declined else (
            call_of(view.decline.tool.name, {"reason": self._other_reason("")}))  # fmt: skip
        yield Variant("M11", (*self.trace[: at + 1], also, *self.trace[at + 1 :]))
        for call in goal.wish:
            agreed = _agreed(call.tool)
            yield Variant("M12", (*self.trace[:at], *agreed, call, *self.trace[at + 1 :]))
            if (
                call.tool not in goal.withheld
                and self.executions.call(call.tool, call.arguments).event.changes
            ):
                yield Variant("M12", (*self.trace[:at], *agreed, call, *self.trace[at:]))

    def _other_reason(self, reason: str) -> str:
        codes = self.view.parameters(self.view.decline.tool.name)["reason"].get("enum", ())
        return next(code for code in codes if code != reason)

    # Words ---------------------------------------------------------------------------------------

    def _m13(self) -> Iterator[Variant]:
        for say in self.goal.say:
            told = [
                at
                for at, event in enumerate(self.trace)
                if event.kind == EventKind.ASSISTANT and states(say.answer, event.text)
            ]
            silent = without(self.trace, set(told))
            yield Variant("M13", silent)
            right = form(say.answer.value)
            for text in self._wrong_words(say, right):
                yield Variant("M13", (*silent, message(text)))
            opening, rest = silent[:1], silent[1:]
            yield Variant("M13", (*opening, message(f"It is {right}."), *rest))

    def _wrong_words(self, say: Say, right: str) -> Iterator[str]:
        """Another value, all values there are, the value inside a longer one, the next one."""
        if not say.read:
            return
        proof = say.read[0]
        cells = {row[proof.column] for row in self.view.world.rows[proof.table]} - {None}
        others = sorted((cell for cell in cells if cell != say.answer.value), key=str)
        if others:
            yield f"It is {form(others[0])}."
        if len(others) >= 2:
            yield f"It is one of {', '.join(form(cell) for cell in [*others[:3], right])}."
        if say.answer.type is AnswerType.NUMBER:
            yield f"It is 7{right}3."
        if say.answer.type in (AnswerType.NUMBER, AnswerType.DATE):
            near = _corrupted(self.view, proof.table, proof.column, say.answer.value)
            yield f"It is {form(near)}."

    def _m14(self) -> Iterator[Variant]:
        """The right words without any read that shows the cell."""
        for proof in self.goal.must_read:
            place = (proof.table, proof.key, proof.column)
            showing = {
                at for at, event in enumerate(self.run.trace) if is_success(event)
                and place in cells_seen(self.view.world, [event])
            }  # fmt: skip
            if showing:
                yield Variant("M14", without(self.trace, showing))

    def _m15(self) -> Iterator[Variant]:
        """A write and its undoing, which leave rows behind."""
        for pair in self._undone:
            trace = self.trace
            for wish in pair:
                trace = self._with_wish(trace, wish)
            run = self.executions.run(trace, self.goal.withheld)
            if run.trace[-1].changes and run.trace[-4].changes:
                yield Variant("M15", trace)
                return


def _agreed(tool: str) -> tuple[TraceEvent, TraceEvent]:
    """The agent proposes a call, and the user agrees."""
    return (
        message(f"I am going to use {tool}. Do you agree?"),
        TraceEvent(kind=EventKind.USER, act=UserAct.CONFIRM, text="Yes, do it."),
    )


def _corrupted(view: WorldView, table: str, column: str, cell: Any) -> Any:
    """Another cell of the same type."""
    shape = view.column(table, column)
    if isinstance(cell, bool):
        return not cell
    if isinstance(cell, int | float):
        return cell + 1
    if shape.values:
        return next((value for value in shape.values if value != cell), None)
    if isinstance(cell, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", cell):
        return (date.fromisoformat(cell) + timedelta(days=1)).isoformat()
    return f"{cell}x"
