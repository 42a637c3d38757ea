"""References to earlier answers in an operation's arguments, and the parts that they pick.

=================================================  ============================================
argument                                           its value
=================================================  ============================================
a JSON scalar                                      itself; a literal of the question
{"from": 1}                                        the whole answer of sub-question 1
{"from": 1, "pick": "price"}                       that field of a RECORD answer
{"from": 1, "pick": "room", "lowest": "price"}     that field of the row of a LIST of records
                                                   whose ``price`` is lowest; never a tie
{"from": 1, "pick": "room", "highest": "price"}    likewise, of the highest
{"from": 1, "pick": "room", "where": {"beds": 3}}  that field of the only row with these cells;
                                                   with ``lowest`` or ``highest``: among them
{"from": [1, 2], "pick": ...}                      of the rows of several answers together
=================================================  ============================================

The rows of a page (a RECORD with ``rows`` and ``next_page``) are those in its ``rows``. Cells of
``where`` are literals of the question, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from astra.records.qa import Operation

ROWS, NEXT_PAGE = "rows", "next_page"
"""The fields of a page: its rows, and the number of the page after it or null."""
_PARTS = frozenset({"from", "pick", "where", "lowest", "highest"})


class EvaluationError(Exception):
    """The operation has no answer, or no unique one, in the given tables; the message says why."""


def is_reference(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether an argument is a reference to earlier answers."""
    return isinstance(value, dict) and "from" in value


def referred(value: Any) -> tuple[int, ...]:
    """Ids of the sub-questions whose answers an argument uses, in the order given."""
    if isinstance(value, list):
        return tuple(id for item in value for id in referred(item))
    if not is_reference(value):
        return ()
    origin = value["from"]
    ids: list[Any] = origin if isinstance(origin, list) else [origin]
    return tuple(id for id in ids if type(id) is int)


def references(operation: Operation) -> tuple[int, ...]:
    """Ids of the sub-questions whose answers the arguments use, ascending."""
    values = operation.arguments.values()
    return tuple(sorted({id for value in values for id in referred(value)}))


def literals(operation: Operation) -> list[Any]:
    """The values that the question has to give: all that no answer gives.

    The number of the first page is none: every list begins there.
    """
    given = [
        value
        for name, value in operation.arguments.items()
        if not (operation.op == "page" and name == "page" and value == 1)
    ]
    return [literal for value in given for literal in _literals(value)]


def _literals(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _literals(item)
    elif is_reference(value):
        yield from _cells(value)
    else:
        yield value


def chosen_by(operation: Operation) -> list[Any]:
    """The cells by which references of the operation choose a row."""
    references = filter(is_reference, operation.arguments.values())
    return [cell for reference in references for cell in _cells(reference)]


def _cells(reference: Mapping[str, Any]) -> list[Any]:
    cells = reference.get("where")
    return list(cells.values()) if isinstance(cells, dict) else []


def resolve(value: Any, answers: Mapping[int, Any]) -> Any:
    """An argument with every reference replaced by what it refers to.

    Raises EvaluationError where an answer is missing, or has no such part or several.
    """
    if isinstance(value, list):
        return [resolve(item, answers) for item in value]
    if not isinstance(value, dict):
        return value
    origin = value.get("from")
    ids: list[Any] = origin if isinstance(origin, list) else [origin]
    if not ids or not set(value) <= _PARTS or any(type(id) is not int for id in ids):
        raise EvaluationError(f"argument {value!r} is neither a literal nor a reference")
    if missing := [id for id in ids if id not in answers]:
        raise EvaluationError(f"no answer of sub-question {missing[0]}")
    found = [answers[id] for id in ids]
    if set(value) == {"from"}:
        if isinstance(origin, list):
            raise EvaluationError(f"reference {value!r} picks nothing of several answers")
        return found[0]
    return _picked(value, found)


def _picked(reference: Mapping[str, Any], found: Sequence[Any]) -> Any:
    """The field ``pick`` of the record, or of the one row that the reference chooses."""
    chooses = bool(reference.keys() & {"where", "lowest", "highest"})
    row = found[0]
    if chooses or isinstance(reference["from"], list):
        row = _chosen(reference, [row for answer in found for row in rows_of(answer)])
    field = reference.get("pick")
    if not isinstance(row, dict) or not isinstance(field, str) or field not in row:
        raise EvaluationError(f"reference {dict(reference)!r} finds no field {field!r}")
    return row[field]


def as_number(value: Any) -> Any:
    """An argument or a cell to calculate with. Raises TypeError where it is no number, and
    OverflowError where no float holds it.

    Text times a number would be longer text: more, maybe, than there is memory.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{type(value).__name__} is no number")
    float(value)
    return value


def rows_of(answer: Any) -> list[dict[str, Any]]:
    """The records of a list answer or of a page. Raises EvaluationError where it has none."""
    rows: Any = answer.get(ROWS) if isinstance(answer, dict) else answer
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise EvaluationError(f"{answer!r} holds no rows to choose from")
    return rows


def _chosen(reference: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The one row that ``where`` and then ``lowest`` or ``highest`` leave."""
    cells: Any = reference.get("where", {})
    extremes = [(name, reference[name]) for name in ("lowest", "highest") if name in reference]
    if not isinstance(cells, dict) or len(extremes) > 1:
        raise EvaluationError(f"reference {dict(reference)!r} chooses in no known way")
    try:
        left = [row for row in rows if all(row[name] == cell for name, cell in cells.items())]
        for which, measure in extremes:
            best = (min if which == "lowest" else max)((row[measure] for row in left), default=None)
            left = [row for row in left if row[measure] == best]
    except (KeyError, TypeError) as error:
        raise EvaluationError(f"reference {dict(reference)!r}: {error!r}") from None
    if len(left) != 1:
        raise EvaluationError(f"{len(left)} rows qualify for {dict(reference)!r}")
    return left[0]
