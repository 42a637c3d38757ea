"""A user played by a model, for evaluation: the automaton decides, the model finds the words.

What the user does next (the act, the facts that it tells, whether the conversation ends) is the
automaton's (``arena/user.py``) and stands in the trace as if it had spoken itself. The model sees
the conversation and that decision, and of what is still held back the names alone. Its words pass
a gate before the agent reads them; words that do not are asked for again with the reasons, and
then the automaton's own are said. A model that gives no words at all is a fault: the error ends the
episode, which is rolled again and never scored. So no leak and no outage of a user is an agent's.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from astra.arena.agreements import asks_consent
from astra.arena.traces import proposal
from astra.arena.user import ScriptedUser, UserAnswer
from astra.arena.user_words import stated, turn_faults
from astra.arena.worlds import base_of, goal_of
from astra.errors import AstraError
from astra.llm.build import Teachers
from astra.llm.protocol import Ask, ModelConfig, Teacher
from astra.records.base import content_id
from astra.records.environment import Arena
from astra.records.state import Tables
from astra.records.world import EventKind, TraceEvent, UserAct, UserScript, World, WorldGoal
from astra.settings import RuntimeConfig

TEMPLATE = "bench/user"
MORE_TRIES = 2
"""How often words that do not pass are asked for again."""
MOST_CHARS = 600
"""Longer messages are no user's."""
_PERSONAS = (
    "a customer in a hurry, who writes as little as possible",
    "a polite customer, who writes whole sentences",
    "a customer who is a little annoyed, and stays civil",
    "a cheerful customer, who writes the way people chat",
    "an elderly customer, who writes carefully",
)
_TASKS: Mapping[UserAct, str] = {
    UserAct.ANSWER: "you answer what you were asked, as far as what stands below does.",
    UserAct.CONFIRM: "you agree to what the assistant wants to do, and say so.",
    UserAct.CHOOSE: "you pick the one you mean.",
    UserAct.CHANGE: "you have changed your mind and now want something else.",
    UserAct.TOOL: "you tell the assistant that it has been given a new tool for this; what that is "
    "called you do not know.",
    UserAct.REJECT: "you say no: that is not what you want.",
    UserAct.UNKNOWN: "you say that you do not know what you were asked.",
    UserAct.NUDGE: "you want the assistant to get on with your request. If it has just refused, "
    "you may be disappointed and ask it to look once more. Do not say whether anything is done or "
    "missing.",
    UserAct.CLOSE: "you thank the assistant and end the conversation.",
    UserAct.LEAVE: "you give up and end the conversation.",
}
"""What a turn does, as the model is told. A further wish (REQUEST) is said in the automaton's own
words: no rule could tell whether others ask for the same."""
_YES = re.compile(r"\b(?:yes|yeah|yep|sure|ok|okay|correct|that(?:['’]s| is) right)\b", re.I)
_CONSENTS = re.compile(
    r"\b(?:agreed?|confirm(?:ed)?|go ahead|proceed|do (?:it|so|that)|please do|sounds good|"
    r"that(?:['’]s| is) (?:fine|good))\b",
    re.I,
)
"""What is said to what is to be done; a yes may also be to what was meant."""
_MEANT = re.compile(
    r"\b(?:is|are|was|were) [^.?!]*"
    r"\b(?:one|(?<!as )(?<!else )you (?:mean|meant|want|wish|need|would|are|have in|had in))\b"
    r"[^.?!]*\?|"
    r"\b(?:do|did) you (?:perhaps )?mean\b|\bdo you (?:happen to )?(?:have|know)\b|"
    r"\b(?:can|could|would|will) you\b[^.?!]*\b(?:give|tell|provide|share|specify|say|know)\b|"
    r"\b(?:can|could|may) i (?:have|know)\b",
    re.I,
)
"""What an agent asks to which a yes gives no consent: what is meant, or whether it will be told."""
_WORD = re.compile(r"[\w-]+")
_DENIES = re.compile(r"\b(?:no|nope|not|never|cannot|unsure|neither|wrong|idea)\b|n['’]t\b", re.I)
_FAREWELL = re.compile(
    r"\b(?:good ?bye|bye|farewell|see you|that(?:['’]s| is| was) (?:all|it)\b(?! i)|"
    r"nothing else(?= (?:that )?i\b| (?:to|for)\b|[^\w\s]|\s*$)|"
    r"i(?:['’]m| am) (?:done|leaving)|i give up|"
    r"end (?:of )?(?:the|this) (?:conversation|chat))\b|#{2,}",
    re.I,
)


class UserWords(BaseModel):
    """What the model writes in the user's place."""

    model_config = ConfigDict(extra="forbid")
    message: str
    ends: bool


class LlmUser:
    """The user of one goal. Raises ValueError where the goal has no script."""

    def __init__(self, arena: Arena, teacher: Teacher, loop: _Loop, tally: Counter[str]) -> None:
        """``tally`` is shared: what was asked and refused is counted there."""
        self._world, self._goal = base_of(arena).world, goal_of(arena)
        self._decides = ScriptedUser(self._world, self._goal)
        self._teacher, self._loop, self._tally = teacher, loop, tally
        drawn = int(content_id(["persona", arena.id]), 16)
        self._persona = _PERSONAS[drawn % len(_PERSONAS)]

    def reply(self, trace: Sequence[TraceEvent], rows: Tables) -> UserAnswer:
        """The automaton's answer in the model's words. Raises AstraError where the model gives
        none, whatever the reason."""
        decided = self._decides.reply(trace, rows)
        if decided.turn.act not in _TASKS:
            return decided
        self._tally["turns"] += 1
        refused: list[dict[str, str]] = []
        for attempt in range(1 + MORE_TRIES):
            self._tally["retries"] += attempt > 0
            words = self._ask(trace, decided, refused)
            faults = gate_faults(self._world, self._goal, trace, decided, words)
            if not faults:
                turn = decided.turn.model_copy(update={"text": words.message.strip()})
                return decided._replace(turn=turn)
            self._tally.update(f"gate.{code}" for code in {one.partition(":")[0] for one in faults})
            refused.append({"text": words.message, "why": "; ".join(map(_reason, faults))})
        self._tally["fallbacks"] += 1
        return decided

    def _ask(
        self, trace: Sequence[TraceEvent], decided: UserAnswer, refused: Sequence[Mapping[str, str]]
    ) -> UserWords:
        variables = _variables(self._world, self._goal, trace, decided)
        ask = Ask(
            TEMPLATE, {**variables, "persona": self._persona, "refused": list(refused)}, UserWords
        )
        try:
            return self._loop.wait(self._teacher.ask(ask))
        except AstraError:
            self._tally["faults"] += 1
            raise
        except Exception as error:
            self._tally["faults"] += 1
            raise AstraError(
                f"the model of the user failed: {type(error).__name__}: {error}"
            ) from error


def gate_faults(
    world: World,
    goal: WorldGoal,
    trace: Sequence[TraceEvent],
    decided: UserAnswer,
    words: UserWords,
) -> list[str]:
    """What is wrong with words for a turn that the automaton has decided on, as codes.

    Those of ``turn_faults``, and ``stops``: they end a conversation that goes on, by which words;
    ``agrees``: an agent may take them for consent that was not given; ``denies``: the other way
    round; ``long``.
    """
    text, turn = words.message, decided.turn
    repeated = _repeated(goal, decided, trace)
    faults = turn_faults(world, _script(goal), turn, text, trace, repeated)
    faults += ["long"] if len(text) > MOST_CHARS else []
    if decided.ends is not None:  # nothing comes after it that it could mislead
        return faults
    farewell = _FAREWELL.search(text)
    if words.ends or farewell:
        faults.append(f'stops:"{farewell[0]}"' if farewell else "stops:`ends`")
    yes, denies = _YES.search(text) is not None, _DENIES.search(text) is not None
    consents = _CONSENTS.search(text) is not None
    if turn.act == UserAct.CONFIRM:
        faults += [] if yes or consents else ["denies"]
    elif (
        consents
        or (yes and not _answers_yes(world, goal, turn, trace))
        or (turn.act in (UserAct.REJECT, UserAct.UNKNOWN) and not denies)
    ):
        faults.append("agrees")
    return faults


def _answers_yes(
    world: World, goal: WorldGoal, turn: TraceEvent, trace: Sequence[TraceEvent]
) -> bool:
    """Whether a yes beside an answer is part of it: the agent asked which row is meant, or to be
    told something, named no row that the goal has nothing to do with, and did not ask whether it
    may do something."""
    asked = proposal(trace, len(trace))
    if turn.act not in (UserAct.ANSWER, UserAct.CHOOSE) or not turn.facts:
        return False
    if asks_consent(asked) or not _MEANT.search(asked):
        return False
    keys = {str(row[table.key]).casefold() for table in world.tables
            for row in world.rows.get(table.name, ())}  # fmt: skip
    named = keys & {word.casefold() for word in _WORD.findall(asked)}
    own = {str(value).casefold() for value in _own_values(goal)}
    return named <= own or (turn.act == UserAct.CHOOSE and bool(named & own))


def _repeated(goal: WorldGoal, decided: UserAnswer, trace: Sequence[TraceEvent]) -> list[str]:
    """The agent's words whose values the user may name again: all where nothing comes after it;
    where they answer or agree, the goal's own values, so that no other row is pointed at."""
    heard = [event.text for event in trace if event.kind == EventKind.ASSISTANT]
    if decided.ends is not None:
        return heard
    if decided.turn.act not in (UserAct.ANSWER, UserAct.CHOOSE, UserAct.CONFIRM):
        return []
    return [str(value) for value in _own_values(goal) if stated(value, " ".join(heard))]


def _own_values(goal: WorldGoal) -> list[Any]:
    """What the goal's own calls take, and what they make of the tables."""
    calls = [value for event in goal.trace for value in event.arguments.values()]
    made = [value for write in goal.effect for part in (write.where, write.values)
            for value in part.values()]  # fmt: skip
    return [value for value in (*calls, *made) if isinstance(value, str | int | float)]


def _script(goal: WorldGoal) -> UserScript:
    assert goal.script is not None  # the automaton refuses a goal without one
    return goal.script


_REASONS = {
    "empty": "say something",
    "broken": "{} is no word",
    "language": "it is in another language than the conversation ({})",
    "untold": "the value of {} is missing or is not written as it stands above",
    "leaks": "nobody has asked for {}",
    "stale": "you want another {} now",
    "invents": "{} is no value of yours",
    "claims": 'nobody has spoken of "{}" here, and you invent nothing',
    "names": "people do not write {}",
    "stops": "the conversation is not over, and {} says that it is",
    "agrees": "it sounds as if you agreed to something",
    "denies": "it does not sound as if you agreed",
    "takes_back": "it sounds as if you took back what you agreed to",
    "rejects_nothing": 'it does not begin with "No"',
    "long": "it is too long",
}


_OF_SLOTS = ("untold", "leaks", "stale")


def _reason(fault: str) -> str:
    code, _, what = fault.partition(":")
    return _REASONS[code].format(_label(what) if code in _OF_SLOTS else what)


def _label(slot: str) -> str:
    """A slot as it is named to the model: the column of a row is that of the thing, not of its
    id; a slot of a later wish says so."""
    name, _, number = slot.rpartition(" ")
    name, wish = (name, f" (wish {number})") if number.isdigit() else (slot, "")
    owner, _, column = name.rpartition(".")
    thing = owner.removesuffix("_id")
    return (f"{column} of the {thing}" if thing else column).replace("_", " ") + wish


def _variables(
    world: World, goal: WorldGoal, trace: Sequence[TraceEvent], decided: UserAnswer
) -> dict[str, Any]:
    """What the prompt shows besides the persona and what was refused. Of what is neither told nor
    due it has the names alone."""
    said = [event for event in trace if event.kind == EventKind.USER]
    turn = decided.turn
    known: dict[str, Any] = {}
    for event in said:
        known |= event.facts
    held_back = dict.fromkeys(
        fact.slot for fact in _script(goal).facts if fact.slot not in (*known, *turn.facts)
    )
    return {
        "service": world.title,
        "now": world.clock,
        "wish": said[0].text,
        "known": {_label(slot): _value(value) for slot, value in known.items()
                  if turn.facts.get(slot, value) == value},
        "due": {_label(slot): _value(value) for slot, value in turn.facts.items()},
        "held_back": [_label(slot) for slot in held_back],
        "conversation": [
            {"speaker": "you" if event.kind == EventKind.USER else "assistant", "text": event.text}
            for event in trace if event.kind != EventKind.CALL
        ],
        "task": _task(turn),
        "agrees": turn.act == UserAct.CONFIRM,
        "ends": decided.ends is not None,
    }  # fmt: skip


def _task(turn: TraceEvent) -> str:
    task = _TASKS[turn.act or UserAct.NUDGE]
    if turn.act == UserAct.CONFIRM and turn.facts:
        return f"{task} You also tell it what it still has to know."
    return task


def _value(value: Any) -> str:
    """A value as people write it, where that still states it."""
    written = str(value).replace("_", " ")
    return written if stated(value, written) else str(value)


class _Loop:
    """An event loop in a thread of its own, in which callers of any thread wait for an answer."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="user-model", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def wait(self, answer: Any) -> Any:
        """The result of a coroutine, or what it raises."""
        future: Future[Any] = asyncio.run_coroutine_threadsafe(answer, self._loop)
        return future.result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class LlmUsers:
    """The users that one model plays in a run of the benchmark, and how that went."""

    def __init__(self, config: ModelConfig, runtime: RuntimeConfig) -> None:
        """Raises AstraError without an endpoint or key."""
        self._teachers = Teachers(runtime, "bench")
        self._teacher = self._teachers.teacher(config, {})
        self._loop = _Loop()
        self.tallies: dict[str, Counter[str]] = {}
        """What was asked, refused and replaced, by checkpoint; ``rates`` says what is counted."""

    def user(self, checkpoint: str, arena: Arena) -> LlmUser | None:
        """Who talks with a checkpoint in an arena; None where the arena has no user."""
        tally = self.tallies.setdefault(checkpoint, Counter())
        if not arena.world_id or goal_of(arena).script is None:
            return None
        return LlmUser(arena, self._teacher, self._loop, tally)

    @property
    def rates(self) -> dict[str, dict[str, float]]:
        """What each checkpoint's users cost: ``turns`` that the model was asked for, and per turn
        the ``retries``, ``fallbacks`` and ``faults``, and refusals by what was wrong
        (``gate.CODE``)."""
        return {name: rates_of(tally) for name, tally in self.tallies.items() if tally["turns"]}

    def close(self) -> None:
        """End the connections and write the run log."""
        self._loop.close()
        self._teachers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def rates_of(tally: Mapping[str, int]) -> dict[str, float]:
    """A tally as ``LlmUsers.rates`` has it."""
    turns = tally["turns"]
    per_turn = {name: round(tally.get(name, 0) / turns, 6)
                for name in ("retries", "fallbacks", "faults")}  # fmt: skip
    gates = {name: round(count / turns, 6) for name, count in sorted(tally.items())
             if name.startswith("gate.")}  # fmt: skip
    return {"turns": float(turns), **per_turn, **gates}
