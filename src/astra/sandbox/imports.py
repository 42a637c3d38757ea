"""The host's static check of a source's imports against the allow-list (limits.py).

It runs before a source is sent anywhere, for a clear early error. It is not the wall: code can
reach any loaded module by walking objects, and what stops it then is the kernel boundary around the
session.
"""

import ast
from collections.abc import Collection, Iterator


def forbidden_imports(tree: ast.AST, allowed: Collection[str]) -> list[str]:
    """Modules that a parsed source imports outside the allow-list, sorted, each once.

    Relative imports are always forbidden.
    """
    refused: set[str] = set()
    for base, member in _imported(tree):
        # `from urllib import parse` imports urllib.parse where only that is listed
        parent = any(name.startswith(f"{base}.") for name in allowed)
        name = f"{base}.{member}" if member and parent else base
        if not is_allowed(name, allowed):
            refused.add(name)
    return sorted(refused)


def is_allowed(module: str, allowed: Collection[str]) -> bool:
    """Whether the module or one of its parents is listed."""
    parts = module.split(".")
    return any(".".join(parts[: end + 1]) in allowed for end in range(len(parts)))


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(module, member) pairs; the member is empty for a plain import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield from ((base, alias.name) for alias in node.names)
