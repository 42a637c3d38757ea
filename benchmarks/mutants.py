"""How many wrong tools the proof of stage ``envs`` lets pass: mutants of tools that it accepted.

    PYTHONPATH=src python benchmarks/mutants.py [--instances 60] [--sites 2] [--seed 0] [--json]

Makes the stateless tools of a sample of data/qa_valid.parquet offline, changes the code of each by
every operator at some of its sites, and proves each mutant. A mutant that passes is *equivalent*
where it does as its original on all calls over the product of its columns' values (2,000 at most)
and on 20 with values that nothing has (two refusals are equal however they are worded); else it is
*missed*. Some operators are our own, made after mistakes of language models; the others are those
of cosmic-ray as it ships, which has to be installed (``pip install cosmic-ray``).
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import copy
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any

from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

from astra.arena.answers import same_value
from astra.envsynth.candidates import CandidateTool, candidate_of
from astra.envsynth.envs import environments
from astra.envsynth.envs_config import EnvsConfig
from astra.envsynth.offline.handlers import HANDLERS
from astra.envsynth.truth import meaning_of
from astra.envsynth.verify import verify
from astra.envsynth.worlds import is_stateful
from astra.llm.offline import OfflineTeacher
from astra.records.environment import Environment
from astra.records.qa import QAInstance, SubQuestion
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import Sandbox, SandboxLoadError
from astra.store.metrics import StageMetrics
from astra.store.tables import read_records

MOST_CALLS, UNKNOWN_CALLS, BATCH = 2000, 20, 64
LIBRARY = (
    "core/NumberReplacer", "core/AddNot", "core/ZeroIterationForLoop", "core/ReplaceAndWithOr",
    "core/ReplaceOrWithAnd", "core/ExceptionReplacer", "core/ReplaceUnaryOperator_Delete_Not",
    "core/ReplaceComparisonOperator_Eq_NotEq", "core/ReplaceComparisonOperator_Eq_GtE",
    "core/ReplaceComparisonOperator_Eq_LtE", "core/ReplaceComparisonOperator_Lt_LtE",
    "core/ReplaceComparisonOperator_Gt_GtE", "core/ReplaceBinaryOperator_Mul_Add",
    "core/ReplaceBinaryOperator_Add_Sub", "core/ReplaceBinaryOperator_Sub_Add",
    "core/ReplaceBinaryOperator_Div_FloorDiv",
)  # fmt: skip
Change = Callable[[ast.AST, Any], ast.AST | None]
"""What an operator makes of a node, given the gold answer; None where it does not apply."""


def _literal(value: Any) -> ast.expr:
    return ast.parse(repr(value), mode="eval").body


def _rows(change: Callable[[list[Any]], list[Any]]) -> Change:
    """An operator over the rows that a module holds."""

    def changed(node: ast.AST, _: Any) -> ast.AST | None:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.List):
            return None
        rows = ast.literal_eval(node.value)
        if len(rows) < 2 or not all(isinstance(row, dict) for row in rows):
            return None
        return ast.Assign(targets=node.targets, value=_literal(change(rows)))

    return changed


def _cell(row: dict[str, Any]) -> dict[str, Any]:
    name, value = list(row.items())[-1]
    wrong = value + 1 if isinstance(value, int | float) else f"{value} West"
    return {**row, name: wrong}


def _exchanged(rows: list[Any]) -> list[Any]:
    name = list(rows[0])[-1]
    one, other = dict(rows[0]), dict(rows[-1])
    one[name], other[name] = other[name], one[name]
    return [one, *rows[1:-1], other]


def _raises(code: str) -> Change:
    """An operator that replaces a refusal; ``GOLD`` stands for the gold answer."""

    def changed(node: ast.AST, gold: Any) -> ast.AST | None:
        if not isinstance(node, ast.Raise):
            return None
        return ast.parse(code.replace("GOLD", repr(gold))).body[0]

    return changed


def _returns(code: str) -> Change:
    """An operator that replaces a returned ``VALUE``."""

    def changed(node: ast.AST, gold: Any) -> ast.AST | None:
        if not isinstance(node, ast.Return) or node.value is None:
            return None
        written = code.replace("GOLD", repr(gold)).replace("VALUE", ast.unparse(node.value))
        return ast.parse(f"return {written}").body[0]

    return changed


def _names(old: str, new: str) -> Change:
    def changed(node: ast.AST, _: Any) -> ast.AST | None:
        return ast.Name(new) if isinstance(node, ast.Name) and node.id == old else None

    return changed


def _compared(node: ast.AST, _: Any) -> ast.AST | None:
    return ast.Constant(True) if isinstance(node, ast.Compare) else None


def _within(node: ast.AST, _: Any) -> ast.AST | None:
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
        return ast.Compare(node.left, [ast.In()], [ast.Call(ast.Name("str"), node.comparators, [])])
    return None


def _last(node: ast.AST, _: Any) -> ast.AST | None:
    if isinstance(node, ast.Subscript) and ast.unparse(node.slice) == "0":
        return ast.Subscript(node.value, ast.Constant(-1))
    return None


def _skipping(node: ast.AST, _: Any) -> ast.AST | None:
    if isinstance(node, ast.comprehension) and isinstance(node.iter, ast.Name):
        over = ast.parse(f"{node.iter.id}[1:]", mode="eval").body
        return ast.comprehension(node.target, over, node.ifs, 0)
    return None


OWN: dict[str, Change] = {
    "first_row_dropped": _rows(lambda rows: rows[1:]),
    "last_row_dropped": _rows(lambda rows: rows[:-1]),
    "half_of_the_rows_dropped": _rows(lambda rows: rows[::2]),
    "cell_of_the_first_row_wrong": _rows(lambda rows: [_cell(rows[0]), *rows[1:]]),
    "cell_of_the_last_row_wrong": _rows(lambda rows: [*rows[:-1], _cell(rows[-1])]),
    "cells_exchanged": _rows(_exchanged),
    "row_repeated": _rows(lambda rows: [*rows, rows[0]]),
    "first_row_never_found": _skipping,
    "last_instead_of_first": _last,
    "comparison_ignored": _compared,
    "comparison_by_substring": _within,
    "unknown_gives_the_answer": _raises("return GOLD"),
    "unknown_gives_none": _raises("return None"),
    "unknown_gives_an_empty_list": _raises("return []"),
    "unknown_gives_zero": _raises("return 0"),
    "error_states_the_answer": _raises("raise ValueError('not found, unlike ' + str(GOLD))"),
    "error_is_no_refusal": _raises("raise KeyError('unknown')"),
    "constant": _returns("GOLD"),
    "text_for_a_value": _returns("str(VALUE)"),
    "a_little_more": _returns("(lambda v: v + 0.5 if isinstance(v, (int, float)) else v)(VALUE)"),
    "min_for_max": _names("max", "min"),
    "max_for_min": _names("min", "max"),
    "sum_for_max": _names("max", "sum"),
    "count_for_sum": _names("sum", "len"),
}


class _At(ast.NodeTransformer):
    """The change at one of the nodes that it applies to."""

    def __init__(self, change: Change, site: int, gold: Any) -> None:
        self._change, self._left, self._gold = change, site, gold
        self.applied = False

    def visit(self, node: ast.AST) -> ast.AST:
        if self.applied:
            return node
        changed = self._change(node, self._gold)
        if changed is not None:
            if self._left == 0:
                self.applied = True
                return ast.copy_location(changed, node) if hasattr(node, "lineno") else changed
            self._left -= 1
        return self.generic_visit(node)


def mutants(code: str, gold: Any) -> Iterator[tuple[str, str]]:
    """Each operator's name with each code that it makes, all sites in order."""
    tree = ast.parse(code)
    for name, change in OWN.items():
        for site in range(1000):
            transformer = _At(change, site, gold)
            mutant = transformer.visit(copy.deepcopy(tree))
            if not transformer.applied:
                break
            yield name, ast.unparse(ast.fix_missing_locations(mutant)) + "\n"
    for name in LIBRARY:
        for site in range(1000):
            mutated = mutate_code(code, get_operator(name)(), site)
            if mutated is None:
                break
            yield name.removeprefix("core/"), mutated


def sampled(found: Sequence[tuple[str, str]], sites: int, rng: random.Random) -> list[Any]:
    """Some mutants of each operator, at most ``sites``."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for name, code in found:
        by_name[name].append(code)
    return [
        (name, code)
        for name, codes in by_name.items()
        for code in rng.sample(codes, min(sites, len(codes)))
    ]


def calls(source: QAInstance, question: SubQuestion, made: Environment) -> list[dict[str, Any]]:
    """Calls over the product of the columns' values, and some with values that nothing has."""
    parameters = list(made.tool.parameters["properties"])
    meaning = meaning_of(source, question, parameters, made.arguments, source.knowledge)
    values = {
        name: [made.arguments.get(name), *(meaning.values(name) if meaning else [])]
        for name in parameters
    }
    known = islice(product(*values.values()), MOST_CALLS)
    unknown = [
        {**made.arguments, name: f"Zxqv {number}"}
        for name, number in islice(product(parameters, range(UNKNOWN_CALLS)), UNKNOWN_CALLS)
    ]
    given = [dict(zip(parameters, call, strict=True)) for call in known]
    return [{k: v for k, v in call.items() if v is not None} for call in given] + unknown


def equivalent(sandbox: Sandbox, made: Environment, code: str, tried: Sequence[Any]) -> bool:
    """Whether both codes do the same for all calls."""
    name = made.tool.name
    opened = sandbox.sessions([{name: made.code}, {name: code}])
    sessions = [one for one in opened if not isinstance(one, SandboxLoadError)]
    try:
        if len(sessions) < 2:
            return False
        results = sandbox.call_many(
            [(session, name, call) for session in sessions for call in tried]
        )
    finally:
        for session in sessions:
            session.close()
    pairs = zip(results[: len(tried)], results[len(tried) :], strict=True)
    return all(
        one.status == other.status
        and same_value(one.value, other.value)
        and one.error.partition(":")[0] == other.error.partition(":")[0]
        for one, other in pairs
    )


async def _made(instances: Sequence[QAInstance], sandbox: Sandbox) -> list[Environment]:
    given: Mapping[str, Any] = {
        "teacher": {"backend": "offline", "model": "rules-1"}, "nodes": "needed", "max_asks": 48,
        "outer_attempts": 1, "inner_attempts": 1, "other_keys": 6, "verify_batch": BATCH,
        "unlike_names": 0.2, "formats": 0.2, "sandbox": {},
    }  # fmt: skip
    config = EnvsConfig.model_validate(given)
    teacher = OfflineTeacher(config.teacher, HANDLERS)
    flow = environments(instances, teacher, sandbox, config, 8, StageMetrics("envs"))
    return [one async for one in flow if isinstance(one, Environment)]


def measured(instances: Sequence[QAInstance], sites: int, rng: random.Random) -> dict[str, Any]:
    """What became of the mutants, by operator."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: Counter[str] = Counter()
    missed: list[dict[str, str]] = []
    limits = SandboxLimits(call_timeout_s=1.0)
    with LocalSandbox(limits) as sandbox:
        by_id = {one.id: one for one in instances}
        tools = 0
        for made in asyncio.run(_made(instances, sandbox)):
            source = by_id[made.qa_id]
            question = next(q for q in source.sub_questions if q.id == made.sub_question_id)
            if is_stateful(source, question):
                continue
            tools += 1
            found = sampled(list(mutants(made.code, made.answer.value)), sites, rng)
            gold = {question.id: made.arguments}
            proved: list[CandidateTool] = [
                candidate_of(source, made.tool, code, gold) for _, code in found
            ]
            tried = calls(source, question, made)
            for (name, code), proof in zip(found, verify(proved, sandbox, limits), strict=True):
                if proof.problem is not None:
                    outcome = "caught"
                    reasons[proof.problem[0]] += 1
                else:
                    same = equivalent(sandbox, made, code, tried)
                    outcome = "equivalent" if same else "missed"
                    if not same:
                        missed.append({"operator": name, "tool": made.tool.name, "code": code})
                counts[name][outcome] += 1
    total = sum(counts.values(), Counter[str]())
    return {
        "tools": tools, "operators": len(counts), "total": dict(total),
        "by_operator": {name: dict(count) for name, count in sorted(counts.items())},
        "reasons": dict(reasons.most_common()), "missed": missed[:20],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--instances", type=int, default=60)
    parser.add_argument("--sites", type=int, default=2, help="mutants per operator and tool")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="all figures as one JSON object")
    given = parser.parse_args()
    rng = random.Random(given.seed)
    known = list(read_records(Path("data/qa_valid.parquet"), QAInstance))
    figures = measured(rng.sample(known, given.instances), given.sites, rng)
    if given.json:
        print(json.dumps(figures, indent=2))
        return
    for name, count in figures["by_operator"].items():
        print(f"{name:45}", *(f"{kind} {number:5}" for kind, number in sorted(count.items())))
    print(f"{figures['tools']} tools:", figures["total"])


if __name__ == "__main__":
    main()
