"""Our own operators of mutation, made after mistakes of language models.

Each applies where by static reasons it can make a difference: its sites are chosen from the code,
its rows and the type of its answer alone, never by what a mutant does. A raise behind a test of
types, which no call that fits the schema reaches, is none, nor is a repeated row where nothing
counts rows.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mutation_facts import Facts, Row, has_call, literal, rows_of

from astra.records.qa import AnswerType

SHORTEST_NAME = 4
"""Characters of a text that is looked for by a part of it."""


Change = Callable[[ast.AST, Facts], ast.AST | None]
"""What an operator makes of a node; None where it does not apply."""


# Rows ----------------------------------------------------------------------------------------


def _rows(change: Callable[[list[Row], Facts], list[Row] | None]) -> Change:
    """An operator over the rows that a module holds."""

    def changed(node: ast.AST, facts: Facts) -> ast.AST | None:
        rows = rows_of(node)
        new = change(rows, facts) if rows and isinstance(node, ast.Assign) else None
        if new is None or new == rows or not isinstance(node, ast.Assign):
            return None
        return ast.Assign(targets=node.targets, value=literal(new))

    return changed


def _told(rows: Sequence[Row], facts: Facts) -> list[str]:
    """The columns whose cells the code tells, not only compares; else all that it reads."""
    read = [name for name in rows[0] if name in facts.read]
    return [name for name in read if name not in facts.compared] or read


def _wrong_cell(at: int) -> Change:
    def change(rows: list[Row], facts: Facts) -> list[Row] | None:
        names = [name for name in _told(rows, facts) if rows[at].get(name) is not None]
        if not names:
            return None
        value = rows[at][names[-1]]
        wrong = value + 1 if isinstance(value, int | float) else f"{value} West"
        new = list(rows)
        new[at] = {**rows[at], names[-1]: wrong}
        return new

    return _rows(change)


def _exchanged(rows: list[Row], facts: Facts) -> list[Row] | None:
    """One cell of the first row exchanged with that of another which has another one."""
    for name in reversed(_told(rows, facts)):
        for at in range(len(rows) - 1, 0, -1):
            if name in rows[at] and rows[at][name] != rows[0].get(name):
                new = list(rows)
                new[0] = {**rows[0], name: rows[at][name]}
                new[at] = {**rows[at], name: rows[0].get(name)}
                return new
    return None


def _repeated(rows: list[Row], facts: Facts) -> list[Row] | None:
    return [*rows, rows[0]] if facts.counts_rows else None


# Finding -------------------------------------------------------------------------------------


def _compared(node: ast.AST, facts: Facts) -> ast.AST | None:
    if isinstance(node, ast.Compare) and not has_call(node, facts.guards):
        return ast.Constant(True)
    return None


def _texts_compared(node: ast.AST, facts: Facts) -> tuple[ast.expr, ast.expr] | None:
    """The cell and the argument of a comparison for equality of texts."""
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq):
        return None
    sides = [node.left, node.comparators[0]]
    cells = [one for one in sides if isinstance(one, ast.Subscript)]
    names = [one for one in sides if isinstance(one, ast.Name)]
    if len(node.ops) > 1 or len(cells) != 1 or len(names) != 1:
        return None
    given = facts.arguments.get(names[0].id)
    if names[0].id in facts.compared_again:
        return None
    if not isinstance(given, str) or len(given) < SHORTEST_NAME or given[0].isdigit():
        return None
    return cells[0], names[0]


def _by_a_part(node: ast.AST, facts: Facts) -> ast.AST | None:
    found = _texts_compared(node, facts)
    return found and ast.Compare(_text(found[1]), [ast.In()], [_text(found[0])])


def _in_a_longer_name(node: ast.AST, facts: Facts) -> ast.AST | None:
    found = _texts_compared(node, facts)
    return found and ast.Compare(_text(found[0]), [ast.In()], [_text(found[1])])


def _text(node: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("str"), [node], [])


def _last(node: ast.AST, facts: Facts) -> ast.AST | None:
    if not isinstance(node, ast.Subscript) or ast.unparse(node.slice) != "0":
        return None
    ordered = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "sorted"
    return ast.Subscript(node.value, ast.Constant(-1)) if ordered or facts.shared else None


def _skipping(node: ast.AST, facts: Facts) -> ast.AST | None:
    """A loop over rows, the world's among them, that begins at the second."""
    if not isinstance(node, ast.comprehension | ast.For):
        return None
    if (node.target.lineno, node.target.col_offset) in facts.tests_of_any:
        return None
    tables = {
        target.id
        for statement in ast.walk(facts.tree)
        if isinstance(statement, ast.Assign)
        and (rows_of(statement) or "world.tables" in ast.unparse(statement.value)[:12])
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    over = ast.unparse(node.iter)
    if over not in tables and not over.startswith("world.tables["):
        return None
    new = copy.copy(node)
    new.iter = ast.parse(f"{over}[1:]", mode="eval").body
    return new


def _unfiltered(node: ast.AST, _: Facts) -> ast.AST | None:
    """An optional argument that is not heeded."""
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith(" is not None"):
        return ast.If(ast.Constant(False), node.body, node.orelse)
    return None


def _other_column(node: ast.AST, facts: Facts) -> ast.AST | None:
    """Another column read, of the same type, whose cells are others."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
        return None
    name = node.slice.value
    for rows in facts.rows:
        if name not in rows[0]:
            continue
        for other in rows[0]:
            cells = [(row.get(name), row.get(other)) for row in rows]
            if all(type(one) is type(two) and one != two for one, two in cells):
                return ast.Subscript(node.value, ast.Constant(other), node.ctx)
    return None


# Refusals, results, effects ------------------------------------------------------------------


def _raises(code: str, unless: Callable[[Facts], bool] = lambda _: False) -> Change:
    """An operator that replaces a refusal; ``GOLD`` stands for the gold answer."""

    def changed(node: ast.AST, facts: Facts) -> ast.AST | None:
        if not isinstance(node, ast.Raise) or unless(facts):
            return None
        if (node.lineno, node.col_offset) in facts.unreached:
            return None
        return ast.parse(code.replace("GOLD", repr(facts.answer))).body[0]

    return changed


def _is_common(answer: Any) -> bool:
    """Whether an answer is no secret wherever it stands: yes, no and numbers of one digit."""
    return isinstance(answer, int | float) and abs(answer) < 10


def _returns(code: str, types: Iterable[AnswerType] = tuple(AnswerType)) -> Change:
    """An operator that replaces a ``VALUE`` returned by the tool's function, if of such a type."""
    fitting = frozenset(types)

    def changed(node: ast.AST, facts: Facts) -> ast.AST | None:
        if facts.answer_type not in fitting or not isinstance(node, ast.Return):
            return None
        own = next(one for one in facts.tree.body if getattr(one, "name", "") == facts.name)
        inside = {
            (one.lineno, one.col_offset) for one in ast.walk(own) if isinstance(one, ast.Return)
        }
        if node.value is None or (node.lineno, node.col_offset) not in inside:
            return None
        written = code.replace("GOLD", repr(facts.answer))
        written = written.replace("VALUE", ast.unparse(node.value))
        return ast.parse(f"return {written}").body[0]

    return changed


def _names(old: str, new: str) -> Change:
    def changed(node: ast.AST, _: Facts) -> ast.AST | None:
        return ast.Name(new) if isinstance(node, ast.Name) and node.id == old else None

    return changed


def _is_write(node: ast.AST, facts: Facts) -> bool:
    """Whether a statement changes a row of the world or its rows."""
    if not facts.tables:
        return False
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Subscript)
    if isinstance(node, ast.Delete):
        return True
    changing = (".append", ".remove", ".pop", ".update", ".insert", ".extend")
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).endswith(changing)
    )


def _unwritten(node: ast.AST, facts: Facts) -> ast.AST | None:
    return ast.Pass() if _is_write(node, facts) else None


def _written_twice(node: ast.AST, facts: Facts) -> ast.AST | None:
    if not _is_write(node, facts) or not ast.unparse(node).count(".append("):
        return None
    return ast.If(ast.Constant(True), [node, copy.deepcopy(node)], [])


def _written_gold(node: ast.AST, facts: Facts) -> ast.AST | None:
    """One cell written as the gold call writes it, whatever the arguments."""
    if not _is_write(node, facts) or not isinstance(node, ast.Assign):
        return None
    given = facts.arguments.get(ast.unparse(node.value))
    return ast.Assign(targets=node.targets, value=literal(given)) if given is not None else None


NUMBER = (AnswerType.NUMBER,)
SINGLE = (AnswerType.NUMBER, AnswerType.BOOLEAN)
OWN: dict[str, Change] = {
    "first_row_dropped": _rows(lambda rows, _: rows[1:]),
    "last_row_dropped": _rows(lambda rows, _: rows[:-1]),
    "half_of_the_rows_dropped": _rows(lambda rows, _: rows[::2]),
    "cell_of_the_first_row_wrong": _wrong_cell(0),
    "cell_of_the_last_row_wrong": _wrong_cell(-1),
    "cells_exchanged": _rows(_exchanged),
    "row_repeated": _rows(_repeated),
    "first_row_never_found": _skipping,
    "last_instead_of_first": _last,
    "comparison_ignored": _compared,
    "found_by_a_part": _by_a_part,
    "found_in_a_longer_name": _in_a_longer_name,
    "optional_argument_ignored": _unfiltered,
    "other_column": _other_column,
    "unknown_gives_the_answer": _raises("return GOLD"),
    "unknown_gives_none": _raises("return None"),
    "unknown_gives_an_empty_list": _raises(
        "return []", lambda facts: facts.answer_type == AnswerType.LIST
    ),
    "unknown_gives_zero": _raises("return 0", lambda facts: facts.op == "count"),
    "error_states_the_answer": _raises(
        "raise ValueError('not found, unlike ' + str(GOLD))",
        lambda facts: facts.writes or _is_common(facts.answer),
    ),
    "error_is_no_refusal": _raises("raise KeyError('unknown')"),
    "constant": _returns("GOLD"),
    "text_for_a_value": _returns("str(VALUE)", SINGLE),
    "a_little_more": _returns("VALUE + 0.5", NUMBER),
    "min_for_max": _names("max", "min"),
    "max_for_min": _names("min", "max"),
    "sum_for_max": _names("max", "sum"),
    "count_for_sum": _names("sum", "len"),
    "nothing_written": _unwritten,
    "written_twice": _written_twice,
    "gold_value_written": _written_gold,
}


class At(ast.NodeTransformer):
    """The change at one of the nodes that it applies to."""

    def __init__(self, change: Change, site: int, facts: Facts) -> None:
        self._change, self._left, self._facts = change, site, facts

    def visit(self, node: ast.AST) -> ast.AST:
        if self._left < 0:
            return node
        changed = self._change(node, self._facts)
        if changed is not None:
            self._left -= 1
            if self._left < 0:
                return ast.copy_location(changed, node) if hasattr(node, "lineno") else changed
        return self.generic_visit(node)
