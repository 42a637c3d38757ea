"""Planted bad worlds: each is rejected for its own reason, and the world without a fault is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from small_worlds import FEW, changed, small_world

from astra.records.state import WriteAction
from astra.records.world import Change, Enforced, ToolRole, World, WorldShape, WorldTool
from astra.sandbox.local import LocalSandbox
from astra.worlds.domain import load_domains
from astra.worlds.fuzz import declared_refusals
from astra.worlds.generator import generate
from astra.worlds.proofs import WorldProof
from astra.worlds.soundness import WorldFault, soundness_faults

Plant = Callable[[World], World]
Prove = Callable[[World], WorldFault | None]


def at(world: World, role: ToolRole) -> WorldTool:
    return next(tool for tool in world.tools if tool.role is role)


def with_tool(world: World, role: ToolRole, **fields: Any) -> World:
    """The world with another tool of that role."""
    tools = [t.model_copy(update=fields) if t.role is role else t for t in world.tools]
    return changed(world, tools=tuple(tools))


def with_code(role: ToolRole, old: str, new: str) -> Plant:
    """A world in which a piece of a tool's code is another."""

    def plant(world: World) -> World:
        code = at(world, role).code
        assert old in code, code
        return with_tool(world, role, code=code.replace(old, new))

    return plant


def with_rule(number: int, **fields: Any) -> Plant:
    def plant(world: World) -> World:
        rules = list(world.rules)
        rules[number] = rules[number].model_copy(update=fields)
        return changed(world, rules=tuple(rules))

    return plant


def with_rows(table: str, edit: Callable[[list[dict[str, Any]]], None]) -> Plant:
    def plant(world: World) -> World:
        rows = {name: [dict(row) for row in rows] for name, rows in world.rows.items()}
        edit(rows[table])
        return changed(world, rows=rows)

    return plant


def with_cell(table: str, column: str, value: Any) -> Plant:
    return with_rows(table, lambda rows: rows[0].update({column: value}))


def twice_first(rows: list[dict[str, Any]]) -> None:
    rows.append(dict(rows[0]))


def without_role(role: ToolRole) -> Plant:
    return lambda world: changed(
        world, tools=tuple(tool for tool in world.tools if tool.role is not role)
    )


def wrong_sum(world: World) -> World:
    """The free copies' state says that they are out."""
    return with_rows(
        "copies",
        lambda rows: next(r for r in rows if r["shelf_state"] == "on_shelf").update(
            shelf_state="on_loan"
        ),
    )(world)


def with_changes(role: ToolRole, *changes: Change) -> Plant:
    return lambda world: with_tool(world, role, changes=changes)


def strange_change() -> Change:
    return Change(action=WriteAction.UPDATE, table="members", key={"arg": "loan_id"})


OUT_THERE = {
    "eq": [
        {
            "field": [
                {"row": ["copies", {"field": [{"row": ["loans", {"arg": "loan_id"}]}, "copy_id"]}]},
                "shelf_state",
            ]
        },
        "out",
    ]
}
"""About the copy of the loan, of which the list of loans shows the key alone."""
STATIC: dict[str, tuple[str, Plant]] = {
    "no rows": ("rows_out_of_bounds", lambda w: changed(w, rows={table: [] for table in w.rows})),
    "long policy": (
        "words_out_of_bounds",
        lambda w: changed(w, policy=w.policy + " and so on" * 20),
    ),
    "too many tools": ("tools_out_of_bounds", lambda w: changed(w, tools=w.tools + w.tools[:1])),
    "no rule": ("rules_out_of_bounds", lambda w: changed(w, rules=())),
    "all rules in tools": ("policy_rules_out_of_bounds", with_rule(0, enforced=Enforced.TOOL)),
    "outcomes are filled": (
        "no_outcomes",
        with_rows(
            "outcomes",
            lambda rows: rows.append({"outcome_id": "1", "outcome": "declined", "reason": "x"}),
        ),
    ),
    "key is no column": (
        "bad_columns",
        lambda w: changed(w, tables=(w.tables[0].model_copy(update={"key": "id"}), *w.tables[1:])),
    ),
    "two rows of a key": ("duplicate_key", with_rows("members", twice_first)),
    "a value out of its list": ("bad_cell", with_cell("members", "plan", "gold")),
    "a number where a text belongs": ("bad_cell", with_cell("members", "email", 7)),
    "a day that is none": ("bad_cell", with_cell("loans", "due_date", "2026-02-30")),
    "null in a needed cell": ("bad_cell", with_cell("loans", "copy_id", None)),
    "a row without a cell": ("bad_row", with_rows("members", lambda rows: rows[0].pop("email"))),
    "a key of nobody": ("dangling_reference", with_cell("loans", "member_id", "MB0")),
    "taken without a loan": ("invariant_broken", wrong_sum),
    "a loan that ends before it starts": (
        "invariant_broken",
        with_cell("loans", "due_date", "2001-01-01"),
    ),
    "nobody to hand over to": ("roles", without_role(ToolRole.HAND_OVER)),
    "no way to decline": ("roles", without_role(ToolRole.DECLINE)),
    "reads a table that is none": (
        "unknown_table",
        lambda w: with_tool(w, ToolRole.LIST, reads=("boats",)),
    ),
    "shows a column that is none": (
        "unknown_column",
        lambda w: with_tool(w, ToolRole.LIST, shows={"loans": ("price",)}),
    ),
    "code that does not parse": ("syntax_error", with_code(ToolRole.LIST, "def ", "df ")),
    "code with other parameters": (
        "signature_mismatch",
        with_code(ToolRole.CANCEL, "(world, loan_id", "(world, loan"),
    ),
    "changes of a table that is not written": (
        "undeclared_write",
        with_changes(ToolRole.CANCEL, strange_change()),
    ),
    "two rules of a name": ("duplicate_rule", with_rule(1, id="authenticate")),
    "two rules of a code": ("shared_reason", with_rule(1, reason="not_identified")),
    "a rule about no tool": ("unknown_tool", with_rule(0, tools=("fly",))),
    "a code that declining lacks": ("unnamed_reason", with_rule(0, reason="because")),
    "a tool asked about the talk": ("unenforceable", with_rule(1, require={"confirmed": None})),
    "an expression that is none": ("bad_expression", with_rule(0, require={"maybe": 1})),
    "a rule over a cell that nothing shows": ("unseen_fact", with_rule(1, require=OUT_THERE)),
    "a rule that counts what nothing shows": (
        "unseen_fact",
        with_rule(1, require={"exists": ["copies", {"shelf_state": "on_shelf"}]}),
    ),
    "a rule that the policy lacks": ("untold_rule", with_rule(0, text="Be kind.")),
    "a constant unlike the sentence": (
        "other_sentence",
        with_rule(1, require={"le": [{"arg": "days"}, 365]}),
    ),
    "a topic without a code": ("unnamed_topic", lambda w: changed(w, topics={"fire": "a fire"})),
}


def test_the_world_that_faults_are_planted_in_has_none(prove: Prove) -> None:
    assert prove(small_world()) is None


@pytest.mark.parametrize("name", STATIC)
def test_a_world_that_is_wrong_as_it_stands(name: str) -> None:
    reason, plant = STATIC[name]
    assert not list(soundness_faults(small_world()))
    assert [fault.reason for fault in soundness_faults(plant(small_world()))][:1] == [reason]


def test_a_rule_that_nobody_can_keep_is_named() -> None:
    _, plant = STATIC["a rule over a cell that nothing shows"]
    (fault,) = soundness_faults(plant(small_world()))
    assert fault.detail == "rule extend_length rests on copies.shelf_state, which no tool shows"


def lenient(world: World) -> World:
    """The guard of the rule that the tool enforces lets more through."""
    rule = world.rules[1]
    most = rule.require["le"][1]
    return with_code(ToolRole.EXTEND, f"_at_most(days, {most})", f"_at_most(days, {most + 1})")(
        world
    )


def strict(world: World) -> World:
    most = world.rules[1].require["le"][1]
    return with_code(ToolRole.EXTEND, f"_at_most(days, {most})", f"_at_most(days, {most - 1})")(
        world
    )


def retold(number: int, **fields: Any) -> Plant:
    """A rule with another tree, as a teacher might have worded it."""
    return lambda w: changed(with_rule(number, **fields)(w), prompt_hash="teacher")


def kept_out(world: World) -> World:
    """Cancelling leaves the copy out, in code and changes alike."""
    cancel = at(world, ToolRole.CANCEL)
    code = cancel.code.replace("v1.update(v1_cells)", "pass")
    return with_tool(world, ToolRole.CANCEL, code=code, changes=cancel.changes[:1])


def remembering(world: World) -> World:
    """A list that gets longer with every call that a session makes."""
    code = at(world, ToolRole.LIST).code
    code = "CALLS = []\n\n\n" + code.replace(
        "return items", "CALLS.append(1)\n    return items[len(CALLS) % 2:]"
    )
    return with_tool(world, ToolRole.LIST, code=code)


def unlisted(world: World) -> World:
    """No tool shows the keys of loans."""
    listing = at(world, ToolRole.LIST)
    shows = {"loans": tuple(c for c in listing.shows["loans"] if c != "loan_id")}
    code = listing.code.replace("'loan_id', ", "", 1)
    hidden = with_tool(world, ToolRole.LIST, shows=shows, code=code)
    # What changes a loan shows its key, but needs it first.
    return hidden


DYNAMIC: dict[str, tuple[str, Plant]] = {
    "a crash": (
        "unexpected_failure",
        with_code(ToolRole.CANCEL, "raise ValueError('there is no such loan')", "loan_row['x']"),
    ),
    "an exit": (
        "unexpected_failure",
        with_code(ToolRole.CANCEL, "raise ValueError('there is no such loan')", "raise SystemExit"),
    ),
    "a write beside the declared ones": (
        "undeclared_write",
        with_code(
            ToolRole.CANCEL, "    v1.update", "    world.tables['members'].pop()\n    v1.update"
        ),
    ),
    "Python's own words in a refusal": (
        "undeclared_refusal",
        with_code(ToolRole.CANCEL, "raise ValueError('there is no such loan')", "int('none')"),
    ),
    "a long refusal": (
        "unclean_refusal",
        with_code(
            ToolRole.CANCEL, "'there is no such loan'", f"'there is no such loan{'.' * 200}'"
        ),
    ),
    "a guard that lets more through": ("guard_missing", lenient),
    "a guard that refuses more": ("guard_too_strict", strict),
    "a write that its changes lack": (
        "other_effect",
        with_code(
            ToolRole.EXTEND,
            "_add(_cell(loan_row, 'renewals'), 1)",
            "_add(_cell(loan_row, 'renewals'), 2)",
        ),
    ),
    "a write that is left out": (
        "other_effect",
        with_code(ToolRole.CANCEL, "v1.update(v1_cells)", "pass"),
    ),
    "a column that it does not declare": (
        "undeclared_column",
        lambda w: with_tool(w, ToolRole.LIST, shows={"loans": ("loan_id", "copy_id", "member_id")}),
    ),
    "a tool that always refuses": (
        "never_succeeds",
        with_code(ToolRole.CANCEL, "if loan_row is None:", "if True:"),
    ),
    "a rule that nothing breaks": (
        "rule_never_breaks",
        retold(0, require={"le": [0, {"count": ["members", {}]}]}),
    ),
    "a rule that nothing keeps": (
        "rule_never_holds",
        retold(0, require={"lt": [{"count": ["members", {}]}, 0]}),
    ),
    "a rule over a column that is none": (
        "bad_expression",
        retold(0, require={"eq": [{"field": [{"row": ["loans", {"arg": "loan_id"}]}, "mood"]}, 1]}),
    ),
    "a look at a table that it does not declare": (
        "undeclared_read",
        lambda w: with_tool(w, ToolRole.LIST, reads=("loans",)),
    ),
    "a key that nothing shows": ("unreachable_tool", unlisted),
    "a memory between calls": ("not_repeatable", remembering),
    "rows that do not stay whole": ("invariant_broken", kept_out),
    "an import that is forbidden": (
        "load_error",
        with_code(ToolRole.LIST, "def ", "import os\ndef "),
    ),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_a_world_whose_tools_show_what_is_wrong(name: str, prove: Prove) -> None:
    reason, plant = DYNAMIC[name]
    fault = prove(plant(small_world()))
    assert fault is not None
    assert fault.reason == reason, fault


def test_every_plant_has_a_reason_that_can_be_told_apart() -> None:
    reasons = {reason for reason, _ in (*STATIC.values(), *DYNAMIC.values())}
    assert len(reasons) >= 40


def test_a_full_world_passes_and_counts_its_proofs(sandbox: LocalSandbox) -> None:
    world = generate(load_domains()["tool_rental"], 1, WorldShape.FULL, 0)
    proof = WorldProof(world, sandbox, FEW)
    assert proof.fault() is None
    assert proof.checks["fuzzed_calls"] == 80 * len(world.tools)
    assert proof.checks["walked_calls"] == 50
    assert proof.checks["rule_cases"] == 2 * len(world.rules)
    assert proof.checks["reachable_tools"] == len(world.tools)
    assert proof.checks["hidden_prerequisites"] == 2


def test_a_message_without_fixed_words_declares_nothing() -> None:
    code = 'def f(world, a):\n    raise ValueError(a)\n    raise ValueError(f"no {a} here")\n'
    (pattern,) = declared_refusals(code)
    assert pattern.fullmatch("no boat here")
    assert not pattern.fullmatch("invalid literal for int()")
