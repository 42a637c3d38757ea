"""Faults that a tired programmer or a careless model leaves in a world, and harmless twins.

They were planted by somebody who knew what worlds are for, but not how they are proved.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

import pytest
from small_worlds import changed
from strangers import GYM, LIBRARY, PERMITS, Base, base

from astra.records.world import Change, World
from astra.sandbox.local import LocalSandbox
from astra.worlds.config import ProofConfig
from astra.worlds.proofs import WorldProof

PROOFS = ProofConfig(fuzz_calls=200, walk_calls=500)
"""As many calls as the stage makes: with fewer it is left to chance what is met."""
Plant = Callable[[World], World]


def with_tool(world: World, name: str, **fields: Any) -> World:
    assert any(tool.tool.name == name for tool in world.tools)
    return changed(world, tools=tuple(
        tool.model_copy(update=fields) if tool.tool.name == name else tool for tool in world.tools
    ))  # fmt: skip


def code(tool: str, *edits: tuple[str, str]) -> Plant:
    """Pieces of a tool's code are others."""

    def plant(world: World) -> World:
        text = next(one.code for one in world.tools if one.tool.name == tool)
        for old, new in edits:
            assert old in text, (old, text)
            text = text.replace(old, new)
        return with_tool(world, tool, code=text)

    return plant


def changes(tool: str, edit: Callable[[Change], Change | None]) -> Plant:
    """What a tool says that it writes is something else."""

    def plant(world: World) -> World:
        old = next(one.changes for one in world.tools if one.tool.name == tool)
        kept = tuple(new for change in old if (new := edit(change)) is not None)
        assert kept != old
        return with_tool(world, tool, changes=kept)

    return plant


def without_table(table: str) -> Callable[[Change], Change | None]:
    return lambda change: None if change.table == table else change


def without_cell(table: str, *cells: str) -> Callable[[Change], Change]:
    return lambda change: change if change.table != table else change.model_copy(
        update={"values": {key: value for key, value in change.values.items() if key not in cells}}
    )  # fmt: skip


def rule(id: str, **fields: Any) -> Plant:
    def plant(world: World) -> World:
        assert any(one.id == id for one in world.rules)
        return changed(world, rules=tuple(
            one.model_copy(update=fields) if one.id == id else one for one in world.rules
        ))  # fmt: skip

    return plant


def rows(table: str, edit: Callable[[list[dict[str, Any]]], None]) -> Plant:
    def plant(world: World) -> World:
        copied = {name: [dict(row) for row in kept] for name, kept in world.rows.items()}
        edit(copied[table])
        return changed(world, rows=copied)

    return plant


def policy(old: str, new: str) -> Plant:
    def plant(world: World) -> World:
        assert old in world.policy
        return changed(world, policy=world.policy.replace(old, new))

    return plant


def told(limit: str, require: Any) -> Plant:
    """Prolonging has another limit, in the tree and in both texts."""
    old, new = (f"Use `prolong_loan` only if `days` is {one} (`too_long`)."
                for one in ("at most 21", limit))  # fmt: skip
    return both(rule("extend_length", require=require, text=new), policy(old, new))


def both(*plants: Plant) -> Plant:
    def plant(world: World) -> World:
        for one in plants:
            world = one(world)
        return world

    return plant


def enum_without(tool: str, parameter: str, value: str) -> Plant:
    def plant(world: World) -> World:
        found = next(one for one in world.tools if one.tool.name == tool)
        schema = found.tool.parameters
        one = schema["properties"][parameter]
        assert value in one["enum"]
        fewer = {**one, "enum": [other for other in one["enum"] if other != value]}
        parameters = {**schema, "properties": {**schema["properties"], parameter: fewer}}
        return with_tool(world, tool, tool=found.tool.model_copy(update={"parameters": parameters}))

    return plant


class Case(NamedTuple):
    name: str
    reason: str
    """Why it is rejected; empty where it is not."""
    base: Base
    plant: Plant
    twin: Plant | None = None
    """A change of the same sort that does no harm."""


def _double(kept: list[dict[str, Any]]) -> None:
    kept[1]["email"] = kept[0]["email"]


def _namesake(kept: list[dict[str, Any]]) -> None:
    kept[1]["legal_name"] = kept[0]["legal_name"]


def _neighbours(kept: list[dict[str, Any]]) -> None:
    kept[1].update(name=kept[0]["name"], postcode=kept[0]["postcode"])


def _orphan(kept: list[dict[str, Any]]) -> None:
    kept[0]["loan_id"] = "LN0000"


def _foreign_card(kept: list[dict[str, Any]]) -> None:
    paid = next(row for row in kept if row["loan_id"])
    paid["payment_card_id"] = next(
        row["payment_card_id"] for row in kept if row["member_id"] != paid["member_id"]
    )


FOREIGN = ("    if not (_cell(payment_card_row, 'member_id') == member_id):\n"
           "        raise ValueError('the payment card belongs to someone else')\n")  # fmt: skip
PAGES = "(len(items) + 9) // 10"
SLICE = "(page - 1) * 10:page * 10"
ONE = "    if len(items) > 1:\n        raise ValueError('several match; give more')\n"
BRANCH = ("    if branch is not None:\n"
          "        rows = [row for row in rows if row['branch'] == branch]\n")  # fmt: skip
OWNER = ("    if member_id is not None:\n"
         "        rows = [row for row in rows if row['member_id'] == member_id]\n")  # fmt: skip
REFUNDED = ("    if not (not bool(_rows(world, 'receipts', {'loan_id': loan_id, "
            "'entry': 'refund'}))):\n"
            "        raise ValueError('the loan was refunded already')\n")  # fmt: skip
ACTIVE = ("    if not (_cell(loan_row, 'loan_state') == 'active'):\n"
          "        raise ValueError('the loan is not active')\n")  # fmt: skip
LENT_RECEIPT = "    world.tables['receipts'].append(v1_cells)\n"
ZERO_DUE = "    if not _less(0, _cell(member_row, 'fines_due')):\n"
SHOWN = "return {name: row[name] for name in"

CASES = (
    Case("a day too few", "other_effect", PERMITS,
         code("prolong_permit", ("'valid_until'), days)", "'valid_until'), days - 1)")),
         twin=code("prolong_permit", ("timedelta(days=days)", "days * timedelta(days=1)"))),
    Case("a guard that lets one more through", "guard_missing", LIBRARY,
         code("prolong_loan", ("_less(_cell(loan_row, 'renewals'), 2)",
                               "_at_most(_cell(loan_row, 'renewals'), 2)")),
         twin=code("prolong_loan", ("_less(_cell(loan_row, 'renewals'), 2)",
                                    "_at_most(_cell(loan_row, 'renewals'), 1)"))),
    Case("a guard that stops one too many", "guard_too_strict", LIBRARY,
         code("prolong_loan", ("'renewals'), 2)", "'renewals'), 1)"))),
    Case("pays with anybody's card", "", LIBRARY, code("lend_copy", (FOREIGN, "")),
         twin=code("lend_copy", ("(_cell(payment_card_row, 'member_id') == member_id)",
                                 "(member_id == payment_card_row['member_id'])"))),
    Case("each page lacks its last row", "", LIBRARY,
         code("browse_copies", (SLICE, "(page - 1) * 10:page * 10 - 1")),
         twin=code("browse_copies", (SLICE, "10 * page - 10:10 * page"))),
    Case("the last page cannot be reached", "", LIBRARY,
         code("browse_copies", (PAGES, "len(items) // 10")),
         twin=code("browse_copies", (PAGES, "-(-len(items) // 10)"))),
    Case("a filter that filters nothing", "", LIBRARY, code("browse_copies", (BRANCH, "")),
         twin=code("browse_copies", (BRANCH, ""), (
             "    if shelf_state is not None:\n", BRANCH + "    if shelf_state is not None:\n"))),
    Case("a highest price that is left out itself", "", LIBRARY,
         code("browse_works", ("<= most_daily_fee", "< most_daily_fee"))),
    Case("quoted for a day more than is charged", "", LIBRARY,
         code("price_loan", ("_cell(work_row, 'daily_fee'), days)",
                             "_cell(work_row, 'daily_fee'), days + 1)")),
         twin=code("price_loan", ("_mul(_cell(work_row, 'daily_fee'), days)",
                                  "_mul(days, _cell(work_row, 'daily_fee'))"))),
    Case("refunded as often as asked", "invariant_broken", LIBRARY,
         code("refund_loan", (REFUNDED, "")),
         twin=code("refund_loan", ("not (not bool(_rows(", "len(_rows("), (
             "'entry': 'refund'}))):", "'entry': 'refund'}) ) > 0:"))),
    Case("what was returned is withdrawn", "invariant_broken", LIBRARY,
         code("withdraw_loan", (ACTIVE, "")),
         twin=code("withdraw_loan", ("    v0 = loan_row\n    v0_cells", "    v0_cells"), (
             "v0.update(v0_cells)", "loan_row.update(v0_cells)"))),
    Case("a withdrawn copy stays lent, by code and account", "invariant_broken", LIBRARY, both(
        code("withdraw_loan", ("    v1.update(v1_cells)\n", "")),
        changes("withdraw_loan", without_table("copies")))),
    Case("lent without a receipt", "other_effect", LIBRARY, code("lend_copy", (LENT_RECEIPT, "")),
         twin=code("lend_copy", (LENT_RECEIPT, "    world.tables['receipts'] += [v1_cells]\n"))),
    Case("lent without a receipt, by code and account", "", LIBRARY, both(
        code("lend_copy", (LENT_RECEIPT, "")), changes("lend_copy", without_table("receipts")))),
    Case("renewals are not counted, by code and account", "", LIBRARY, both(
        code("prolong_loan", (", 'renewals': _add(_cell(loan_row, 'renewals'), 1)", "")),
        changes("prolong_loan", without_cell("loans", "renewals")))),
    Case("takes the first of two namesakes", "", LIBRARY,
         both(rows("members", _neighbours), code("look_up_member", (ONE, ""))),
         twin=rows("members", _neighbours)),
    Case("lists everybody's loans", "other_record", LIBRARY, code("list_loans", (OWNER, ""))),
    Case("shows one date for the other", "untrue_record", LIBRARY,
         code("show_loan", (SHOWN, "row = {**row, 'due_date': row['loan_date']}\n    " + SHOWN))),
    Case("unlocking wipes the telephone", "other_effect", LIBRARY,
         code("unlock_member", ("{'account_state': 'good'}",
                                "{'account_state': 'good', 'phone': ''}"))),
    Case("a limit that the document does not know", "unexpected_failure", LIBRARY,
         code("price_loan", ("    if copy_row is None:",
                             "    if days > 60:\n        raise KeyError(days)\n"
                             "    if copy_row is None:"))),
    Case("a text with another limit than its expression", "other_sentence", LIBRARY, both(
        rule("extend_length", text="Use `prolong_loan` only if `days` is at most 30 (`too_long`)."),
        policy("Use `prolong_loan` only if `days` is at most 21 (`too_long`)",
               "Use `prolong_loan` only if `days` is at most 30 (`too_long`)"))),
    Case("a policy without one of its rules", "untold_rule", LIBRARY,
         policy("6. Use `prolong_loan` only if `days` is at most 21 (`too_long`).\n", ""),
         twin=policy("All money is in EUR.", "All money is in EUR, as it always was.")),
    Case("a rule whose code cannot be given", "unnamed_reason", LIBRARY,
         enum_without("decline_request", "reason", "too_late")),
    Case("two rules with one code", "shared_reason", LIBRARY,
         rule("extend_overdue", reason="too_long")),
    Case("rules that leave a tool no call", "rule_never_holds", LIBRARY,
         told("at least 61", {"le": [61, {"arg": "days"}]})),
    Case("a rule that everything keeps", "rule_never_breaks", LIBRARY,
         told("at most 60", {"le": [{"arg": "days"}, 60]}),
         twin=told("at most 59", {"le": [{"arg": "days"}, 59]})),
    Case("two people with one email", "", PERMITS, rows("applicants", _double),
         twin=rows("applicants", _namesake)),
    Case("a line of nothing", "dangling_reference", LIBRARY, rows("extras", _orphan)),
    Case("paid with a card of somebody else", "", LIBRARY, rows("receipts", _foreign_card)),
    Case("more taken than there is", "invariant_broken", GYM,
         code("sign_up_athlete", ("_at_most(persons, ", "_at_most(0 * persons, "))),
    Case("the place that was left stays taken", "other_effect", GYM, both(
        code("change_lesson", ("v0.update(v0_cells)", "v0.update({})")))),
    # a global lives as long as the session does
    Case("counts its calls in a global", "other_quote", LIBRARY,
         code("price_loan", ("def price_loan", "CALLS = []\n\n\ndef price_loan"),
              ("    return {'fee': _mul(_cell(work_row, 'daily_fee'), days)}",
               "    CALLS.append(days)\n"
               "    return {'fee': _mul(_cell(work_row, 'daily_fee'), days) + len(CALLS) // 9}"))),
)  # fmt: skip


HARMLESS = (
    # a refused call writes nothing
    Case("writes before it looks", "", LIBRARY,
         code("pay_fines", (ZERO_DUE, "    due, member_row['fines_due'] = member_row['fines_due'], "
                            "0\n    if due <= 0:\n"),
              ("member_id, _cell(member_row, 'fines_due'))", "member_id, due)"),
              ("'amount': _cell(member_row, 'fines_due')", "'amount': due"))),
)  # fmt: skip


def _fault(world: World, sandbox: LocalSandbox) -> str:
    found = WorldProof(world, sandbox, PROOFS).fault()
    return "" if found is None else found.reason


@pytest.mark.parametrize("case", CASES, ids=attrgetter("name"))
def test_a_planted_world_is_rejected(case: Case, sandbox: LocalSandbox) -> None:
    fault = _fault(case.plant(base(case.base)), sandbox)
    assert fault == (case.reason or fault) != ""


@pytest.mark.parametrize("case", [case for case in CASES if case.twin], ids=attrgetter("name"))
def test_its_harmless_twin_is_not(case: Case, sandbox: LocalSandbox) -> None:
    assert case.twin is not None
    assert _fault(case.twin(base(case.base)), sandbox) == ""


@pytest.mark.parametrize("case", HARMLESS, ids=attrgetter("name"))
def test_what_the_runner_makes_harmless_is_not(case: Case, sandbox: LocalSandbox) -> None:
    assert _fault(case.plant(base(case.base)), sandbox) == ""


@pytest.mark.parametrize("of", [LIBRARY, GYM, PERMITS])
def test_the_world_itself_is_not(of: Base, sandbox: LocalSandbox) -> None:
    assert _fault(base(of), sandbox) == ""
