"""What holds of every row of a world, whatever its tools do."""

from __future__ import annotations

from collections.abc import Iterator

from astra.records.world import Expr, Invariant
from astra.worlds.domain import Archetype
from astra.worlds.layout import Layout

A = Archetype


def invariants(layout: Layout) -> tuple[Invariant, ...]:
    """The invariants of the archetypes that a world has."""
    made = [_assets(layout), *_contracts(layout)]
    if "dues" in layout.names(A.PARTY):
        made.append(_least(layout, A.PARTY, "dues", 0))
    if layout.has(A.LEDGER):
        made += [_least(layout, A.LEDGER, "amount", 1), _one_refund(layout), _paid(layout)]
    if layout.has(A.LINE):
        made.append(_least(layout, A.LINE, "quantity", 1))
    return tuple(made)


def _own(layout: Layout, archetype: Archetype, name: str) -> Expr:
    return {"self": layout.column(archetype, name)}


def _least(layout: Layout, archetype: Archetype, name: str, least: int) -> Invariant:
    column = layout.column(archetype, name)
    return Invariant(
        table=layout.table(archetype), text=f"{column} is at least {least}",
        holds={"le": [least, {"self": column}]},
    )  # fmt: skip


def _assets(layout: Layout) -> Invariant:
    """An asset is taken exactly while a contract is open; a slot's places add up."""
    table = layout.table(A.CONTRACT)
    where = layout.where(
        A.CONTRACT, asset={"self": layout.key(A.ASSET)}, state=layout.value(A.CONTRACT, "state", 0)
    )
    if layout.slots:
        taken = {"sum": [table, layout.column(A.CONTRACT, "seats"), where]}
        total = {"add": [_own(layout, A.ASSET, "left"), taken]}
        left = {"le": [0, _own(layout, A.ASSET, "left")]}
        holds = {"and": [left, {"eq": [total, _own(layout, A.ASSET, "capacity")]}]}
        text = "places left and places taken are the capacity"
    else:
        busy = {"eq": [_own(layout, A.ASSET, "state"), layout.value(A.ASSET, "state", 1)]}
        held = {"count": [table, where]}
        holds = {"or": [{"and": [busy, {"eq": [held, 1]}]},
                        {"and": [{"not": busy}, {"eq": [held, 0]}]}]}  # fmt: skip
        text = "taken exactly while one contract for it is open"
    return Invariant(table=layout.table(A.ASSET), text=text, holds=holds)


def _contracts(layout: Layout) -> Iterator[Invariant]:
    if layout.slots:
        yield _least(layout, A.CONTRACT, "seats", 1)
        return
    start, end = _own(layout, A.CONTRACT, "start"), _own(layout, A.CONTRACT, "end")
    yield Invariant(
        table=layout.table(A.CONTRACT), text="it does not end before it starts",
        holds={"le": [start, end]},
    )  # fmt: skip


def _paid(layout: Layout) -> Invariant:
    where = layout.where(
        A.LEDGER, contract=_own_key(layout), party=_own(layout, A.CONTRACT, "party"),
        entry=layout.value(A.LEDGER, "entry", 0),
    )  # fmt: skip
    return Invariant(
        table=layout.table(A.CONTRACT), text="a contract is paid once, by its party",
        holds={"eq": [{"count": [layout.table(A.LEDGER), where]}, 1]},
    )  # fmt: skip


def _own_key(layout: Layout) -> Expr:
    return {"self": layout.key(A.CONTRACT)}


def _one_refund(layout: Layout) -> Invariant:
    entry, contract = layout.value(A.LEDGER, "entry", 1), _own(layout, A.LEDGER, "contract")
    where = layout.where(A.LEDGER, contract=contract, entry=entry)
    not_refund = {"not": {"eq": [_own(layout, A.LEDGER, "entry"), entry]}}
    once = {"eq": [{"count": [layout.table(A.LEDGER), where]}, 1]}
    return Invariant(
        table=layout.table(A.LEDGER), text="a contract is refunded once",
        holds={"or": [not_refund, once]},
    )  # fmt: skip
