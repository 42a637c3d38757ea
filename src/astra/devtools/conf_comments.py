"""Comments of a file of conf/, by the parameter that they stand beside or above."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

GLOBAL = "# @package _global_"
_TRAILING = re.compile(r"""^(?:[^"'#]|"[^"]*"|'[^']*'|(?<=\S)#)*\s#\s?(?P<said>.*)$""")


@dataclass(frozen=True)
class Comments:
    own: dict[str, str]
    """Every key of the file by its full dotted name -> its comment, empty without one."""
    bases: tuple[str, ...]
    """The files of the same group that it starts from."""


def read_comments(text: str, group: str) -> Comments:
    """The comments of a file of ``group`` (``rl``, ``rl/engine``).

    A comment belongs to a key where it stands at the end of the key's line, goes on below in the
    same column, or stands above the key alone. What opens the file belongs to none. A line of
    ``defaults`` that chooses a file speaks for the block that the file fills.
    """
    lines = text.splitlines()
    prefix = "" if text.startswith(GLOBAL) else group.replace("/", ".")
    root = yaml.compose(text, yaml.SafeLoader)
    own: dict[str, str] = {}
    bases: list[str] = []
    if isinstance(root, yaml.MappingNode):
        for key, node in _keys(root, prefix):
            own[key] = _beside(lines, node)
        bases = list(_defaults(root, lines, prefix, own))
    return Comments(own, tuple(bases))


def _keys(node: yaml.MappingNode, above: str) -> Iterator[tuple[str, yaml.Node]]:
    for key, value in node.value:
        name = f"{above}.{key.value}" if above else str(key.value)
        yield name, key
        if isinstance(value, yaml.MappingNode):
            yield from _keys(value, name)


def _defaults(
    root: yaml.MappingNode, lines: list[str], prefix: str, own: dict[str, str]
) -> Iterator[str]:
    """The bases that the file names; what it says of chosen groups goes to ``own``."""
    chosen = next((value for key, value in root.value if key.value == "defaults"), None)
    for item in chosen.value if isinstance(chosen, yaml.SequenceNode) else ():
        if isinstance(item, yaml.MappingNode):
            key = item.value[0][0]
            name = str(key.value).removeprefix("override ").removeprefix("/").replace("/", ".")
            own[name if key.value != name else f"{prefix}.{name}"] = _beside(lines, key)
        elif item.value != "_self_":
            yield str(item.value)


def _beside(lines: list[str], node: yaml.Node) -> str:
    at, column = node.start_mark.line, node.start_mark.column
    found = _TRAILING.search(lines[at][column:])
    if found:
        told, mark = [found["said"]], lines[at].rindex("#", 0, column + found.start("said"))
        for line in lines[at + 1 :]:
            if not line[:mark].strip() and line[mark : mark + 1] == "#":
                told.append(line[mark + 1 :].strip())
            else:
                break
        return " ".join(told).strip()
    first = at
    while first > 0 and lines[first - 1].startswith(f"{' ' * column}#"):
        first -= 1
    if first == 0 or lines[at][:column].strip():
        return ""
    return " ".join(line.strip().lstrip("# ") for line in lines[first:at])
