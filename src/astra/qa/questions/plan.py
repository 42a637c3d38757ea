"""Plans of questions: a composition, named entities and the knowledge excerpt that answers it.

A plan fixes what a question is about, before any teacher is asked: quotas of splits, scenarios
and hops hold by construction, and shortfalls are counted, never filled with something else.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from astra.qa.config import Language, QAConfig
from astra.qa.knowledge.operations import EvaluationError, join
from astra.qa.knowledge.schema import CellType, KnowledgeSource
from astra.qa.questions.kinds import compositions_of
from astra.qa.questions.shapes import Composition, split_of
from astra.qa.questions.walk import CompositionWalk, Index, Unsuitable
from astra.records.base import content_id
from astra.records.qa import Operation, QuestionKind, Scenario, Split, Table
from astra.records.state import Write

ATTEMPTS = 60
LEAST_DISTRACTORS = 4
"""Distractor rows per table."""


@dataclass(frozen=True)
class QuestionPlan:
    source: KnowledgeSource
    composition: Composition
    names: tuple[str, ...]
    operations: tuple[Operation, ...]
    literals: tuple[Any, ...]
    """Per node: the value of the relation's second parameter, or None."""
    tables: tuple[Table, ...]
    """The state that the question starts from."""
    writes: tuple[tuple[Write, ...], ...]
    """Per node, what carrying it out changes."""

    @property
    def kind(self) -> QuestionKind:
        return self.composition.kind


@dataclass(frozen=True)
class Unplanned:
    """A wanted question of a scenario that no plan could be made for, and why."""

    scenario: Scenario
    number: int
    why: str


@dataclass(frozen=True)
class Cell:
    """Questions of one split that share language and kind, and how many are wanted."""

    split: Split
    language: Language
    kind: QuestionKind
    total: int


Key = TypeVar("Key", bound=Hashable)


def apportion(total: int, shares: Mapping[Key, float]) -> dict[Key, int]:
    """Whole counts that add up to ``total``: the largest remainders make up what is missing."""
    exact = {key: total * share for key, share in shares.items()}
    counts = {key: int(value) for key, value in exact.items()}
    by_rest = sorted(exact, key=lambda key: (counts[key] - exact[key], str(key)))
    for key in by_rest[: total - sum(counts.values())]:
        counts[key] += 1
    return counts


def cells_of(config: QAConfig, split: Split) -> list[Cell]:
    """The split's cells, empty ones left out."""
    shares: dict[tuple[Language, QuestionKind], float] = {
        (language, kind): config.languages[language] * config.kinds[kind]
        for language in config.languages_used
        for kind in config.kinds_used
    }
    counts = apportion(config.instances.get(split, 0), shares)
    return [
        Cell(split, language, kind, count) for (language, kind), count in counts.items() if count
    ]


class Planner:
    """Draws the plans of one cell."""

    def __init__(
        self,
        config: QAConfig,
        cell: Cell,
        sources: Mapping[str, Sequence[KnowledgeSource]],
        weights: Mapping[str, float],
    ) -> None:
        self._config = config
        self._cell = cell
        self._sources = sources
        self._weights = weights
        self._indexes: dict[int, Index] = {}
        self._buckets: defaultdict[tuple[Scenario, int], defaultdict[str, list[Composition]]]
        self._buckets = defaultdict(lambda: defaultdict(list))
        self._possible: set[Scenario] = set()
        wanted = {hops for hops, weight in config.hops.items() if weight > 0}
        for name, variants in sources.items():
            for made in compositions_of(cell.kind, variants[0], max(wanted)):
                if made.hops not in wanted or len(made.nodes) > config.max_steps:
                    continue
                self._possible.add(made.scenario)
                if split_of(made.signature, config.compositions) is cell.split:
                    self._buckets[made.scenario, made.hops][name].append(made)

    def composition_count(self) -> int:
        """How many compositions the split owns within the hop budget."""
        return sum(len(found) for by in self._buckets.values() for found in by.values())

    def quota(self) -> dict[Scenario, int]:
        """Instances per scenario. A kind that cannot have some scenario shares out the others."""
        shares = {scenario: self._config.scenarios.get(scenario, 0.0) for scenario in Scenario}
        if self._cell.kind is not QuestionKind.READ_ONLY:
            whole = sum(shares[scenario] for scenario in self._possible)
            shares = {
                scenario: share / whole if whole and scenario in self._possible else 0.0
                for scenario, share in shares.items()
            }
            if not any(shares.values()):
                return {Scenario.SINGLE_HOP: self._cell.total}  # none can be made: no_plan
        return apportion(self._cell.total, shares)

    def plans(self) -> Iterator[QuestionPlan | Unplanned]:
        """One item per wanted instance: its plan, or why none could be made."""
        for scenario, wanted in self.quota().items():
            seen: set[int] = set()
            for number in range(wanted):
                yield self._draw(scenario, number, seen)

    def _draw(self, scenario: Scenario, number: int, seen: set[int]) -> QuestionPlan | Unplanned:
        """``seen`` holds a hash of each plan drawn before: the plans themselves are large."""
        weights = {
            hops: weight
            for hops, weight in sorted(self._config.hops.items())
            if weight > 0 and self._buckets.get((scenario, hops))
        }
        if not weights:
            return Unplanned(scenario, number, "the split owns no composition of this scenario")
        cell = self._cell
        label = [self._config.seed, cell.split, scenario, number]
        if (cell.language, cell.kind) != ("en", QuestionKind.READ_ONLY):
            label += [cell.language, cell.kind]
        rng = random.Random(int(content_id(["plan", *label]), 16))
        for _ in range(ATTEMPTS):
            hops = rng.choices(list(weights), list(weights.values()))[0]
            by_source = self._buckets[scenario, hops]
            names = sorted(by_source)
            name = rng.choices(names, [self._weights[n] for n in names])[0]
            made = by_source[name]
            preference = [self._config.lookup_weight if c.only_lookups else 1.0 for c in made]
            source = rng.choice(self._sources[name])
            plan = self._fill(rng.choices(made, preference)[0], source, rng)
            if plan is None:
                continue
            key = int(
                content_id([plan.composition.signature, sorted(plan.names), plan.literals]), 16
            )
            if key not in seen:
                seen.add(key)
                return plan
        return Unplanned(scenario, number, f"{ATTEMPTS} draws gave no new question")

    def _fill(
        self, made: Composition, source: KnowledgeSource, rng: random.Random
    ) -> QuestionPlan | None:
        index = self._indexes.setdefault(id(source), Index(source))
        kinds = made.starts
        pools = source.starts
        if any(len(pools[kind]) < kinds.count(kind) for kind in kinds):
            return None
        names = tuple(rng.sample(pools[kinds[0]], len(kinds)))
        return fill(index, made, names, self._config.distractor_rows, rng)


def fill(
    index: Index, made: Composition, names: tuple[str, ...], distractors: int, rng: random.Random
) -> QuestionPlan | None:
    """The plan of a composition asked of ``names``; None where they make no good question."""
    walk = CompositionWalk(index, made, names, rng)
    try:
        walk.run()
    except (EvaluationError, Unsuitable):
        return None
    return QuestionPlan(
        index.source,
        made,
        names,
        tuple(walk.operations),
        tuple(walk.literals),
        excerpt(index, made, walk.rows, distractors, rng),
        tuple(walk.writes),
    )


def excerpt(
    index: Index,
    made: Composition,
    needed: Mapping[str, Sequence[tuple[Any, ...]]],
    distractors: int,
    rng: random.Random,
) -> tuple[Table, ...]:
    """The rows needed plus distractors, shuffled; linked distractors first, so that a wrong
    argument still finds its way through the tables as a right one does.
    """
    tables: dict[str, Table] = {}
    linked: set[Any] = set()
    share = max(LEAST_DISTRACTORS, distractors // max(1, len(needed)))
    views = [n.relation.table for n in made.nodes if "+" in n.relation.table]
    for name in _parts(made):
        whole = index.source.tables[name]
        rows = list(dict.fromkeys(needed.get(name, ())))
        for view in views:
            if name in view.split("+"):
                rows = list(dict.fromkeys([*rows, *_projected(index, view, whole, needed[view])]))
        have = set(rows)
        others = [row for row in whole.rows if row not in have]
        rng.shuffle(others)
        others.sort(key=lambda row: row[0] not in linked)
        rows += others[:share]
        kinds = index.source.kinds[name]
        links = [i for i, c in enumerate(whole.columns) if i and kinds[c] is CellType.ENTITY]
        linked.update(row[i] for row in rows for i in links)
        rng.shuffle(rows)
        tables[name] = Table(name=name, columns=whole.columns, rows=tuple(rows))
    for view in dict.fromkeys(views):
        tables[view] = join(view, [tables[part] for part in view.split("+")])
    return tuple(tables.values())


def _parts(made: Composition) -> list[str]:
    """Tables that the nodes read, those of joins among them, in the order first met."""
    read = [node.relation.table for node in made.nodes if node.relation.table]
    return list(dict.fromkeys(part for name in read for part in name.split("+")))


def _projected(
    index: Index, view: str, part: Table, rows: Sequence[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """The rows of ``part`` that went into rows of a join."""
    columns = index.source.tables[view].columns
    places = [columns.index(column) for column in part.columns]
    return [tuple(row[place] for place in places) for row in rows]
