"""Right ways to end a goal, all of which its checker has to accept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from itertools import pairwise

from astra.arena.statements import states
from astra.arena.traces import records_in
from astra.records.qa import AnswerType
from astra.records.world import EventKind, Say, ToolRole, UserAct
from astra.worlds.variants import ExecutedGoal, Variant, call_of, message


class RightWays(ExecutedGoal):
    """The program itself, and others that are as good."""

    def all(self) -> Iterator[Variant]:
        """Every right way that applies."""
        yield Variant("A1", self.trace)
        for make in (self._a2, self._a3, self._a4, self._a5):
            yield from make()

    def _a2(self) -> Iterator[Variant]:
        """Two writes that touch no common row, the other way round, each with what led to it."""
        writes = self.acts
        for one, two in pairwise(writes):
            if self._places(one) & self._places(two) or self.trace[two].tool in self.goal.withheld:
                continue
            between = self.trace[one + 1 : two]
            confirms = any(event.act is UserAct.CONFIRM for event in between)
            governed = any(self.view.governing(self.trace[at].tool, "confirmed")
                           for at in (one, two))  # fmt: skip
            if governed or confirms or any(event.kind == EventKind.ASSISTANT for event in between):
                continue
            swapped = (*self.trace[:one], *between, self.trace[two], self.trace[one],
                       *self.trace[two + 1 :])  # fmt: skip
            yield Variant("A2", swapped)

    def _places(self, at: int) -> set[tuple[str, str]]:
        return {(change.table, change.key) for change in self.run.trace[at].changes}

    def _a3(self) -> Iterator[Variant]:
        """More reads than needed, and calls that fail."""
        if not self.reads:
            return
        first = self.reads[0] + 1
        again = self.trace[self.reads[-1]]
        failing = call_of(self.view.find.tool.name, dict.fromkeys(
            [*self.view.parameters(self.view.find.tool.name)][:1], "nobody at all"))  # fmt: skip
        yield Variant("A3", (*self.trace[:first], failing, *self.trace[first:], again, failing))

    def _a4(self) -> Iterator[Variant]:
        """Another tool that shows the same rows in place of a list, and other words to find by."""
        view = self.view
        for at in self.reads:
            event = self.run.trace[at]
            tool = view.tools[event.tool]
            for table in tool.shows:
                getter = view.lister(table, ToolRole.GET)
                if tool.role is not ToolRole.LIST or getter is None:
                    continue
                key = view.tables[table].key
                calls = [call_of(getter.tool.name, {key: record[key]}) for record in
                         records_in(event.result) if key in record]  # fmt: skip
                yield Variant("A4", (*self.trace[:at], *calls, *self.trace[at + 1 :]))
        row = view.rows[view.party.name].get(self.party, {})
        for names in ([*view.parameters(view.find.tool.name)][:1],
                      [*view.parameters(view.find.tool.name)][1:]):  # fmt: skip
            given = {name: row[name] for name in names if name in row}
            made = self.executions.call(view.find.tool.name, given).event if given else None
            at = self.reads[0] if self.reads else -1
            fits = made is not None and [*records_in(made.result)] == [row]
            if (
                fits
                and given != self.trace[at].arguments
                and (self.trace[at].tool == view.find.tool.name)
            ):
                yield Variant("A4", self.replaced(at, call_of(view.find.tool.name, given)))

    def _a5(self) -> Iterator[Variant]:
        for say in self.goal.say:
            told = [
                at
                for at, event in enumerate(self.trace)
                if event.kind == EventKind.ASSISTANT and states(say.answer, event.text)
            ]
            for text in _other_forms(say) if told else ():
                trace = list(self.trace)
                trace[told[0]] = message(text)
                yield Variant("A5", tuple(trace))


def _other_forms(say: Say) -> Iterator[str]:
    """The answer in other forms that mean the same."""
    value = say.answer.value
    if say.answer.type is AnswerType.NUMBER:
        yield f"That is {value:,}." if value >= 1000 else f"That is {value:.2f}."
    elif say.answer.type is AnswerType.DATE:
        day = date.fromisoformat(value)
        yield f"That is {day.day} {day:%B} {day.year}."
    elif isinstance(value, str):
        yield f"That is {value.replace('_', ' ').upper()}."
