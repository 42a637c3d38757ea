"""Facts of a text, read by rule from its plain sentences into tables.

English: ``Blue Heron is a boat.``, ``The captain of Blue Heron is Ada Finch.``, ``Blue Heron's
length is 12 m.``; Chinese: ``翠湖苑是一个房源。``, ``翠湖苑的要价是512。``, with the words of
chinese.py. Anything else in the text is passed over.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from astra.qa.config import Language, TableFile, TableSource
from astra.qa.knowledge.chinese import WORDS
from astra.qa.knowledge.schema import CellType, KnowledgeSource
from astra.qa.knowledge.tables import source_of_rows
from astra.records.qa import Split

_NAME = r"[A-Z][\w'-]*(?: [A-Z][\w'-]*)*"
_WORDS = r"[a-z]+(?: [a-z]+){0,2}"
_EN_TYPE = re.compile(rf"\b({_NAME}) is an? ({_WORDS})\.")
_EN_FACT = re.compile(
    rf"\b(?:The ({_WORDS}) of ({_NAME})|({_NAME})'s ({_WORDS})) is ([^.\n]+(?:\.\d+)?)\."
)
_ZH_TYPE = re.compile(r"([^，。！？\s]+?)是一[个家间座位本块只辆名](\w+?)。")
_ZH_FACT = re.compile(r"([^，。！？\s的]+)的(\w+?)[是为]([^，。\s]+)。")
_NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?)(?:\s*([^\W\d]{1,12}))?")
_ENGLISH = {word: name for name, word in WORDS.items()}


def read_facts(text: str, domain: str, language: Language) -> KnowledgeSource | None:
    """A source of what the text states, or None where no rule reads a fact."""
    read = _english if language == "en" else _chinese
    types, facts = read(text)
    by_entity: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    units: dict[str, str] = {}
    for entity, column, written in facts:
        value, unit = _value(written)
        if by_entity[entity].setdefault(column, value) != value:
            return None  # the text contradicts itself
        units[column] = unit
    by_type: defaultdict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for entity, row in by_entity.items():
        by_type[types.get(entity, "item")][entity] = row
    tables: dict[str, TableFile] = {}
    raw: dict[str, list[dict[str, Any]]] = {}
    for entity_type, members in by_type.items():
        # Only what is said of every member makes a column: a table has no empty cells.
        shared = set.intersection(*(set(row) for row in members.values()))
        columns = [c for c in next(iter(members.values())) if c in shared and c != entity_type]
        if not columns:
            continue
        name = f"{entity_type}s"
        raw[name] = [
            {entity_type: entity, **{column: row[column] for column in columns}}
            for entity, row in members.items()
        ]
        kinds = _kinds(raw[name], columns, set(by_entity))
        stated = {column: units[column] for column in columns if units[column]}
        tables[name] = TableFile(path=name, key=entity_type, kinds=kinds, units=stated)
    if not tables:
        return None
    spec = TableSource(weight=1, domain=domain, language=language, tables=tables)
    return source_of_rows(f"text:{domain}", spec, Split.TRAIN, raw)


def _english(text: str) -> tuple[dict[str, str], list[tuple[str, str, str]]]:
    """Name -> type; and (name, column, written value) of each fact."""
    types = {name: words.replace(" ", "_") for name, words in _EN_TYPE.findall(text)}
    facts = [
        (name_a or name_b, (words_a or words_b).replace(" ", "_"), value)
        for words_a, name_a, name_b, words_b, value in _EN_FACT.findall(text)
    ]
    return types, facts


def _chinese(text: str) -> tuple[dict[str, str], list[tuple[str, str, str]]]:
    """Types and facts under their English names; words without one are passed over."""
    types = {name: _ENGLISH[word] for name, word in _ZH_TYPE.findall(text) if word in _ENGLISH}
    facts = [
        (name, _ENGLISH[word], value)
        for name, word, value in _ZH_FACT.findall(text)
        if word in _ENGLISH
    ]
    return types, facts


def _value(written: str) -> tuple[Any, str]:
    """The number that is written and its unit, else the text and no unit."""
    match = _NUMBER.fullmatch(written.strip())
    if match is None:
        return written.strip(), ""
    number = float(match.group(1))
    return int(number) if number.is_integer() else number, match.group(2) or ""


def _kinds(
    rows: list[dict[str, Any]], columns: list[str], entities: set[str]
) -> dict[str, CellType]:
    """Column -> what its texts are, where the cells alone do not show it.

    Texts that are no dates are names if the text says something of them, or if they are
    capitalised; else they are categories.
    """
    kinds: dict[str, CellType] = {}
    for column in columns:
        cells = [row[column] for row in rows]
        if any(not isinstance(cell, str) for cell in cells):
            continue
        if all(re.fullmatch(r"\d{4}-\d{2}-\d{2}", cell) for cell in cells):
            continue
        named = all(cell in entities or re.fullmatch(_NAME, cell) for cell in cells)
        kinds[column] = CellType.ENTITY if named else CellType.CATEGORY
    return kinds
