"""What a wish leaves open at first, or what is wished for before it: drawn from a world's rows."""

from __future__ import annotations

import random
from typing import NamedTuple

from astra.arena.expressions import all_rows
from astra.records.state import Row
from astra.worlds.executions import Executions
from astra.worlds.program import NoProgram, Told
from astra.worlds.references import Predicate, among, loose
from astra.worlds.view import WorldView
from astra.worlds.wishes import Wish, WishPool

MOST_CANDIDATES = 4


class OpenRow(NamedTuple):
    """A row that the wording leaves open."""

    parameter: str
    words: Predicate
    fact: Predicate
    """What the user knows of it besides."""
    candidates: list[Row]
    """The rows that the words fit, the one that is meant first."""


def open_row(view: WorldView, party: str, told: Told) -> OpenRow:
    """A row of a wish that words can leave open. Raises NoProgram."""
    for name, value in told.wish.arguments.items():
        table = view.table_of(name)
        if table is None or not view.is_owned(table.name) or view.lister(table.name) is None:
            continue
        rows = among(view, table.name, party, all_rows(view.world))
        meant = view.rows[table.name][value]
        found = loose(view, table.name, meant, rows, MOST_CANDIDATES)
        if found is not None and told.named[name].parent is None:
            left = [row for row in rows if dict(found[0].where).items() <= row.items()]
            others = [row for row in left if row[table.key] != value]
            return OpenRow(name, *found, [meant, *others])
    raise NoProgram("no_choice")


def other_version(
    view: WorldView, executions: Executions, pool: WishPool, wish: Wish, rng: random.Random
) -> Wish:
    """The same wish with one other value, which is legal as well: what is wanted at first. Raises
    NoProgram."""
    options = [
        other for other in pool.legal[wish.tool]
        if other.party == wish.party and other != wish
        and sum(other.arguments.get(k) != v for k, v in wish.arguments.items()) == 1
        and other.arguments.keys() == wish.arguments.keys()
    ]  # fmt: skip
    options += [
        Wish(wish.tool, {**wish.arguments, name: value + step}, wish.party)
        for name, value in wish.arguments.items() if isinstance(value, int) for step in (1, -1)
        if value + step > 0
    ]  # fmt: skip
    rng.shuffle(options)
    for other in options:
        made = executions.call(other.tool, other.arguments)
        if made.event.changes and not view.broken(other.tool, other.arguments):
            return other
    raise NoProgram("no_other_wish")
