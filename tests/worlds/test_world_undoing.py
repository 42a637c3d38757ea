"""A change and what takes it back: pairs of calls that end with other rows than they began with."""

from __future__ import annotations

import random

from goal_samples import CONFIG
from small_worlds import small_world

from astra.records.state import Row
from astra.records.world import EventKind, RowChange, ToolRole, TraceEvent, WorldShape
from astra.sandbox.local import LocalSandbox
from astra.worlds.domain import load_domains
from astra.worlds.executions import Executions
from astra.worlds.generator import generate
from astra.worlds.undoing import leaves_rows, undoings
from astra.worlds.view import WorldView
from astra.worlds.wishes import draw_wishes


def event(key: str, row: Row | None) -> TraceEvent:
    return TraceEvent(
        kind=EventKind.CALL, tool="any", changes=(RowChange(table="loans", key=key, row=row),)
    )


def test_rows_are_left_unless_all_are_as_before() -> None:
    view = WorldView(small_world())
    key, row = next(iter(view.rows["loans"].items()))
    changed = {**row, "loan_state": "another"}
    new = {**row, "loan_id": "LN0000"}
    assert leaves_rows(view, event("LN0000", new), event("LN0000", changed))
    assert leaves_rows(view, event(key, changed), event(key, changed))
    assert leaves_rows(view, event(key, None), event("LN0000", new))
    assert not leaves_rows(view, event("LN0000", new), event("LN0000", None))
    assert not leaves_rows(view, event(key, changed), event(key, row))


def test_what_was_made_is_cancelled_and_stays(sandbox: LocalSandbox) -> None:
    world = generate(load_domains()["library_loans"], 0, WorldShape.FULL, 0)
    view = WorldView(world)
    with Executions(world, sandbox) as executions:
        pool = draw_wishes(view, executions, CONFIG.draws, random.Random(1))
        pairs = undoings(view, executions, pool)
    roles = {tuple(view.tools[wish.tool].role for wish in pair) for pair in pairs}
    assert roles == {(ToolRole.CREATE, ToolRole.CANCEL)}
