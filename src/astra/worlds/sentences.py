"""English for expressions: the sentence of a rule comes from the tree that judges it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from astra.records.world import Expr, WorldTable
from astra.text.keys import key_of

_BEFORE_VOWEL = re.compile(r"\ba (?=(?i:[aeio]|u(?!se|ni)))")
_INFIX = {"add": "plus", "sub": "minus", "mul": "times"}


class RuleWording:
    """Words for the trees of one world. ``nouns`` has the singular of each table."""

    def __init__(self, tables: Sequence[WorldTable], nouns: Mapping[str, str]) -> None:
        self._nouns = nouns
        self._keys = {table.key: table.name for table in tables}
        self._references = {
            (table.name, column.name): column.references
            for table in tables
            for column in table.columns
        }

    def sentence(self, tools: Sequence[str], when: Expr, require: Expr, reason: str) -> str:
        """The sentence of a rule, with the code that names it."""
        named = listed([f"`{tool}`" for tool in tools], "and")
        condition = f"when {self.condition(when)}, " if when is not None else ""
        text = f"{condition}use {named} only if {self.condition(require)} (`{reason}`)."
        return text[0].upper() + text[1:]

    def condition(self, expr: Expr) -> str:
        """A clause for a condition. ValueError for a tree that is none."""
        ((name, operand),) = cast("dict[str, Any]", expr).items()
        value = self.value
        match name:
            case "and" | "or":
                return f" {name} ".join(self.condition(part) for part in operand)
            case "not":
                return self._negated(operand)
            case "eq":
                return f"{value(operand[0])} is {value(operand[1])}"
            case "lt":
                return self._compared(operand, "more than", "less than")
            case "le":
                return self._compared(operand, "at least", "at most")
            case "in":
                return f"{value(operand[0])} is {listed([*map(value, operand[1])], 'or')}"
            case "exists":
                return f"there is {self._chosen(operand[0], operand[1])}"
            case "seen":
                return f"`{operand[0]}` has shown {self.value(operand[2])}"
            case "called":
                return f"`{operand[0]}` has been called"
            case "confirmed":
                return "the user has agreed to that change"
            case _:
                raise ValueError(f"no condition: {expr!r}")

    def _negated(self, operand: Expr) -> str:
        ((name, inner),) = cast("dict[str, Any]", operand).items()
        if name == "exists":
            return f"there is no {self._chosen(inner[0], inner[1]).split(' ', 1)[1]}"
        if name == "eq":
            return f"{self.value(inner[0])} is not {self.value(inner[1])}"
        return f"it is not so that {self.condition(operand)}"

    def _compared(self, operand: Sequence[Expr], low: str, high: str) -> str:
        one, other = operand
        strict = high == "less than"
        if _is_clock(one):
            return f"{self.value(other)} is {'after today' if strict else 'today or later'}"
        if _is_clock(other):
            return f"{self.value(one)} is {'before today' if strict else 'today or earlier'}"
        if not isinstance(one, dict):
            return f"{self.value(other)} is {low} {self.value(one)}"
        return f"{self.value(one)} is {high} {self.value(other)}"

    def value(self, expr: Expr) -> str:
        """A phrase for a value."""
        if expr is None:
            return "empty"
        if not isinstance(expr, dict):
            return _words(str(expr))
        ((name, operand),) = cast("dict[str, Any]", expr).items()
        match name:
            case "arg":
                return self._argument(operand)
            case "clock":
                return "today"
            case "row":
                return self._row(operand[0], operand[1])
            case "field":
                return self._field(operand[0], operand[1])
            case "self":
                return f"its {_words(operand)}"
            case "add" | "sub" | "mul":
                return f"{self.value(operand[0])} {_INFIX[name]} {self.value(operand[1])}"
            case "days_between":
                return (
                    f"the number of days from {self.value(operand[0])} to {self.value(operand[1])}"
                )
            case "date_add":
                return f"{self.value(operand[1])} days after {self.value(operand[0])}"
            case "count":
                return f"the number of {self._plural(operand[0], operand[1])}"
            case "sum":
                column = _words(operand[1])
                return f"the total {column} of {self._plural(operand[0], operand[2])}"
            case "distinct_seen":
                noun = self._nouns[self._keys[operand[1]]]
                return f"the number of different {noun} records that `{operand[0]}` has shown"
            case _:
                raise ValueError(f"no value: {expr!r}")

    def _argument(self, name: str) -> str:
        if not (key := key_of(name, self._keys)):
            return f"`{name}`"
        return f"the {_words(name.removesuffix(key))}{self._nouns[self._keys[key]]}"

    def _row(self, table: str, key: Expr) -> str:
        if isinstance(key, dict) and "field" in key:
            inner = key["field"][0]
            return f"the {self._nouns[table]} of {self.value(inner)}"
        return f"the {self._nouns[table]}"

    def _field(self, row: Expr, column: str) -> str:
        table = row["row"][0]
        if references := self._references.get((table, column)):
            return f"the {self._nouns[references]} of {self.value(row)}"
        return f"the {_words(column)} of {self.value(row)}"

    def _chosen(self, table: str, where: Mapping[str, Expr]) -> str:
        return f"{with_article(self._nouns[table])}{self._where(table, where)}"

    def _plural(self, table: str, where: Mapping[str, Expr]) -> str:
        return f"{_words(table)}{self._where(table, where)}"

    def _where(self, table: str, where: Mapping[str, Expr]) -> str:
        parts: list[str] = []
        for column, expr in where.items():
            if self._references.get((table, column)):
                parts.append(f"of {self.value(expr)}")
            else:
                parts.append(f"with {_words(column)} {self.value(expr)}")
        return "".join(f" {part}" for part in parts)


def listed(items: Sequence[str], word: str) -> str:
    """``a, b and c``."""
    if len(items) == 1:
        return items[0]
    return f"{', '.join(items[:-1])} {word} {items[-1]}"


def with_article(noun: str) -> str:
    """A loan, an appointment, a use."""
    return with_articles(f"a {noun}")


def with_articles(text: str) -> str:
    """A text with the articles that its nouns take, where each is ``a``."""
    return _BEFORE_VOWEL.sub("an ", text)


def _is_clock(expr: Expr) -> bool:
    return isinstance(expr, dict) and "clock" in expr


def _words(name: str) -> str:
    return name.replace("_", " ")
