"""What no document and no error of a tool may state: answers of any step, and gold arguments.

An agent reads both before it knows them, and could leave out the calls that give them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from astra.arena.answers import same_value
from astra.envsynth.known import leaves_of
from astra.qa.knowledge.references import literals
from astra.records.base import canonical_json
from astra.records.qa import QAInstance, SubQuestion
from astra.records.tool import Tool
from astra.text.words import has_cjk, numbers, says, stands_in

MIN_NUMBER = 10
"""Smaller numbers stand in too many texts to tell anything."""
MIN_CATEGORIES = 3
"""Values that an enumeration needs where no column says what all of them are; our choice."""
_APART = " | "
"""Stands between texts that belong to different places, so that no phrase is found across them."""


@dataclass(frozen=True)
class Secrets:
    """The values of an instance that its tools' texts must not state."""

    answers: tuple[Any, ...] = ()
    """The scalars of every answer."""
    given: tuple[str, ...] = ()
    """The gold arguments that are text; common words are none, since tools are named after them."""
    columns: tuple[frozenset[str], ...] = ()
    """The text cells of each column: an enumeration may list a whole column."""


NO_SECRETS = Secrets()


def secrets_of(instance: QAInstance, calls: Sequence[Mapping[str, Any]] = ()) -> Secrets:
    """The secrets of an instance; ``calls``: gold arguments beyond those that operations state."""
    found_out = [step.answer for step in instance.sub_questions if not _is_written(step)]
    answers = [instance.final_answer, *found_out]
    stated = [
        value
        for step in instance.sub_questions
        if step.operation is not None
        for value in literals(step.operation)
    ]
    units = {answer.unit for answer in answers}
    given = [value for _, value in leaves_of([stated, *calls]) if isinstance(value, str)]
    found = {canonical_json(v): v for answer in answers for _, v in leaves_of(answer.value)}
    return Secrets(
        answers=tuple(found.values()),
        given=tuple(
            dict.fromkeys(
                value
                for value in given
                if value not in units and (value in instance.entities or not _is_common(value))
            )
        ),
        columns=tuple(
            frozenset(cell for cell in cells if isinstance(cell, str))
            for table in instance.knowledge
            for cells in zip(*table.rows, strict=True)
        ),
    )


def _is_written(step: SubQuestion) -> bool:
    """Whether a step's answer is a cell that its own call writes: nobody has to find that out."""
    cells = [cell for write in step.writes for cell in write.values.values()]
    return any(same_value(step.answer.value, cell) for cell in cells)


def _is_common(value: str) -> bool:
    """Whether text may be words that any tool uses ("unpaid", "for sale"): all in lower case, or in
    a script that has no case.
    """
    words = re.split(r"[ -]", value)
    return has_cjk(value) or (value.islower() and all(word.isalpha() for word in words))


def told_by_document(tool: Tool, secrets: Secrets) -> Any:
    """The first secret that the document states, as an example, default or word; None if none."""
    open_parts = [
        tool.name,
        tool.description,
        *_without_categories([tool.parameters, tool.output_schema], secrets),
    ]
    text = texts_in(open_parts)
    return next((one for one in (*secrets.answers, *secrets.given) if mentions(text, one)), None)


def told_by_error(error: str, secrets: Secrets, arguments: Mapping[str, Any]) -> Any:
    """The first secret that an error states and its call did not; None if none."""
    asked = [value for _, value in leaves_of(arguments)]
    stated, text = unescaped(error), unescaped(texts_in(arguments))
    return next(
        (
            one
            for one in (*secrets.answers, *secrets.given)
            if one not in asked and mentions(stated, one) and not mentions(text, one)
        ),
        None,
    )


def texts_in(value: Any) -> str:
    """The keys, texts and other scalars of a JSON value, each on its own in one text.

    As JSON they would be searched in vain: there a line break is the letter n before a word.
    """
    return _APART.join(_texts(value))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    else:
        yield value if isinstance(value, str) else json.dumps(value)


def unescaped(text: str) -> str:
    """A text with a space for each line break that it quotes, as a KeyError does its message."""
    return re.sub(r"\\[nrt]", " ", text)


def mentions(text: str, value: Any) -> bool:
    """Whether ``text`` states the value as a whole word or number, of a list or record all parts.

    Too short values never count. Names of one word count only as they are written, since they may
    be common words.
    """
    if isinstance(value, list | dict):
        parts: list[Any] = list(value.values()) if isinstance(value, dict) else value
        return bool(parts) and all(mentions(text, part) for part in parts)
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, int | float):
        return abs(value) >= MIN_NUMBER and Decimal(str(value)) in numbers(text)
    phrase = len(value.split()) > 1 or any(letter.isdigit() for letter in value)
    return len(value) >= 2 and (says(value, text) if phrase else stands_in(value, text))


def _without_categories(schemas: list[Any], secrets: Secrets) -> Iterator[Any]:
    """The schemas without enumerations that list all there is of something."""
    for schema in schemas:
        if isinstance(schema, dict):
            yield {
                key: list(_without_categories([value], secrets))
                for key, value in schema.items()
                if not (key == "enum" and _is_categories(value, secrets))
            }
        elif isinstance(schema, list):
            yield list(_without_categories(schema, secrets))
        else:
            yield schema


def _is_categories(listed: Any, secrets: Secrets) -> bool:
    """Whether an enumeration lists a whole column or, of what no column has, several values."""
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        return False
    touched = [cells for cells in secrets.columns if cells & set(listed)]
    if touched:
        return any(len(cells) > 1 and cells <= set(listed) for cells in touched)
    return len(set(listed)) >= MIN_CATEGORIES
