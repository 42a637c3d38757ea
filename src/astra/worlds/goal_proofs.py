"""What a goal has to hold before it ships; each fault has a code of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

from astra.arena.answers import matches
from astra.arena.effects import rows_after, with_rows
from astra.arena.expressions import all_rows
from astra.arena.state import StateError
from astra.arena.statements import states
from astra.arena.traces import records_in
from astra.arena.verdict import GoalVerdict, expected_rows, judge
from astra.records.qa import Answer, AnswerType, QuestionKind
from astra.records.state import Tables
from astra.records.world import (
    OUTCOMES,
    EventKind,
    GoalTrait,
    OutcomeKind,
    Provenance,
    RowReference,
    Say,
    TraceEvent,
    UserAct,
    ValueSource,
    WorldGoal,
)
from astra.worlds import references, turns
from astra.worlds.executions import Executed, Executions
from astra.worlds.goal_config import GoalsConfig
from astra.worlds.goal_faults import GoalFault, is_date, stated
from astra.worlds.goal_refusals import refusal_codes
from astra.worlds.goal_words import WordsProof
from astra.worlds.loopholes import way_round
from astra.worlds.policy import SAY_FIRST
from astra.worlds.scripts import traits_of
from astra.worlds.view import WorldView

_Q = QuestionKind
_FEWEST, _MOST = 2, 4
"""Rows that a choice is among."""
_NO_EFFECT = frozenset({_Q.READ_ONLY, _Q.FORBIDDEN, _Q.INFEASIBLE, _Q.ALREADY_SATISFIED})


class GoalProof:
    """The proofs of one goal. Faults come in the order in which they are looked for."""

    def __init__(
        self, view: WorldView, executions: Executions, goal: WorldGoal, config: GoalsConfig
    ) -> None:
        self._view, self._executions, self._goal, self._config = view, executions, goal, config

    def fault(self) -> GoalFault | None:
        """The first thing that is wrong with the goal."""
        return next(self.faults(), None)

    def faults(self) -> Iterator[GoalFault]:
        """Everything that is wrong with it; after a trace that cannot be judged nothing more."""
        goal = self._goal
        if not goal.trace or goal.trace[0].kind != EventKind.USER:
            yield GoalFault("no_opening", "the first event is no turn of the user")
            return
        strange = {e.tool for e in goal.trace if e.kind == EventKind.CALL} - {*self._view.tools}
        if strange:
            yield GoalFault("unknown_tool", f"{sorted(strange)}")
            return
        executed = self._executions.run(goal.trace, goal.withheld)
        for event in executed.failed:
            yield GoalFault("reference_fails", f"{event.tool}({event.arguments}): {event.failed}")
            return
        try:
            verdict = judge(self._view.world, goal, executed.trace, executed.tables)
        except StateError as error:
            yield GoalFault("no_effect", str(error))
            return
        yield from self._verdict(verdict)
        yield from self._effect(executed)
        yield from self._provenance(executed.trace)
        yield from self._kind()
        yield from self._turns()
        yield from self._references(executed.trace)
        yield from self._choice()
        yield from self._wish(executed)
        yield from self._answers(executed.trace)
        party = self._party(executed.trace)
        yield from WordsProof(self._view, goal, executed, party).faults()
        yield from self._traits(executed.trace)

    def _verdict(self, verdict: GoalVerdict) -> Iterator[GoalFault]:
        if not verdict.state:
            yield GoalFault("other_effect", f"the program leaves {verdict.reasons}")
        if not verdict.outcome:
            yield GoalFault("other_outcome", f"{verdict.reasons}")
        if not verdict.said:
            yield GoalFault("not_said", f"{verdict.reasons}")
        if not verdict.read:
            yield GoalFault("not_read", f"{verdict.reasons}")
        if verdict.rules_broken:
            yield GoalFault("breaks_rule", f"{verdict.rules_broken}")

    def _effect(self, executed: Executed) -> Iterator[GoalFault]:
        """The writes' declared changes give what the goal says, apart from the tools' code."""
        writes = [(e.tool, e.arguments) for e in executed.trace if e.changes]
        derived = {name: rows for name, rows in rows_after(self._view.world, writes).items()
                   if name != OUTCOMES}  # fmt: skip
        expected = expected_rows(self._view.world, self._goal)
        for name, rows in expected.items():
            key = self._view.tables[name].key
            if {row[key]: row for row in rows} != {row[key]: row for row in derived[name]}:
                yield GoalFault("effect_differs", f"{name}: the changes of the writes give others")

    # Where arguments come from ------------------------------------------------------------------

    def _provenance(self, trace: Sequence[TraceEvent]) -> Iterator[GoalFault]:
        from_results = 0
        for at, event in enumerate(trace):
            if event.kind != EventKind.CALL:
                continue
            for name, value in event.arguments.items():
                place = f"event {at}, {event.tool}({name}={value!r})"
                source = event.provenance.get(name)
                if source is None:
                    yield GoalFault("no_provenance", place)
                elif why := self._unreached(trace, at, source, event.tool, name, value):
                    yield GoalFault(why, f"{place} from {source.source} {source.at}")
                else:
                    from_results += source.source is ValueSource.RESULT
        if not from_results:
            yield GoalFault("no_result_argument", "no argument comes from an earlier result")

    def _unreached(
        self, trace: Sequence[TraceEvent], at: int, source: Provenance, tool: str, name: str,
        value: Any,
    ) -> str:  # fmt: skip
        """Why a value cannot be known at a call; empty if it can."""
        if source.source is ValueSource.DOCUMENT:
            listed = self._view.parameters(tool).get(name, {}).get("enum", ())
            there = value in listed or str(value) in self._view.world.policy
            return "" if there else "value_not_there"
        kind = EventKind.USER if source.source is ValueSource.USER else EventKind.CALL
        if not 0 <= source.at < at or trace[source.at].kind != kind:
            return "provenance_too_late"
        origin = trace[source.at]
        if kind == EventKind.USER:
            told = any(
                value == fact and type(value) is type(fact) for fact in origin.facts.values()
            )
            return "" if told and stated(value, origin.text) else "value_not_there"
        cells = [cell for record in records_in(origin.result) for cell in record.values()]
        return "" if value in cells else "value_not_there"

    # What kind of goal it is --------------------------------------------------------------------

    def _kind(self) -> Iterator[GoalFault]:
        goal = self._goal
        writes, asks = bool(goal.effect), bool(goal.say)
        done = goal.outcome.kind is OutcomeKind.DONE
        if writes and (goal.kind in _NO_EFFECT or not done):
            yield GoalFault("wrong_kind", f"{goal.kind} ends {goal.outcome.kind} with an effect")
        if goal.kind in (_Q.WRITE, _Q.MIXED) and not (writes and done):
            yield GoalFault("wrong_kind", f"{goal.kind} without an effect")
        if goal.kind in (_Q.READ_ONLY, _Q.MIXED, _Q.ALREADY_SATISFIED) and not (asks and done):
            yield GoalFault("nothing_to_say", f"{goal.kind} pays without a word")
        declined = goal.outcome.kind is OutcomeKind.DECLINED
        if goal.kind in (_Q.FORBIDDEN, _Q.INFEASIBLE) and done:
            yield GoalFault("wrong_kind", f"a wish that is {goal.kind} is met")
        if (goal.kind is _Q.FORBIDDEN or goal.wish) and not (declined or done):
            yield GoalFault("wrong_kind", "a call that a tool makes is handed over")
        for at, say in enumerate(goal.say):
            if not say.read:
                yield GoalFault("said_without_read", f"answer {at} may be guessed")
            if any(states(say.answer, e.text) for e in goal.trace if e.kind == EventKind.USER):
                yield GoalFault("answer_told", f"the user says answer {at} themselves")

    def _turns(self) -> Iterator[GoalFault]:
        goal = self._goal
        users = [event for event in goal.trace if event.kind == EventKind.USER]
        if goal.needs_user != (len(users) > 1):
            yield GoalFault("needs_user", f"{len(users)} turns of the user")
        if goal.kind is _Q.MISSING_PARAMETER:
            yield from self._missing_parameter(users)
        late = {e.tool for e in goal.trace if e.kind == EventKind.CALL} & set(goal.withheld)
        if GoalTrait.LATE_TOOL in goal.traits and not late:
            yield GoalFault("tool_not_needed", f"{goal.withheld}")
        if goal.withheld and SAY_FIRST not in self._view.world.policy:
            yield GoalFault("late_tool_unsaid", f"the policy does not say {SAY_FIRST!r}")
        yield from self._requests()
        if GoalTrait.CHANGES_MIND in goal.traits:
            yield from self._change(users)

    def _change(self, users: Sequence[TraceEvent]) -> Iterator[GoalFault]:
        """A turn changes the wish, and what was wished at first could have been done as well."""
        if not self._goal.wish or all(event.act is not UserAct.CHANGE for event in users):
            yield GoalFault("no_change", "no turn of the user changes the wish")
            return
        first = self._goal.wish[0]
        agreed = users[0].act is UserAct.CONFIRM
        if agreed or not self._view.asks_consent(first.tool):
            yield GoalFault("change_unasked", f"nothing makes the agent ask before {first.tool}")
        made = self._executions.call(first.tool, first.arguments).event
        if not made.changes or self._view.broken(first.tool, first.arguments):
            yield GoalFault("first_version", f"{first.tool}({first.arguments}) may not be done")

    def _requests(self) -> Iterator[GoalFault]:
        """A further wish asks for something, and nothing of it is done before it is asked for."""
        goal = self._goal
        for at, event in enumerate(goal.trace):
            if event.act is not UserAct.REQUEST:
                continue
            asks = [ask for ask in goal.asks if ask.at == at]
            if not asks:
                yield GoalFault("empty_request", f"turn {at} asks for nothing")
            before = [(one.tool, one.arguments) for one in goal.trace[:at]]
            for ask in asks:
                if ask.tool and (ask.tool, ask.arguments) in before:
                    yield GoalFault("done_before_asked", f"{ask.text!r} is done before turn {at}")

    def _missing_parameter(self, users: Sequence[TraceEvent]) -> Iterator[GoalFault]:
        answers = [event for event in users if event.act is UserAct.ANSWER]
        facts = [value for event in answers for value in event.facts.values()]
        if not facts:
            yield GoalFault("nothing_missing", "the user is asked for nothing")
        elif all(stated(value, users[0].text) for value in facts):
            yield GoalFault("parameter_told", f"the opening says {facts} already")
        given = [value for event in self._goal.trace for value in event.arguments.values()]
        if any(value not in given for value in facts):
            yield GoalFault("nothing_missing", f"no call takes all of {facts}")

    # Rows that are named by what they are -------------------------------------------------------

    def _references(self, trace: Sequence[TraceEvent]) -> Iterator[GoalFault]:
        for reference in self._goal.references:
            yield from self._reference(trace, reference)

    def _reference(
        self, trace: Sequence[TraceEvent], reference: RowReference
    ) -> Iterator[GoalFault]:
        view, place = self._view, f"{reference.table} {reference.key}"
        key = view.tables[reference.table].key
        rows = references.among(view, reference.table, self._party(trace),
                                self._tables_at(trace, reference.at))  # fmt: skip
        fits = [row[key] for row in references.fitting(rows, references.of(reference))]
        if fits != [reference.key]:
            yield GoalFault("ambiguous_wording", f"{place}: the words fit {sorted(fits)}")
        offered = [tool for tool in view.world.tools if tool.tool.name not in self._goal.withheld]
        seen = {name for tool in offered for name in tool.shows.get(reference.table, ())}
        columns = {*reference.where, reference.least, reference.most} - {""}
        if hidden := sorted(columns - seen):
            yield GoalFault("hidden_column", f"{place}: no tool shows {hidden}")
        if not columns:
            yield GoalFault("ambiguous_wording", f"{place}: nothing tells it from others")
        said = [event.text for event in trace if event.kind == EventKind.USER]
        if any(reference.key in text for text in said):
            yield GoalFault("named_outright", f"{place} stands in the user's words")

    def _party(self, trace: Sequence[TraceEvent]) -> str:
        """The party that the agent looked up first."""
        view = self._view
        for event in trace:
            if event.tool == view.find.tool.name:
                for record in records_in(event.result):
                    return str(record.get(view.party.key, ""))
        return ""

    def _tables_at(self, trace: Sequence[TraceEvent], at: int) -> Tables:
        tables = all_rows(self._view.world)
        for event in trace[:at]:
            rows = {(change.table, change.key): change.row for change in event.changes}
            tables = with_rows(self._view.world, tables, rows)
        return tables

    def _choice(self) -> Iterator[GoalFault]:
        goal, view = self._goal, self._view
        if GoalTrait.CHOICE not in goal.traits and not goal.candidates:
            return
        chosen = [e for e in goal.trace if e.act is UserAct.CHOOSE]
        meant = next((one for one in goal.references
                      if goal.candidates and goal.candidates[0].get(
                          view.tables[one.table].key) == one.key), None)  # fmt: skip
        if meant is None or not chosen:
            yield GoalFault("no_choice", "no turn of the user chooses the row that is meant")
            return
        told = {name.rpartition(".")[2] for event in chosen for name in event.facts}
        asked = " ".join(ask.text for ask in goal.asks if meant.key in ask.arguments.values())
        facts = [f"{turns.words(name)} {turns.form(meant.where.get(name))}" for name in told]
        if any(stated(fact, asked) for fact in facts):
            yield GoalFault("choice_told", "the opening says already which row is meant")
        words = {name: cell for name, cell in meant.where.items() if name not in told}
        rows = references.among(
            view,
            meant.table,
            self._party(self._executions.run(goal.trace, goal.withheld).trace),
            all_rows(view.world),
        )
        open_ = references.fitting(rows, references.Predicate(tuple(words.items())))
        key = view.tables[meant.table].key
        if {row[key]: row for row in open_} != {row.get(key): row for row in goal.candidates}:
            yield GoalFault("wrong_candidates", f"the words fit {[row[key] for row in open_]}")
        if not _FEWEST <= len(goal.candidates) <= _MOST:
            yield GoalFault("no_choice", f"the words fit {len(goal.candidates)} rows")

    # Wishes that are not met --------------------------------------------------------------------

    def _wish(self, executed: Executed) -> Iterator[GoalFault]:
        goal, view = self._goal, self._view
        if goal.outcome.kind is not OutcomeKind.DECLINED:
            return
        if not goal.wish:
            yield GoalFault("no_wish", "a wish is declined and not told")
            return
        wish = goal.wish[0]
        made = self._executions.call(wish.tool, wish.arguments).event
        broken = [rule.id for rule in view.broken(wish.tool, wish.arguments)]
        detail = f"{wish.tool}({wish.arguments}): {made.failed}; breaks {broken}"
        if goal.kind is _Q.FORBIDDEN:
            if not made.changes:
                yield GoalFault("wish_fails", detail)
            if broken != [goal.violates]:
                yield GoalFault("breaks_other_rules" if broken else "breaks_no_rule", detail)
        elif goal.kind is _Q.INFEASIBLE and (made.changes or not made.failed):
            yield GoalFault("wish_succeeds", detail)
        elif goal.kind is _Q.MISSING_TOOL and wish.tool not in goal.withheld:
            yield GoalFault("tool_not_missing", detail)
        codes = refusal_codes(view, self._executions, goal)
        if codes != {goal.outcome.reason}:
            yield GoalFault("wrong_reason", f"{goal.outcome.reason} instead of {sorted(codes)}")
        way = way_round(view, self._executions, goal, executed.trace,
                        self._config.search_depth, self._config.search_calls)  # fmt: skip
        if way is not None:
            yield GoalFault("loophole", f"{way} brings about what is declined")

    # What is told, and what the record says of itself --------------------------------------------

    def _answers(self, trace: Sequence[TraceEvent]) -> Iterator[GoalFault]:
        """What is due to be told follows from the cells as they are when the program tells it."""
        for number, say in enumerate(self._goal.say):
            told = [at for at, event in enumerate(trace) if event.kind == EventKind.ASSISTANT
                    and states(say.answer, event.text)]  # fmt: skip
            cells = [self._cells(say, self._tables_at(trace, at)) for at in told]
            if told and not any(_follows(say.answer, one) for one in cells):
                yield GoalFault("other_value", f"answer {number} is of cells that are {cells}")

    def _cells(self, say: Say, tables: Tables) -> list[Any]:
        keys = self._view.tables
        found = [
            next((row for row in tables[one.table] if row[keys[one.table].key] == one.key), {})
            for one in say.read
        ]
        return [row.get(one.column) for row, one in zip(found, say.read, strict=True)]

    def _traits(self, trace: Sequence[TraceEvent]) -> Iterator[GoalFault]:
        """The traits that a goal is said to have are those that its record shows."""
        goal, done = self._goal, self._goal.outcome.kind is OutcomeKind.DONE
        found = traits_of(
            trace, goal.references, goal.candidates, changes=bool(goal.wish) and done,
            late=bool(goal.withheld) and done, writes=sum(bool(e.changes) for e in trace),
            says=len(goal.say),
        )  # fmt: skip
        for trait in GoalTrait:
            if (trait in goal.traits) != (trait in found):
                told = "is not said" if trait in found else "does not show"
                yield GoalFault("other_traits", f"{trait} {told}")


def _follows(answer: Answer, cells: Sequence[Any]) -> bool:
    """Whether an answer is a cell, all cells, or computed from them: their sum, or of two the
    difference (of dates in days)."""
    made: list[Any] = [*cells, list(cells)]
    numbers = [cell for cell in cells if isinstance(cell, int | float)]
    if len(cells) > 1 and len(numbers) == len(cells):
        made.append(sum(numbers))
    if len(cells) == 2 and len(numbers) == 2:
        made.append(abs(numbers[0] - numbers[1]))
    if len(cells) == 2 and all(is_date(cell) for cell in cells):
        first, last = (date.fromisoformat(cell) for cell in cells)
        made.append(abs((last - first).days))
    if answer.type is AnswerType.RECORD:
        return sorted(map(str, answer.value.values())) == sorted(map(str, cells))
    return any(matches(answer, value) for value in made)
