"""What operations are built of: parameters that name rows, conditions that many have."""

from __future__ import annotations

from collections.abc import Callable

from astra.records.world import Expr
from astra.worlds.domain import Archetype
from astra.worlds.layout import Layout
from astra.worlds.specs import Check, Parameter, RowResult, ToolSpec

Operation = Callable[[Layout, str], ToolSpec]
"""Makes the tool of a layout, given its name."""


def key_parameter(
    layout: Layout, archetype: Archetype, text: str = "", prefix: str = "", optional: bool = False
) -> Parameter:
    """A parameter that names a row by its key."""
    return Parameter(
        name=f"{prefix}{layout.key(archetype)}",
        type="string",
        description=text or f"Key of the {layout.noun(archetype).noun}",
        table=layout.table(archetype),
        optional=optional,
    )


def enum_parameter(
    layout: Layout, archetype: Archetype, column: str, text: str, optional: bool = False
) -> Parameter:
    """A parameter that is one of an enumerated column's values."""
    values = layout.values(archetype, column)
    name = layout.column(archetype, column)
    return Parameter(name, "string", text, values=values, optional=optional)


def row_result(layout: Layout, archetype: Archetype, key: Expr) -> RowResult:
    """The whole row."""
    return RowResult(layout.table(archetype), key, layout.columns(archetype))


def is_value(layout: Layout, archetype: Archetype, key: Expr, column: str, at: int) -> Expr:
    """Whether a row's enumerated cell has the value at that place of the archetype's order."""
    value = layout.value(archetype, column, at)
    return {"eq": [layout.cell(archetype, key, column), value]}


def open_contract(layout: Layout) -> Check:
    """The contract in question is open."""
    noun, state = layout.noun(Archetype.CONTRACT).noun, layout.value(Archetype.CONTRACT, "state", 0)
    require = is_value(layout, Archetype.CONTRACT, layout.arg(Archetype.CONTRACT), "state", 0)
    return Check(require, f"the {noun} is not {words(state)}")


def free_asset(layout: Layout, asset: Expr) -> Check:
    """The asset is free, or has as many places left as ``seats`` asks for."""
    noun = layout.noun(Archetype.ASSET).noun
    if layout.slots:
        left = layout.cell(Archetype.ASSET, asset, "left")
        return Check({"le": [{"arg": seats(layout)}, left]}, f"the {noun} has too few places left")
    state = layout.value(Archetype.ASSET, "state", 0)
    return Check(
        is_value(layout, Archetype.ASSET, asset, "state", 0), f"the {noun} is not {words(state)}"
    )


def seats(layout: Layout) -> str:
    """The column, and the parameter, for how many places a contract takes."""
    return layout.column(Archetype.CONTRACT, "seats")


def good_standing(layout: Layout, party: Expr) -> tuple[Check, ...]:
    """The hidden conditions of most writes: no lock, no unpaid dues. Other tools lift them."""
    if layout.small:
        return ()
    noun = layout.noun(Archetype.PARTY).noun
    dues = layout.column(Archetype.PARTY, "dues")
    return (
        Check(
            is_value(layout, Archetype.PARTY, party, "standing", 0),
            f"the account of the {noun} is locked",
        ),
        no_dues(layout, party, f"the {noun} has unpaid {words(dues)}"),
    )


def no_dues(layout: Layout, party: Expr, message: str) -> Check:
    """The party owes nothing."""
    return Check({"le": [layout.cell(Archetype.PARTY, party, "dues"), 0]}, message)


def own_means(layout: Layout, party: Expr) -> Check:
    """The payment means belongs to the party."""
    noun = layout.noun(Archetype.MEANS).noun
    owner = layout.cell(Archetype.MEANS, layout.arg(Archetype.MEANS), "party")
    return Check({"eq": [owner, party]}, f"the {noun} belongs to someone else")


def party_of(layout: Layout) -> Expr:
    """The party of the contract in question."""
    return layout.cell(Archetype.CONTRACT, layout.arg(Archetype.CONTRACT), "party")


def words(name: str) -> str:
    """A name's words."""
    return name.replace("_", " ")
