"""What operators of mutation know of a code: rows, columns, tests of types, the answer."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from astra.records.qa import AnswerType

Row = dict[str, Any]


@dataclass(frozen=True)
class Facts:
    """What operators know of a code beside the code: nothing of what it does."""

    code: str
    name: str
    """The tool's function."""
    arguments: Mapping[str, Any]
    """Those of the gold call."""
    answer: Any
    answer_type: AnswerType
    op: str = ""
    """The operation behind the tool; empty where none is stated."""
    writes: bool = False
    """Whether the tool changes the world: then the question tells its answer."""
    tables: Sequence[Sequence[Row]] = field(default_factory=tuple)
    """The tables of the world; none where the code has its own rows."""

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.code)

    @cached_property
    def rows(self) -> list[Sequence[Row]]:
        """Every table that the code reads: its own literals and the world's."""
        found = [rows_of(node) for node in self.tree.body]
        return [*(rows for rows in found if rows), *self.tables]

    @cached_property
    def compared(self) -> set[str]:
        """The columns that the code compares."""
        compared = (node for node in ast.walk(self.tree) if isinstance(node, ast.Compare))
        return {name for node in compared for name in columns_in([node])}

    @cached_property
    def read(self) -> set[str]:
        """The columns that the code names at all."""
        functions = [node for node in self.tree.body if isinstance(node, ast.FunctionDef)]
        texts = columns_in(functions) | {
            node.value
            for function in functions
            for node in ast.walk(function)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        return texts

    @cached_property
    def shared(self) -> bool:
        """Whether rows of a table are alike in all compared columns, so that several are found."""
        for rows in self.rows:
            names = [name for name in rows[0] if name in self.compared] if rows else []
            keys = [repr([row.get(name) for name in names]) for row in rows]
            if names and len(set(keys)) < len(keys):
                return True
        return False

    @cached_property
    def counts_rows(self) -> bool:
        """Whether a row more shows: rows are counted, added up or listed."""
        counting = {"len", "sum"}
        return self.answer_type in (AnswerType.LIST, AnswerType.RECORD) or any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in counting
            for node in ast.walk(self.tree)
        )

    @cached_property
    def compared_again(self) -> set[str]:
        """The names that are compared for equality at several places: each hides the other."""
        names = [
            side.id
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq)
            for side in [node.left, *node.comparators]
            if isinstance(side, ast.Name)
        ]
        return {name for name in names if names.count(name) > 1}

    @cached_property
    def tests_of_any(self) -> set[tuple[int, int]]:
        """Where loops stand that only tell whether there is any such row."""
        return {
            (node.target.lineno, node.target.col_offset)
            for call in ast.walk(self.tree)
            if is_call(call, {"any", "all"})
            for node in ast.walk(call)
            if isinstance(node, ast.comprehension)
        }

    @cached_property
    def guards(self) -> set[str]:
        """The functions that look at types: the built-in ones, and helpers that use them."""
        helpers = {
            node.name
            for node in self.tree.body
            if isinstance(node, ast.FunctionDef)
            and node.name != self.name
            and has_call(node, {"isinstance", "type"})
        }
        return {"isinstance", "type", *helpers}

    @cached_property
    def unreached(self) -> set[tuple[int, int]]:
        """Where raises stand that no call reaches whose arguments have the right types."""
        helpers = [
            node
            for node in self.tree.body
            if isinstance(node, ast.FunctionDef) and node.name in self.guards
        ]
        typed = [
            statement
            for node in ast.walk(self.tree)
            if isinstance(node, ast.If) and self._is_of_types(node.test)
            for statement in node.body
        ]
        return {
            (raised.lineno, raised.col_offset)
            for outer in [*helpers, *typed]
            for raised in ast.walk(outer)
            if isinstance(raised, ast.Raise)
        }

    def _is_of_types(self, test: ast.expr) -> bool:
        """Whether only a wrong type makes a test true."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
            return all(self._is_of_types(value) for value in test.values)
        return has_call(test, self.guards)


def rows_of(node: ast.AST) -> list[Row]:
    """The rows that a statement of a module assigns; empty for any other."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.List):
        return []
    try:
        rows = ast.literal_eval(node.value)
    except ValueError:
        return []
    return rows if len(rows) > 1 and all(isinstance(row, dict) for row in rows) else []


def columns_in(nodes: Iterable[ast.AST]) -> set[str]:
    """The texts by which values are subscribed or got."""
    found: set[str] = set()
    for outer in nodes:
        for node in ast.walk(outer):
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                found.add(str(node.slice.value))
    return found


def has_call(outer: ast.AST, names: set[str]) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
        for node in ast.walk(outer)
    )


def is_call(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def literal(value: Any) -> ast.expr:
    return ast.parse(repr(value), mode="eval").body
