"""The data card of the arenas: statistics beside the paper's, and scores of scripted policies.

    python -m astra.cli.arena_card [--arenas data/envs_merged.parquet] [--output FILE]

It runs seven scripted policies on all arenas (minutes) and refuses to write a card for arenas
that any of them misorders.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from astra.arena.scripted import MOST, REPEATS, ScriptedPolicy, misordered, rate
from astra.errors import AstraError
from astra.records.environment import HARD_CALLS, HARD_TRAITS, Arena, Trait
from astra.records.qa import QuestionKind, Scenario, Split
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import Sandbox
from astra.stage import Progress, run_stage
from astra.store.tables import read_records

ARENAS, CARD = Path("data/envs_merged.parquet"), Path("docs/data-cards/arenas.md")
BATCH = 64
PAPER_SCENARIOS = {
    Scenario.PARALLEL_MULTI_HOP: 47.8,
    Scenario.MULTI_HOP: 34.8,
    Scenario.PARALLEL_SINGLE_HOP: 10.6,
    Scenario.SINGLE_HOP: 6.8,
}
NOTES = {
    ScriptedPolicy.GOLD: "the gold calls and the gold answer",
    ScriptedPolicy.SILENT: "never calls, says nothing",
    ScriptedPolicy.EMPTY: "every tool once with empty arguments",
    ScriptedPolicy.REPEAT: f"every gold call {REPEATS} times and the gold answer",
    ScriptedPolicy.ANSWER: "the gold answer without a call",
    ScriptedPolicy.NAMES: (
        "each gold call, to the tool (in scope or irrelevant) whose name shares most words with "
        "the step's question, and the gold answer"
    ),
    ScriptedPolicy.GUESS: "no call; an answer of the right type from the question's words",
}
DIFFICULTIES = ("lookup", "hard")
Row = tuple[str, str, str]
Rewards = dict[str, dict[ScriptedPolicy, list[float]]]
"""Difficulty -> policy -> the reward on each arena of that difficulty."""


class CardError(AstraError):
    """Arenas whose rewards do not order the scripted policies; the message names the first."""


def policy_rewards(arenas: Iterable[Arena], sandbox: Sandbox) -> Rewards:
    """Rewards of each policy over all arenas. Raises CardError at the first misordered arena."""
    rewards: Rewards = {
        difficulty: {policy: [] for policy in ScriptedPolicy} for difficulty in DIFFICULTIES
    }
    progress, source = Progress("arenas"), iter(arenas)
    while batch := list(itertools.islice(source, BATCH)):
        for arena, scores in zip(batch, rate(batch, sandbox), strict=True):
            if fault := misordered(arena, scores):
                raise CardError(f"arena {arena.id}: {fault}; rebuild with `dvc repro envs_merged`")
            for policy, score in scores.items():
                rewards[arena.difficulty][policy].append(score.reward)
        progress.advance(len(batch))
    return rewards


def card(arenas: Sequence[Arena], rewards: Rewards) -> str:
    """The card as Markdown."""
    lines = [
        "# Arenas",
        "",
        "Made by `python -m astra.cli.arena_card`; do not edit. Rows of `data/envs_merged.parquet`",
        "are decomposed questions with executable tools, gold calls and typed answers. Paper:",
        "ASTRA (arXiv 2601.21558), appendix; a dash stands where it states nothing.",
        "",
        *_table(("", "these arenas", "paper"), statistics_rows(arenas)),
        "",
        "The paper's hops are its sub-questions (28,794 over 6,596 instances); a hop level here is",
        "one more than that of the deepest step it depends on.",
        "",
        "## Splits",
        "",
        *_table(("split", "arenas", "domains", "entities", "compositions"), _splits(arenas)),
        "",
        "No entity and no composition of operations is in two splits.",
        "",
        "## Traits",
        "",
        f"Shares of arenas with each. A hard one has {HARD_TRAITS} or more and takes "
        f"{HARD_CALLS} calls or more; the rest are look-ups.",
        "`docs/arenas.md` says what each trait is.",
        "",
        *_table(("", *Split), _traits(arenas)),
        "",
        "## Policies without a model",
        "",
        "F1 with the final answer as one more sub-task, over all arenas. On every single one gold",
        "scores exactly 2m / (2m + ε), the silent policy 0, all others but `names` strictly less:",
        f"`answer` at most {MOST[ScriptedPolicy.ANSWER]}, `repeat` at most "
        f"{MOST[ScriptedPolicy.REPEAT]}.",
        "",
        *_table(
            ("policy", "what it does", "look-ups: mean", "best", "hard: mean", "best"),
            [(policy.value, NOTES[policy], *_paid(policy, rewards)) for policy in ScriptedPolicy],
        ),
    ]
    return "\n".join(lines) + "\n"


def _paid(policy: ScriptedPolicy, rewards: Rewards) -> Iterator[str]:
    """A policy's mean and best reward by difficulty; a dash where no arena has it."""
    for difficulty in DIFFICULTIES:
        paid = rewards[difficulty][policy]
        yield f"{statistics.fmean(paid):.3f}" if paid else "-"
        yield f"{max(paid):.3f}" if paid else "-"


def _traits(arenas: Sequence[Arena]) -> Iterator[tuple[str, ...]]:
    """The share of each trait, and of hard arenas, in each split."""
    by_split = [[arena for arena in arenas if arena.split == split] for split in Split]
    for trait in Trait:
        counted = ((sum(trait in arena.traits for arena in mine), len(mine)) for mine in by_split)
        yield trait.value.replace("_", " "), *(_percent(*counts) for counts in counted)
    counted = ((sum(arena.is_hard for arena in mine), len(mine)) for mine in by_split)
    yield "hard", *(_percent(*counts) for counts in counted)


def statistics_rows(arenas: Sequence[Arena]) -> Iterator[Row]:
    steps = [step for arena in arenas for step in arena.steps]
    needing = [step for step in steps if step.tool_name is not None]
    languages = Counter(arena.language for arena in arenas)
    scenarios = Counter(arena.scenario for arena in arenas)
    yield "instances", f"{len(arenas):,}", "6,596"
    yield "languages", _listed(languages), "en 4,694, zh 1,902"
    yield "sub-questions", f"{len(steps):,}", "28,794"
    yield "... that need a tool", _percent(len(needing), len(steps)), "91.3 %"
    yield "... at a hop level with another", _percent(_parallel(arenas), len(steps)), "44.2 %"
    yield (
        "sub-questions per question",
        _spread(len(arena.steps) for arena in arenas),
        ("mean 4.37, median 4, 1 to 20"),
    )
    yield "hop levels per question", _spread(arena.hops for arena in arenas), "-"
    yield "gold calls per question", f"{len(needing) / len(arenas):.2f}", "3.98"
    for scenario, share in PAPER_SCENARIOS.items():
        name = scenario.value.replace("_", " ")
        yield f"scenario: {name}", _percent(scenarios[scenario], len(arenas)), f"{share} %"
    yield "kinds", _listed(Counter(arena.kind.value for arena in arenas)), "read-only"
    yield "arenas whose tools write", f"{sum(bool(arena.state) for arena in arenas):,}", "0"
    domains = Counter(arena.domain for arena in arenas)
    yield "domains", f"{len(domains)}", "-"
    yield (
        "largest domains",
        _listed(Counter(dict(domains.most_common(5))), len(arenas)),
        ("real estate 15.6 %, e-commerce 10.6 %, healthcare 8.1 %"),
    )
    yield "tools in scope", _spread(len(arena.tools) for arena in arenas), "-"
    yield "answer types", _listed(Counter(step.answer.type.value for step in needing)), "-"
    offered = [sum(map(len, arena.irrelevant.values())) for arena in arenas]
    yield "irrelevant-tool candidates", _spread(offered), "-"


def _parallel(arenas: Iterable[Arena]) -> int:
    """Steps that share their hop level with another step of the same question."""
    levels = (Counter(step.hop_level for step in arena.steps) for arena in arenas)
    return sum(count for counted in levels for count in counted.values() if count > 1)


def _splits(arenas: Sequence[Arena]) -> Iterator[tuple[str, ...]]:
    for split in Split:
        mine = [arena for arena in arenas if arena.split == split]
        sizes: list[Callable[[Arena], Iterable[str]]] = [
            lambda arena: [arena.domain],
            lambda arena: arena.entities,
            lambda arena: [arena.composition],
        ]
        counted = (f"{len({name for arena in mine for name in of(arena)}):,}" for of in sizes)
        yield split.value, f"{len(mine):,}", *counted


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _spread(values: Iterable[int]) -> str:
    numbers = list(values)
    middle = f"{statistics.median(numbers):g}"
    return (
        f"mean {statistics.fmean(numbers):.2f}, median {middle}, {min(numbers)} to {max(numbers)}"
    )


def _listed(counted: Mapping[str, int], whole: int = 0) -> str:
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(
        f"{name.replace('_', ' ')} {_percent(count, whole) if whole else f'{count:,}'}"
        for name, count in ordered
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the data card of the arenas.")
    parser.add_argument("--arenas", type=Path, default=ARENAS)
    parser.add_argument("--output", type=Path, default=CARD)
    options = parser.parse_args()
    # A code interpreter is paid for the answer alone: there, no policy is ranked by its calls.
    # Goals in worlds have a card of their own.
    rows = read_records(options.arenas, Arena)
    arenas = [arena for arena in rows if arena.kind != QuestionKind.CODE and not arena.world_id]
    if not arenas:
        raise CardError(f"{options.arenas} holds no arena; see metrics/envs_merged.json")
    with LocalSandbox(SandboxLimits()) as sandbox:
        text = card(arenas, policy_rewards(arenas, sandbox))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    run_stage("arena_card", main)
