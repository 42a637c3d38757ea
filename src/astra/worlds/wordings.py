"""Words of a goal's user by a teacher: one ask a goal, each wording held to what its turn may say.

A turn whose wordings do not pass keeps those that rules made.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from astra.llm.notes import PromptNotes
from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.records.base import content_id
from astra.records.world import UserAct, UserScript, UserTurn, WorldGoal
from astra.worlds import turns
from astra.worlds.asks import WordingsReply, wordings_ask
from astra.worlds.user_scripts import FEWEST, MOST, wording_fault
from astra.worlds.view import WorldView

A = UserAct
PERSONAS = (
    "In a hurry, says no more than needed.",
    "Friendly and a little chatty.",
    "Formal and very polite.",
    "Unsure with computers, speaks plainly.",
    "Annoyed, but stays civil.",
    "A night-shift worker who writes in short, lower-case messages.",
    "Retired, takes time and writes full sentences.",
    "Writes as people do in a chat, with contractions.",
)
DOES = {
    A.ANSWER: "answers a question of the desk",
    A.CONFIRM: "agrees to what the desk proposed",
    A.CHOOSE: "says which of several is meant",
    A.CHANGE: "has changed their mind and wants something else instead",
    A.REQUEST: "comes with a further wish, now that the one before is met",
    A.TOOL: "tells the desk that a new tool was given to it just now",
    A.REJECT: "does not want what the desk proposed, and keeps to what they asked for",
    A.UNKNOWN: "does not know what the desk asked for",
    A.NUDGE: "says that their wish is still open, without saying whether anything is missing",
    A.CLOSE: "is done and ends the conversation",
    A.LEAVE: "gives up and ends the conversation",
}


class Reworded(NamedTuple):
    """A goal with a teacher's words, and how many turns have them or keep those of rules."""

    goal: WorldGoal
    taught: int
    kept: int
    prompt_hash: str


async def with_taught_words(view: WorldView, goal: WorldGoal, teacher: Teacher) -> Reworded:
    """The goal with the words that a teacher has for its user, as far as they pass; all words are
    kept where no reply comes."""
    script, notes = goal.script, PromptNotes()
    if script is None:
        return Reworded(goal, 0, 0, "")
    shown = [_shown(script, at, turn) for at, turn in enumerate(script.turns, start=1)]
    ask = wordings_ask(view.world.title, goal.trace[0].text, _persona(goal), shown, FEWEST)
    try:
        reply = await notes.of(teacher).ask(ask)
    except (ParseError, ProviderError):
        reply = WordingsReply(turns=[])
    given = {one.turn: one.wordings for one in reply.turns}
    made = [_taught(view, script, turn, given.get(at, []))
            for at, turn in enumerate(script.turns, start=1)]  # fmt: skip
    words = [
        turn if turn is not None else old for turn, old in zip(made, script.turns, strict=True)
    ]
    taught = sum(turn is not None for turn in made)
    told = goal.model_copy(update={"script": script.model_copy(update={"turns": tuple(words)})})
    return Reworded(told, taught, len(words) - taught, notes.prompt_hash)


def _persona(goal: WorldGoal) -> str:
    drawn = content_id(["persona", goal.trace[0].text])
    return random.Random(int(drawn, 16)).choice(PERSONAS)


def _shown(script: UserScript, number: int, turn: UserTurn) -> dict[str, Any]:
    """What a teacher is told of a turn."""
    changed = turn.changed or turn.act is A.CHANGE
    tells = {fact.slot: turns.form(fact.value) for fact in script.facts
             if fact.slot in turn.slots and changed is (fact.when == "change")}  # fmt: skip
    return {"turn": number, "does": DOES[turn.act], "tells": tells, "says": turn.wordings[0]}


def _taught(
    view: WorldView, script: UserScript, turn: UserTurn, wordings: list[str]
) -> UserTurn | None:
    """The turn in new words; None where too few of them pass."""
    stripped = (text.strip() for text in wordings)
    passed = [text for text in dict.fromkeys(stripped)
              if text and not wording_fault(view, script.facts, turn, text)]  # fmt: skip
    if len(passed) < FEWEST:
        return None
    return turn.model_copy(update={"wordings": tuple(passed[:MOST])})
