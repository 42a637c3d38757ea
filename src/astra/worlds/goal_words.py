"""What the user's words ask for, held against what a goal does and tells.

Each ask has its words, and amounts to a call, a cell or a topic (``UserAsk``). All of them are met,
nothing else is done, and no words are left over that could ask for more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from functools import cached_property
from typing import Any

from astra.arena.answers import matches
from astra.arena.expressions import evaluate
from astra.records.qa import QuestionKind
from astra.records.state import WriteAction
from astra.records.world import (
    EventKind,
    OutcomeKind,
    ReadProof,
    TraceEvent,
    UserAct,
    UserAsk,
    WorldGoal,
)
from astra.worlds import turns
from astra.worlds.executions import Executed
from astra.worlds.goal_faults import GoalFault, is_date, stated
from astra.worlds.view import WorldView

_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_WORD = re.compile(r"[^\W\d_]+")
_TOKEN = re.compile(r"[\w-]+")
_REQUEST = re.compile(
    r"\?|\b(?:please|kindly|(?:could|can|would|will) you|i (?:also )?(?:want|need|wish)|"
    r"i(?: would|'d) (?:also )?like|let me|make sure)\b",
    re.I,
)
_PLAIN = frozenset(
    "a again agree agreed ahead all am an and any are at be been best bye can correct could day "
    "dear do done everything evening fine for from go good goodbye great have hello help here hi i "
    "if in is it just kind me mean mine moment morning my need nice no not now of ok okay on once "
    "one please problem regards right so soon some sorry sure thank thanks that the then there "
    "this to very want with would yes you your".split()
)
"""Words of greetings, thanks and agreement: a sentence of these alone asks for nothing."""


class WordsProof:
    """The proof of a goal's words. ``executed`` is the goal's own program; ``party`` the key of
    whom it looked up first."""

    def __init__(self, view: WorldView, goal: WorldGoal, executed: Executed, party: str) -> None:
        self._view, self._goal, self._party = view, goal, party
        self._trace, self._tables = executed.trace, executed.tables

    def faults(self) -> Iterator[GoalFault]:
        """Everything that is wrong with the words."""
        if not self._goal.asks:
            yield GoalFault("nothing_asked", "no words are said to ask for anything")
            return
        untold = [ask for ask in self._goal.asks if not self._is_told(ask)]
        for ask in untold:
            yield GoalFault("ask_untold", f"turn {ask.at} does not say {ask.text!r}")
        if untold:
            return
        for ask in self._goal.asks:
            yield from self._ask(ask)
        yield from self._unasked()
        yield from self._left_over()

    def _is_told(self, ask: UserAsk) -> bool:
        if not 0 <= ask.at < len(self._trace) or not ask.text:
            return False
        event = self._trace[ask.at]
        return event.kind == EventKind.USER and ask.text in event.text

    # One ask -----------------------------------------------------------------------------------

    def _ask(self, ask: UserAsk) -> Iterator[GoalFault]:
        if sum([bool(ask.tool), ask.cell is not None, bool(ask.topic)]) != 1:
            yield GoalFault("ask_unmet", f"{ask.text!r} is no call, cell or topic, or several")
        elif ask.topic:
            yield from self._topic(ask)
        elif ask.cell is not None:
            yield from self._cell(ask, ask.cell)
        elif ask.tool not in self._view.tools:
            yield GoalFault("unknown_tool", f"{ask.text!r} amounts to {ask.tool}")
        else:
            yield from self._call(ask)

    def _topic(self, ask: UserAsk) -> Iterator[GoalFault]:
        """The words hold the subject of the code with which the request is handed over."""
        outcome, topics = self._goal.outcome, self._view.world.topics
        if outcome.kind is not OutcomeKind.HANDED_OVER or outcome.reason != ask.topic:
            yield GoalFault("wrong_topic", f"{ask.topic} ends as {outcome.kind} {outcome.reason}")
        if ask.topic not in topics or topics[ask.topic].lower() not in ask.text.lower():
            yield GoalFault("other_words", f"{ask.text!r} is not about {ask.topic}")

    def _cell(self, ask: UserAsk, cell: ReadProof) -> Iterator[GoalFault]:
        """The words name column and row, and what is told of it is due."""
        place = f"{cell.table} {cell.key} {cell.column}"
        due = [say for say in self._goal.say if cell in say.read]
        if not due:
            yield GoalFault("ask_unmet", f"{place} is asked for and not told")
        if not stated(turns.words(cell.column), ask.text):
            yield GoalFault("other_words", f"{ask.text!r} does not ask for {place}")
        if self._is_named(cell.table, cell.key, ask.text):
            return
        # A row that nothing names is the one that was just written, as it is in the end.
        written = {(c.table, c.key) for event in self._trace for c in event.changes}
        if (cell.table, cell.key) not in written:
            yield GoalFault("other_row", f"{ask.text!r} does not name {place}")
        for say in due:
            if not matches(say.answer, self._cell_at_end(cell)):
                yield GoalFault("other_value", f"{place} is {self._cell_at_end(cell)!r} then")

    def _cell_at_end(self, cell: ReadProof) -> Any:
        key = self._view.tables[cell.table].key
        rows = (row for row in self._tables[cell.table] if row[key] == cell.key)
        return next(rows, {}).get(cell.column)

    def _call(self, ask: UserAsk) -> Iterator[GoalFault]:
        yield from self._met(ask)
        words = self._words(ask)
        place = f"{ask.tool}({ask.arguments}) in {words!r}"
        if not any(stated(verb, words) for verb in turns.verbs(self._view.tools[ask.tool])):
            yield GoalFault("other_words", f"{place}: another verb")
        for name, value in ask.arguments.items():
            table = self._view.table_of(name)
            if table is None and not stated(value, words):
                yield GoalFault("argument_untold", f"{place}: {name}")
            elif table is not None and not self._is_named(table.name, value, words):
                yield GoalFault("other_row", f"{place}: {name} is not what the words name")
            if table is not None and not self._is_own(table.name, value):
                yield GoalFault("other_party", f"{place}: {name} is not of {self._party}")
        for token in sorted(set(_TOKEN.findall(ask.text)) & self._keys):
            if token not in self._cells(ask):
                yield GoalFault("other_row", f"{place}: {token} is named and not taken")

    def _met(self, ask: UserAsk) -> Iterator[GoalFault]:
        """The call is made, holds already, or is the wish that is not met."""
        goal, call = self._goal, (ask.tool, ask.arguments)
        made = [e for e in self._trace if e.changes and (e.tool, e.arguments) == call]
        given_up = any((wish.tool, wish.arguments) == call for wish in goal.wish)
        if goal.kind is QuestionKind.ALREADY_SATISFIED:
            if not self._holds(ask):
                yield GoalFault("not_satisfied", f"{call} is not what the rows are already")
        elif given_up and goal.outcome.kind is OutcomeKind.DONE:
            if not any(other.tool == ask.tool and other.at > ask.at for other in goal.asks):
                yield GoalFault("ask_unmet", f"{call} is given up for nothing")
        elif not made and not given_up:
            yield GoalFault("ask_unmet", f"{call} is asked for and not done")

    def _holds(self, ask: UserAsk) -> bool:
        """Whether a row that the call names has all the fixed cells that it would set, and one of
        them is told."""
        told = {(p.table, p.key, p.column): say for say in self._goal.say for p in say.read}
        there = False
        for change in self._view.tools[ask.tool].changes:
            scope = self._view.scope(ask.arguments)
            fixed = {c: v for c, v in change.values.items() if isinstance(v, str | int | float)}
            named = isinstance(change.key, dict) and "arg" in change.key and change.when is None
            if change.action is not WriteAction.UPDATE or not fixed or not named:
                continue
            key = evaluate(change.key, scope)
            row = self._view.rows[change.table].get(key)
            if row is None or any(row[column] != value for column, value in fixed.items()):
                return False
            says = [say for column in fixed if (say := told.get((change.table, key, column)))]
            there |= any(matches(say.answer, value) for say in says for value in fixed.values())
        return there

    # Which rows and words ----------------------------------------------------------------------

    def _words(self, ask: UserAsk) -> str:
        """The words of an ask, and those of other turns up to the next wish: what is missing is
        told later, and what is changed has the rest before."""
        first = 0 if self._trace[ask.at].act is UserAct.CHANGE else ask.at
        further = (at for at, event in enumerate(self._trace)
                   if at > ask.at and event.act is UserAct.REQUEST)  # fmt: skip
        last = next(further, len(self._trace))
        more = [event.text for at, event in enumerate(self._trace[:last])
                if event.kind == EventKind.USER and first <= at != ask.at]  # fmt: skip
        return "\n".join([ask.text, *more])

    def _is_named(self, table: str, key: str, words: str) -> bool:
        """Whether words name a row: the user themselves, by key, or by what it is."""
        if table == self._view.party.name:
            return key == self._party
        if stated(key, words):
            return True
        references = [one for one in self._goal.references if (one.table, one.key) == (table, key)]
        return any(
            all(_tells(cell, words) for cell in one.where.values())
            and _orders(one.least, turns.LEAST, words)
            and _orders(one.most, turns.MOST, words)
            for one in references
        )

    def _is_own(self, table: str, key: str) -> bool:
        """Whether a row is of the party that was looked up, or nobody's, or not there."""
        row = self._view.rows[table].get(key)
        owner = self._view.owner(table, row, self._view.rows) if row is not None else ""
        return owner in ("", self._party)

    def _cells(self, ask: UserAsk) -> set[Any]:
        """The arguments of a call, and the cells of the rows that they are."""
        cells = set(ask.arguments.values())
        for name, value in ask.arguments.items():
            table = self._view.table_of(name)
            row = self._view.rows[table.name].get(value, {}) if table is not None else {}
            cells |= {cell for cell in row.values() if isinstance(cell, str)}
        return cells

    @cached_property
    def _keys(self) -> set[str]:
        return {key for rows in self._view.rows.values() for key in rows}

    # What was not asked for --------------------------------------------------------------------

    def _unasked(self) -> Iterator[GoalFault]:
        goal = self._goal
        asked = [(ask.tool, ask.arguments) for ask in goal.asks if ask.tool]
        ending = (self._view.decline.tool.name, self._view.hand_over.tool.name)
        done = [event for event in self._trace if event.changes and event.tool not in ending]
        for call in (*done, *goal.wish):
            if (call.tool, call.arguments) not in asked:
                yield GoalFault("unasked", f"nobody asks for {call.tool}({call.arguments})")
        cells = [ask.cell for ask in goal.asks]
        for say in goal.say:
            known = goal.kind is QuestionKind.ALREADY_SATISFIED or any(c in say.read for c in cells)
            if not known:
                yield GoalFault("unasked", f"nobody asks for {say.read}")
        if goal.outcome.kind is OutcomeKind.HANDED_OVER and not any(a.topic for a in goal.asks):
            yield GoalFault("wrong_topic", f"nobody speaks of {goal.outcome.reason}")

    def _left_over(self) -> Iterator[GoalFault]:
        """Words that are no ask, disclose no fact, and speak of something to be done here."""
        for at, event in enumerate(self._trace):
            if event.kind != EventKind.USER:
                continue
            text = event.text
            for ask in self._goal.asks:
                text = text.replace(ask.text, " ") if ask.at == at else text
            for sentence in _SENTENCE.split(text):
                if self._asks_more(event, sentence):
                    yield GoalFault("more_asked", f"turn {at}: nothing meets {sentence.strip()!r}")

    def _asks_more(self, event: TraceEvent, sentence: str) -> bool:
        if set(_TOKEN.findall(sentence)) & self._keys - {*map(str, event.facts.values())}:
            return True
        slots = {word for slot in event.facts for word in _WORD.findall(slot.replace("_", " "))}
        if event.adds_tools:
            slots |= {"new", "tool", "tools"}
        for value in event.facts.values():
            for form in _forms(value):
                sentence = sentence.replace(form, " ")
        left = {word.lower() for word in _WORD.findall(sentence)} - _PLAIN - slots
        if not left:
            return False
        return bool(_REQUEST.search(sentence)) or bool(_stems(left) & self._vocabulary)

    @cached_property
    def _vocabulary(self) -> set[str]:
        """What tools, tables, columns and their values are called."""
        world = self._view.world
        names = [tool.tool.name for tool in world.tools]
        for table in world.tables:
            names += [table.name, *(column.name for column in table.columns)]
            names += [value for column in table.columns for value in column.values]
        found = {word.lower() for name in names for word in _WORD.findall(name.replace("_", " "))}
        return _stems(found - _PLAIN)


def _stems(words: set[str]) -> set[str]:
    """Words without the letter of the plural; short ones tell nothing."""
    return {word.removesuffix("s") for word in words if len(word) > 2}


def _tells(cell: Any, words: str) -> bool:
    """Whether words tell a cell by which a row is named; of null and truth nothing is asked."""
    return cell is None or isinstance(cell, bool) or stated(cell, words)


def _orders(column: str, adjectives: Sequence[str], words: str) -> bool:
    """Whether words name a column and which end of it, where a row is named by that."""
    told = [f"{adjective} {turns.words(column)}" for adjective in adjectives]
    return not column or any(stated(phrase, words) for phrase in told)


def _forms(value: Any) -> Sequence[str]:
    """How somebody may have written a fact."""
    forms = [str(value), turns.form(value)]
    if is_date(value):
        day = date.fromisoformat(value)
        forms.append(f"{day.day} {day:%B} {day.year}")
    return forms
