"""Supplied problems: read from JSON lines, kept where the answer is a whole number."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from astra.envsynth.envs_merged_config import ProblemFile
from astra.envsynth.interpreter.problems import Problem
from astra.errors import AstraError
from astra.records.qa import Answer, AnswerType
from astra.records.score import Rejection

FOLDER = Path("problems")
"""The only place files may lie in: the stage declares it as what it reads."""
_BOXED = re.compile(r"\\boxed\{\s*([^{}]*?)\s*\}\s*\$?\.?\s*$")
_WHOLE = re.compile(r"[+-]?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.0+)?")


class ProblemFileError(AstraError):
    """A problem file cannot be read."""


def read_file(source: ProblemFile) -> Iterator[Problem | Rejection]:
    """Problems of a file; one whose answer is not a whole number is a rejection."""
    for number, row in enumerate(_rows(source.path), 1):
        where = f"{source.path} line {number}"
        question, written = _text(row, source.question, where), _text(row, source.answer, where)
        answer = whole_number(written)
        if answer is None:
            yield Rejection(
                item=f"file:{source.path}",
                part=f"line {number}",
                reason="code_answer_not_whole",
                detail=f"{question}\n{written}",
            )
            continue
        yield Problem(
            question=question,
            answer=Answer(type=AnswerType.NUMBER, value=answer),
            split=source.split,
            domain="mathematics",
            source=f"file:{source.path}",
            composition=f"file:{source.path}",
        )


def texts(path: str, field: str) -> Iterator[str]:
    """One text per line of a file, for decontamination."""
    for number, row in enumerate(_rows(path), 1):
        yield _text(row, field, f"{path} line {number}")


def whole_number(text: str) -> int | None:
    """The whole number that an answer states, alone or boxed; None if it states none."""
    boxed = _BOXED.search(text.strip())
    found = (boxed.group(1) if boxed else text).strip().strip("$").strip()
    if not _WHOLE.fullmatch(found):
        return None
    return int(found.replace(",", "").partition(".")[0])


def _rows(path: str) -> Iterator[dict[str, Any]]:
    file = Path(path)
    if FOLDER not in file.parents or ".." in file.parts:
        raise ProblemFileError(
            f"problem file {path!r} must lie in {FOLDER}/, which stage envs_merged declares"
        )
    if not file.is_file():
        raise ProblemFileError(f"problem file {path} not found")
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ProblemFileError(f"{path} line {number} is no JSON: {error}") from error
            if not isinstance(row, dict):
                raise ProblemFileError(f"{path} line {number} is no JSON object")
            yield row


def _text(row: dict[str, Any], field: str, where: str) -> str:
    if field not in row:
        raise ProblemFileError(f"{where} has no field {field!r}; it has {', '.join(row)}")
    return str(row[field])
