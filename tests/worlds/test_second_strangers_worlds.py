"""Worlds spoiled by somebody who read what a world promises, not how it is proved; and changes
beside them that spoil nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from small_worlds import changed

from astra.records.state import WriteAction
from astra.records.world import Change, World, WorldShape, WorldTool
from astra.sandbox.local import LocalSandbox
from astra.worlds.config import ProofConfig
from astra.worlds.domain import load_domains
from astra.worlds.generator import generate
from astra.worlds.proofs import WorldProof

Plant = Callable[[World], World]
CONFIG = ProofConfig(fuzz_calls=200, walk_calls=500)
"""As many calls as the stage makes: with fewer it is left to chance what is met."""
BASES = {
    "rental": ("tool_rental", 0, WorldShape.FULL, 0),
    "gym": ("gym_classes", 1, WorldShape.FULL, 1),
    "museum": ("museum_ticketing", 2, WorldShape.FULL, 0),
    "library": ("library_loans", 0, WorldShape.FULL, 0),
    "permits": ("municipal_permits", 0, WorldShape.SMALL, 0),
}


@cache
def base(name: str) -> World:
    domain, variant, shape, seed = BASES[name]
    return generate(load_domains()[domain], variant, shape, seed)


def tool(name: str, edit: Callable[[WorldTool], dict[str, Any]]) -> Plant:
    """The world with a tool that has other fields."""

    def plant(world: World) -> World:
        assert name in {one.tool.name for one in world.tools}
        tools = tuple(
            one.model_copy(update=edit(one)) if one.tool.name == name else one
            for one in world.tools
        )
        return changed(world, tools=tools)

    return plant


def code(name: str, *pairs: tuple[str, str]) -> Plant:
    """The world in which pieces of a tool's code are others."""

    def edit(one: WorldTool) -> dict[str, Any]:
        text = one.code
        for old, new in pairs:
            assert old in text, text
            text = text.replace(old, new)
        return {"code": text}

    return tool(name, edit)


def above(name: str, line: str) -> Plant:
    return tool(name, lambda one: {"code": f"{line}\n\n\n{one.code}"})


def change(name: str, at: int, **fields: Any) -> Plant:
    """The world in which a tool declares one of its changes otherwise."""

    def edit(one: WorldTool) -> dict[str, Any]:
        changes = list(one.changes)
        changes[at] = changes[at].model_copy(update=fields)
        return {"changes": tuple(changes)}

    return tool(name, edit)


def values(name: str, at: int, **cells: Any) -> Plant:
    def edit(one: WorldTool) -> dict[str, Any]:
        told = one.changes[at]
        new = told.model_copy(update={"values": {**told.values, **cells}})
        return {"changes": (*one.changes[:at], new, *one.changes[at + 1 :])}

    return tool(name, edit)


def all_of(*plants: Plant) -> Plant:
    def plant(world: World) -> World:
        for one in plants:
            world = one(world)
        return world

    return plant


def rule(name: str, policy: bool = True, **fields: Any) -> Plant:
    """The world with a rule that has other fields; a new sentence stands in the policy too."""

    def plant(world: World) -> World:
        old = next(one for one in world.rules if one.id == name)
        new = old.model_copy(update=fields)
        assert old.text in world.policy
        text = world.policy.replace(old.text, new.text) if policy else world.policy
        rules = tuple(new if one is old else one for one in world.rules)
        return changed(world, rules=rules, policy=text)

    return plant


def cell(table: str, column: str, value: Any) -> Plant:
    """The world in which a cell of a table's first row is another."""

    def plant(world: World) -> World:
        first, *rest = world.rows[table]
        rows = {**world.rows, table: [{**first, column: value}, *rest]}
        return changed(world, rows=rows)

    return plant


def no_insert(name: str, at: int, cells: str, table: str, *, declared: bool) -> Plant:
    """A row of a ledger is not written, and nobody says that it is."""

    def edit(one: WorldTool) -> dict[str, Any]:
        writes = one.writes if declared else tuple(t for t in one.writes if t != table)
        return {"changes": one.changes[:at] + one.changes[at + 1 :], "writes": writes}

    return all_of(code(name, (f"    world.tables['{table}'].append({cells})\n", "")),
                  tool(name, edit))  # fmt: skip


def codes_swapped(world: World) -> World:
    text = world.policy.replace("`too_late`", "`?`").replace("`poor_reason`", "`too_late`")
    return changed(world, policy=text.replace("`?`", "`poor_reason`"))


def reasons(edit: Callable[[list[str]], list[str]]) -> Plant:
    """The world whose document of ``decline_request`` lists other codes."""

    def of(one: WorldTool) -> dict[str, Any]:
        schema = one.tool.parameters
        reason = schema["properties"]["reason"]
        new = {**schema, "properties": {"reason": {**reason, "enum": edit(reason["enum"])}}}
        return {"tool": one.tool.model_copy(update={"parameters": new})}

    return tool("decline_request", of)


GONE = Change(action=WriteAction.DELETE, table="hires", key={"arg": "hire_id"})
ONCE = "    if not (not bool(_rows(world, 'till_records', {'ticket_order_id': ticket_order_id, " \
       "'till_type': 'return'}))):\n" \
       "        raise ValueError('the ticket order was refunded already')\n"  # fmt: skip
STATE = "    if not (_cell(ticket_order_row, 'order_status') == 'voided'):\n" \
        "        raise ValueError('the ticket order is not voided')\n"  # fmt: skip
BOTH = "    if not ((not (email is None)) or " \
       "((not (name is None)) and (not (postcode is None)))):\n" \
       "        raise ValueError('give email, or name and postcode')\n"  # fmt: skip
SEVERAL = "    if len(items) > 1:\n        raise ValueError('several match; give more')\n"
LEAD = "if not _at_most(_days(world.clock[:10], start_date), 21):"
LARGE = "    if not _at_most(persons, 4):\n" \
        "        raise ValueError('too_large: a rule forbids this')\n"  # fmt: skip
ISSUED = "    if not (_cell(ticket_order_row, 'order_status') == 'issued'):\n"
LATE = "_days(_cell(hire_row, 'return_date'), world.clock[:10])"
START, END = ({"field": [{"row": ["hires", {"arg": "hire_id"}]}, name]}
              for name in ("start_date", "return_date"))  # fmt: skip
LEFT = {"field": [{"row": ["lessons", {"field": [{"row": ["signups", {"arg": "signup_id"}]},
                                                 "lesson_id"]}]}, "mats_left"]}  # fmt: skip
TAKEN = {"field": [{"row": ["signups", {"arg": "signup_id"}]}, "persons"]}

FAULTS: dict[str, tuple[str, Plant]] = {
    "each page loses its tenth row": ("museum", code("searchEntryWindows", (
        "items[(page - 1) * 10:page * 10]", "items[(page - 1) * 10:page * 10 - 1]"))),
    "a day too many is charged": ("rental", code("finish_hire", (
        f"_mul(_cell(model_row, 'day_rate'), {LATE})",
        f"_mul(_cell(model_row, 'day_rate'), _add({LATE}, 1))"))),
    "a cancelled contract is deleted": ("rental", all_of(
        code("void_hire", ("    v0.update(v0_cells)", "    world.tables['hires'].remove(v0)"),
             ("row = _row(world, 'hires', 'hire_id', shown)", "row = v0")),
        tool("void_hire", lambda one: {"changes": (GONE, one.changes[1])}))),
    "places are not given back": ("museum", all_of(
        code("annulTicketOrder", ("    v1.update(v1_cells)\n", "")),
        tool("annulTicketOrder", lambda one: {"changes": one.changes[:1]}))),
    "ids from the number of rows": ("rental", code("add_accessory", (
        "world.new_id('accessories', hire_id, item)",
        "'AC%d' % (9000 + len(world.tables['accessories']))"))),
    "the ledger is forgotten": ("rental", no_insert(
        "begin_hire", 1, "v1_cells", "postings", declared=True)),
    "the first of several people": ("library", code("look_up_member", (BOTH, ""), (SEVERAL, ""))),
    "a part of an email is enough": ("library", code("look_up_member", (
        "row['email'] == email", "row['email'].startswith(email)"), (SEVERAL, ""))),
    "the sentence is of another date": ("rental", rule("cancel_window", require={
        "le": [1, {"days_between": [{"clock": "date"}, END]}]})),
    "the sentence says less, the expression fewer": ("rental", rule("extend_limit", text=(
        "Use `prolong_hire` only if the prolongations of the hire is at most 1 "
        "(`changed_before`)."))),
    "the guard is stronger": ("gym", code("person_count_change", (
        LARGE, LARGE.replace("persons, 4", "persons, 3")))),
    "one of two tools has no guard": ("gym", code("person_count_change", (LARGE, ""))),
    "what is voided is finished": ("rental", code("finish_hire", (
        "_cell(hire_row, 'hire_state') == 'running'",
        "_cell(hire_row, 'hire_state') != 'finished'"))),
    "every third quote costs more": ("library", all_of(
        code("price_loan", ("    copy_row =", "    ASKED.append(1)\n    copy_row ="),
             ("'daily_fee'), days)", "'daily_fee'), days + (len(ASKED) % 3 == 0))")),
        above("price_loan", "ASKED = []"))),
    "a cell is shown on the quiet": ("rental", code("read_machine", (
        "    return {name: row[name] for name in ['machine_id', 'model_id', 'yard', 'status', "
        "'power']}",
        "    hire = next((h for h in world.tables['hires'] if h['machine_id'] == shown), {})\n"
        "    return {**row, 'customer_id': hire.get('customer_id')}"))),
    "more is declared as shown": ("rental", tool("read_machine", lambda one: {
        "shows": {**one.shows, "models": ("model_id", "day_rate")},
        "reads": ("machines", "models")})),
    "the policy swaps two codes": ("rental", codes_swapped),
    "declining hands over": ("rental", all_of(
        code("decline_request", ("'outcome': 'declined'", "'outcome': 'handed_over'")),
        values("decline_request", 0, outcome="handed_over"))),
    "the search ends at fifty": ("rental", code("search_machines", (
        "key=lambda row: row['machine_id'])", "key=lambda row: row['machine_id'])[:50]"))),
    "shown as it was at first": ("rental", all_of(
        code("read_machine", ("    row = _row(world, 'machines', 'machine_id', shown)",
                              "    row = KEPT.setdefault(shown, dict(machine_row))")),
        above("read_machine", "KEPT = {}"))),
    "true for a number": ("rental", cell("hires", "prolongations", True)),
    "a fraction for a number": ("museum", code("collectBalanceOwed", (
        "'amount': _cell(visitor_row, 'balance_owed')",
        "'amount': 1.0 * _cell(visitor_row, 'balance_owed')"))),
    "a day that is none": ("library", cell("loans", "due_date", "2026-02-30")),
    "places given back twice": ("gym", all_of(
        code("lesson_swap", (
            "_add(_cell(lesson_row2, 'mats_left'), _cell(signup_row, 'persons'))",
            "_add(_cell(lesson_row2, 'mats_left'), _mul(2, _cell(signup_row, 'persons')))")),
        above("lesson_swap", "def _mul(one, other):\n    return one * other"),
        values("lesson_swap", 0, mats_left={"add": [LEFT, {"mul": [2, TAKEN]}]}))),
    "the real day": ("rental", all_of(
        code("collect_open_balance", ("world.clock[:10]", "date.today().isoformat()")),
        above("collect_open_balance", "from datetime import date"))),
    "what is not given is blanked": ("museum", all_of(
        code("updateVisitor", ("    v2_due = (not (phone is None))", "    v2_due = True")),
        change("updateVisitor", 2, when=None))),
}  # fmt: skip

TWINS: dict[str, tuple[str, Plant]] = {
    "written, refused, and taken back": ("museum", code("annulTicketOrder", (
        ISSUED, "    before = dict(ticket_order_row)\n"
        "    ticket_order_row.update({'order_status': 'voided'})\n"
        "    if before['order_status'] != 'issued':\n"), )),
    "another way to filter": ("library", code("list_loans", (
        "rows = [row for row in rows if row['loan_state'] == loan_state]",
        "rows = list(filter(lambda row: row['loan_state'] == loan_state, rows))"))),
    "another way to count pages": ("museum", code("searchEntryWindows", (
        "(len(items) + 9) // 10", "-(-len(items) // 10)"))),
    "a quote day by day": ("library", code("price_loan", (
        "_mul(_cell(work_row, 'daily_fee'), days)",
        "sum(work_row['daily_fee'] for _ in range(days))"))),
    "factors the other way round": ("rental", code("finish_hire", (
        f"_mul(_cell(model_row, 'day_rate'), {LATE})",
        f"_mul({LATE}, _cell(model_row, 'day_rate'))"))),
    "changes in another order": ("museum", tool("annulTicketOrder", lambda one: {
        "changes": one.changes[::-1]})),
    "checks in another order": ("museum", code("returnOrderTotal", (STATE + ONCE, ONCE + STATE))),
    "another refusal": ("library", code("look_up_member", (
        "several match; give more", "more than one matches: say more"))),
    "a guard in other words": ("rental", code("begin_hire", (
        LEAD, "if _days(world.clock[:10], start_date) > 21:"))),
    "the row itself": ("museum", code("readEntryWindow", (
        "    return {name: row[name] for name in ['entry_window_id', 'exhibition_id', 'wing', "
        "'entry_date', 'admissions', 'admissions_left', 'guide']}", "    return row"))),
    "codes in another order": ("rental", reasons(lambda e: e[::-1])),
    "one more sentence": ("rental", lambda w: changed(w, policy=f"{w.policy} Be kind.")),
    "rows in another order": ("museum", lambda w: changed(
        w, rows={name: rows[::-1] for name, rows in w.rows.items()})),
    "an owner looked up otherwise": ("gym", code("lesson_reserve", (
        "not (_cell(charge_card_row, 'athlete_id') == athlete_id)",
        "charge_card_row not in _rows(world, 'charge_cards', {'athlete_id': athlete_id})"),
        ("def lesson_reserve", "def _rows(world, table, where):\n    return [row for row in "
         "world.tables[table] if all(row[n] == v for n, v in where.items())]\n\n\n"
         "def lesson_reserve"))),
}  # fmt: skip

BY_CHANCE = {"no_hidden_prerequisite"}  # what another draw of calls may find in a sound world too


@pytest.mark.parametrize("name", BASES)
def test_the_worlds_to_be_spoiled_are_sound(name: str, sandbox: LocalSandbox) -> None:
    assert WorldProof(base(name), sandbox, CONFIG).fault() is None


@pytest.mark.parametrize(("name", "plant"), FAULTS.values(), ids=FAULTS)
def test_a_spoiled_world_is_rejected(name: str, plant: Plant, sandbox: LocalSandbox) -> None:
    fault = WorldProof(plant(base(name)), sandbox, CONFIG).fault()
    assert fault is not None
    assert fault.reason not in BY_CHANCE, fault


@pytest.mark.parametrize(("name", "plant"), TWINS.values(), ids=TWINS)
def test_a_harmless_change_is_accepted(name: str, plant: Plant, sandbox: LocalSandbox) -> None:
    assert WorldProof(plant(base(name)), sandbox, CONFIG).fault() is None
