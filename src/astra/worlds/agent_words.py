"""What the scripted agent says in a conversation: sentences with some variety, drawn by a hash.

Each message of a goal's trace has a purpose, which the events around it tell: it asks for what the
user's next turn gives, proposes the call that they agree to, tells the value that the goal asks
for, or says how the request ended. The words for it are drawn anew for each conversation.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from astra.arena.statements import states
from astra.records.base import content_id
from astra.records.state import Row
from astra.records.world import (
    EventKind,
    OutcomeKind,
    Say,
    TraceEvent,
    UserAct,
    WorldGoal,
    WorldShape,
)
from astra.worlds import turns
from astra.worlds.view import WorldView

_SHORT = 2
"""So many of the sentences, the plainest ones, are for the policies of small worlds."""
_OFFER = ("Which one do you mean: {options}?", "Do you mean {options}?",
          "I found several: {options}. Which one is it?",
          "Which of your {nouns} is this about? I see {options}.",
          "There are several {nouns}: {options}. Please tell me which one you mean.")  # fmt: skip
_ASK = ("Which {slot} is it to be?", "Please tell me the {slot}.",
        "I need one more detail from you: what {slot} should it be?",
        "Could you tell me the {slot}, please?",
        "One thing is open: what {slot} would you like?")  # fmt: skip
_PROPOSE = ("I am going to use {call}. Do you agree?", "I am going to {wish}. Do you agree?",
            "Shall I {wish}?", "I would now {wish}. May I go ahead?",
            "To be sure: you would like me to {wish}. Is that right?",
            "Before I change anything: I would {wish}. Do you want me to proceed?")  # fmt: skip
_LACKING = ("I am sorry, I have no tool for that at the moment.",
            "I cannot do that now: none of my tools does it.",
            "Unfortunately I am not able to do that, I have no tool for it.",
            "I am afraid that I cannot do that right now, for lack of a tool.")  # fmt: skip
_TELL = ("The {column} is {value}.", "It says here that the {column} is {value}.",
         "I have looked it up: the {column} is {value}.",
         "Our records say that the {column} is {value}.")  # fmt: skip
_DONE = ("All of that is done.", "That is done.", "Everything that you asked for is done now.",
         "I have done that for you.")  # fmt: skip
_DONE_SO = ("I have {deed}.", "Done: I have {deed}.", "That is settled, I have {deed}.")
_DECLINED = ("I am sorry, but I cannot do that.", "I have to decline that.",
             "Unfortunately that is not possible, so I have declined the request.",
             "I am afraid I may not do that for you.")  # fmt: skip
_HANDED_OVER = ("A colleague is going to see to this.", "I have handed this over to a colleague.",
                "This is for a colleague of mine, to whom I have passed it on.")  # fmt: skip
_PAST = {"add": "added", "cancel": "cancelled", "change": "changed", "close": "closed",
         "extend": "extended", "make": "made", "move": "moved", "open": "opened", "pay": "paid",
         "record": "recorded", "refund": "refunded", "remove": "removed",
         "unlock": "unlocked"}  # fmt: skip
_YOURS = ((r"\bof mine\b", "of yours"), (r"\bmy\b", "your"), (r"\bfor me\b", "for you"))
"""What a user calls theirs, and what it is for those who serve them."""
_WITH_QUESTION = frozenset({UserAct.CHOOSE, UserAct.ANSWER, UserAct.CONFIRM, UserAct.CHANGE,
                            UserAct.TOOL})  # fmt: skip
"""Turns of a user that answer what the agent said before them."""


def reworded(view: WorldView, goal: WorldGoal, key: Sequence[str | int]) -> list[TraceEvent]:
    """The goal's trace with the agent's messages in words drawn by ``key``."""
    words = _AgentWords(view, goal, key)
    return [
        event.model_copy(update={"text": words.of(at)})
        if event.kind == EventKind.ASSISTANT else event
        for at, event in enumerate(goal.trace)
    ]  # fmt: skip


class _AgentWords:
    """The messages of one conversation, by their place in the goal's trace."""

    def __init__(self, view: WorldView, goal: WorldGoal, key: Sequence[str | int]) -> None:
        self._view, self._goal, self._key = view, goal, key

    def of(self, at: int) -> str:
        """The message that stands in the place of an event of the trace."""
        trace, text = self._goal.trace, self._goal.trace[at].text
        rng = random.Random(int(content_id(["words", *self._key, at]), 16))
        after = trace[at + 1] if at + 1 < len(trace) else None
        if after is not None and after.act in _WITH_QUESTION:
            return self._asking(after, trace[at + 1 :], rng)
        told = next((say for say in self._goal.say if states(say.answer, text)), None)
        if told is not None:
            return self._telling(told, rng)
        return self._ending(at, rng) if after is None or after.kind == EventKind.USER else text

    def _asking(self, answer: TraceEvent, later: Sequence[TraceEvent], rng: random.Random) -> str:
        """What is answered by a turn of the user."""
        match answer.act:
            case UserAct.CHOOSE:
                return self._offer(rng)
            case UserAct.ANSWER:
                slots = [self._slot(name) for name in answer.facts]
                return self._drawn(_ASK, rng).format(slot=" and the ".join(slots))
            case UserAct.TOOL:
                return self._drawn(_LACKING, rng)
            case UserAct.CHANGE if self._goal.wish:
                return self._proposal(self._goal.wish[0], rng)
            case _:
                writing = {tool.tool.name for tool in self._view.writing}
                return self._proposal(next(e for e in later if e.tool in writing), rng)

    def _offer(self, rng: random.Random) -> str:
        """The rows that the wording fits, with a cell of each where that tells them apart."""
        rows = self._goal.candidates
        table = next(one for one in self._view.tables.values()
                     if {column.name for column in one.columns} == rows[0].keys())  # fmt: skip
        shown = [column.name for column in self._view.answerable(table.name)
                 if len({row[column.name] for row in rows}) == len(rows)]  # fmt: skip
        column = rng.choice(shown) if shown and not self._is_short else ""
        options = [
            f"{row[table.key]} ({turns.words(column)} {turns.form(row[column])})"
            if column else row[table.key]
            for row in sorted(rows, key=lambda row: row[table.key])
        ]  # fmt: skip
        listed = f"{', '.join(options[:-1])} or {options[-1]}"
        return self._drawn(_OFFER, rng).format(options=listed, nouns=turns.words(table.name))

    def _slot(self, name: str) -> str:
        """What a fact of the user's is called."""
        plain = re.sub(r"^own | \d+$", "", name)
        table = self._view.table_of(plain)
        return self._view.noun(table.name) if table else turns.words(plain.rpartition(".")[2])

    def _proposal(self, call: TraceEvent, rng: random.Random) -> str:
        stated = f"{call.tool} with {turns.listed(call.arguments)}"
        wish = self._wish(call.tool, call.arguments, rng)
        return self._drawn(_PROPOSE, rng).format(call=stated, wish=wish)

    def _wish(self, tool: str, arguments: Row, rng: random.Random) -> str:
        """What a call is for, as the agent says it to the user."""
        view = self._view
        phrases = {
            name: self._argument(name, value)
            for name, value in arguments.items()
            if name != view.party.key
        }
        text = turns.wish_phrase(view, view.tools[tool], phrases, rng)
        for pattern, yours in _YOURS:
            text = re.sub(pattern, yours, text)
        return text

    def _argument(self, name: str, value: object) -> str:
        table = self._view.table_of(name)
        if table is None:
            return turns.form(value)
        return turns.key_phrase(self._view, table.name, str(value))

    def _telling(self, say: Say, rng: random.Random) -> str:
        column = turns.words(say.read[-1].column)
        return self._drawn(_TELL, rng).format(column=column, value=turns.form(say.answer.value))

    def _ending(self, at: int, rng: random.Random) -> str:
        """How the request ended that is told of in the place of an event."""
        match self._goal.outcome.kind:
            case OutcomeKind.DECLINED:
                return self._drawn(_DECLINED, rng)
            case OutcomeKind.HANDED_OVER:
                return self._drawn(_HANDED_OVER, rng)
            case OutcomeKind.DONE:
                deed = self._deed(at, rng)
                return self._drawn(_DONE_SO if deed else _DONE, rng).format(deed=deed)

    def _deed(self, at: int, rng: random.Random) -> str:
        """The writes since the user's last request in words; empty where none are at hand, or a
        value is to be told beside."""
        writing = {tool.tool.name: tool for tool in self._view.writing}
        before = self._goal.trace[:at]
        start = max(n for n, event in enumerate(before) if not n or event.act == UserAct.REQUEST)
        calls = [event for event in before[start:] if event.tool in writing]
        if self._is_short or self._goal.say or not calls or rng.random() < 0.5:
            return ""
        deeds: list[str] = []
        for call in calls:
            verbs = turns.verbs(writing[call.tool])
            wish = self._wish(call.tool, call.arguments, rng)
            verb = next(one for one in verbs if wish.startswith(f"{one} "))
            if verbs[0] not in _PAST:
                return ""
            deeds.append(f"{_PAST[verbs[0]]}{wish.removeprefix(verb)}")
        return " and ".join(deeds)

    @property
    def _is_short(self) -> bool:
        return self._view.world.shape == WorldShape.SMALL

    def _drawn(self, sentences: Sequence[str], rng: random.Random) -> str:
        return rng.choice(sentences[:_SHORT] if self._is_short else sentences)
