"""A message of the agent as rules read it: its sentences, and what of its world they hold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from astra.arena import act_phrases as phrases
from astra.arena import told_phrases as tells
from astra.arena.claims import name_stems, stems
from astra.arena.statements import places_of, sentences
from astra.arena.traces import proposal
from astra.arena.world_words import changing_tools, world_words
from astra.records.world import AgentAct, EventKind, TraceEvent, World

_ECHO = 4
"""A sentence of so many words that the user has said as well is theirs."""
_AGAIN = 3
"""A longer sentence that comes so often is babble."""
KEY = re.compile(r"\b[a-z]{1,4}-?\d{2,}\b")
"""What looks like a key."""
SHORT = 6
"""A question of so few words needs no verb: the number of days?"""


class MessageReading(NamedTuple):
    """What a message asks of the user."""

    act: AgentAct
    slots: tuple[str, ...] = ()
    """Slots of the script's facts that an ASK, OFFER or PROPOSE asks for or puts up. A
    proposal that names a value for one that is held back asks for it."""
    unknown: bool = False
    """Whether an ASK is for something that no fact of the script answers, besides slots."""
    wanted: bool | None = None
    """Whether the change that a PROPOSE names is one that the user wants now; None otherwise."""
    refuses: bool = False
    """Whether an ASK, OFFER or PROPOSE refuses something besides."""

    @property
    def declines(self) -> bool:
        """Whether it refuses something, be that all that it does or not."""
        return self.act == AgentAct.REFUSE or self.refuses


class HeardMessage(NamedTuple):
    """A message as it is read: normalised sentences, and which stand under the one before."""

    said: tuple[tuple[str, bool], ...]
    text: str
    changing: frozenset[str]
    """Stems of what the tools of the world do, and of what agents call it."""
    nouns: frozenset[str]
    """Stems of what the world's tables and columns are called."""
    names: frozenset[str]
    """The words of these, as they are."""
    states: tuple[str, ...]
    """What the cells of columns with options may be."""
    cells: frozenset[str]
    """The texts in the world's other cells, normalised."""
    spoken: tuple[tuple[str, bool], ...]
    """All that is said to the user, before anything was left out of ``said``."""
    heard: frozenset[str]
    """The sentences that the user has said."""


def last_words(trace: Sequence[TraceEvent]) -> str:
    """What the agent said after its last call. What it said before waited for nobody: a change
    that was announced and made is no proposal any more."""
    calls = (at for at in reversed(range(len(trace))) if trace[at].kind == EventKind.CALL)
    since = trace[next(calls, -1) + 1 :]
    return proposal(since, len(since)) or proposal(trace, len(trace))


def is_babble(message: HeardMessage) -> bool:
    """Whether a message says the same again and again, as broken models do. Two rows of a list may
    say the same."""
    long = Counter(one for one, _ in message.said if len(one.split()) > _ECHO)
    again = max(long.values(), default=0)
    return again >= _AGAIN or tells.STUTTER.search(message.text) is not None


def spoken_part(raw: str) -> str:
    """A message without thoughts, calls and code."""
    for pattern in phrases.UNSPOKEN:
        raw = pattern.sub("\n", raw)
    for pattern, shorter in phrases.SHORTER:
        raw = pattern.sub(shorter, raw)
    return raw


def heard_before(trace: Sequence[TraceEvent]) -> frozenset[str]:
    """The sentences that the user has said, but for the shortest."""
    return frozenset(
        one
        for event in trace
        if event.kind == EventKind.USER
        for one, _ in sentences(event.text)
        if len(one.split()) >= _ECHO
    )


def heard_message(world: World, raw: str, trace: Sequence[TraceEvent]) -> HeardMessage:
    """A message without what is not said to the user, what the user said, and pleasantries."""
    heard = heard_before(trace)
    spoken = tuple(sentences(spoken_part(raw)))
    said = tuple(
        (one, nested)
        for sentence, nested in spoken
        if (one := tells.NOTHING_ELSE.sub("", sentence))
        and tells.WORD.search(one)
        and one not in heard
        and not phrases.CLOSING.search(one)
        and not _is_users(world, one)
    )
    words = world_words(world)
    return HeardMessage(
        said, "\n".join(one for one, _ in said), words.changing, words.nouns, words.names,
        words.states, words.cells, spoken, heard,
    )  # fmt: skip


def _is_users(world: World, sentence: str) -> bool:
    """Whether a sentence is in the voice of a user: of what is mine."""
    nouns = {table.key.removesuffix("_id").replace("_", " ") for table in world.tables}
    mine = (*tells.MINE, *nouns)
    return any(
        told.startswith(mine) for found in tells.MY.finditer(sentence) for told in found.groups("")
    )


def names_change(world: World, message: HeardMessage, said: str) -> bool:
    """Whether a text says what tools do, names one, or a wish."""
    return (
        bool(deeds_in(message, said))
        or names_tool(world, said)
        or phrases.WISH.search(said) is not None
    )


def deeds_in(message: HeardMessage, said: str) -> frozenset[str]:
    """The stems of a text that are of changes, and not what tables and columns are called."""
    words = tells.WORD.findall(said)
    return changes_in(message, " ".join(one for one in words if one not in message.names))


def changes_in(message: HeardMessage, said: str) -> frozenset[str]:
    """The stems of a text that are of changes, whatever their form: annulled, withdrawn."""
    words = stems(tells.PARTICIPLE.sub(r"\1", said))
    words |= {one[:-1] for one in words if one[-2:-1] == one[-1:]}
    return words & message.changing


def names_deed(world: World, said: str) -> bool:
    """Whether a text has a word of the name of a tool that changes something."""
    words = stems(said)
    tables = frozenset[str]().union(*(name_stems(one.name) for one in world.tables))
    return any(words & (name_stems(one.tool.name) - tables) for one in changing_tools(world))


def names_tool(world: World, said: str) -> bool:
    return any(
        next(places_of(one.tool.name, said, False), None) is not None
        for one in changing_tools(world)
    )
