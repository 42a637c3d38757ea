"""What the user and the agent say in goals that are made by rule: sentences with some variety."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from astra.records.state import Row
from astra.records.world import WorldTool
from astra.worlds.references import Predicate
from astra.worlds.sentences import with_articles
from astra.worlds.view import WorldView

_HELLO = ("", "Hello. ", "Hi there. ", "Good morning. ", "Hi, I need some help. ")
_PLEASE = ("Please {wish}.", "I would like you to {wish}.", "Could you {wish}?",
           "I need you to {wish}.", "Can you {wish}, please?")  # fmt: skip
_NEXT = ("Also, {wish}.", "Then {wish}.", "And {wish}.", "Besides, {wish}.")
_AGREED = ("Go ahead at once, I agree to it.", "You have my consent, no need to ask again.",
           "I am sure about this, so simply do it.", "I confirm this, just do it.")  # fmt: skip
_YES = ("Yes, please do.", "Yes, that is right.", "That is fine, go ahead.", "Correct, I agree.")
_ASK = ("What is the {column} of {row}?", "Please tell me the {column} of {row}.",
        "I want to know the {column} of {row}.")  # fmt: skip
_VERBS = {"cancel": ("cancel", "call off"), "extend": ("extend", "prolong"),
          "change": ("change", "alter"), "make": ("make", "set up"), "add": ("add",),
          "open": ("open",), "remove": ("remove", "take away"), "move": ("move",)}  # fmt: skip
LEAST, MOST = ("lowest", "earliest"), ("highest", "latest")
"""How a row is named by the least and the greatest cell: of a number, of a date."""


def words(name: str) -> str:
    return name.replace("_", " ")


def form(value: Any, rng: random.Random | None = None) -> str:
    """A value as somebody writes it: dates in one of two ways, codes without underscores."""
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        if rng is not None and rng.random() < 0.4:
            day = date.fromisoformat(value)
            return f"{day.day} {day:%B} {day.year}"
        return value
    return words(str(value))


def row_phrase(view: WorldView, table: str, predicate: Predicate, rng: random.Random) -> str:
    """A row by what it is."""
    noun, mine = view.noun(table), "my " if view.is_owned(table) else "the "
    cells = " and ".join(f"{words(name)} {form(cell, rng)}" for name, cell in predicate.where)
    told = f" with {cells}" if cells else ""
    for column, adjectives in ((predicate.least, LEAST), (predicate.most, MOST)):
        if column:
            how = adjectives[isinstance_date(view, table, column)]
            those = f"of {mine.strip()} {words(table)}{told}" if mine == "my " else f"{noun}{told}"
            return f"the one {those} with the {how} {words(column)}"
    return f"{mine}{noun}{told}"


def isinstance_date(view: WorldView, table: str, column: str) -> bool:
    return view.column(table, column).type == "date"


def key_phrase(view: WorldView, table: str, key: str) -> str:
    """A row by its key."""
    return f"{'my ' if view.is_owned(table) else ''}{view.noun(table)} {key}"


def wish_phrase(
    view: WorldView, tool: WorldTool, phrases: Mapping[str, str], rng: random.Random
) -> str:
    """What a call is for, in the user's words: the tool's sentence with the arguments in it.

    ``phrases`` says each parameter but the party; those for rows are whole noun phrases.
    """
    rest = tool.tool.description.rstrip(".").partition(" ")[2]
    text = f"{rng.choice(verbs(tool))} {rest}"
    party = view.noun(view.party.name)
    text = re.sub(rf"\bthe ([\w ]+?) of an? {party}\b", r"my \1", text)
    text = re.sub(rf"\bof an? {party}\b", "of mine", text)
    text = re.sub(rf"\bfor an? {party}\b", "for me", text)
    left: list[str] = []
    for name, phrase in phrases.items():
        table = view.table_of(name)
        if table is None:
            counted = words(name).removesuffix("s") if phrase == "1" else words(name)
            short = re.sub(rf"\bsome {words(name)}\b", f"{phrase} {counted}", text)
            if short == text:
                left.append(f"{words(name)} {phrase}")
            text = short
            continue
        pattern = rf"\b(?:an?|another) {re.escape(view.noun(table.name))}\b"
        swapped = re.sub(pattern, lambda _, said=phrase: said, text, count=1)
        if swapped == text or (tool.role == "create" and text.find("make") == 0):
            left.append(phrase)
            continue
        text = swapped
    text = with_articles(text)
    if left and tool.role == "update":  # what is to be, not what tells the row from others
        return f"{text}, with {', '.join(left)} from now on"
    return f"{text} ({', '.join(left)})" if left else text


def wishes(phrases: list[str], rng: random.Random) -> list[str]:
    """Several wishes of one turn, a sentence each."""
    first = rng.choice(_PLEASE).format(wish=phrases[0])
    return [first, *(rng.choice(_NEXT).format(wish=phrase) for phrase in phrases[1:])]


def verbs(tool: WorldTool) -> tuple[str, ...]:
    """The verbs by which users ask for what a tool does: that of its sentence, and its synonyms."""
    verb = tool.tool.description.partition(" ")[0].lower()
    return _VERBS.get(verb, (verb,))


def introduction(view: WorldView, known: Row, rng: random.Random) -> str:
    """Who the user is: the values that the finding tool takes."""
    told = " and ".join(f"my {words(name)} is {value}" for name, value in known.items())
    return f"{rng.choice(_HELLO)}{told[0].upper()}{told[1:]}. "


def own(known: Row) -> Row:
    """What the user says of themselves, by slots that no argument has."""
    return {f"own {name}": value for name, value in known.items()}


def question(view: WorldView, table: str, column: str, row: str, rng: random.Random) -> str:
    """What asks for a cell: a count, such as of heads, by the number of them."""
    asked, told = view.column(table, column), words(column)
    if asked.type == "integer" and not asked.unit and told.endswith("s"):
        told = f"number of {told}"
    return rng.choice(_ASK).format(column=told, row=row)


def agreement(rng: random.Random, beforehand: bool) -> str:
    return rng.choice(_AGREED if beforehand else _YES)


def answer_text(column: str, value: Any) -> str:
    """How the agent tells a value."""
    return f"The {words(column)} is {form(value)}."


def listed(arguments: Row) -> str:
    """The arguments of a call as the agent announces them."""
    return ", ".join(f"{words(name)} {form(value)}" for name, value in arguments.items())


def rephrased(sentence: str) -> list[str]:
    """A wish or a question of these templates in the others' words, itself first; one that is of
    none stays alone."""
    for templates in ((*_PLEASE, *_NEXT), _ASK):
        for one in templates:
            names = re.findall(r"\{(\w+)\}", one)
            pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+)", re.escape(one))
            if found := re.fullmatch(pattern, sentence):
                given = {name: found[name] for name in names}
                others = _PLEASE if templates != _ASK else _ASK
                return [sentence, *(t.format(**given) for t in others if t != one)]
    return [sentence]
