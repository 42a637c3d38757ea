"""Mutants of a code at sites drawn by chance: by our operators and by cosmic-ray's as it ships."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from mutation_facts import Facts, has_call
from mutation_operators import OWN, At

LIBRARY = (
    "core/NumberReplacer", "core/AddNot", "core/ZeroIterationForLoop", "core/ReplaceAndWithOr",
    "core/ReplaceOrWithAnd", "core/ExceptionReplacer", "core/ReplaceUnaryOperator_Delete_Not",
    "core/ReplaceComparisonOperator_Eq_NotEq", "core/ReplaceComparisonOperator_Eq_GtE",
    "core/ReplaceComparisonOperator_Eq_LtE", "core/ReplaceComparisonOperator_NotEq_Eq",
    "core/ReplaceComparisonOperator_Lt_LtE", "core/ReplaceComparisonOperator_Gt_GtE",
    "core/ReplaceComparisonOperator_IsNot_Is", "core/ReplaceComparisonOperator_LtE_Lt",
    "core/ReplaceComparisonOperator_GtE_Gt", "core/ReplaceBinaryOperator_Mul_Add",
    "core/ReplaceBinaryOperator_Add_Sub", "core/ReplaceBinaryOperator_Sub_Add",
    "core/ReplaceBinaryOperator_Div_FloorDiv", "core/ReplaceContinueWithBreak",
)  # fmt: skip


def mutants(facts: Facts, sites: int, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Each operator's name with codes that it makes, at most ``sites`` of them drawn by chance."""
    for name, change in OWN.items():
        places = sum(change(node, facts) is not None for node in ast.walk(facts.tree))
        for site in rng.sample(range(places), min(sites, places)):
            mutant = At(change, site, facts).visit(ast.parse(facts.code))
            yield name, ast.unparse(ast.fix_missing_locations(mutant)) + "\n"
    parsed = get_ast(facts.code)
    for name in LIBRARY:
        operator, made = get_operator(name)(), 0
        places = sum(len(list(operator.mutation_positions(node))) for node in ast_nodes(parsed))
        for site in rng.sample(range(places), places):
            if made < sites:
                mutated = mutate_code(facts.code, operator, site)
                if mutated is not None and _matters(facts, mutated):
                    made += 1
                    yield name.removeprefix("core/"), mutated


def _matters(facts: Facts, mutated: str) -> bool:
    """Whether a change of the library's is at a site: see the module."""
    try:
        way = _changed(facts.tree, ast.parse(mutated))
    except SyntaxError:
        return True
    if not way:
        return False  # the same code, otherwise written
    node, new = way[-1]
    if isinstance(node, ast.BoolOp) and isinstance(new, ast.BoolOp):
        return not any(has_call(value, facts.guards) for value in node.values)
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
        sides = [side for side in [node.left, *node.comparators] if isinstance(side, ast.Name)]
        return not any(side.id in facts.compared_again for side in sides)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return _number_matters(facts, [old for old, _ in way], new)
    return True


def _number_matters(facts: Facts, way: Sequence[ast.AST], new: ast.AST) -> bool:
    """Whether a number is no cell that is never read, and not the last of one row for the first."""
    inner = way[-2]
    if isinstance(inner, ast.UnaryOp):
        inner = way[-3]
    if isinstance(inner, ast.Dict):
        at = inner.values.index(way[-1]) if way[-1] in inner.values else -1
        key = inner.keys[at] if at >= 0 else None
        return not isinstance(key, ast.Constant) or str(key.value) in facts.read
    first = isinstance(way[-1], ast.Constant) and way[-1].value == 0
    if isinstance(inner, ast.Subscript) and first and ast.unparse(new) == "-1":
        return facts.shared
    return True


def _changed(old: ast.AST, new: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
    """The way to the one node that differs, old and new; empty where none does."""
    if type(old) is not type(new):
        return [(old, new)]
    pairs: list[tuple[Any, Any]] = []
    for name in old._fields:
        one, other = getattr(old, name, None), getattr(new, name, None)
        if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            pairs += zip(one, other, strict=True)
        else:
            pairs.append((one, other))
    for one, other in pairs:
        if isinstance(one, ast.AST) and isinstance(other, ast.AST):
            way = _changed(one, other)
            if way:
                # A changed operator is a change of the expression that it stands in.
                inner = [] if isinstance(one, ast.boolop | ast.cmpop | ast.operator) else way
                return [(old, new), *inner]
        elif one != other or type(one) is not type(other):
            return [(old, new)]
    return []
