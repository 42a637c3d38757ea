"""How many wrong tools the proof of stage ``envs`` lets pass: mutants of codes that it accepts.

    PYTHONPATH=src python benchmarks/mutants.py --json [--codes 500] [--sites 1] [--seed 0]
        [--tables FOLDER ...]

Takes codes of the offline teacher (three fifths of the committed build, the others of a build made
on the spot as scale ``small`` has it, with hard tools) and all that a model wrote
(``mutation_codes.py``; the tables in FOLDER as well), leaves out those that today's proof refuses,
changes each by every operator at some of its sites (``mutation_sites.py``) and proves each mutant.
One that passes is *equivalent* where it does as its original on all calls over the product of its
columns' values and on 20 with values that nothing has (``mutation_calls.py``); else it is *missed*
and printed. The score is the caught ones' share of those that are not equivalent.

With ``--json`` the last line is one JSON object: ``score_offline``, ``score_model`` and counts.
Needs cosmic-ray (``pip install -e '.[bench]'``) and the tables of the committed build in data/.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mutation_calls import ENTRY, Original, all_calls, source_of
from mutation_codes import Written, by_models, committed, hard
from mutation_facts import Facts
from mutation_sites import mutants

from astra.envsynth.verify import verify
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import Sandbox

PROOF = SandboxLimits(call_timeout_s=1.0)
ALL_CALLS = SandboxLimits(call_timeout_s=60.0, cpu_s=600, memory_mb=512)
"""A call is a batch of calls here."""
TOLD = 50
"""Codes from one line of progress to the next."""
SHOWN = 200
"""Characters of a line of a survivor's code that are printed."""
COMMITTED = 0.6
"""The share of the offline codes that are of the committed build."""


@dataclass
class Figures:
    """What became of the mutants of a set of codes."""

    codes: int = 0
    refused: int = 0
    """Codes that today's proof does not accept."""
    by_operator: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter[str]))
    reasons: Counter[str] = field(default_factory=Counter[str])
    most_calls: int = 0
    """The largest product of values, unknown ones included."""
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    missed: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    @property
    def total(self) -> Counter[str]:
        return sum(self.by_operator.values(), Counter[str]())

    @property
    def score(self) -> float | None:
        """The share caught of the mutants that are not equivalent; None where there are none."""
        caught, missed = self.total["caught"], self.total["missed"]
        return round(caught / (caught + missed), 4) if caught + missed else None

    def counts(self) -> dict[str, Any]:
        total = self.total
        return {
            "codes": self.codes,
            "codes_refused": self.refused,
            "operators": len(self.by_operator),
            "mutants": total.total(),
            **{kind: total[kind] for kind in ("caught", "equivalent", "missed")},
            "equivalent_share": round(total["equivalent"] / max(1, total.total()), 4),
            "most_calls": self.most_calls,
            "seconds": {kind: round(spent, 1) for kind, spent in self.seconds.items()},
            "reasons": dict(self.reasons.most_common()),
            "by_operator": {name: dict(one) for name, one in sorted(self.by_operator.items())},
        }


def facts_of(one: Written) -> Facts:
    """What operators may know of a code."""
    candidate = one.candidate()
    step = next(step for step in one.source.sub_questions if step.id in one.calls)
    call = candidate.calls[0]
    return Facts(
        code=one.code, name=one.tool.name, arguments=call.arguments, answer=call.answer.value,
        answer_type=call.answer.type, op=step.operation.op if step.operation else "",
        writes=candidate.writes,
        tables=[rows for rows in call.before.tables.values() if rows] if call.before else (),
    )  # fmt: skip


def measured(
    codes: Sequence[Written], sites: int, rng: random.Random, proof: Sandbox, calls: Sandbox
) -> Figures:
    """What became of the mutants of the codes."""
    figures = Figures()
    for at, one in enumerate(codes):
        if at % TOLD == 0:
            print(f"{at} of {len(codes)} codes, score {figures.score}", file=sys.stderr, flush=True)
        (own,) = verify([one.candidate()], proof, PROOF)
        if own.problem is not None:
            figures.refused += 1
            continue
        figures.codes += 1
        begun = time.perf_counter()
        found = list(mutants(facts_of(one), sites, rng))
        changed = time.perf_counter()
        proofs = verify([one.candidate(code) for _, code in found], proof, PROOF)
        proved = time.perf_counter()
        passed: list[tuple[str, str]] = []
        for (name, code), outcome in zip(found, proofs, strict=True):
            if outcome.problem is None:
                passed.append((name, code))
            else:
                figures.by_operator[name]["caught"] += 1
                figures.reasons[outcome.problem[0]] += 1
        compare(one, passed, calls, figures)
        figures.seconds["changing"] += changed - begun
        figures.seconds["proving"] += proved - changed
        figures.seconds["all_calls"] += time.perf_counter() - proved
    return figures


def compare(
    one: Written, passed: Sequence[tuple[str, str]], sandbox: Sandbox, figures: Figures
) -> None:
    """Count the mutants that passed: those that do as the original does, and those missed."""
    if not passed:
        return
    candidate = one.candidate()
    steps = [step.id for step in one.source.sub_questions if step.id in one.calls]
    tried = [all_calls(one.source, candidate, at, step) for at, step in enumerate(steps)]
    with_calls = sandbox.session({ENTRY: source_of(candidate, one.code)})
    original = Original(candidate, tried, sandbox, with_calls)
    figures.most_calls = max(figures.most_calls, original.tried)
    try:
        for name, code in passed:
            same = original.is_equivalent(code)
            figures.by_operator[name]["equivalent" if same else "missed"] += 1
            if not same:
                told = {"operator": name, "tool": one.tool.name, "diff": changes(one.code, code)}
                figures.missed.append(told)
    finally:
        with_calls.close()


def changes(old: str, new: str) -> str:
    """The lines that differ, both codes laid out alike; long ones are cut."""
    one, other = (ast.unparse(ast.parse(code)).splitlines() for code in (old, new))
    lines = list(difflib.unified_diff(one, other, lineterm="", n=0))[2:]
    return "\n".join(line[:SHOWN] for line in lines)


def reported(name: str, figures: Figures, sites: int) -> None:
    """Print the survivors and the counts of a set."""
    for one in figures.missed:
        print(f"\n{name}: {one['operator']} passes in {one['tool']}\n{one['diff']}")
    print(f"\n{name}: {figures.codes} codes, {figures.refused} refused, {sites} sites an operator")
    for operator, count in sorted(figures.by_operator.items()):
        told = (f"{kind} {number:5}" for kind, number in sorted(count.items()))
        print(f"{operator:45}", *told)
    total = figures.total
    print(f"{name}: {total.total()} mutants, {dict(total)}, score {figures.score}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--codes", type=int, default=500, help="of the offline teacher")
    parser.add_argument("--sites", type=int, default=1, help="mutants per operator and code")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tables", type=Path, nargs="*", default=[], help="folders of tables")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    given = parser.parse_args()
    rng, begun = random.Random(given.seed), time.perf_counter()
    with LocalSandbox(PROOF) as proof, LocalSandbox(ALL_CALLS) as calls:
        first = round(given.codes * COMMITTED)
        offline = [*committed(first, rng), *hard(given.codes - first, rng, proof)]
        results = {
            name: measured(codes, given.sites, rng, proof, calls)
            for name, codes in (("offline", offline), ("model", by_models(given.tables)))
        }
    for name, figures in results.items():
        reported(name, figures, given.sites)
    if given.json:
        scores = {f"score_{name}": figures.score for name, figures in results.items()}
        counts = {name: figures.counts() for name, figures in results.items()}
        seconds = round(time.perf_counter() - begun, 1)
        print(json.dumps({**scores, "counts": counts, "seconds": seconds}))


if __name__ == "__main__":
    main()
