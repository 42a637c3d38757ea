"""Whether a plan that was worked out from a question alone makes the calls that are meant."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import permutations, product
from typing import Any

from astra.records.graph import ArgumentOrigin, ArgumentSource, ChainStep
from astra.records.tool import Tool
from astra.tasking.checks import TaskProblem
from astra.tasking.stated import settled
from astra.text.similarity import jaccard
from astra.text.verbs import singular
from astra.text.words import plain, says, words

FREE_TEXT_WORDS = 6
"""How many words make a value a text in the caller's own words: a note, a message."""
FREE_TEXT_SHARED = 0.5
"""The share of their words that two such texts have in common if they say the same."""
MOST_PAIRINGS = 720
"""How many ways to pair the repeats of tools are tried."""
_NUMBER = re.compile(r"-?(0|[1-9]\d*|[1-9]\d{0,2}(,\d{3})+)(\.\d+)?(e[+-]?\d+)?")
_ENGLISH = re.compile(r"(?<![\w-])[a-z]+(?![\w-])")
"""A word by itself: no part of a name, an id or a code."""
_ENDS = " \t\n.,;:!?。，；：！？"


def check_same_calls(
    question: str,
    planned: Sequence[ChainStep],
    found: Sequence[ChainStep],
    tools: Mapping[str, Tool],
) -> None:
    """Raises TaskProblem unless ``found`` makes the calls of ``planned``.

    The same tools as often, in an order in which results are there before they are used; for what
    the user gives the same values, whatever their form; for what a call returns the same call.
    What a schema's default says need not be found, and what the agent picks may be any value.
    """
    wanted, got = (Counter(step.tool for step in plan) for plan in (planned, found))
    if wanted != got:
        detail = f"{[step.tool for step in found]} instead of {[step.tool for step in planned]}"
        raise TaskProblem("replan_other_tools", detail)
    first, found = "", settled(question, found, tools)
    for pairing in _pairings(planned, found):
        problem = _difference(planned, found, pairing)
        if not problem:
            return
        first = first or problem
    raise TaskProblem("replan_other_values", first)


def said_anew(
    question: str, planned: Sequence[ChainStep], found: Sequence[ChainStep]
) -> tuple[ChainStep, ...]:
    """``planned`` with the words that ``question`` has for a value where its own do not stand.

    ``found`` makes the same calls and quotes the question's words.
    """
    quoted = [
        (step.tool, name, source)
        for step in found
        for name, source in step.arguments.items()
        if source.said and says(source.said, question)
    ]

    def renewed(tool: str, name: str, source: ArgumentSource) -> ArgumentSource:
        if source.origin is not ArgumentOrigin.TASK or (
            source.said and says(source.said, question)
        ):
            return source
        for other_tool, other_name, other in quoted:
            if (tool, name) == (other_tool, other_name) and same_value(source.value, other.value):
                return source.model_copy(update={"said": other.said})
        return source

    return tuple(
        ChainStep(
            tool=step.tool,
            arguments={name: renewed(step.tool, name, s) for name, s in step.arguments.items()},
        )
        for step in planned
    )


def same_value(left: Any, right: Any) -> bool:
    """Whether two values mean the same to a tool.

    Numbers count by value and texts without regard to case, spaces, quotation marks and plural;
    two long texts are the same if they share most words. Lists may be in another order.
    """
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same_value(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_value, _ordered(left), _ordered(right)))
    if isinstance(left, list | Mapping) or isinstance(right, list | Mapping):
        return False
    if (number := _number(left)) is not None:
        return number == _number(right)
    texts = [plain(_text(value)).strip(_ENDS) for value in (left, right)]
    if texts[0] == texts[1] or _in_singular(texts[0]) == _in_singular(texts[1]):
        return True
    bags = [words(text) for text in texts]
    free = min(map(len, bags)) >= FREE_TEXT_WORDS
    return free and jaccard(set(bags[0]), set(bags[1])) >= FREE_TEXT_SHARED


def _in_singular(text: str) -> str:
    """A text in lower case without plurals: whoever looks for tower fans looks for a tower fan."""
    return _ENGLISH.sub(lambda word: singular(word[0]), text)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _ordered(values: list[Any]) -> list[Any]:
    return sorted(values, key=lambda value: plain(_text(value)))


def _number(value: Any) -> Decimal | None:
    """The number that a value is, in whatever form; a code such as ``007`` is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = str(value).strip()
    return Decimal(text.replace(",", "")) if _NUMBER.fullmatch(text) else None


def _pairings(
    planned: Sequence[ChainStep], found: Sequence[ChainStep]
) -> Iterator[tuple[int, ...]]:
    """Every way to give each planned step the index of a found one with its tool."""
    places: dict[str, list[int]] = {}
    for index, step in enumerate(found):
        places.setdefault(step.tool, []).append(index)
    tools = list(places)
    ways = product(*(permutations(places[tool]) for tool in tools))
    for _, way in zip(range(MOST_PAIRINGS), ways, strict=False):
        taken = {tool: iter(indices) for tool, indices in zip(tools, way, strict=True)}
        yield tuple(next(taken[step.tool]) for step in planned)


def _difference(
    planned: Sequence[ChainStep], found: Sequence[ChainStep], pairing: Sequence[int]
) -> str:
    """The first argument that differs when steps are paired so; empty if none does."""
    for step, index in zip(planned, pairing, strict=True):
        arguments = found[index].arguments
        for name in {**step.arguments, **arguments}:
            wanted, got = step.arguments.get(name), arguments.get(name)
            if not _agree(wanted, got, index, pairing):
                return f"{index}.{name} of {step.tool}: {_shown(got)} instead of {_shown(wanted)}"
    return ""


def _agree(
    wanted: ArgumentSource | None,
    got: ArgumentSource | None,
    index: int,
    pairing: Sequence[int],
) -> bool:
    if wanted is None or wanted.origin is ArgumentOrigin.DEFAULT:
        default = wanted.value if wanted else None
        return got is None or (
            got.origin is not ArgumentOrigin.OUTPUT
            and (got.origin is ArgumentOrigin.DEFAULT or same_value(got.value, default))
        )
    if got is None:
        return wanted.origin is ArgumentOrigin.CHOSEN
    if wanted.origin is ArgumentOrigin.CHOSEN:
        # A value that the question says, or that a result gives, is not free.
        unsaid = got.origin is not ArgumentOrigin.OUTPUT and not got.said
        picked = got.origin is ArgumentOrigin.CHOSEN
        return picked or (unsaid and same_value(wanted.value, got.value))
    if wanted.origin is ArgumentOrigin.OUTPUT:
        source = None if wanted.step is None else pairing[wanted.step]
        return source is not None and got.step == source < index
    if got.origin is not ArgumentOrigin.TASK:
        return False
    same_words = bool(wanted.said) and plain(wanted.said) == plain(got.said)
    return same_words or same_value(wanted.value, got.value)


def _shown(source: ArgumentSource | None) -> str:
    if source is None:
        return "nothing"
    if source.origin is ArgumentOrigin.OUTPUT:
        return f"a result of call {source.step}"
    if source.origin is ArgumentOrigin.CHOSEN:
        return "any value"
    return repr(source.value)
