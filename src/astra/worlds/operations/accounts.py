"""Tools about a party's account, money, extras and reports, and how a request ends undone."""

from __future__ import annotations

from astra.records.state import WriteAction
from astra.records.world import OUTCOMES, Change, OutcomeKind, ToolRole
from astra.worlds.domain import Archetype
from astra.worlds.layout import Layout
from astra.worlds.operations.shared import (
    Operation,
    enum_parameter,
    is_value,
    key_parameter,
    no_dues,
    open_contract,
    own_means,
    party_of,
    row_result,
    words,
)
from astra.worlds.sentences import with_article
from astra.worlds.specs import Check, Parameter, RowResult, ToolSpec

PARTY, CONTRACT, MEANS = Archetype.PARTY, Archetype.CONTRACT, Archetype.MEANS
LEDGER, LINE, TICKET = Archetype.LEDGER, Archetype.LINE, Archetype.TICKET


def update_party(layout: Layout, name: str) -> ToolSpec:
    """New contact data: whichever of them is given."""
    noun, party = layout.noun(PARTY).noun, layout.arg(PARTY)
    columns = [layout.column(PARTY, name) for name in ("email", "postcode", "phone")]
    given = [{"not": {"eq": [{"arg": column}, None]}} for column in columns]
    changes = (
        Change(
            action=WriteAction.UPDATE,
            table=layout.table(PARTY),
            key=party,
            values={column: {"arg": column}},
            when=there,
        )
        for column, there in zip(columns, given, strict=True)
    )
    return ToolSpec(
        "update_party", name, ToolRole.UPDATE, f"Change the contact data of {with_article(noun)}.",
        (key_parameter(layout, PARTY),
         *(Parameter(column, "string", f"New {words(column)}", optional=True)
           for column in columns)),
        row_result(layout, PARTY, party),
        (Check({"or": given}, "nothing to change is given"),), tuple(changes),
    )  # fmt: skip


def unlock(layout: Layout, name: str) -> ToolSpec:
    """A locked account is opened again, once nothing is owed."""
    noun, party = layout.noun(PARTY).noun, layout.arg(PARTY)
    dues = words(layout.column(PARTY, "dues"))
    return ToolSpec(
        "unlock", name, ToolRole.UPDATE, f"Unlock the account of {with_article(noun)}.",
        (key_parameter(layout, PARTY),), row_result(layout, PARTY, party),
        (Check(is_value(layout, PARTY, party, "standing", 1), "the account is not locked"),
         no_dues(layout, party, f"the {noun} has unpaid {dues}")),
        (layout.update(PARTY, party, standing=layout.value(PARTY, "standing", 0)),),
    )  # fmt: skip


def pay(layout: Layout, name: str) -> ToolSpec:
    """All that the party owes is paid."""
    noun, party = layout.noun(PARTY).noun, layout.arg(PARTY)
    owed, entry = layout.cell(PARTY, party, "dues"), layout.value(LEDGER, "entry", 0)
    dues = words(layout.column(PARTY, "dues"))
    booked = layout.insert(
        LEDGER, [entry, party, owed], party=party, contract=None, means=layout.arg(MEANS),
        entry=entry, amount=owed, booked_on={"clock": "date"},
    )  # fmt: skip
    return ToolSpec(
        "pay", name, ToolRole.PAY, f"Pay all {dues} of {with_article(noun)}.",
        (key_parameter(layout, PARTY), key_parameter(layout, MEANS)),
        row_result(layout, LEDGER, {"arg": f"new_{layout.key(LEDGER)}"}),
        (Check({"lt": [0, owed]}, f"the {noun} has no {dues}"), own_means(layout, party)),
        (booked, layout.update(PARTY, party, dues=0)),
    )  # fmt: skip


def refund(layout: Layout, name: str) -> ToolSpec:
    """The price of a cancelled contract goes back, once."""
    noun, contract, party = layout.noun(CONTRACT).noun, layout.arg(CONTRACT), party_of(layout)
    price, entry = layout.cell(CONTRACT, contract, "price"), layout.value(LEDGER, "entry", 1)
    ended = words(layout.value(CONTRACT, "state", 2))
    before = {
        "exists": [layout.table(LEDGER), layout.where(LEDGER, contract=contract, entry=entry)]
    }
    booked = layout.insert(
        LEDGER, [entry, contract], party=party, contract=contract, means=layout.arg(MEANS),
        entry=entry, amount=price, booked_on={"clock": "date"},
    )  # fmt: skip
    return ToolSpec(
        "refund", name, ToolRole.REFUND, f"Refund the price of {with_article(noun)}.",
        (key_parameter(layout, CONTRACT), key_parameter(layout, MEANS)),
        row_result(layout, LEDGER, {"arg": f"new_{layout.key(LEDGER)}"}),
        (Check(is_value(layout, CONTRACT, contract, "state", 2), f"the {noun} is not {ended}"),
         Check({"not": before}, f"the {noun} was refunded already"), own_means(layout, party)),
        (booked,),
    )  # fmt: skip


def add_line(layout: Layout, name: str) -> ToolSpec:
    """An extra for a contract, once; what it costs is owed."""
    noun, contract = layout.noun(CONTRACT).noun, layout.arg(CONTRACT)
    item = enum_parameter(layout, LINE, "item", "Which")
    quantity = Parameter(layout.column(LINE, "quantity"), "integer", "How many", least=1, most=9)
    cost = {"mul": [layout.domain.extra_price, {"arg": quantity.name}]}
    dues = layout.cell(PARTY, party_of(layout), "dues")
    where = layout.where(LINE, contract=contract, item={"arg": item.name})
    taken = {"exists": [layout.table(LINE), where]}
    line = layout.noun(LINE).noun
    return ToolSpec(
        "add_line", name, ToolRole.CREATE, f"Add {with_article(line)} to {with_article(noun)}.",
        (key_parameter(layout, CONTRACT), item, quantity),
        row_result(layout, LINE, {"arg": f"new_{layout.key(LINE)}"}),
        (open_contract(layout), Check({"not": taken}, f"the {noun} has that {line} already")),
        (layout.insert(LINE, [contract, {"arg": item.name}], contract=contract,
                       item={"arg": item.name}, quantity={"arg": quantity.name}, price=cost),
         layout.update(PARTY, party_of(layout), dues={"add": [dues, cost]})),
    )  # fmt: skip


def remove_line(layout: Layout, name: str) -> ToolSpec:
    """An extra goes; what is owed for it stays owed."""
    line = layout.noun(LINE).noun
    key = layout.arg(LINE)
    contract = layout.cell(LINE, key, "contract")
    state = layout.cell(CONTRACT, contract, "state")
    first = layout.value(CONTRACT, "state", 0)
    noun = layout.noun(CONTRACT).noun
    return ToolSpec(
        "remove_line", name, ToolRole.CANCEL,
        f"Remove {with_article(line)} from {with_article(noun)}.",
        (key_parameter(layout, LINE),),
        row_result(layout, CONTRACT, contract),
        (Check({"eq": [state, first]}, f"the {noun} is not {words(first)}"),),
        (layout.delete(LINE, key),),
    )  # fmt: skip


def open_ticket(layout: Layout, name: str) -> ToolSpec:
    """A report about a contract."""
    contract, noun = layout.arg(CONTRACT), layout.noun(CONTRACT).noun
    topic, ticket = enum_parameter(layout, TICKET, "topic", "What it is about"), layout.noun(TICKET)
    first = layout.value(TICKET, "state", 0)
    where = layout.where(TICKET, contract=contract, topic={"arg": topic.name}, state=first)
    return ToolSpec(
        "open_ticket", name, ToolRole.CREATE,
        f"Open {with_article(ticket.noun)} about {with_article(noun)}.",
        (key_parameter(layout, CONTRACT), topic),
        row_result(layout, TICKET, {"arg": f"new_{layout.key(TICKET)}"}),
        (Check({"not": {"exists": [layout.table(TICKET), where]}},
               f"there is such {with_article(ticket.noun)} already"),),
        (layout.insert(TICKET, [contract, {"arg": topic.name}], party=party_of(layout),
                       contract=contract, topic={"arg": topic.name}, state=first,
                       opened_on={"clock": "date"}),),
    )  # fmt: skip


def close_ticket(layout: Layout, name: str) -> ToolSpec:
    """A report is settled."""
    ticket, key = layout.noun(TICKET).noun, layout.arg(TICKET)
    return ToolSpec(
        "close_ticket", name, ToolRole.UPDATE, f"Close {with_article(ticket)}.",
        (key_parameter(layout, TICKET),), row_result(layout, TICKET, key),
        (Check(is_value(layout, TICKET, key, "state", 0), f"the {ticket} is closed already"),),
        (layout.update(TICKET, key, state=layout.value(TICKET, "state", 1)),),
    )  # fmt: skip


def decline(name: str, codes: tuple[str, ...]) -> ToolSpec:
    """A request that may not or cannot be met ends with the code of the reason."""
    reason = Parameter("reason", "string", "Why", values=codes)
    return _outcome(
        "decline", name, ToolRole.DECLINE, OutcomeKind.DECLINED, (reason,),
        "Decline what the user asks for; ends that request.",
    )  # fmt: skip


def hand_over(name: str, codes: tuple[str, ...]) -> ToolSpec:
    """A request that is for a person."""
    reason = Parameter("reason", "string", "What it is about", values=codes)
    summary = Parameter("summary", "string", "One sentence for the colleague")
    return _outcome(
        "hand_over", name, ToolRole.HAND_OVER, OutcomeKind.HANDED_OVER, (reason, summary),
        "Hand the request over to a colleague.",
    )  # fmt: skip


def _outcome(
    operation: str, name: str, role: ToolRole, kind: OutcomeKind,
    parameters: tuple[Parameter, ...], text: str,
) -> ToolSpec:  # fmt: skip
    reason = {"arg": "reason"}
    change = Change(
        action=WriteAction.INSERT, table=OUTCOMES, parts=(kind.value, reason),
        binds="new_outcome_id", values={"outcome": kind.value, "reason": reason},
    )  # fmt: skip
    result = RowResult(OUTCOMES, {"arg": "new_outcome_id"}, ("outcome_id", "outcome", "reason"))
    return ToolSpec(operation, name, role, text, parameters, result, (), (change,))


ACCOUNTS: dict[str, Operation] = {
    "update_party": update_party, "unlock": unlock, "pay": pay, "refund": refund,
    "add_line": add_line, "remove_line": remove_line, "open_ticket": open_ticket,
    "close_ticket": close_ticket,
}  # fmt: skip
