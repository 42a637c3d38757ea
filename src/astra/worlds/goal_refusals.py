"""Why a wish fails: the codes that the world's policy has for it, each proved by rows and calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from astra.arena.expressions import holds
from astra.arena.world_runner import CallEnd, WorldCall
from astra.records.state import Row
from astra.records.world import PolicyRule, WorldGoal
from astra.worlds.executions import Executions
from astra.worlds.fuzz import names_rule
from astra.worlds.soundness import operators
from astra.worlds.view import CONVERSATION, WorldView, applies

NOT_FOUND, NOT_AVAILABLE, NOT_OFFERED = "not_found", "not_available", "not_offered"


def refusal_codes(view: WorldView, executions: Executions, goal: WorldGoal) -> set[str]:
    """The codes of ``decline_request`` that are right for the goal's wish, which it must have.

    A tool that is not offered, a row that is not there and each rule that the call would break
    give one. A call that fails for nothing of that gives ``not_available`` if another row, which is
    nobody's either, is to be had in place of one that it names, and else how it ended.
    """
    wish = goal.wish[0]
    made = executions.call(wish.tool, wish.arguments)
    missing = {name for name, value in wish.arguments.items() if _is_missing(view, name, value)}
    codes = {rule.reason for rule in _broken(view, wish.tool, wish.arguments, missing)}
    named = {
        rule.reason
        for rule in view.rules.values()
        if wish.tool in rule.tools and names_rule(made.event.failed, rule)
    }
    if wish.tool in goal.withheld:
        codes.add(NOT_OFFERED)
    if missing:
        codes.add(NOT_FOUND)
    if made.end is CallEnd.DONE or named or missing:
        return codes | named
    is_had = _had_otherwise(view, executions, wish.tool, wish.arguments)
    refused = made.end is CallEnd.REFUSED and is_had
    return codes | {NOT_AVAILABLE if refused else f"({_end(made)})"}


def _is_missing(view: WorldView, name: str, value: Any) -> bool:
    """Whether an argument is to be the key of a row, and there is none."""
    table = view.table_of(name)
    return table is not None and value not in view.rows[table.name]


def _end(made: WorldCall) -> str:
    return f"{made.end}: {made.event.failed}"


def _broken(view: WorldView, tool: str, arguments: Row, missing: set[str]) -> Iterator[PolicyRule]:
    """The rules about rows, without an enforcing tool, that a call would break; none that asks
    for a row which is not there."""
    scope = view.scope(arguments)
    for rule in view.policy_rules:
        asked = [rule.when, rule.require]
        if tool not in rule.tools or operators(rule.require) & CONVERSATION:
            continue
        if missing & _arguments_in(asked):
            continue
        if applies(rule.when, scope) and not holds(rule.require, scope):
            yield rule


def _arguments_in(expr: Any) -> set[str]:
    """The names of the arguments that an expression uses."""
    if isinstance(expr, list | tuple):
        return {name for part in cast("list[Any]", expr) for name in _arguments_in(part)}
    if not isinstance(expr, dict):
        return set()
    tree = cast("dict[str, Any]", expr)
    named = {tree["arg"]} if isinstance(tree.get("arg"), str) else set[str]()
    return named | _arguments_in([*tree.values()])


def _had_otherwise(view: WorldView, executions: Executions, tool: str, arguments: Row) -> bool:
    """Whether the call succeeds with another row of nobody's in place of one that it names."""
    for name in arguments:
        table = view.table_of(name)
        if table is None or view.is_owned(table.name) or table.name == view.party.name:
            continue
        for key in view.rows[table.name]:
            if executions.call(tool, {**arguments, name: key}).event.changes:
                return True
    return False
