"""Tables of docs/paper.md: the values of scale ``paper``, and what conf/ says they come from.

    python -m astra.devtools.paper [--check]

A value is the paper's where its comment names the paper or its release, and ours where the comment
says so. Others, which say how to run and not what to compute, are not listed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from astra.devtools.conf_comments import Comments, read_comments
from astra.devtools.nested import leaves
from astra.devtools.params import BLOCKS
from astra.errors import AstraError
from astra.stage import run_stage

PAGE = Path("docs/paper.md")
CONF = Path("conf")
SCALE = "scale=paper"
BEGIN, END = "<!-- begin: python -m astra.devtools.paper -->", "<!-- end -->"
OURS = re.compile(r"\bours\b|\bour choice\b|not stated|states no\b", re.IGNORECASE)
CITED = re.compile(r"\bASTRA|\bpaper|\brelease", re.IGNORECASE)
MAX_CHARS = 60
"""A longer value is cut where it is shown."""
_ROLES = ("teacher", "judge", "emulator", "embedding", "policy")
_BLOCKS = (*_ROLES, *(name for name in BLOCKS if name not in ("voters", "back_translators")))


@dataclass(frozen=True)
class Value:
    """One parameter of scale ``paper``."""

    name: str
    value: Any
    said: str
    """The comment of conf/ that it has there; empty without one."""

    @property
    def block(self) -> str:
        return self.name.partition(".")[0]

    @property
    def is_ours(self) -> bool:
        """Whether its comment says that it is our choice, or that the paper states none."""
        return bool(OURS.search(self.said))

    @property
    def is_the_papers(self) -> bool:
        """Whether its comment names the paper, and does not call it ours."""
        return bool(CITED.search(self.said)) and not self.is_ours


def values(*overrides: str) -> list[Value]:
    """Every parameter of the stages and roles under ``overrides``, as it is composed; those that
    repeat another block (``${...}``) are left out."""
    with initialize_config_dir(str(CONF.absolute()), version_base=None):
        composed = compose("config", list(overrides), return_hydra_config=True)
    chosen = {
        group: option
        for group, option in composed.hydra.runtime.choices.items()
        if option is not None and not group.startswith("hydra")
    }
    files = list(_files(chosen))
    found: list[Value] = []
    for block in _BLOCKS:
        held = OmegaConf.to_container(composed[block], resolve=False)
        for name, value in leaves(held, block).items():
            said = _said(name, files)
            empty = value == "${oc.create:{}}"
            if empty or not (isinstance(value, str) and value.startswith("${")):
                found.append(Value(name, {} if empty else value, said))
    return [one for one in found if one.block != "runtime" or one.said.startswith("ours")]


def _files(chosen: Mapping[str, str]) -> Iterator[Comments]:
    """The comments of the chosen files, those first whose values win over the others'."""
    groups = sorted(chosen, key=lambda group: (group != "policy/limits", group != "scale"))
    for group in groups:
        yield from _chain(group, chosen[group])


def _chain(group: str, option: str) -> Iterator[Comments]:
    """A file of conf/ and those that it starts from; files that are not there have no comments."""
    file = CONF / group / f"{option}.yaml"
    if not file.is_file():
        return
    comments = _read(file)
    yield comments
    for name in comments.bases:
        yield from _chain(group, name)


@cache
def _read(file: Path) -> Comments:
    return read_comments(file.read_text("utf-8"), str(file.relative_to(CONF).parent))


def _said(name: str, files: list[Comments]) -> str:
    """The comment of the first file that sets the parameter, else of one that sets it whole."""
    for comments in files:
        if said := comments.own.get(name):
            return said
        if name in comments.own:
            break
    parts = name.split(".")
    for end in range(len(parts) - 1, 1, -1):
        above = ".".join(parts[:end])
        for comments in files:
            if said := comments.own.get(above):
                return said
    return ""


def tables() -> str:
    """What stands between the marks of the page: the paper's values, and ours."""
    every = merged(values(SCALE))
    text: list[str] = []
    for title, rows in (
        ("The paper's", [one for one in every if one.is_the_papers]),
        ("Ours, where the paper states none", [one for one in every if one.is_ours]),
    ):
        text += [f"### {title}", "", "| parameter | value | where from |", "|---|---|---|"]
        text += map(_row, rows)
        text.append("")
    return "\n".join(text)


def merged(every: list[Value]) -> list[Value]:
    """The values, those of one mapping as one where a single comment speaks for all of them."""
    shown = every
    depth = max(one.name.count(".") for one in every)
    for level in range(depth, 0, -1):
        groups: dict[str, list[Value]] = {}
        for one in shown:
            parts = one.name.split(".")
            deep = len(parts) == level + 1 and level > 1
            groups.setdefault(".".join(parts[:-1]) if deep else one.name, []).append(one)
        shown = [one for name, group in groups.items() for one in _as_one(name, group)]
    return shown


def _as_one(name: str, group: list[Value]) -> list[Value]:
    said = {one.said for one in group}
    if len(said) > 1 or not all(said):
        return group
    held = {one.name.removeprefix(f"{name}."): one.value for one in group}
    return [Value(name, held if name not in held else group[0].value, said.pop())]


def _row(one: Value) -> str:
    shown = json.dumps(one.value, ensure_ascii=False, default=str)
    shown = shown if len(shown) <= MAX_CHARS else f"{shown[:MAX_CHARS]}…"
    cells = (f"`{one.name}`", f"`{shown}`", one.said.replace("<", "&lt;"))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def updated(page: str) -> str:
    """The page with its tables anew. Raises AstraError where it has no place for them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise AstraError(f"{PAGE} has no lines {BEGIN!r} and {END!r} to put the tables between")
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


def main() -> None:
    page = PAGE.read_text("utf-8")
    fresh = updated(page)
    if "--check" not in sys.argv:
        PAGE.write_text(fresh, "utf-8")
    elif fresh != page:
        raise AstraError(f"{PAGE} differs from conf/; run `make params` and commit it")


if __name__ == "__main__":
    run_stage("paper", main)
