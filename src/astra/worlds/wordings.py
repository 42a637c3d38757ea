"""Words of a goal's user by a teacher: one ask a goal, each wording held to what its turn may say.

A turn of which too few wordings pass keeps those that rules made; each that does not pass is told,
with the reason (``wording_fault``).
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from astra.arena.user_words import other_language, without
from astra.llm.notes import PromptNotes
from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.records.base import content_id
from astra.records.world import UserAct, UserScript, UserTurn, WorldGoal
from astra.worlds import turns
from astra.worlds.asks import WordingsReply, wordings_ask
from astra.worlds.user_scripts import FEWEST, MOST, due_facts, wording_fault
from astra.worlds.view import WorldView

A = UserAct
FOREIGN = "wording_language"
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


class RefusedWording(NamedTuple):
    """A wording that did not pass: of which turn it was, the code of what is wrong, its words."""

    turn: str
    reason: str
    text: str


class Reworded(NamedTuple):
    """A goal with a teacher's words, how many turns have them or keep those of rules, and which
    wordings were refused."""

    goal: WorldGoal
    taught: int
    kept: int
    prompt_hash: str
    refused: tuple[RefusedWording, ...] = ()


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
    refused: list[RefusedWording] = []
    made = [_taught(view, script, turn, given.get(at, []), refused)
            for at, turn in enumerate(script.turns, start=1)]  # fmt: skip
    words = [
        turn if turn is not None else old for turn, old in zip(made, script.turns, strict=True)
    ]
    taught = sum(turn is not None for turn in made)
    told = goal.model_copy(update={"script": script.model_copy(update={"turns": tuple(words)})})
    return Reworded(told, taught, len(words) - taught, notes.prompt_hash, tuple(refused))


def _persona(goal: WorldGoal) -> str:
    drawn = content_id(["persona", goal.trace[0].text])
    return random.Random(int(drawn, 16)).choice(PERSONAS)


def _shown(script: UserScript, number: int, turn: UserTurn) -> dict[str, Any]:
    """What a teacher is told of a turn."""
    tells = {slot: turns.form(value) for slot, value in due_facts(script, turn).items()}
    return {"turn": number, "does": DOES[turn.act], "tells": tells, "says": turn.wordings[0]}


def _taught(
    view: WorldView,
    script: UserScript,
    turn: UserTurn,
    wordings: list[str],
    refused: list[RefusedWording],
) -> UserTurn | None:
    """The turn in new words; None where too few of them pass. Those that do not join ``refused``.

    A few words do not tell their language, so that of a turn's wordings together counts for each.
    """
    stripped = [text for text in dict.fromkeys(one.strip() for one in wordings) if text]
    together = without(" ".join(stripped), due_facts(script, turn).values())
    foreign = other_language(together, view.world.language)
    passed: list[str] = []
    for text in stripped:
        if fault := FOREIGN if foreign else wording_fault(view, script, turn, text):
            refused.append(RefusedWording(" ".join([turn.act, *turn.slots]), fault, text))
        else:
            passed.append(text)
    if len(passed) < FEWEST:
        return None
    return turn.model_copy(update={"wordings": tuple(passed[:MOST])})
