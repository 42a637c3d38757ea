"""Plans of questions: a composition, the entities it is asked of, and the excerpt that answers it.

A plan fixes what a question is about before any teacher is asked. Quotas of splits, languages,
kinds, scenarios and hops therefore hold by construction; where no plan can be drawn, the question
is rejected and nothing else takes its place.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from astra.qa.config import Language, QAConfig
from astra.qa.knowledge.operations import EvaluationError, join
from astra.qa.knowledge.references import literals
from astra.qa.knowledge.schema import CellType, KnowledgeSource
from astra.qa.questions.kinds import compositions_of
from astra.qa.questions.shapes import Composition, Shape, split_of
from astra.qa.questions.traits import is_hard, weight_of
from astra.qa.questions.walk import CompositionWalk, RowIndex, Unsuitable
from astra.records.base import content_id
from astra.records.qa import Operation, QuestionKind, Scenario, Split, Table
from astra.records.state import Write

ATTEMPTS = 60
"""Draws for one question before it is given up."""
EVEN_SHARE = 0.015
"""The most of a stratum's and of a split's questions that one shape gets, if others are left."""
LEAST_SHARE = 2
"""The questions that a shape may get in a stratum of any size."""
LEAST_DISTRACTORS = 4
"""Fewest distractor rows that a table gets, if it has as many."""


@dataclass(frozen=True)
class QuestionPlan:
    """A question before it is worded; operations, literals, answers and writes are one per node."""

    source: KnowledgeSource
    composition: Composition
    names: tuple[str, ...]
    """The named entities; a node's ``start`` is a position in them."""
    operations: tuple[Operation, ...]
    literals: tuple[Any, ...]
    """The value of each relation's second parameter; None where it has none."""
    answers: tuple[Any, ...]
    """What each node finds in the whole source; the rules derive it from the excerpt again."""
    tables: tuple[Table, ...]
    """The state that the question starts from: rows that it needs, and distractors."""
    writes: tuple[tuple[Write, ...], ...]
    """The changes that carrying out each node makes."""

    @property
    def kind(self) -> QuestionKind:
        """The task kind of its composition."""
        return self.composition.kind


@dataclass(frozen=True)
class Unplanned:
    """A wanted question of a scenario that no plan could be made for, and why."""

    scenario: Scenario
    number: int
    why: str


@dataclass(frozen=True)
class Stratum:
    """The wanted questions of one split, language and kind, and how many they are."""

    split: Split
    language: Language
    kind: QuestionKind
    total: int


Key = TypeVar("Key", bound=Hashable)
_Bucket = tuple[bool, Scenario, int]
"""Whether compositions are hard, their scenario and their hops."""


def apportion(total: int, shares: Mapping[Key, float]) -> dict[Key, int]:
    """Whole counts that add up to ``total``: keys with the largest remainders get one more."""
    exact = {key: total * share for key, share in shares.items()}
    counts = {key: int(value) for key, value in exact.items()}
    by_rest = sorted(exact, key=lambda key: (counts[key] - exact[key], str(key)))
    for key in by_rest[: total - sum(counts.values())]:
        counts[key] += 1
    return counts


def strata_of(config: QAConfig, split: Split) -> list[Stratum]:
    """The split's strata, empty ones left out."""
    shares: dict[tuple[Language, QuestionKind], float] = {
        (language, kind): config.languages[language] * config.kinds[kind]
        for language in config.languages_used
        for kind in config.kinds_used
    }
    counts = apportion(config.instances.get(split, 0), shares)
    return [
        Stratum(split, language, kind, count) for (language, kind), count in counts.items() if count
    ]


class Planner:
    """Draws the plans of one stratum. Building it enumerates the compositions it draws from."""

    def __init__(
        self,
        config: QAConfig,
        stratum: Stratum,
        sources: Mapping[str, Sequence[KnowledgeSource]],
        weights: Mapping[str, float],
        shapes: Counter[Shape],
    ) -> None:
        """``shapes`` counts the questions of each shape over all strata of the split."""
        self._config = config
        self.stratum = stratum
        self._sources = sources
        self._weights = weights
        self._indexes: dict[int, RowIndex] = {}
        self._buckets: defaultdict[_Bucket, defaultdict[str, list[Composition]]]
        self._buckets = defaultdict(lambda: defaultdict(list))
        """Bucket -> source name -> compositions."""
        self._shapes = shapes
        self._most_of_split = config.instances.get(stratum.split, 0) * EVEN_SHARE
        self._drawn: Counter[Shape] = Counter()
        """How many of the stratum's questions each shape has got."""
        self._most = max(LEAST_SHARE, int(stratum.total * EVEN_SHARE))
        self._asked: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        """The named entities of a composition's questions over one variant of a source."""
        self._possible: set[Scenario] = set()
        wanted = {hops for hops, weight in config.hops.items() if weight > 0}
        for name, variants in sources.items():
            # Variants of a source differ in rows alone, so that they share their compositions.
            for composition in compositions_of(stratum.kind, variants[0], max(wanted)):
                if composition.hops not in wanted or len(composition.nodes) > config.max_steps:
                    continue
                if not weight_of(composition, config.hard_by):
                    continue
                self._possible.add(composition.scenario)
                if split_of(composition.signature, config.compositions) is stratum.split:
                    hard = is_hard(composition, config.hard_traits)
                    key = (hard, composition.scenario, composition.hops)
                    self._buckets[key][name].append(composition)

    def composition_count(self) -> int:
        """How many compositions the split owns within the hop budget."""
        return sum(
            len(compositions)
            for by_source in self._buckets.values()
            for compositions in by_source.values()
        )

    def quota(self) -> dict[Scenario, int]:
        """Instances per scenario. A kind that cannot have some scenario shares out the others."""
        shares = {scenario: self._config.scenarios.get(scenario, 0.0) for scenario in Scenario}
        if self.stratum.kind is not QuestionKind.READ_ONLY:
            possible = sum(shares[scenario] for scenario in self._possible)
            shares = {
                scenario: share / possible if possible and scenario in self._possible else 0.0
                for scenario, share in shares.items()
            }
            if not any(shares.values()):
                # No scenario can be had: every question is then rejected as ``no_plan``.
                return {Scenario.SINGLE_HOP: self.stratum.total}
        return apportion(self.stratum.total, shares)

    def plans(self) -> Iterator[QuestionPlan | Unplanned]:
        """One item per wanted instance: its plan, or why none could be made."""
        quota = self.quota()
        hard = self._hard_quota(quota)
        for scenario, wanted in quota.items():
            seen: set[int] = set()
            for number in range(wanted):
                yield self._plan(number < hard.get(scenario, 0), scenario, number, seen)

    def _plan(
        self, hard: bool, scenario: Scenario, number: int, seen: set[int]
    ) -> QuestionPlan | Unplanned:
        """A plan as wanted or, where the knowledge holds no other, of the other sort or a shape
        that has had its share.
        """
        first = self._draw(hard, scenario, number, seen, even=True)
        if isinstance(first, QuestionPlan):
            return first
        for sort, even in ((not hard, True), (hard, False), (not hard, False)):
            plan = self._draw(sort, scenario, number, seen, even)
            if isinstance(plan, QuestionPlan):
                return plan
        return first

    def _hard_quota(self, quota: Mapping[Scenario, int]) -> dict[Scenario, int]:
        """Hard instances per scenario: the wanted share of all, of scenarios that can be hard."""
        shapes: defaultdict[Scenario, set[Shape]] = defaultdict(set)
        for (hard, scenario, _), by_source in self._buckets.items():
            if hard:
                shapes[scenario] |= {c.shape for cs in by_source.values() for c in cs}
        room = {s: min(count, self._most * len(shapes[s])) for s, count in quota.items()}
        total = sum(room.values())
        wanted = min(total, round(self._config.hard * self.stratum.total))
        return apportion(wanted, {s: count / total for s, count in room.items()}) if total else {}

    def _draw(
        self, hard: bool, scenario: Scenario, number: int, seen: set[int], even: bool
    ) -> QuestionPlan | Unplanned:
        """A plan that was not drawn before; if ``even``, of a shape that may get another question.

        ``seen`` holds a hash of each earlier plan, as the plans themselves are large.
        """
        weights = {
            hops: weight
            for hops, weight in sorted(self._config.hops.items())
            if weight > 0 and self._buckets.get((hard, scenario, hops))
        }
        if not weights:
            return Unplanned(scenario, number, "the split owns no composition of this scenario")
        stratum = self.stratum
        label = [self._config.seed, stratum.split, scenario, number]
        # English reading questions are labelled without both: data sets of them keep their draws.
        if (stratum.language, stratum.kind) != ("en", QuestionKind.READ_ONLY):
            label += [stratum.language, stratum.kind]
        rng = random.Random(int(content_id(["plan", *label]), 16))
        for attempt in range(ATTEMPTS):
            hops = rng.choices(list(weights), list(weights.values()))[0]
            by_source = self._buckets[hard, scenario, hops]
            if even:
                # What a stratum has left to ask evenly may be what the knowledge does not hold.
                most = self._most if attempt < ATTEMPTS // 2 else self.stratum.total
                by_source = self._evenly(by_source, most)
            if not by_source:
                continue
            names = sorted(by_source)
            name = rng.choices(names, [self._weights[n] for n in names])[0]
            compositions = by_source[name]
            preference = [
                weight_of(composition, self._config.hard_by)
                * (self._config.lookup_weight if composition.only_lookups else 1.0)
                for composition in compositions
            ]
            source = rng.choice(self._sources[name])
            plan = self._fill(rng.choices(compositions, preference)[0], source, rng)
            if plan is None:
                continue
            signature = plan.composition.signature
            told = [literals(operation) for operation in plan.operations]
            key = int(content_id([signature, sorted(plan.names), told]), 16)
            if key not in seen:
                seen.add(key)
                self._drawn[plan.composition.shape] += 1
                self._shapes[plan.composition.shape] += 1
                self._asked[signature, id(source)].update(plan.names)
                return plan
        return Unplanned(scenario, number, f"{ATTEMPTS} draws gave no new question")

    def _evenly(
        self, by_source: Mapping[str, list[Composition]], most: int
    ) -> dict[str, list[Composition]]:
        """The compositions of shapes that may get another question."""

        def may(shape: Shape) -> bool:
            return self._drawn[shape] < most and self._shapes[shape] < self._most_of_split

        fresh = {
            name: [c for c in compositions if may(c.shape)]
            for name, compositions in by_source.items()
        }
        return {name: left for name, left in fresh.items() if left}

    def _fill(
        self, composition: Composition, source: KnowledgeSource, rng: random.Random
    ) -> QuestionPlan | None:
        index = self._indexes.setdefault(id(source), RowIndex(source))
        # The named entities of a composition are all of one type.
        pool = source.starts[composition.starts[0]]
        if len(pool) < len(composition.starts):
            return None
        asked = self._asked[composition.signature, id(source)]
        fresh = [name for name in pool if name not in asked]
        if len(fresh) >= len(composition.starts):
            pool = fresh
        names = tuple(rng.sample(pool, len(composition.starts)))
        return fill(index, composition, names, self._config.distractor_rows, rng)


def fill(
    index: RowIndex,
    composition: Composition,
    names: tuple[str, ...],
    distractors: int,
    rng: random.Random,
) -> QuestionPlan | None:
    """The plan of a composition asked of ``names``; None where they make no good question."""
    walk = CompositionWalk(index, composition, names, rng)
    try:
        walk.run()
    except (EvaluationError, Unsuitable):
        return None
    return QuestionPlan(
        source=index.source,
        composition=composition,
        names=names,
        operations=tuple(walk.operations),
        literals=tuple(walk.literals),
        answers=tuple(walk.answers[number + 1] for number in range(len(walk.operations))),
        tables=excerpt(index, composition, walk.rows, distractors, rng),
        writes=tuple(walk.writes),
    )


def excerpt(
    index: RowIndex,
    composition: Composition,
    needed: Mapping[str, Sequence[tuple[Any, ...]]],
    distractors: int,
    rng: random.Random,
) -> tuple[Table, ...]:
    """The tables that a composition reads: the rows ``needed`` and distractors, shuffled.

    ``distractors`` rows are shared out among the tables. Rows that an earlier table links to are
    taken first, so that a wrong argument still finds its way through the tables as a right one
    does. Joins are made of the excerpts of their parts.
    """
    tables: dict[str, Table] = {}
    linked: set[Any] = set()
    share = max(LEAST_DISTRACTORS, distractors // max(1, len(needed)))
    joins = [node.relation.table for node in composition.nodes if "+" in node.relation.table]
    for name in _base_tables(composition):
        whole = index.source.tables[name]
        paged = any(n.relation.op == "page" and n.relation.table == name for n in composition.nodes)
        rows = list(dict.fromkeys(needed.get(name, ())))
        for joined in joins:
            if name in joined.split("+"):
                parts = _projected(index, joined, whole, needed[joined])
                rows = list(dict.fromkeys([*rows, *parts]))
        chosen = set(rows)
        others = [row for row in whole.rows if row not in chosen]
        rng.shuffle(others)
        others.sort(key=lambda row: row[0] not in linked)  # False first; the shuffle holds within
        rows += others[:share]
        # The first column is a row's own name; every other entity column links to a row.
        kinds = index.source.kinds[name]
        links = [i for i, c in enumerate(whole.columns) if i and kinds[c] is CellType.ENTITY]
        linked.update(row[i] for row in rows for i in links)
        rng.shuffle(rows)
        if paged:  # what stands on which page hangs on the order
            rows.sort(key=whole.rows.index)
        tables[name] = Table(name=name, columns=whole.columns, rows=tuple(rows))
    for joined in dict.fromkeys(joins):
        tables[joined] = join(joined, [tables[part] for part in joined.split("+")])
    return tuple(tables.values())


def _base_tables(composition: Composition) -> list[str]:
    """The tables that the nodes read, joins taken apart, in the order first met."""
    read = [node.relation.table for node in composition.nodes if node.relation.table]
    return list(dict.fromkeys(part for name in read for part in name.split("+")))


def _projected(
    index: RowIndex, joined: str, part: Table, rows: Sequence[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """The rows of ``part`` that went into ``rows`` of a join."""
    columns = index.source.tables[joined].columns
    places = [columns.index(column) for column in part.columns]
    return [tuple(row[place] for place in places) for row in rows]
