"""What makes a conversation longer than a wish and its reply, over the first wish of a goal.

That is a choice among rows, a missing value, a change of mind, or a tool that comes late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from astra.records.qa import QuestionKind
from astra.records.state import Row
from astra.records.world import (
    EventKind,
    GoalTrait,
    Provenance,
    RowReference,
    TraceEvent,
    UserAct,
)
from astra.worlds import turns
from astra.worlds.program import Program, Told
from astra.worlds.references import Predicate
from astra.worlds.wishes import Wish

T = GoalTrait


class WishScript:
    """The turns about a first wish. ``twist`` is what the kind or the traits need: the open row
    (parameter, words, fact, candidates), the first version, or the missing parameter."""

    def __init__(self, kind: QuestionKind, traits: frozenset[T], told: Told, twist: Any) -> None:
        self._told, self._twist = told, twist
        self._late = T.LATE_TOOL in traits
        self._choice = T.CHOICE in traits
        self._changes = T.CHANGES_MIND in traits and not self._choice
        self._missing = kind is QuestionKind.MISSING_PARAMETER and not (
            self._choice or self._changes
        )
        self.withheld = (told.wish.tool,) if self._late else ()
        self.candidates: Sequence[Row] = twist[3] if self._choice else ()
        if self._choice:
            name, words, fact, _ = twist
            both = Predicate(tuple(sorted({*words.where, *fact.where})))
            told.named[name].predicate = both
            told.named[name].facts = {f"{name}.{column}": cell for column, cell in fact.where}

    @property
    def plain(self) -> bool:
        """Whether the opening says everything."""
        return self._twist is None and not self._late

    @property
    def given_up(self) -> tuple[TraceEvent, ...]:
        """The call of the first version of a wish that changes."""
        if not self._changes:
            return ()
        first: Wish = self._twist
        return (TraceEvent(kind=EventKind.CALL, tool=first.tool, arguments=first.arguments),)

    def opening(self, one: Told) -> Wish:
        """What the opening asks for: the first version of a wish that changes."""
        return self._twist if self._changes and one is self._told else one.wish

    def phrases(self, program: Program, one: Told) -> dict[str, str]:
        """The words for each argument in the opening."""
        phrases = {name: named.phrase for name, named in one.named.items()}
        if one is not self._told:
            return phrases
        if self._choice:
            name, words, _, _ = self._twist
            table = program.view.table_of(name)
            assert table is not None
            phrases[name] = turns.row_phrase(program.view, table.name, words, program.rng)
        elif self._changes:
            name, old = self._changed()
            phrases[name] = self._phrase(program, name, old)
        elif self._missing:
            del phrases[self._twist]
        return phrases

    def told_facts(self, told: Sequence[Told]) -> list[Row]:
        """What is disclosed with each wish, when the user comes with it."""
        open_ = [one for name, one in told[0].named.items() if not self._is_told_later(name)]
        first = {key: value for one in open_ for key, value in one.facts.items()}
        if self._changes:
            name, old = self._changed()
            first[name] = old
        if self._choice:
            first |= {f"{self._twist[0]}.{c}": v for c, v in self._twist[1].where}
        rest = [{key: value for named in one.named.values() for key, value in named.facts.items()}
                for one in told[1:]]  # fmt: skip
        return numbered([first, *rest])

    def talk(self, program: Program, one: Told) -> dict[str, Provenance]:
        """The reads for a wish, and the turns about it where it is the first; where each argument
        stands then."""
        if one is not self._told:
            return program.locate(one)
        if self._choice:
            found = program.locate(one)
            name, _, fact, rows = self._twist
            table = program.view.table_of(name)
            assert table is not None
            keys = " or ".join(sorted(row[table.key] for row in rows))
            program.say(f"Which one do you mean: {keys}?")
            text = turns.row_phrase(program.view, table.name, fact, program.rng)
            program.user(UserAct.CHOOSE, f"I mean {text}.", one.named[name].facts)
            return found
        if self._missing:
            name: str = self._twist
            program.say(f"Which {turns.words(name)} is it to be?")
            told = f"The {turns.words(name)}: {one.named[name].phrase}."
            program.user(UserAct.ANSWER, told, one.named[name].facts)
        if self._changes:
            name, _ = self._changed()
            program.say(f"I am going to use {one.wish.tool} with "
                        f"{turns.listed(self._twist.arguments)}.")  # fmt: skip
            told = f"Wait, I changed my mind about that: {one.named[name].phrase} instead."
            program.user(UserAct.CHANGE, told, one.named[name].facts)
            program.ask(told, one.wish)
        found = program.locate(one)
        if self._late:
            program.say("I am sorry, I have no tool for that at the moment.")
            text = "There is a new tool for you now. Please go on with it."
            program.user(UserAct.TOOL, text, {}, adds=self.withheld)
        return found

    def _is_told_later(self, name: str) -> bool:
        if self._choice:
            return name == self._twist[0]
        if self._changes:
            return name == self._changed()[0]
        return self._missing and name == self._twist

    def _changed(self) -> tuple[str, Any]:
        """The argument that changes, and its first value."""
        first: Wish = self._twist
        name = changed_argument(self._told.wish, first)
        return name, first.arguments[name]

    def _phrase(self, program: Program, name: str, value: Any) -> str:
        table = program.view.table_of(name)
        if table is None:
            return turns.form(value, program.rng)
        return turns.key_phrase(program.view, table.name, value)


def changed_argument(wish: Wish, first: Wish) -> str:
    """The argument in which a wish and its first version differ."""
    return next(k for k, v in wish.arguments.items() if first.arguments.get(k) != v)


def numbered(facts: Sequence[Row]) -> list[Row]:
    """The facts of several wishes by slots that are theirs alone: a number tells them apart."""
    taken: set[str] = set()
    found: list[Row] = []
    for at, row in enumerate(facts, start=1):
        found.append({f"{slot} {at}" if slot in taken else slot: row[slot] for slot in row})
        taken |= {*row}
    return found


def cross_turn(goal_trace: Sequence[TraceEvent]) -> bool:
    """Whether some argument stands in an earlier turn of the user than the last before its call."""
    last = -1
    for at, event in enumerate(goal_trace):
        if event.kind == EventKind.USER:
            last = at
        for one in event.provenance.values():
            if one.source == "user" and one.at < last:
                return True
    return False


def traits_of(
    program_events: Sequence[TraceEvent], references: Sequence[RowReference],
    candidates: Sequence[Row], changes: bool, late: bool, writes: int, says: int,
) -> tuple[T, ...]:  # fmt: skip
    """What makes a goal harder than its calls, as it came out."""
    found = {
        T.IMPLICIT: bool(references) and not candidates,
        T.CHOICE: bool(candidates),
        T.CHANGES_MIND: changes,
        T.MULTI: writes + says > 1,
        T.CROSS_TURN: cross_turn(program_events),
        T.LATE_TOOL: late,
    }
    return tuple(trait for trait in T if found[trait])
