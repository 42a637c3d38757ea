"""Rules that domains choose from: what must hold when a tool is called, as one expression each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from astra.records.world import Enforced, Expr
from astra.worlds.domain import Archetype
from astra.worlds.layout import Layout
from astra.worlds.specs import ToolSpec

PARTY, ASSET, CONTRACT = Archetype.PARTY, Archetype.ASSET, Archetype.CONTRACT
MEANS, LEDGER, LINE, TICKET = Archetype.MEANS, Archetype.LEDGER, Archetype.LINE, Archetype.TICKET
Clause = tuple[Expr, Expr]
"""``when`` (None: always) and ``require``."""


@dataclass(frozen=True)
class RuleTemplate:
    """A rule that fits many domains. ``clause`` is given the constant that a variant drew."""

    operations: tuple[str, ...]
    """What it may govern; it fits a world that has one of them."""
    clause: Callable[[Layout, Mapping[str, ToolSpec], int], Clause]
    enforced: Enforced
    reason: str
    needs: tuple[Archetype, ...] = ()
    columns: tuple[str, ...] = ()
    """Columns of contracts that it is about and small worlds may lack."""


WRITES = ("create", "extend", "resize", "cancel", "close", "transfer", "refund", "add_line",
          "open_ticket", "update_party", "unlock", "pay")  # fmt: skip
DRASTIC = ("create", "extend", "resize", "cancel", "transfer", "refund", "pay")


def _contract(layout: Layout, name: str) -> Expr:
    return layout.cell(CONTRACT, layout.arg(CONTRACT), name)


def _party(layout: Layout) -> Expr:
    return _contract(layout, "party")


def _begin(layout: Layout) -> Expr:
    """The first day of the contract in question."""
    if layout.slots:
        return layout.cell(ASSET, _contract(layout, "asset"), "date")
    return _contract(layout, "start")


def _asset_days(layout: Layout) -> Expr:
    """The days from today to the date of the slot, or to the day given."""
    if layout.slots:
        day = layout.cell(ASSET, layout.arg(ASSET), "date")
    else:
        day = {"arg": layout.column(CONTRACT, "start")}
    return {"days_between": [{"clock": "date"}, day]}


def _authenticate(layout: Layout, tools: Mapping[str, ToolSpec], _: int) -> Clause:
    """The party was looked up: the one in the call, or the one of the contract in the call."""
    find, key = tools["find"].name, layout.key(PARTY)
    governed = [spec for operation, spec in tools.items() if operation in WRITES]
    parties = [
        party
        for column, party in ((key, layout.arg(PARTY)), (layout.key(CONTRACT), _party(layout)))
        if any(column == parameter.name for spec in governed for parameter in spec.parameters)
    ]
    seen = [{"seen": [find, key, party]} for party in parties]
    return None, seen[0] if len(seen) == 1 else {"or": seen}


def _confirm(layout: Layout, tools: Mapping[str, ToolSpec], _: int) -> Clause:
    return None, {"confirmed": None}


def _one_party(layout: Layout, tools: Mapping[str, ToolSpec], _: int) -> Clause:
    return None, {"le": [{"distinct_seen": [tools["find"].name, layout.key(PARTY)]}, 1]}


def _cancel_window(layout: Layout, tools: Mapping[str, ToolSpec], days: int) -> Clause:
    return None, {"le": [days, {"days_between": [{"clock": "date"}, _begin(layout)]}]}


def _cancel_reasons(layout: Layout, tools: Mapping[str, ToolSpec], _: int) -> Clause:
    return None, {"in": [{"arg": "reason"}, list(layout.domain.reasons)]}


def _tier_limit(layout: Layout, tools: Mapping[str, ToolSpec], most: int) -> Clause:
    tier = layout.cell(PARTY, layout.arg(PARTY), "tier")
    where = layout.where(
        CONTRACT, party=layout.arg(PARTY), state=layout.value(CONTRACT, "state", 0)
    )
    when = {"eq": [tier, layout.value(PARTY, "tier", 0)]}
    return when, {"lt": [{"count": [layout.table(CONTRACT), where]}, most]}


def _extend_limit(layout: Layout, tools: Mapping[str, ToolSpec], most: int) -> Clause:
    return None, {"lt": [_contract(layout, "extensions"), most]}


def _extend_overdue(layout: Layout, tools: Mapping[str, ToolSpec], _: int) -> Clause:
    return None, {"le": [{"clock": "date"}, _contract(layout, "end")]}


def _extend_length(layout: Layout, tools: Mapping[str, ToolSpec], most: int) -> Clause:
    return None, {"le": [{"arg": "days"}, most]}


def _resize_limit(layout: Layout, tools: Mapping[str, ToolSpec], most: int) -> Clause:
    return None, {"le": [{"arg": layout.column(CONTRACT, "seats")}, most]}


def _resize_window(layout: Layout, tools: Mapping[str, ToolSpec], days: int) -> Clause:
    return _cancel_window(layout, tools, days)


def _lead_time(layout: Layout, tools: Mapping[str, ToolSpec], most: int) -> Clause:
    return None, {"le": [_asset_days(layout), most]}


def _restricted(layout: Layout, tools: Mapping[str, ToolSpec], _: int) -> Clause:
    category = layout.category_of(layout.arg(ASSET))
    owner = Archetype.KIND if layout.has(Archetype.KIND) else ASSET
    last = layout.values(owner, "category")[-1]
    tier = layout.cell(PARTY, layout.arg(PARTY), "tier")
    return {"eq": [category, last]}, {"in": [tier, list(layout.values(PARTY, "tier")[1:])]}


def _same_category(layout: Layout, tools: Mapping[str, ToolSpec], _: int) -> Clause:
    old = layout.category_of(_contract(layout, "asset"))
    return None, {"eq": [layout.category_of(layout.arg(ASSET)), old]}


def _transfer_window(layout: Layout, tools: Mapping[str, ToolSpec], days: int) -> Clause:
    return _cancel_window(layout, tools, days)


def _refund_target(layout: Layout, tools: Mapping[str, ToolSpec], _: int) -> Clause:
    where = layout.where(
        LEDGER, contract=layout.arg(CONTRACT), means=layout.arg(MEANS),
        entry=layout.value(LEDGER, "entry", 0),
    )  # fmt: skip
    return None, {"exists": [layout.table(LEDGER), where]}


def _refund_limit(layout: Layout, tools: Mapping[str, ToolSpec], most: int) -> Clause:
    return None, {"le": [_contract(layout, "price"), most]}


def _no_voucher(layout: Layout, tools: Mapping[str, ToolSpec], _: int) -> Clause:
    kind = layout.cell(MEANS, layout.arg(MEANS), "type")
    return None, {"not": {"eq": [kind, layout.value(MEANS, "type", 2)]}}


def _membership(layout: Layout, tools: Mapping[str, ToolSpec], days: int) -> Clause:
    since = layout.cell(PARTY, layout.arg(PARTY), "since")
    return None, {"le": [days, {"days_between": [since, {"clock": "date"}]}]}


def _line_limit(layout: Layout, tools: Mapping[str, ToolSpec], most: int) -> Clause:
    column = layout.column(LINE, "quantity")
    where = layout.where(LINE, contract=layout.arg(CONTRACT))
    total = {"add": [{"sum": [layout.table(LINE), column, where]}, {"arg": column}]}
    return None, {"le": [total, most]}


def _one_ticket(layout: Layout, tools: Mapping[str, ToolSpec], _: int) -> Clause:
    where = layout.where(
        TICKET, contract=layout.arg(CONTRACT), state=layout.value(TICKET, "state", 0)
    )
    return None, {"not": {"exists": [layout.table(TICKET), where]}}


_POLICY, _TOOL = Enforced.POLICY, Enforced.TOOL
TEMPLATES: dict[str, RuleTemplate] = {
    "authenticate": RuleTemplate(WRITES, _authenticate, _POLICY, "not_identified"),
    "confirm": RuleTemplate(DRASTIC, _confirm, _POLICY, "not_confirmed"),
    "one_party": RuleTemplate(WRITES, _one_party, _POLICY, "second_person"),
    "cancel_window": RuleTemplate(("cancel",), _cancel_window, _POLICY, "too_late"),
    "cancel_reasons": RuleTemplate(("cancel",), _cancel_reasons, _POLICY, "poor_reason"),
    "tier_limit": RuleTemplate(("create",), _tier_limit, _POLICY, "too_many"),
    "extend_limit": RuleTemplate(("extend", "resize"), _extend_limit, _POLICY, "changed_before",
                                 columns=("extensions",)),
    "extend_overdue": RuleTemplate(("extend",), _extend_overdue, _POLICY, "overdue"),
    "extend_length": RuleTemplate(("extend",), _extend_length, _TOOL, "too_long"),
    "resize_limit": RuleTemplate(("create", "resize"), _resize_limit, _TOOL, "too_large"),
    "resize_window": RuleTemplate(("resize",), _resize_window, _POLICY, "too_close"),
    "lead_time": RuleTemplate(("create",), _lead_time, _TOOL, "too_early"),
    "stay_length": RuleTemplate(("create",), _extend_length, _TOOL, "too_long_stay"),
    "restricted": RuleTemplate(("create",), _restricted, _POLICY, "tier_too_low"),
    "same_category": RuleTemplate(("transfer",), _same_category, _POLICY, "other_category"),
    "transfer_window": RuleTemplate(("transfer",), _transfer_window, _TOOL, "move_too_late"),
    "refund_target": RuleTemplate(("refund",), _refund_target, _POLICY, "other_account"),
    "refund_limit": RuleTemplate(("refund",), _refund_limit, _POLICY, "amount_too_high"),
    "no_voucher": RuleTemplate(("pay",), _no_voucher, _TOOL, "no_vouchers"),
    "membership": RuleTemplate(("unlock",), _membership, _POLICY, "too_new"),
    "line_limit": RuleTemplate(("add_line",), _line_limit, _TOOL, "too_many_extras", (LINE,)),
    "one_ticket": RuleTemplate(("open_ticket",), _one_ticket, _POLICY, "open_already", (TICKET,)),
}  # fmt: skip
ALWAYS = ("authenticate", "confirm")
"""Rules of every world of full shape."""
