"""A goal's program: user turns, messages and calls, written event by event while calls execute."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from astra.arena.expressions import all_rows
from astra.arena.traces import records_in
from astra.records.state import Row
from astra.records.world import (
    EventKind,
    Provenance,
    ReadProof,
    RowReference,
    ToolRole,
    TraceEvent,
    UserAct,
    UserAsk,
    ValueSource,
)
from astra.worlds import turns
from astra.worlds.executions import Executions
from astra.worlds.references import Predicate, among, naming
from astra.worlds.view import WorldView
from astra.worlds.wishes import Wish

DOCUMENT = Provenance(source=ValueSource.DOCUMENT)


class NoProgram(Exception):
    """A wish that no program of this kind reaches; the message is a reason code."""


@dataclass
class Named:
    """How one argument of a wish is told."""

    phrase: str
    predicate: Predicate | None = None
    """None where the value itself is said."""
    parent: tuple[str, str] | None = None
    """The parameter and the key of the row in whose list it stands, where that is no party."""
    facts: Row = field(default_factory=dict[str, Any])


class Told(NamedTuple):
    """A wish with the words for each argument but the party."""

    wish: Wish
    named: dict[str, Named]


class Program:
    """Writes one goal's trace for one party. Raises NoProgram where a call does not do as meant."""

    def __init__(
        self, view: WorldView, executions: Executions, party: str, rng: random.Random
    ) -> None:
        self.view, self.party, self.rng = view, party, rng
        self._executions = executions
        self.events: list[TraceEvent] = []
        self.references: list[RowReference] = []
        self.asks: list[UserAsk] = []
        self.writes: list[tuple[str, Row]] = []
        self._read: dict[str, int] = {}
        """The event of each reading call, by tool and arguments."""
        self._told: dict[tuple[str, Any], int] = {}
        """The turn in which the user told a value."""

    # What the user says ----------------------------------------------------------------------

    def user(
        self, act: UserAct, text: str, facts: Mapping[str, Any], adds: tuple[str, ...] = ()
    ) -> int:
        self.events.append(
            TraceEvent(kind=EventKind.USER, act=act, text=text, facts=dict(facts), adds_tools=adds)
        )
        for value in facts.values():
            self._told[type(value).__name__, value] = len(self.events) - 1
        return len(self.events) - 1

    def open(self, known: Row, words: str, facts: Row) -> None:
        """The opening: who the user is, and what is wanted in these words."""
        text = turns.introduction(self.view, known, self.rng) + words
        self.user(UserAct.OPENING, text, {**turns.own(known), **facts})

    def request(self, words: str, facts: Row) -> None:
        """What was asked for so far is reported, and the next wish comes in these words."""
        if self.events[-1].kind != EventKind.ASSISTANT:
            self.say("That is done.")
        self.user(UserAct.REQUEST, words, facts)

    def ask(self, text: str, wish: Wish) -> None:
        """Note that the last turn of the user asks for a call, in these of its words."""
        ask = UserAsk(at=self._last(), text=text, tool=wish.tool, arguments=wish.arguments)
        self.asks.append(ask)

    def ask_for(self, text: str, cell: ReadProof) -> None:
        """Note that the last turn of the user that asks in these words asks for a cell."""
        at = max(at for at, event in enumerate(self.events)
                 if event.kind == EventKind.USER and text in event.text)  # fmt: skip
        self.asks.append(UserAsk(at=at, text=text, cell=cell))

    def _last(self) -> int:
        return max(at for at, event in enumerate(self.events) if event.kind == EventKind.USER)

    def say(self, text: str) -> None:
        self.events.append(TraceEvent(kind=EventKind.ASSISTANT, text=text))

    def identity(self) -> Row:
        """What the user says of themselves: values by which the finding tool gives them alone."""
        row = self.view.rows[self.view.party.name][self.party]
        names = [name for name in self.view.parameters(self.view.find.tool.name) if name in row]
        options = [names[:1], names[1:]] if len(names) > 2 else [names]
        self.rng.shuffle(options)
        for option in options:
            given = {name: row[name] for name in option}
            made = self._executions.call(self.view.find.tool.name, given).event
            if not made.failed and list(records_in(made.result)) == [row]:
                return given
        raise NoProgram("party_not_found")

    def tell(self, wish: Wish, implicit: bool) -> Told:
        """Words for the arguments of a wish; ``implicit``: rows are named by what they are."""
        named: dict[str, Named] = {}
        for name, value in wish.arguments.items():
            table = self.view.table_of(name)
            if table is None:
                form = turns.form(value, self.rng)
                named[name] = Named(form, facts={name: value})
            elif table.name != self.view.party.name:
                named[name] = self._row(table.name, name, value, implicit)
        return Told(wish, named)

    def _row(self, table: str, parameter: str, key: str, implicit: bool) -> Named:
        view, rng = self.view, self.rng
        explicit = Named(turns.key_phrase(view, table, key), facts={parameter: key})
        lister = view.lister(table) or view.lister(table, ToolRole.SEARCH)
        meant = view.rows[table][key]
        if lister is None:
            return explicit
        predicate = None
        if implicit:
            rows = among(view, table, self.party, all_rows(view.world))
            predicate = naming(view, table, meant, rows, rng)
        if predicate is not None and lister.role is ToolRole.SEARCH:
            found = self._executions.call(
                lister.tool.name, self._filters(lister.tool.name, predicate)
            ).event
            if found.failed or meant not in list(records_in(found.result)):
                predicate = None
        named = explicit
        if predicate is not None:
            facts = {f"{table}.{name}": cell for name, cell in predicate.where}
            named = Named(turns.row_phrase(view, table, predicate, rng), predicate, facts=facts)
        parent = self._parent(table, lister.tool.name, meant)
        if parent is not None:
            other = view.table_of(parent[0])
            assert other is not None
            named.parent = parent
            named.phrase += f" of {turns.key_phrase(view, other.name, parent[1])}"
            named.facts[parent[0]] = parent[1]
        return named

    def _parent(self, table: str, lister: str, meant: Row) -> tuple[str, str] | None:
        for name in self.view.required(lister):
            if name != self.view.party.key and name in meant:
                return name, meant[name]
        return None

    def _filters(self, tool: str, predicate: Predicate) -> Row:
        names = self.view.parameters(tool)
        return {column: cell for column, cell in predicate.where if column in names}

    # What the agent does ---------------------------------------------------------------------

    def look_up(self, known: Row) -> None:
        """Find the party by what the opening says."""
        self.read(self.view.find.tool.name, known, dict.fromkeys(known, self.user_at(0)))

    def read(self, tool: str, arguments: Row, provenance: dict[str, Provenance]) -> int:
        """A reading call, unless it was made since the last write; its event."""
        place = f"{len(self.writes)}{tool}{sorted(arguments.items())}"
        if place not in self._read:
            self._call(tool, arguments, provenance)
            self._read[place] = len(self.events) - 1
        return self._read[place]

    def browse(self) -> None:
        """Look at rows of the party, where nothing was looked up by a result so far."""
        view = self.view
        if any(
            one.source is ValueSource.RESULT
            for event in self.events
            for one in event.provenance.values()
        ):
            return  # fmt: skip
        for tool in view.world.tools:
            name = tool.tool.name
            if tool.role is ToolRole.LIST and view.required(name) == (view.party.key,):
                self.read(name, {view.party.key: self.party}, {view.party.key: self._result(1)})
                return

    def locate(self, told: Told) -> dict[str, Provenance]:
        """The reads that an agent needs for a wish; where each argument then stands."""
        view, found = self.view, dict[str, Provenance]()
        for name, value in told.wish.arguments.items():
            table = view.table_of(name)
            if table is None:
                found[name] = self.of_user(value)
            elif table.name == view.party.name:
                found[name] = self._result(1)
            else:
                found[name] = self._locate_row(table.name, value, told.named[name])
        return found

    def _locate_row(self, table: str, key: str, named: Named) -> Provenance:
        view = self.view
        lister = view.lister(table) or view.lister(table, ToolRole.SEARCH)
        if lister is None:
            return self.of_user(key)
        tool = lister.tool.name
        if lister.role is ToolRole.SEARCH:
            if named.predicate is None:
                return self.of_user(key)
            filters = self._filters(tool, named.predicate)
            at = self.read(tool, filters, {name: self.of_user(filters[name]) for name in filters})
        elif named.parent is not None:
            name, owner = named.parent
            other = view.table_of(name)
            assert other is not None
            where = self._locate_row(other.name, owner, Named(""))
            at = self.read(tool, {name: owner}, {name: where})
        else:
            name = next(name for name in view.required(tool) if name == view.party.key)
            at = self.read(tool, {name: self.party}, {name: self._result(1)})
        return self._result(at)

    def write(self, wish: Wish, told: Told, provenance: dict[str, Provenance]) -> None:
        """The call of a wish, which has to change something."""
        self._call(wish.tool, wish.arguments, provenance)
        if not self.events[-1].changes:
            raise NoProgram("idle_write")
        self.writes.append((wish.tool, wish.arguments))
        self.refer(wish, told, len(self.events) - 1)

    def refer(self, wish: Wish, told: Told, at: int) -> None:
        """Note the rows of a call that the user named by what they are."""
        for name, named in told.named.items():
            table = self.view.table_of(name)
            if named.predicate is not None and table is not None:
                predicate = named.predicate
                self.references.append(RowReference(
                    table=table.name, key=wish.arguments[name], at=at, argument=name,
                    where=dict(predicate.where), least=predicate.least, most=predicate.most,
                ))  # fmt: skip

    def end(self, tool: str, arguments: Row, provenance: dict[str, Provenance]) -> None:
        """A call that declines or hands over."""
        self._call(tool, arguments, provenance)
        self.writes.append((tool, arguments))

    def _call(self, tool: str, arguments: Row, provenance: dict[str, Provenance]) -> None:
        event = TraceEvent(
            kind=EventKind.CALL, tool=tool, arguments=arguments, provenance=provenance
        )
        made = self._executions.call(tool, arguments, after=self.writes).event
        if made.failed:
            raise NoProgram("reference_fails")
        self.events.append(
            event.model_copy(update={"result": made.result, "changes": made.changes})
        )

    def of_user(self, value: Any) -> Provenance:
        at = self._told.get((type(value).__name__, value))
        if at is None:
            raise NoProgram("untold_argument")
        return self.user_at(at)

    def user_at(self, at: int) -> Provenance:
        return Provenance(source=ValueSource.USER, at=at)

    def _result(self, at: int) -> Provenance:
        return Provenance(source=ValueSource.RESULT, at=at)


def stored(events: list[TraceEvent]) -> tuple[TraceEvent, ...]:
    """A trace as goals keep it: without what executing it gives."""
    return tuple(
        event.model_copy(update={"result": None, "changes": ()})
        if event.kind == EventKind.CALL else event
        for event in events
    )  # fmt: skip
