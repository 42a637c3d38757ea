"""Rules: the sentence, the guard in a tool and the checker come from one tree."""

from __future__ import annotations

from typing import Any

import pytest
from small_worlds import small_world

from astra.arena.effects import effects
from astra.arena.expressions import holds, scope_of
from astra.records.world import Enforced, World, WorldShape
from astra.worlds.domain import load_domains
from astra.worlds.generator import generate, guard
from astra.worlds.sentences import RuleWording
from astra.worlds.sources import NotCompiled, Source


def wording(world: World) -> RuleWording:
    nouns = {table.name: table.key.removesuffix("_id") for table in world.tables}
    return RuleWording(world.tables, nouns)


LOAN = {"row": ["loans", {"arg": "loan_id"}]}
MEMBER = {"row": ["members", {"field": [LOAN, "member_id"]}]}
SENTENCES: list[tuple[Any, str]] = [
    ({"le": [{"arg": "days"}, 14]}, "`days` is at most 14"),
    ({"lt": [{"field": [LOAN, "renewals"]}, 2]}, "the renewals of the loan is less than 2"),
    ({"le": [{"clock": "date"}, {"field": [LOAN, "due_date"]}]},
     "the due date of the loan is today or later"),
    ({"lt": [{"field": [LOAN, "due_date"]}, {"clock": "date"}]},
     "the due date of the loan is before today"),
    ({"le": [3, {"days_between": [{"clock": "date"}, {"field": [LOAN, "loan_date"]}]}]},
     "the number of days from today to the loan date of the loan is at least 3"),
    ({"in": [{"field": [MEMBER, "plan"]}, ["plus", "patron"]]},
     "the plan of the member of the loan is plus or patron"),
    ({"not": {"exists": ["loans", {"member_id": {"arg": "member_id"}, "loan_state": "active"}]}},
     "there is no loan of the member with loan state active"),
    ({"seen": ["find_member", "member_id", {"arg": "member_id"}]},
     "`find_member` has shown the member"),
    ({"confirmed": None}, "the user has agreed to that change"),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "clause"), SENTENCES)
def test_a_tree_has_one_clause(tree: Any, clause: str) -> None:
    assert wording(small_world()).condition(tree) == clause


def test_a_sentence_names_tools_condition_and_code() -> None:
    said = wording(small_world()).sentence(
        ("renew_loan", "lend"), {"eq": [{"arg": "days"}, 3]}, {"confirmed": None}, "not_confirmed"
    )
    assert said == (
        "When `days` is 3, use `renew_loan` and `lend` only if the user has agreed to that change "
        "(`not_confirmed`)."
    )


def test_what_only_the_conversation_tells_is_not_compiled() -> None:
    with pytest.raises(NotCompiled, match="seen"):
        Source(small_world().tables).expression({"seen": ["f", "member_id", 1]})


def test_guards_are_compiled_from_the_rules_own_trees() -> None:
    for name, domain in load_domains().items():
        world = generate(domain, 0, WorldShape.FULL, 0)
        source = Source(world.tables)
        codes = {tool.tool.name: tool.code for tool in world.tools}
        for rule in world.rules:
            refused = [tool for tool in rule.tools if f"'{rule.reason}: " in codes[tool]]
            assert bool(refused) == (rule.enforced is Enforced.TOOL), (name, rule.id)
            if refused:
                assert source.expression(guard(rule))


def test_effects_of_a_renewal_by_hand() -> None:
    world = small_world()
    renew = next(tool for tool in world.tools if tool.role == "extend")
    loan = next(row for row in world.rows["loans"] if row["loan_state"] == "active")
    scope = scope_of(world, arguments={"loan_id": loan["loan_id"], "days": 2})
    ((place, row),) = effects(world, renew, scope).items()
    assert place == ("loans", loan["loan_id"])
    assert row is not None
    assert row["renewals"] == loan["renewals"] + 1
    assert row["due_date"] > loan["due_date"]
    assert {k: v for k, v in row.items() if k not in ("renewals", "due_date")} == {
        k: v for k, v in loan.items() if k not in ("renewals", "due_date")
    }


def test_the_rule_of_the_small_world_by_hand() -> None:
    world = small_world()
    rule = world.rules[1]
    most = rule.require["le"][1]
    assert holds(rule.require, scope_of(world, arguments={"days": most}))
    assert not holds(rule.require, scope_of(world, arguments={"days": most + 1}))
    assert f"`days` is at most {most} (`too_long`)" in world.policy
