"""English questions from tool names and plans, by grammar: the offline writer of tasks.

A reading tool becomes a noun phrase (``get_tool_shed(grower)``: "the tool shed of <grower>"),
nested where a parameter comes from an earlier result; an acting tool becomes an order
("create the table with query ..."). Words come from names and parameters, so that a question
and the tools it needs share vocabulary.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

from astra.records.graph import ArgumentOrigin, ArgumentSource, ChainStep
from astra.records.tool import Tool
from astra.tasking.checks import spoken
from astra.text.values import ENTITY

_TOKEN = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_READING = "get find fetch retrieve lookup show view count list search check"
READING = frozenset(_READING.split())
_ACTING = (
    "add append apply book calculate cancel clear convert copy create delete describe divide "
    "evaluate execute insert log merge move multiply open read remove rename run send set sort "
    "start stop subtract update write"
)
ACTING = frozenset(_ACTING.split())
_ABOUT = re.compile(r"(Get|Count) the ([a-z ]+?) of an? [a-z ]+([:.]| with )")
"""What a reading tool is about, where its description says it in these words."""
_ON = frozenset({"date", "day", "since"})
_IN = frozenset({"month", "year", "season"})

Omitted = tuple[int, str] | None
"""Step and parameter to leave out of the question (kind missing_parameter)."""


def words(name: str) -> list[str]:
    """The lower-case words of a name in snake or camel case."""
    return [part.lower() for part in _TOKEN.findall(name)]


class PlanText:
    """Phrases for the steps of one plan."""

    def __init__(
        self, plan: Sequence[ChainStep], tools: Mapping[str, Tool], omitted: Omitted = None
    ) -> None:
        self.plan = plan
        self.tools = tools
        self.omitted = omitted

    def sinks(self) -> list[int]:
        """Steps whose result no later step uses: what the user wants to know, in plan order."""
        used = {source.step for step in self.plan for source in step.arguments.values()}
        return [index for index in range(len(self.plan)) if index not in used]

    def is_order(self, index: int) -> bool:
        """Whether a step's tool acts, so that the user orders it instead of asking."""
        parts = words(self.plan[index].tool)
        return bool(parts) and parts[0] in ACTING and not self._about(index)

    def _about(self, index: int) -> re.Match[str] | None:
        return _ABOUT.match(self.tools[self.plan[index].tool].description)

    def _fields(self, index: int) -> list[str]:
        """The fields of a described record; none of any other result."""
        about = self._about(index)
        schema = self.tools[self.plan[index].tool].output_schema or {}
        return list(schema.get("properties", ())) if about and about[3] == ":" else []

    def head(self, index: int) -> str:
        """The bare noun of a step: "tool shed", "number of beds"; of a record, its last field."""
        if fields := self._fields(index):
            return " ".join(words(fields[-1]))
        if about := self._about(index):
            return f"number of {about[2]}" if about[1] == "Count" else about[2]
        parts = words(self.plan[index].tool)
        if parts[0] in READING and len(parts) > 1:
            noun = " ".join(parts[1:])
            return f"number of {noun}" if parts[0] == "count" else noun
        return " ".join(parts)

    def tail(self, index: int, nested: bool = True) -> str:
        """What follows the noun: "of Amber Cove with crop corn". May be empty."""
        step = self.plan[index]
        subject = self.subject(index)
        about: list[str] = []
        phrases: list[str] = []
        others: list[str] = []
        for name, source in step.arguments.items():
            if source.origin is ArgumentOrigin.DEFAULT or self.omitted == (index, name):
                continue
            text = self._argument(source, nested)
            if name == subject:
                about.append(f"of {text}")
            elif name in _ON:
                phrases.append(f"on {text}")
            elif name in _IN:
                phrases.append(f"in {text}")
            else:
                others.append(f"{' '.join(words(name))} {text}")
        if others:
            phrases.append(f"with {_listed(others)}")
        return " ".join([*about, *phrases])

    def _argument(self, source: ArgumentSource, nested: bool) -> str:
        if source.origin is ArgumentOrigin.OUTPUT and source.step is not None:
            noun = self._part(source.step, source.path)
            return self.noun(source.step, source.path) if nested else f"that {noun}"
        return spoken(source.value)

    def _part(self, index: int, path: Sequence[str | int]) -> str:
        keys = [key for key in path if isinstance(key, str)]
        return " ".join(words(keys[-1])) if keys else self.head(index)

    def noun(self, index: int, path: Sequence[str | int] = ()) -> str:
        """The noun phrase of a step's result, or of the part of it at ``path``."""
        part = self._part(index, path)
        head = self.head(index)
        whole = f"the {head} {self.tail(index)}".strip()
        if self._fields(index):  # a user asks for what a record holds, not for the record
            return f"the {part} {self.tail(index)}"
        return whole if part == head else f"the {part} of {whole}"

    def subject(self, index: int) -> str | None:
        """The parameter that names what a step is about: an entity, or a piped-in result."""
        step = self.plan[index]
        properties = self.tools[step.tool].parameters.get("properties", {})
        for name, source in step.arguments.items():
            schema = properties.get(name, {})
            if source.origin is ArgumentOrigin.OUTPUT or ENTITY in schema:
                return name
        plain = [
            name
            for name in step.arguments
            if properties.get(name, {}).get("type") == "string"
            and not {"enum", "format"} & set(properties.get(name, {}))
        ]
        return plain[0] if plain and not self.is_order(index) else None

    def order(self, index: int) -> str:
        """An order in lower case: "describe the table with table name boats", "add x 3 and y 5"."""
        step = self.plan[index]
        parts = words(step.tool)
        named = [n for n in step.arguments if n in parts or n in ("expression", "query", "insight")]
        if len(step.arguments) == 1 and named and self.omitted != (index, named[0]):
            text = self._argument(step.arguments[named[0]], nested=True)
            return f"{' '.join(parts[:1])} the {' '.join(words(named[0]))} {text}"
        noun = " ".join(parts[1:])
        if not noun:
            return f"{parts[0]} {self.tail(index).removeprefix('with ')}".strip()
        return f"{parts[0]} the {noun} {self.tail(index)}".replace("  ", " ").strip()

    def is_person(self, index: int) -> bool:
        """Whether a step's result is a person, whom one asks for with "who"."""
        schema = self.tools[self.plan[index].tool].output_schema
        return schema is not None and schema.get(ENTITY) == "person"


def question(text: PlanText, rng: random.Random) -> str:
    """One question for the whole plan; the form is drawn among those that fit its shape."""
    sinks = text.sinks()
    if any(text.is_order(index) for index in range(len(text.plan))):
        return _orders(text, rng)
    if len(sinks) == 1:
        chained = [s for s in text.plan[sinks[0]].arguments.values() if s.step is not None]
        if chained and len(text.plan) > 1 and rng.random() < 0.25:
            return _sequence(text, sinks[0], rng)
        return _single(text, sinks[0], rng)
    return _several(text, sinks, rng)


def _single(text: PlanText, index: int, rng: random.Random) -> str:
    noun = text.noun(index)
    forms = ["What is {}?", "Tell me {}.", "Please find {}.", "I need {}.", "Give me {}."]
    if text.is_person(index):
        forms = ["Who is {}?", *forms[1:]]
    verb, *nouns = words(text.plan[index].tool)
    if verb == "count" and text.omitted is None:
        forms = [f"How many {' '.join(nouns)} are there {_loose(text.tail(index))}?", *forms]
    elif verb == "list" and nouns:
        forms = ["What are {}?", *forms[1:]]
    # replace, not format: a value may hold braces
    return rng.choice(forms).replace("{}", noun)


def _loose(tail: str) -> str:
    return re.sub(r"^of ", "for ", tail)


_SEQUENCES = (("Find", ", then tell me"), ("First find", " and then"), ("Look up", ". I need"))


def _sequence(text: PlanText, sink: int, rng: random.Random) -> str:
    source = next(s for s in text.plan[sink].arguments.values() if s.step is not None)
    first = text.noun(source.step or 0, source.path)
    then = f"the {text.head(sink)} {text.tail(sink, nested=False)}"
    lead, middle = rng.choice(_SEQUENCES)
    return f"{lead} {first}{middle} {then}."


def _several(text: PlanText, sinks: list[int], rng: random.Random) -> str:
    tails = {text.tail(index) for index in sinks}
    heads = {text.head(index) for index in sinks}
    counts = any(head.startswith("number of ") for head in heads)
    if len(tails) == 1 and len(heads) > 1:
        joined = f"{_listed([f'the {text.head(i)}' for i in sinks])} {min(tails)}".strip()
    elif len(heads) == 1 and len(tails) > 1:
        plural = f"the {min(heads)} "
        joined = plural + _listed([text.tail(i) for i in sinks])
    else:
        joined = _listed([text.noun(i) for i in sinks])
    forms = ["What are {}?", "Tell me {}.", "Please find {}.", "I need {}.", "Give me both {}."]
    if len(sinks) != 2 or len(heads) != 2:
        forms.pop()
    if counts:  # "What are the number of ..." is no English
        forms = forms[1:]
    return rng.choice(forms).replace("{}", joined)


def _orders(text: PlanText, rng: random.Random) -> str:
    parts: list[str] = []
    for index in range(len(text.plan)):
        if text.is_order(index):
            parts.append(text.order(index))
        elif index in text.sinks():
            parts.append(f"find {text.noun(index)}")
    if not parts:
        parts = [f"find {text.noun(len(text.plan) - 1)}"]
    joined = ", then ".join(parts)
    lead = rng.choice(["", "please ", "I want you to "])
    sentence = f"{lead}{joined}."
    return sentence[0].upper() + sentence[1:]


def _listed(items: Sequence[str]) -> str:
    if len(items) == 1:
        return items[0]
    return f"{', '.join(items[:-1])} and {items[-1]}"
