"""Python source as a syntax tree, on any thread."""

import ast
from threading import RLock

# CPython before 3.11.8 and 3.12.2 counts the depth of all trees under construction together: when
# a collection lets another thread parse, both raise SystemError (python/cpython, issue 106905).
# A finalizer may parse too, on the thread that holds the lock.
_ONE_AT_A_TIME = RLock()


def parsed(source: str) -> ast.Module:
    """A module's tree. Raises SyntaxError, ValueError, RecursionError or MemoryError."""
    with _ONE_AT_A_TIME:
        return ast.parse(source)


def parsed_expression(text: str) -> ast.Expression:
    """The tree of one expression. Raises what ``parsed`` does."""
    with _ONE_AT_A_TIME:
        return ast.parse(text, mode="eval")
