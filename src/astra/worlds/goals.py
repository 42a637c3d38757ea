"""Goals drawn from a world's rows: wishes are bound, written as a program and executed.

What must become of the tables is derived from the tools' changes (``effects.py``), not from what
their code did; ``goal_proofs.py`` compares the two.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from astra.arena.effects import effects, net_writes, rows_after
from astra.arena.expressions import all_rows
from astra.records.qa import Answer, AnswerType, QuestionKind
from astra.records.state import Row
from astra.records.world import (
    ColumnType,
    EventKind,
    GoalOutcome,
    GoalTrait,
    OutcomeKind,
    ReadProof,
    Say,
    TraceEvent,
    UserAct,
    UserAsk,
    WorldGoal,
)
from astra.worlds import turns
from astra.worlds.executions import Executions
from astra.worlds.program import DOCUMENT, NoProgram, Program, Told, stored
from astra.worlds.references import among
from astra.worlds.scripts import WishScript, changed_argument, numbered, traits_of
from astra.worlds.twists import open_row, other_version
from astra.worlds.user_scripts import user_script
from astra.worlds.view import WorldView
from astra.worlds.wishes import Wish, WishPool, nothing_there, satisfied

T = GoalTrait
_ANSWER = {ColumnType.DATE: AnswerType.DATE, ColumnType.INTEGER: AnswerType.NUMBER,
           ColumnType.NUMBER: AnswerType.NUMBER, ColumnType.ENUM: AnswerType.ENUM}  # fmt: skip
Asked = tuple[str, Row, str]
"""A cell that is asked for: its table, row and column."""


class GoalPlan(NamedTuple):
    """What is asked of one goal."""

    kind: QuestionKind
    traits: frozenset[GoalTrait]
    agreed: bool
    """The user agrees in the opening."""
    wishes: int
    successive: bool = False
    """The wishes come one after another, each when the one before is met."""


class GoalMaker:
    """Makes goals in one world."""

    def __init__(self, view: WorldView, executions: Executions, pool: WishPool) -> None:
        self.view, self._executions, self._pool = view, executions, pool

    def make(self, plan: GoalPlan, rng: random.Random) -> WorldGoal:
        """One goal. Raises NoProgram with a reason where the draw leads to none."""
        make: dict[QuestionKind, Callable[[GoalPlan, random.Random], WorldGoal]] = {
            QuestionKind.READ_ONLY: self._reading,
            QuestionKind.FORBIDDEN: self._declined,
            QuestionKind.INFEASIBLE: self._infeasible,
            QuestionKind.ALREADY_SATISFIED: self._satisfied,
            QuestionKind.MISSING_TOOL: self._missing_tool,
        }
        return make.get(plan.kind, self._acting)(plan, rng)

    # Wishes that are met ----------------------------------------------------------------------

    def _acting(self, plan: GoalPlan, rng: random.Random) -> WorldGoal:
        wishes = self._chosen(plan, rng)
        program = Program(self.view, self._executions, wishes[0].party, rng)
        known = program.identity()
        told = [program.tell(wish, T.IMPLICIT in plan.traits) for wish in wishes]
        twist = self._twist(plan, program, told[0], rng)
        script = WishScript(plan.kind, plan.traits, told[0], twist)
        governed = [self.view.asks_consent(wish.tool) for wish in wishes]
        # What is agreed to beforehand is the first change: a later one needs a word of its own.
        agreed = plan.agreed and governed[0] and not any(governed[1:]) and script.plain
        phrases = [
            turns.wish_phrase(
                self.view, self.view.tools[one.wish.tool], script.phrases(program, one), rng
            )
            for one in told
        ]  # fmt: skip
        hello, sentences = turns.introduction(self.view, known, rng), turns.wishes(phrases, rng)
        facts = script.told_facts(told)
        asked = self._asked_after(wishes, rng) if plan.kind == "mixed" else None
        question = ""
        if asked is not None:
            question = turns.question(self.view, asked[0], asked[2], "it afterwards", rng)
        agreement = turns.agreement(rng, beforehand=True) if agreed else ""
        first = 1 if plan.successive else len(told)
        words = [*sentences[:first], question if first == len(told) else "", agreement]
        opening: Row = {key: cell for row in facts[:first] for key, cell in row.items()}
        text = hello + " ".join(filter(None, words))
        act = UserAct.CONFIRM if agreed else UserAct.OPENING
        program.user(act, text, {**turns.own(known), **opening})
        for sentence, one in zip(sentences[:first], told, strict=False):
            program.ask(sentence, script.opening(one))
        program.look_up(known)
        for at, one in enumerate(told):
            if at >= first:
                last = question if at == len(told) - 1 else ""
                program.request(" ".join(filter(None, [sentences[at], last])), facts[at])
                program.ask(sentences[at], one.wish)
            found = script.talk(program, one)
            if governed[at] and not agreed:
                program.say(f"I am going to use {one.wish.tool} with "
                            f"{turns.listed(one.wish.arguments)}. Do you agree?")  # fmt: skip
                program.user(UserAct.CONFIRM, turns.agreement(rng, beforehand=False), {})
            program.write(one.wish, one, found)
        says = self._report(program, asked, question)
        program.say("All of that is done.")
        return self._goal(plan, program, GoalOutcome(kind=OutcomeKind.DONE), says,
                          script.withheld, script.candidates, script.given_up)  # fmt: skip

    def _chosen(self, plan: GoalPlan, rng: random.Random) -> list[Wish]:
        """Legal wishes of one party, each of another tool, whose calls also succeed in a row."""
        # A user who is not asked before the change cannot change their mind in time.
        tools = sorted(tool for tool in self._pool.legal if T.CHANGES_MIND not in plan.traits
                       or self.view.asks_consent(tool))  # fmt: skip
        if not tools:
            raise NoProgram("no_wish")
        first = rng.choice(self._pool.legal[rng.choice(tools)])
        wishes = [first]
        more = self._pool.legal_of(first.party)
        rng.shuffle(more)
        for wish in more:
            if len(wishes) < plan.wishes and self._apart(wishes, wish):
                writes = [(one.tool, one.arguments) for one in wishes]
                made = self._executions.call(wish.tool, wish.arguments, after=writes)
                if made.event.changes and not self._breaks(wishes, wish):
                    wishes.append(wish)
        if T.MULTI in plan.traits and len(wishes) < 2:
            raise NoProgram("no_second_wish")
        return wishes

    def _apart(self, wishes: Sequence[Wish], wish: Wish) -> bool:
        """Whether a wish is of another tool and about other rows than those before it."""
        own = set(self._rows_of(wish))
        return all(one.tool != wish.tool and not own & set(self._rows_of(one)) for one in wishes)

    def _rows_of(self, wish: Wish) -> Iterator[str]:
        for name, value in wish.arguments.items():
            table = self.view.table_of(name)
            if table is not None and table.name != self.view.party.name:
                yield value

    def _breaks(self, before: Sequence[Wish], wish: Wish) -> bool:
        tables = rows_after(self.view.world, [(one.tool, one.arguments) for one in before])
        return bool(self.view.broken(wish.tool, wish.arguments, tables))

    def _twist(self, plan: GoalPlan, program: Program, told: Told, rng: random.Random) -> Any:
        """What makes the conversation longer than a wish and its reply."""
        if T.CHOICE in plan.traits:
            return open_row(self.view, program.party, told)
        if T.CHANGES_MIND in plan.traits:
            first = other_version(self.view, self._executions, self._pool, told.wish, rng)
            # A row that takes another's place is named by its key, as that is.
            name = changed_argument(told.wish, first)
            told.named[name] = program.tell(told.wish, implicit=False).named[name]
            return first
        if plan.kind == QuestionKind.MISSING_PARAMETER:
            open_ = [name for name in told.wish.arguments if self.view.table_of(name) is None]
            if not open_:
                raise NoProgram("nothing_missing")
            return rng.choice(open_)
        return None

    # Questions ---------------------------------------------------------------------------------

    def _reading(self, plan: GoalPlan, rng: random.Random) -> WorldGoal:
        """One or two cells of rows of a party."""
        view = self.view
        party = rng.choice(sorted(view.rows[view.party.name]))
        program = Program(view, self._executions, party, rng)
        known = program.identity()
        options = [(table, row) for table in view.tables if view.lister(table) is not None
                   and view.is_owned(table)
                   for row in among(view, table, party, all_rows(view.world))]  # fmt: skip
        if not options:
            raise NoProgram("no_row")
        asked: list[tuple[Told, str, str]] = []
        for table, row in rng.sample(options, min(len(options), plan.wishes)):
            key = view.tables[table].key
            wish = Wish("", {key: row[key]}, party)
            told = program.tell(wish, T.IMPLICIT in plan.traits)
            named = told.named[key].predicate
            shown = lister.shows[table] if (lister := view.lister(table)) else ()
            used = {*dict(named.where), named.least, named.most} if named else set[str | None]()
            names = [c.name for c in view.answerable(table) if row[c.name] is not None]
            free = [name for name in names if name in shown and name not in used]
            if not free:
                raise NoProgram("nothing_to_ask")
            asked.append((told, table, rng.choice(free)))
        if T.MULTI in plan.traits and len(asked) < 2:
            raise NoProgram("no_second_wish")
        questions = [
            turns.question(view, table, column, told.named[view.tables[table].key].phrase, rng)
            for told, table, column in asked
        ]
        facts = numbered([
            {k: v for one in told.named.values() for k, v in one.facts.items()}
            for told, _, _ in asked
        ])  # fmt: skip
        first = 1 if plan.successive else len(asked)
        opening: Row = {key: cell for row in facts[:first] for key, cell in row.items()}
        program.open(known, " ".join(questions[:first]), opening)
        program.look_up(known)
        says: list[Say] = []
        for at, ((told, table, column), question) in enumerate(zip(asked, questions, strict=True)):
            if at >= first:
                program.request(question, facts[at])
            program.locate(told)
            program.refer(told.wish, told, len(program.events) - 1)
            row = view.rows[table][told.wish.arguments[view.tables[table].key]]
            says += self._report(program, (table, row, column), question)
        return self._goal(plan, program, GoalOutcome(kind=OutcomeKind.DONE), says)

    def _asked_after(self, wishes: Sequence[Wish], rng: random.Random) -> Asked:
        """A cell of the row that the last write makes or changes, which its result shows."""
        *before, wish = wishes
        view, tool = self.view, self.view.tools[wish.tool]
        tables = rows_after(view.world, [(one.tool, one.arguments) for one in before])
        made = effects(view.world, tool, view.scope(wish.arguments, tables))
        for (table, _), row in sorted(made.items()):
            if row is None or table not in tool.shows:
                continue
            columns = [c.name for c in view.answerable(table) if row[c.name] is not None
                       and c.name in tool.shows[table]
                       and row[c.name] not in wish.arguments.values()]  # fmt: skip
            if columns:
                return table, row, rng.choice(columns)
        raise NoProgram("nothing_to_ask")

    def _report(self, program: Program, asked: Asked | None, question: str = "") -> list[Say]:
        """The value of a cell told, which the opening asks for if there is a question."""
        if asked is None:
            return []
        table, row, column = asked
        key = self.view.tables[table].key
        current = rows_after(self.view.world, program.writes)[table]
        value = next(one for one in current if one[key] == row[key])[column]
        program.say(turns.answer_text(column, value))
        kind = _ANSWER[self.view.column(table, column).type]
        cell = ReadProof(table=table, key=row[key], column=column)
        if question:
            program.ask_for(question, cell)
        return [Say(answer=Answer(type=kind, value=value), read=(cell,))]

    def _satisfied(self, plan: GoalPlan, rng: random.Random) -> WorldGoal:
        """A wish that holds already: the agent looks, and says so."""
        view = self.view
        for wish, table, key, column in satisfied(view, rng):
            lister = view.lister(table) if table != view.party.name else view.find
            if lister is None or column not in lister.shows[table]:
                continue
            program = Program(view, self._executions, wish.party, rng)
            known = program.identity()
            told = program.tell(wish, implicit=False)
            if any(named.parent for named in told.named.values()):
                continue
            phrases = {name: named.phrase for name, named in told.named.items()}
            phrase = turns.wish_phrase(view, view.tools[wish.tool], phrases, rng)
            (sentence,) = turns.wishes([phrase], rng)
            facts = {k: v for named in told.named.values() for k, v in named.facts.items()}
            program.open(known, sentence, facts)
            program.ask(sentence, wish)
            program.look_up(known)
            program.locate(told)
            program.browse()
            says = self._report(program, (table, view.rows[table][key], column))
            return self._goal(plan, program, GoalOutcome(kind=OutcomeKind.DONE), says)
        raise NoProgram("no_wish")

    # Wishes that are not met -------------------------------------------------------------------

    def _declined(self, plan: GoalPlan, rng: random.Random) -> WorldGoal:
        rules = sorted(self._pool.forbidden)
        if not rules:
            raise NoProgram("no_wish")
        rule = rng.choice(rules)
        wish = rng.choice(self._pool.forbidden[rule])
        return self._ended(plan, wish, self.view.rules[rule].reason, rng, violates=rule)

    def _infeasible(self, plan: GoalPlan, rng: random.Random) -> WorldGoal:
        """A rule's tool refuses it, a row is not there or not to be had, or it is for a person."""
        view, pool = self.view, self._pool
        sorts = ["topic", "not_found"] + ["refused"] * bool(pool.refused)
        sorts += ["not_available"] * bool(pool.unavailable)
        sort = rng.choice(sorts)
        if sort == "refused":
            rule = rng.choice(sorted(pool.refused))
            wish = rng.choice(pool.refused[rule])
            return self._ended(plan, wish, view.rules[rule].reason, rng)
        if sort == "not_available":
            return self._ended(plan, rng.choice(pool.unavailable), sort, rng)
        if sort == "not_found":
            wish = nothing_there(view, pool, rng)
            if wish is None:
                raise NoProgram("no_wish")
            return self._ended(plan, wish, sort, rng)
        return self._topic(plan, rng)

    def _topic(self, plan: GoalPlan, rng: random.Random) -> WorldGoal:
        view = self.view
        code = rng.choice(sorted(view.world.topics))
        party = rng.choice(sorted(view.rows[view.party.name]))
        program = Program(view, self._executions, party, rng)
        known, subject = program.identity(), view.world.topics[code]
        words = f"It is about this: {subject}."
        program.open(known, words, {"subject": subject})
        program.asks.append(UserAsk(at=0, text=words, topic=code))
        program.look_up(known)
        program.browse()
        names = view.required(view.hand_over.tool.name)
        given = {name: code if name == "reason" else subject for name in names}
        program.end(view.hand_over.tool.name, given, {
            name: DOCUMENT if name == "reason" else program.of_user(subject) for name in names
        })  # fmt: skip
        program.say("A colleague is going to see to this.")
        outcome = GoalOutcome(kind=OutcomeKind.HANDED_OVER, reason=code)
        return self._goal(plan, program, outcome, [])

    def _missing_tool(self, plan: GoalPlan, rng: random.Random) -> WorldGoal:
        if T.LATE_TOOL in plan.traits:
            return self._acting(plan, rng)
        wish = self._chosen(plan._replace(wishes=1), rng)[0]
        return self._ended(plan, wish, "not_offered", rng, withheld=(wish.tool,))

    def _ended(
        self, plan: GoalPlan, wish: Wish, reason: str, rng: random.Random,
        violates: str = "", withheld: tuple[str, ...] = (),
    ) -> WorldGoal:  # fmt: skip
        """A wish that is declined, after the reads that it takes to know why."""
        view = self.view
        if reason not in view.parameters(view.decline.tool.name)["reason"].get("enum", ()):
            raise NoProgram("unnamed_reason")
        program = Program(view, self._executions, wish.party, rng)
        known = program.identity()
        there = {
            name: value
            for name, value in wish.arguments.items()
            if (table := view.table_of(name)) is None or value in view.rows[table.name]
        }
        told = program.tell(wish._replace(arguments=there), T.IMPLICIT in plan.traits)
        phrases = {name: named.phrase for name, named in told.named.items()}
        facts = {k: v for named in told.named.values() for k, v in named.facts.items()}
        for name in wish.arguments.keys() - there.keys():
            table = view.table_of(name)
            assert table is not None
            phrases[name] = turns.key_phrase(view, table.name, wish.arguments[name])
            facts[name] = wish.arguments[name]
        phrase = turns.wish_phrase(view, view.tools[wish.tool], phrases, rng)
        (sentence,) = turns.wishes([phrase], rng)
        program.open(known, sentence, facts)
        program.ask(sentence, wish)
        program.look_up(known)
        found = program.locate(told)
        program.browse()
        unknown = {name: program.of_user(value) for name, value in wish.arguments.items()
                   if name not in there}  # fmt: skip
        arguments = {"reason": reason}
        program.end(view.decline.tool.name, arguments, {"reason": DOCUMENT})
        program.refer(told.wish, told, len(program.events) - 1)
        program.say("I am sorry, but I cannot do that.")
        call = TraceEvent(kind=EventKind.CALL, tool=wish.tool, arguments=wish.arguments,
                          provenance={**found, **unknown})  # fmt: skip
        outcome = GoalOutcome(kind=OutcomeKind.DECLINED, reason=reason)
        return self._goal(plan, program, outcome, [], withheld, wish=(call,), violates=violates)

    def _goal(
        self, plan: GoalPlan, program: Program, outcome: GoalOutcome, says: list[Say],
        withheld: tuple[str, ...] = (), candidates: Sequence[Row] = (),
        wish: tuple[TraceEvent, ...] = (), violates: str = "",
    ) -> WorldGoal:  # fmt: skip
        users = [event for event in program.events if event.kind == EventKind.USER]
        goal = WorldGoal(
            kind=plan.kind,
            traits=traits_of(
                program.events,
                program.references,
                candidates,
                changes=bool(wish) and outcome.kind is OutcomeKind.DONE,
                late=bool(withheld) and outcome.kind is OutcomeKind.DONE,
                writes=len(program.writes),
                says=len(says),
            ),
            needs_user=len(users) > 1,
            trace=stored(program.events),
            effect=net_writes(self.view.world, program.writes),
            outcome=outcome,
            say=tuple(says),
            must_read=tuple(proof for say in says for proof in say.read),
            violates=violates,
            withheld=withheld,
            candidates=tuple(candidates),
            references=tuple(program.references),
            wish=wish,
            asks=tuple(program.asks),
        )
        script = user_script(self.view, goal, program.rng)
        return goal.model_copy(update={"script": script})
