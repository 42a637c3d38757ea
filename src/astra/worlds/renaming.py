"""A conversation or a goal once more under other names, so that names have to be read.

Tables, columns, tools, codes of refusals and the prefixes of keys get names of made-up or other
words, the same in every text of the conversation: documents, policy, what was said, called and
answered; of a goal, in its world's rows, rules and tools' code as well. What happened stays as it
was. A small policy that meets few worlds learns their names by heart; of names that never come
twice it can only learn to copy them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import BaseModel

from astra.records.base import Record, content_id
from astra.records.trajectory import SFTSample
from astra.records.world import OUTCOMES, World, WorldGoal
from astra.worlds.composition import lexicon
from astra.worlds.name_draw import KEPT, NameDraw

Model = TypeVar("Model", bound=BaseModel)
_FIELDS = frozenset(
    "type format properties required enum items description title default examples minimum maximum "
    "pattern string number integer boolean object array null date true false role content user "
    "assistant system tool".split()
)
"""Words that mean something in a schema or a message: a column of that name keeps it."""
_ENDING = frozenset({"decline_request", "hand_over"})
_KEPT_VERBS = 0.5
"""How often a word of a tool's name that is no noun stays."""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Letters of prefixes of keys: all that a world's nouns may begin with."""


def renamed(sample: SFTSample, world: World, copy: int, words: Sequence[str] = ()) -> SFTSample:
    """The conversation with other names, drawn by its id and ``copy``.

    Names are drawn from ``words`` as well, as they are or with an ending: give those that the
    policy's tokenizer knows, since a policy learns to copy the tokens that it has met.
    """
    rng = random.Random(int(content_id(["renamed", sample.trajectory_id, copy]), 16))
    change = _changes(world, NameDraw(rng, words))
    kept = sample.model_dump(mode="json", exclude={"id"})
    told = {
        "tools": _mapped(sample.tools, change), "messages": _mapped(sample.messages, change),
        "trajectory_id": f"{sample.trajectory_id}.{copy}",
    }  # fmt: skip
    return SFTSample.model_validate(kept | told)


def renamed_goal(
    goal: WorldGoal, world: World, copy: int, words: Sequence[str] = ()
) -> tuple[WorldGoal, World]:
    """A goal of the world, and the world, with other names, drawn by the goal and ``copy``.

    Keys of rows that calls make are as they were but for their table: ``goal_copies.py``.
    """
    told = goal.model_dump(mode="json")
    rng = random.Random(int(content_id(["renamed", world.id, told, copy]), 16))
    change = _changes(world, NameDraw(rng, words))
    return _renamed_record(goal, change), _renamed_record(world, change)


def _changes(world: World, draw: NameDraw) -> Callable[[str], str]:
    """What is done to each text: names of tools and codes first, then words, then keys."""
    words = {old: new for old, new in _words(world, draw) if old not in _FIELDS}
    spelled = {form(old): form(new) for old, new in words.items() for form in _FORMS}
    swap_words = _swap(spelled, r"(?<![A-Za-z])({})(?![A-Za-z])")
    tools = {one.tool.name: one.tool.name for one in world.tools}
    taken: set[str] = set()
    for name in tools:
        if name not in _ENDING:
            tools[name] = next(new for new in _names(name, words, draw) if new not in taken)
        taken.add(tools[name])
    tools |= _codes(world, draw)
    swap_tools = _swap(tools, r"(?<![A-Za-z_])({})(?![A-Za-z_])")
    old = {_prefix(rows[0][key]) for key, rows in _keyed(world)}
    pairs = [a + b for a in _LETTERS for b in _LETTERS if a + b not in old]
    prefixes = dict(zip(sorted(old), draw.rng.sample(pairs, len(old)), strict=True))
    swap_keys = _swap(prefixes, r"(?<![A-Za-z])({})(?=[0-9]{{4}})")
    # A marker keeps the names of tools and codes out of the words' sight.
    marked = {new: f"\x00{at}\x00" for at, new in enumerate(tools.values())}

    def change(text: str) -> str:
        text = swap_tools(text, lambda new: marked[new])
        text = swap_keys(swap_words(text, str), str)
        for new, mark in marked.items():
            text = text.replace(mark, new)
        return text

    return change


def _codes(world: World, draw: NameDraw) -> dict[str, str]:
    """The codes of ``decline_request``, each with what it is called instead."""
    used: set[str] = set()
    codes = dict.fromkeys([*(rule.reason for rule in world.rules), *world.refusals])
    return {one: _snake(f"{draw.noun(used)} {draw.noun(used)}") for one in codes}


def _keyed(world: World) -> Iterator[tuple[str, Any]]:
    for table in world.tables:
        if table.name != OUTCOMES and world.rows[table.name]:
            yield table.key, world.rows[table.name]


def _prefix(key: str) -> str:
    return re.sub(r"[0-9].*", "", key)


def _words(world: World, draw: NameDraw) -> Iterator[tuple[str, str]]:
    """Nouns with their plurals, and columns, each with what it is called instead."""
    used: set[str] = set()
    for table in world.tables:
        if table.name == OUTCOMES:
            continue
        noun = draw.noun(used)
        yield table.name.replace("_", " "), _many(noun)
        yield table.key.removesuffix("_id").replace("_", " "), noun
        for column in table.columns:
            if column.name != table.key and not column.references and column.name not in KEPT:
                yield column.name.replace("_", " "), draw.column(used)


def _many(noun: str) -> str:
    """The plural of a noun, as the lexicon has it or by rule."""
    for group in lexicon()["nouns"].values():
        for word in group:
            one, known, many = word.partition("/")
            if known and one == noun:
                return many
    if re.search("[^aeiou]y$", noun):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if re.search("(s|x|z|ch|sh)$", noun) else f"{noun}s"


def _names(name: str, words: dict[str, str], draw: NameDraw) -> Iterator[str]:
    """Names for a tool without end: its nouns renamed, its other words kept or replaced, in the
    style that it has."""
    camel = name != name.lower()
    spaced = re.sub(r"([A-Z])", r" \1", name).lower() if camel else name.replace("_", " ")
    starts = [verb.partition("_")[0] for group in lexicon()["verbs"].values() for verb in group]
    verbs = [one for one in starts if "{" not in one]
    parts = _swap(words, r"(?<![a-z])({})(?![a-z])")(spaced, lambda new: f"<{new}>").split("<")
    while True:
        turned: list[str] = []
        for part in parts:
            noun, closed, rest = part.rpartition(">")
            turned += noun.split() if closed else []
            for word in rest.split():
                other = draw.rng.choice([*verbs, *(draw.word(set(), verbs) for _ in range(4))])
                turned.append(word if draw.rng.random() < _KEPT_VERBS else other)
        first, *others = turned
        yield first + "".join(map(str.capitalize, others)) if camel else "_".join(turned)


def _swap(pairs: dict[str, str], pattern: str) -> Callable[[str, Callable[[str], str]], str]:
    """A function that replaces each whole key in a text by its value, the longest first."""
    keys = "|".join(map(re.escape, sorted(pairs, key=lambda one: (-len(one), one))))
    found = re.compile(pattern.format(keys))
    return lambda text, told: found.sub(lambda match: told(pairs[match[1]]), text)


def _snake(words: str) -> str:
    return words.replace(" ", "_")


_FORMS: tuple[Callable[[str], str], ...] = (str, _snake, str.capitalize)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """A value with all its texts changed, keys among them; names of a record's fields stay."""
    if isinstance(value, BaseModel):
        return _renamed_record(value, change)
    if isinstance(value, str):
        return value if isinstance(value, StrEnum) else change(value)
    if isinstance(value, list | tuple):
        return type(value)(_mapped(one, change) for one in value)
    if isinstance(value, dict):
        return {_mapped(key, change): _mapped(one, change) for key, one in value.items()}
    return value


def _renamed_record(record: Model, change: Callable[[str], str]) -> Model:
    """The record anew, so that its id is that of what it says now."""
    fields = {name: _mapped(getattr(record, name), change) for name in type(record).model_fields}
    if isinstance(record, Record):
        del fields["id"]
    return type(record)(**fields)
