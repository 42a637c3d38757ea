"""What the agent's messages claim about one cell.

A value is told once it is claimed, and nothing else is claimed beside it.

A sentence that states one value of the column claims it of the row that it names, or of the one
asked about where it names none. Of several values those count that stand in a clause with the
row's key. Nothing is claimed by a question, by what is denied, or by one value or another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from astra.arena.answers import final_matches, normalise
from astra.arena.statements import (
    dates_in,
    day,
    number,
    numbers_in,
    places_of,
    sentences,
    states,
)
from astra.arena.telling import Mention, clauses, is_either, is_question, is_told_in
from astra.records.qa import Answer, AnswerType

_PAST = re.compile(r"\b(?:was|were|had been|before|previous(?:ly)?|earlier|former(?:ly)?|old|from|"
                   r"used to|instead of|up|down|originally|so far|until now)\b")  # fmt: skip
_ANOTHER = re.compile(r"\b(?:another|other|remaining)((?:\s+\w+){1,3})")
_SUPPOSED = re.compile(
    r"(?<!\bas )\b(?:you|we|i)\s+(?:can|may|could|might|want)\b|"
    r"\b(?:if|once|when|unless|as soon as)\s+(?:it|this|that|the|you|we|i)\b(?!.*,)"
)
"""What may come to be is not told."""
_COPULA = re.compile(r"(?:\b(?:is|are|was|be|as|to|now|currently|still|already|state|status|it|"
                     r"perhaps|maybe|possibly|or)|['’]s|[:=])\W*(?:an?\s|the\s)?\W*$")  # fmt: skip
_NAMES = re.compile(r"[^\s|()\[\]{},;:\"'’“”!?#/]+")
_LISTED = re.compile(r"\W*(?:and|or|nor|versus)?\W*(?:(?:an?|the|perhaps|maybe|even)\s)?\W*")
_WORD = re.compile(r"[^\W_]+")
_BARE = 4
"""A sentence of so few words is about what was asked."""


class ToldValue(NamedTuple):
    """A value claimed of rows: those that a sentence names (``about``), else the one asked about.
    ``hedged``: as what may be, of another row that is not named, or beside nothing that says what
    it is; beside others said so it tells nothing."""

    value: Any
    right: bool
    about: frozenset[str] = frozenset()
    hedged: bool = False


@dataclass(frozen=True)
class AskedCell:
    """The cell that is asked about."""

    answer: Answer
    column: str
    keys: frozenset[str]
    """The row's; several where each has the value."""
    rows: Mapping[str, Mapping[str, Any]]
    """All rows of its table by key."""
    nouns: frozenset[str]
    """Words of tables and of other columns: a number beside one is about that."""
    asked: frozenset[Any]
    """Other answers that the user wants of the column, normalised."""
    former: frozenset[Any]
    """What the column has held besides, normalised."""
    naming: Callable[[str], frozenset[str]]
    """What names the row of a key and not the one asked about."""

    @cached_property
    def values(self) -> frozenset[Any]:
        """What the column holds, normalised."""
        cells = (row.get(self.column) for row in self.rows.values())
        found = (one for cell in cells if (one := self.normal(cell)) is not None)
        return self.former.union(found)

    @cached_property
    def by_key(self) -> dict[str, str]:
        """Keys by how a normalised text has them."""
        return {normalise(key): key for key in self.rows}

    @cached_property
    def words(self) -> frozenset[str]:
        return stems(self.column)

    def normal(self, cell: Any) -> Any:
        """A cell as mentions have it; None for one that no text states."""
        return normal(self.answer.type, cell)


def normal(kind: AnswerType, cell: Any) -> Any:
    """A cell as mentions of values of a type have it; None for one that no text states."""
    if cell is None or isinstance(cell, list | dict | bool):
        return None
    match kind:
        case AnswerType.DATE:
            return day(str(cell))
        case AnswerType.NUMBER:
            return float(cell) if isinstance(cell, int | float) else None
        case _:
            return normalise(str(cell)).replace("_", " ")


def claims(
    subject: AskedCell, text: str, known: frozenset[Any], past: frozenset[Any]
) -> list[ToldValue]:
    """The claims of a message about a cell and about that column of other rows that it names.

    ``known``: normalised values that are no claim beside the right one, as those of other cells of
    the row and those that the user said; ``past``: what the cell has been.
    """
    found: list[ToldValue] = []
    named: frozenset[str] = frozenset()
    for sentence, nested in sentences(text):
        keys = _keys(subject, sentence)
        named = keys or (named if nested else keys)
        mentions = _mentions(subject, sentence)
        stated = [
            one for one in mentions
            if is_told_in(sentence, one) and (one.right or not (
                one.value in subject.asked
                or (one.value in known and not _is_beside(sentence, mentions, one))
                or _is_past(one, sentence, past)
            ))
        ]  # fmt: skip
        hedged = [one for one in stated if not named and _is_hedged(subject, sentence, one)]
        told = [
            one for one in stated
            if one.right or not (one.loose or _SUPPOSED.search(sentence[: one.start]))
        ]  # fmt: skip
        for one, about in _attributed(subject, sentence, told, named):
            if about and not about & subject.keys:
                found.append(ToldValue(one.value, False, about))
            elif one.right or not (
                _is_of_some_other(subject, sentence) or _is_of_a_named_row(subject, sentence, one)
            ):
                found.append(ToldValue(one.value, one.right, about, one in hedged))
        found += [ToldValue(one.value, False, hedged=True) for one in hedged if not one.right]
    return found


def _keys(subject: AskedCell, sentence: str) -> frozenset[str]:
    """The rows of the table that a sentence names by key."""
    words = {word.strip(".") for word in _NAMES.findall(sentence)}
    return frozenset(subject.by_key[word] for word in words & subject.by_key.keys())


def _mentions(subject: AskedCell, sentence: str) -> list[Mention]:
    """The column's values that a sentence states, in order; the right one in whatever form."""
    found: list[Mention] = []
    match subject.answer.type:
        case AnswerType.DATE:
            tokens = [(one, day(one.text)) for one in dates_in(sentence)]
        case AnswerType.NUMBER:
            tokens = [(one, number(one.text)) for one in numbers_in(sentence)]
        case _:
            return _words_of(subject, sentence)
    own = subject.normal(subject.answer.value)
    is_date = subject.answer.type == AnswerType.DATE
    loose = bool(tokens) and not (is_date or _is_of_column(subject, sentence))
    for one, value in tokens:
        right = value == own or final_matches(subject.answer, one.text)
        if right or value in subject.values:
            mention = Mention(own if right else value, one.start, one.end, right, loose)
            if is_date or not _counts_rows(subject, sentence, mention):
                found.append(mention)
    return found


def _words_of(subject: AskedCell, sentence: str) -> list[Mention]:
    own = subject.normal(subject.answer.value)
    found: list[Mention] = []
    for value in sorted({*subject.values, own}, key=lambda one: (-len(one), one)):
        for start in places_of(value, sentence, True):
            if not any(one.start <= start < one.end for one in found):
                found.append(Mention(value, start, start + len(value), value == own))
    found.sort(key=lambda one: one.start)
    beside = {
        one
        for pair in pairwise(found)
        if _LISTED.fullmatch(sentence[pair[0].end : pair[1].start])
        for one in pair
    }
    return [
        one._replace(loose=one not in beside and not _is_predicate(subject, sentence, one))
        for one in found
    ]


def values_in(subject: AskedCell, text: str) -> frozenset[Any]:
    """The column's values that a text states anyhow, normalised."""
    return frozenset(
        one.value for sentence, _ in sentences(text) for one in _mentions(subject, sentence)
        if one.right or not one.loose
    )  # fmt: skip


def is_told(answer: Answer, text: str) -> bool:
    """Whether a text tells an answer that is no cell: states it, and not in a question, denied, or
    as one of two numbers or dates."""
    stated = [one for one, _ in sentences(text) if not is_question(one)]
    if answer.type not in (AnswerType.NUMBER, AnswerType.DATE):
        return states(answer, "\n".join(stated))
    return any(one.right for sentence in stated for one in _told_of(answer, sentence))


def values_told(answer: Answer, text: str) -> dict[str, frozenset[Any]]:
    """The numbers or dates that a text tells, by the sentence with a gap for the value."""
    found: dict[str, frozenset[Any]] = {}
    for sentence, _ in sentences(text):
        for one in _told_of(answer, sentence):
            if one.value is None:  # 64GB
                continue
            gap = f"{sentence[: one.start]}_{sentence[one.end :]}"
            found[gap] = found.get(gap, frozenset()) | {one.value}
    return found


def _told_of(answer: Answer, sentence: str) -> Iterator[Mention]:
    is_date = answer.type == AnswerType.DATE
    read = day if is_date else number
    found = [
        Mention(read(one.text), one.start, one.end, final_matches(answer, one.text))
        for one in (dates_in if is_date else numbers_in)(sentence)
    ]
    for at, one in enumerate(found):
        beside = found[max(at - 1, 0) : at + 2]
        if is_told_in(sentence, one) and not is_either(sentence, beside):
            yield one


# What a value is about ----------------------------------------------------------------------


def _is_of_column(subject: AskedCell, sentence: str) -> bool:
    """Whether numbers of a sentence may be of the column: it names the column, or nothing else
    that has numbers."""
    words = stems(sentence)
    return bool(words & subject.words) or not words & subject.nouns


def _counts_rows(subject: AskedCell, sentence: str, one: Mention) -> bool:
    """Whether a number says how many there are of something else: 2 active loans."""
    after = [_stem(word) for word in _WORD.findall(sentence[one.end :])[:2]]
    if any(word in subject.words for word in after[:1]):
        return False
    gap = re.match(r"\s+[^\W\d_]", sentence[one.end :])
    return gap is not None and any(word in subject.nouns for word in after)


def _is_predicate(subject: AskedCell, sentence: str, one: Mention) -> bool:
    """Whether a word is said of something, and does not merely occur."""
    before = sentence[: one.start]
    if len(_WORD.findall(sentence)) <= _BARE or _COPULA.search(before):
        return True
    last = _WORD.findall(before)[-1:]
    return bool(last) and _stem(last[0]) in subject.words


def _is_hedged(subject: AskedCell, sentence: str, one: Mention) -> bool:
    """Whether a sentence says a value without claiming it of a row that it names."""
    return (
        one.loose
        or _SUPPOSED.search(sentence[: one.start]) is not None
        or _is_of_some_other(subject, sentence)
    ) and (one.right or not _is_of_a_named_row(subject, sentence, one))


def _is_of_some_other(subject: AskedCell, sentence: str) -> bool:
    return any(stems(found[1]) & subject.nouns for found in _ANOTHER.finditer(sentence))


def _is_of_a_named_row(subject: AskedCell, sentence: str, one: Mention) -> bool:
    """Whether a wrong value is told of another row: one that has it and is named by what it is."""
    rest = f"{sentence[: one.start]} _ {sentence[one.end :]}"
    return any(
        subject.normal(row.get(subject.column)) == one.value
        and any(next(places_of(name, rest, True), None) is not None
                for name in subject.naming(key))
        for key, row in subject.rows.items()
        if key not in subject.keys
    )  # fmt: skip


def _is_beside(sentence: str, mentions: list[Mention], one: Mention) -> bool:
    """Whether a value stands in a list with another, or for another."""
    at = mentions.index(one)
    near = mentions[max(at - 1, 0) : at + 2]
    return is_either(sentence, near) or any(
        a.value != b.value and _LISTED.fullmatch(sentence[a.end : b.start])
        for a, b in pairwise(near)
    )


def _is_past(one: Mention, sentence: str, past: frozenset[Any]) -> bool:
    return (
        one.value in past and _PAST.search(sentence[: one.start] + sentence[one.end :]) is not None
    )


def _attributed(
    subject: AskedCell, sentence: str, told: list[Mention], named: frozenset[str]
) -> Iterator[tuple[Mention, frozenset[str]]]:
    """The claims of a sentence, each with the rows that it is about; none: not said."""
    if len({one.value for one in told}) <= 1:
        for one in told[:1]:
            yield one, named
        return
    if is_either(sentence, told):
        return
    about: frozenset[str] = frozenset()
    for clause, start, end in clauses(sentence):
        about = _keys(subject, clause) or about
        for one in told:
            if start <= one.start < end and about:
                yield one, about


def stems(text: str) -> frozenset[str]:
    """The words of a text or name, without their endings."""
    return frozenset(_stem(word) for word in _WORD.findall(normalise(text)))


name_stems = lru_cache(maxsize=4096)(stems)
"""``stems`` of names of tools, tables, parameters and columns, which come again and again."""


def _stem(word: str) -> str:
    """A word without its ending, so that *renewals* and *renewed* may be one."""
    return re.sub(r"(?:ies|es|s|ed|ing|al|als)$", "", word) if len(word) > 4 else word.rstrip("s")
