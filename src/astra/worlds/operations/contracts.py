"""Tools that make, change and end contracts."""

from __future__ import annotations

from astra.records.world import Change, Expr, ToolRole
from astra.worlds.domain import Archetype
from astra.worlds.layout import Layout
from astra.worlds.operations.shared import (
    Operation,
    free_asset,
    good_standing,
    is_value,
    key_parameter,
    open_contract,
    own_means,
    party_of,
    row_result,
    seats,
    words,
)
from astra.worlds.sentences import with_article
from astra.worlds.specs import Check, Parameter, ToolSpec

CONTRACT, ASSET, PARTY = Archetype.CONTRACT, Archetype.ASSET, Archetype.PARTY


def _asset_of(layout: Layout) -> Expr:
    return layout.cell(CONTRACT, layout.arg(CONTRACT), "asset")


def _give_back(layout: Layout) -> Change:
    """The contract's asset is free again, or has its places back."""
    asset = _asset_of(layout)
    if layout.slots:
        taken = layout.cell(CONTRACT, layout.arg(CONTRACT), "seats")
        left = {"add": [layout.cell(ASSET, asset, "left"), taken]}
        return layout.update(ASSET, asset, left=left)
    return layout.update(ASSET, asset, state=layout.value(ASSET, "state", 0))


def _take(layout: Layout, asset: Expr, count: Expr) -> Change:
    """The asset is taken, or ``count`` of its places are."""
    if layout.slots:
        left = {"sub": [layout.cell(ASSET, asset, "left"), count]}
        return layout.update(ASSET, asset, left=left)
    return layout.update(ASSET, asset, state=layout.value(ASSET, "state", 1))


def _same_places(layout: Layout, check: Check) -> Check:
    """A check on ``seats`` for a call that has no such argument: the contract's own number."""
    if not layout.slots:
        return check
    wanted = layout.cell(CONTRACT, layout.arg(CONTRACT), "seats")
    left = check.require["le"][1]
    return Check({"le": [wanted, left]}, check.message)


def create(layout: Layout, name: str) -> ToolSpec:
    """A contract for a party: it takes the asset and, where there is money, is paid at once."""
    noun, key = layout.noun(CONTRACT).noun, {"arg": f"new_{layout.key(CONTRACT)}"}
    owner, thing = layout.arg(PARTY), layout.arg(ASSET)
    span, cells, spanned = _slot_span(layout) if layout.slots else _stay_span(layout)
    count = {"arg": span[-1].name}
    parameters = [key_parameter(layout, PARTY), key_parameter(layout, ASSET), *span]
    checks = [*good_standing(layout, owner), free_asset(layout, thing), *spanned]
    cells |= {"party": owner, "asset": thing, "state": layout.value(CONTRACT, "state", 0)}
    if "extensions" in layout.names(CONTRACT):
        cells["extensions"] = 0
    payments: list[Change] = []
    if not layout.small:
        cells["price"] = {"mul": [layout.price_of(thing), count]}
        parameters.append(key_parameter(layout, Archetype.MEANS, "What it is paid with"))
        checks.append(own_means(layout, owner))
        payments.append(_payment(layout, key, owner, cells["price"]))
    parts = [owner, thing, *({"arg": parameter.name} for parameter in span[:-1])]
    return ToolSpec(
        "create", name, ToolRole.CREATE,
        f"Make {with_article(noun)} for {with_article(layout.noun(PARTY).noun)}.",
        tuple(parameters), row_result(layout, CONTRACT, key), tuple(checks),
        (layout.insert(CONTRACT, parts, **cells), *payments, _take(layout, thing, count)),
    )  # fmt: skip


Span = tuple[list[Parameter], dict[str, Expr], list[Check]]
"""Parameters for when or how many (the number last), the cells they set, and their checks."""


def _slot_span(layout: Layout) -> Span:
    count = Parameter(seats(layout), "integer", "How many places", least=1, most=12)
    day = layout.cell(ASSET, layout.arg(ASSET), "date")
    over = Check({"le": [{"clock": "date"}, day]}, f"the {layout.noun(ASSET).noun} is in the past")
    return [count], {"seats": {"arg": count.name}}, [over]


def _stay_span(layout: Layout) -> Span:
    start = Parameter(layout.column(CONTRACT, "start"), "date", "First day")
    days = Parameter("days", "integer", "How many days", least=1, most=90)
    first = {"arg": start.name}
    past = Check({"le": [{"clock": "date"}, first]}, f"{words(start.name)} is in the past")
    cells = {"start": first, "end": {"date_add": [first, {"arg": days.name}]}}
    return [start, days], cells, [past]


def _payment(layout: Layout, contract: Expr, party: Expr, amount: Expr) -> Change:
    means = layout.arg(Archetype.MEANS)
    entry = layout.value(Archetype.LEDGER, "entry", 0)
    return layout.insert(
        Archetype.LEDGER, [entry, contract, party], party=party, contract=contract, means=means,
        entry=entry, amount=amount, booked_on={"clock": "date"},
    )  # fmt: skip


def extend(layout: Layout, name: str) -> ToolSpec:
    """Some more days; what they cost is added to what the party owes."""
    noun, contract = layout.noun(CONTRACT).noun, layout.arg(CONTRACT)
    days = Parameter("days", "integer", "How many more days", least=1, most=60)
    end, more = layout.cell(CONTRACT, contract, "end"), {"arg": "days"}
    cells: dict[str, Expr] = {
        "end": {"date_add": [end, more]},
        "extensions": {"add": [layout.cell(CONTRACT, contract, "extensions"), 1]},
    }
    checks, changes = [open_contract(layout)], list[Change]()
    if not layout.small:
        party = party_of(layout)
        cost = {"mul": [layout.price_of(_asset_of(layout)), more]}
        cells["price"] = {"add": [layout.cell(CONTRACT, contract, "price"), cost]}
        dues = {"add": [layout.cell(PARTY, party, "dues"), cost]}
        changes.append(layout.update(PARTY, party, dues=dues))
        checks += good_standing(layout, party)
    changes = [layout.update(CONTRACT, contract, **cells), *changes]
    return ToolSpec(
        "extend", name, ToolRole.EXTEND, f"Extend {with_article(noun)} by some days.",
        (key_parameter(layout, CONTRACT), days), row_result(layout, CONTRACT, contract),
        tuple(checks), tuple(changes),
    )  # fmt: skip


def resize(layout: Layout, name: str) -> ToolSpec:
    """Another number of places on the same date; what more of them cost is owed."""
    noun, contract, asset = layout.noun(CONTRACT).noun, layout.arg(CONTRACT), _asset_of(layout)
    count = Parameter(seats(layout), "integer", "How many places from now on", least=1, most=12)
    new, old = {"arg": count.name}, layout.cell(CONTRACT, contract, "seats")
    room = {"add": [layout.cell(ASSET, asset, "left"), old]}
    cells: dict[str, Expr] = {"seats": new}
    checks = [
        open_contract(layout),
        Check({"not": {"eq": [new, old]}}, f"the {noun} has that many places already"),
        Check({"le": [new, room]}, f"the {layout.noun(ASSET).noun} has too few places left"),
    ]
    changes = [layout.update(ASSET, asset, left={"sub": [room, new]})]
    if not layout.small:
        party = party_of(layout)
        cells["extensions"] = {"add": [layout.cell(CONTRACT, contract, "extensions"), 1]}
        price = {"mul": [layout.price_of(asset), new]}
        cells["price"] = price
        cost = {"sub": [price, layout.cell(CONTRACT, contract, "price")]}
        owed = layout.cell(PARTY, party, "dues")
        changes.append(layout.update(PARTY, party, {"lt": [0, cost]}, dues={"add": [owed, cost]}))
        checks += good_standing(layout, party)
    changes.append(layout.update(CONTRACT, contract, **cells))
    return ToolSpec(
        "resize", name, ToolRole.UPDATE, f"Change the number of places of {with_article(noun)}.",
        (key_parameter(layout, CONTRACT), count), row_result(layout, CONTRACT, contract),
        tuple(checks), tuple(changes),
    )  # fmt: skip


def cancel(layout: Layout, name: str) -> ToolSpec:
    """The contract ends at once. Refunds are another tool's."""
    noun, contract = layout.noun(CONTRACT).noun, layout.arg(CONTRACT)
    reasons = (*layout.domain.reasons, *layout.domain.poor_reasons)
    parameters = [key_parameter(layout, CONTRACT)]
    if not layout.small:
        parameters.append(Parameter("reason", "string", "Why, as the user says", values=reasons))
    return ToolSpec(
        "cancel", name, ToolRole.CANCEL, f"Cancel {with_article(noun)}.", tuple(parameters),
        row_result(layout, CONTRACT, contract), (open_contract(layout),),
        (layout.update(CONTRACT, contract, state=layout.value(CONTRACT, "state", 2)),
         _give_back(layout)),
    )  # fmt: skip


def close(layout: Layout, name: str) -> ToolSpec:
    """The contract is done; days past its end are owed."""
    noun, contract, party = layout.noun(CONTRACT).noun, layout.arg(CONTRACT), party_of(layout)
    changes = [
        layout.update(CONTRACT, contract, state=layout.value(CONTRACT, "state", 1)),
        _give_back(layout),
    ]
    begun: Check
    if layout.slots:
        today = layout.cell(ASSET, _asset_of(layout), "date")
        begun = Check({"le": [today, {"clock": "date"}]}, f"the {noun} has not begun")
    else:
        end, today = layout.cell(CONTRACT, contract, "end"), {"clock": "date"}
        late = {"days_between": [end, today]}
        owed = layout.cell(PARTY, party, "dues")
        fee = {"mul": [layout.price_of(_asset_of(layout)), late]}
        overdue = {"lt": [end, today]}
        changes.append(layout.update(PARTY, party, overdue, dues={"add": [owed, fee]}))
        start = layout.cell(CONTRACT, contract, "start")
        begun = Check({"le": [start, today]}, f"the {noun} has not begun")
    return ToolSpec(
        "close", name, ToolRole.UPDATE, f"Record that {with_article(noun)} is over.",
        (key_parameter(layout, CONTRACT),), row_result(layout, CONTRACT, contract),
        (open_contract(layout), begun), tuple(changes),
    )  # fmt: skip


def transfer(layout: Layout, name: str) -> ToolSpec:
    """Another asset for the same contract, at the same price."""
    noun, contract = layout.noun(CONTRACT).noun, layout.arg(CONTRACT)
    other = key_parameter(layout, ASSET, f"Key of the new {layout.noun(ASSET).noun}")
    new = {"arg": other.name}
    checks = [
        open_contract(layout),
        Check({"not": {"eq": [new, _asset_of(layout)]}}, f"the {noun} is for that one already"),
        _same_places(layout, free_asset(layout, new)),
    ]
    if not layout.small:
        checks.append(
            Check(
                is_value(layout, PARTY, party_of(layout), "standing", 0),
                f"the account of the {layout.noun(PARTY).noun} is locked",
            )
        )
    count = layout.cell(CONTRACT, contract, "seats") if layout.slots else 1
    return ToolSpec(
        "transfer", name, ToolRole.TRANSFER,
        f"Move {with_article(noun)} to another {layout.noun(ASSET).noun}.",
        (key_parameter(layout, CONTRACT), other), row_result(layout, CONTRACT, contract),
        tuple(checks),
        (_give_back(layout), _take(layout, new, count),
         layout.update(CONTRACT, contract, asset=new)),
    )  # fmt: skip


CONTRACTS: dict[str, Operation] = {
    "create": create, "extend": extend, "resize": resize, "cancel": cancel, "close": close,
    "transfer": transfer,
}  # fmt: skip
