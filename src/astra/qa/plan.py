"""Plans of questions: a composition, named entities and the knowledge excerpt that answers it.

A plan fixes what a question is about, before any teacher is asked: quotas of splits, scenarios
and hops hold by construction, and shortfalls are counted, never filled with something else.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from astra.qa.config import QAConfig, SourceName
from astra.qa.operations import EvaluationError, evaluate
from astra.qa.schema import Kind, Relation, Source
from astra.qa.shapes import Composition, Node, compositions, split_of
from astra.records.base import canonical_json, content_id
from astra.records.qa import Operation, Scenario, Split, Table

ATTEMPTS = 60
GROUP_SIZES = {
    "sum": (2, 5),
    "mean": (2, 5),
    "max": (2, 5),
    "list": (2, 3),
    "argmax": (2, 6),
    "argmin": (2, 6),
    "count": (1, 9),
}
"""Rows that a group may have: answers stay short and calculations small."""
DAYS = (7, 10, 14, 21, 30)
LEAST_DISTRACTORS = 4
"""Distractor rows per table."""


@dataclass(frozen=True)
class Plan:
    source: Source
    composition: Composition
    names: tuple[str, ...]
    operations: tuple[Operation, ...]
    literals: tuple[Any, ...]
    """Per node: the value of the relation's second parameter, or None."""
    tables: tuple[Table, ...]


class Planner:
    """Draws the plans of one split."""

    def __init__(
        self, config: QAConfig, split: Split, sources: Mapping[SourceName, Sequence[Source]]
    ) -> None:
        self._config = config
        self._split = split
        self._sources = sources
        self._indexes: dict[int, Index] = {}
        self._buckets: defaultdict[tuple[Scenario, int], defaultdict[SourceName, list[Composition]]]
        self._buckets = defaultdict(lambda: defaultdict(list))
        wanted = {hops for hops, weight in config.hops.items() if weight > 0}
        for name, variants in sources.items():
            for made in compositions(variants[0], max(wanted)):
                fits = made.hops in wanted and len(made.nodes) <= config.max_steps
                if fits and split_of(made.signature, config.compositions) is split:
                    self._buckets[made.scenario, made.hops][name].append(made)

    def composition_count(self) -> int:
        """How many compositions the split owns within the hop budget."""
        return sum(len(found) for by in self._buckets.values() for found in by.values())

    def quota(self) -> dict[Scenario, int]:
        """Instances per scenario; the largest remainders make up the total."""
        total = self._config.instances.get(self._split, 0)
        exact = {s: total * self._config.scenarios.get(s, 0.0) for s in Scenario}
        counts = {scenario: int(value) for scenario, value in exact.items()}
        by_rest = sorted(Scenario, key=lambda s: (counts[s] - exact[s], s.value))
        for scenario in by_rest[: total - sum(counts.values())]:
            counts[scenario] += 1
        return counts

    def plans(self) -> Iterator[Plan | Scenario]:
        """One item per wanted instance: its plan, or its scenario where none could be made."""
        for scenario, wanted in self.quota().items():
            seen: set[str] = set()
            for number in range(wanted):
                yield self._draw(scenario, number, seen) or scenario

    def _draw(self, scenario: Scenario, number: int, seen: set[str]) -> Plan | None:
        weights = {
            hops: weight
            for hops, weight in sorted(self._config.hops.items())
            if weight > 0 and self._buckets.get((scenario, hops))
        }
        if not weights:
            return None
        rng = _generator([self._config.seed, self._split, scenario, number])
        for _ in range(ATTEMPTS):
            hops = rng.choices(list(weights), list(weights.values()))[0]
            by_source = self._buckets[scenario, hops]
            names = sorted(by_source)
            name = rng.choices(names, [self._config.sources[n] for n in names])[0]
            made = by_source[name]
            preference = [self._config.lookup_weight if c.only_lookups else 1.0 for c in made]
            source = rng.choice(self._sources[name])
            plan = self._fill(rng.choices(made, preference)[0], source, rng)
            if plan is None:
                continue
            key = canonical_json([plan.composition.signature, sorted(plan.names), plan.literals])
            if key not in seen:
                seen.add(key)
                return plan
        return None

    def _fill(self, made: Composition, source: Source, rng: random.Random) -> Plan | None:
        index = self._indexes.setdefault(id(source), Index(source))
        kinds = made.starts
        pools = source.starts
        if any(len(pools[kind]) < kinds.count(kind) for kind in kinds):
            return None
        names = tuple(rng.sample(pools[kinds[0]], len(kinds)))
        walk = Walk(index, made, names, rng)
        try:
            walk.run()
        except (EvaluationError, Unsuitable):
            return None
        return Plan(
            source,
            made,
            names,
            tuple(walk.operations),
            tuple(walk.literals),
            excerpt(index, made, walk.rows, self._config.distractor_rows, rng),
        )


class Unsuitable(Exception):
    """These entities make a poor question (a tie, a repeated call, a group too large)."""


def _generator(parts: list[Any]) -> random.Random:
    return random.Random(int(content_id(["plan", *parts]), 16))


class Index:
    """Rows of a source by table, column and value."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._by: dict[tuple[str, str], dict[Any, list[tuple[Any, ...]]]] = {}

    def rows(self, table: str, column: str, value: Any) -> list[tuple[Any, ...]]:
        found = self._by.get((table, column))
        if found is None:
            found = defaultdict(list)
            whole = self.source.tables[table]
            position = whole.columns.index(column)
            for row in whole.rows:
                found[row[position]].append(row)
            self._by[table, column] = found = dict(found)
        return found.get(value, [])


class Walk:
    """Follows a composition from named entities; collects operations and the rows they read."""

    def __init__(
        self, index: Index, made: Composition, names: tuple[str, ...], rng: random.Random
    ) -> None:
        self._index = index
        self._made = made
        self._names = names
        self._rng = rng
        self._calls: set[str] = set()
        self.answers: dict[int, Any] = {}
        self.operations: list[Operation] = []
        self.literals: list[Any] = []
        self.rows: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)

    def run(self) -> None:
        """Raises Unsuitable or EvaluationError where the names make no good question."""
        met = set(self._names)
        for number, node in enumerate(self._made.nodes, start=1):
            answer = self._step(number, node)
            self.answers[number] = answer
            relation = node.relation
            if relation.op == "days_between" and answer < 2:
                raise Unsuitable
            if relation.kind is Kind.ENTITY and relation.op not in ("list", "greater", "less"):
                if answer in met:
                    raise Unsuitable
                met.add(answer)

    def _step(self, number: int, node: Node) -> Any:
        relation = node.relation
        literal, asked = None, None
        if node.start is not None:
            asked = self._names[node.start]
        elif len(node.parents) == 1:
            asked = self.answers[node.parents[0]]
        relevant = self._relevant(relation, asked)
        if relation.extra:
            literal = self._literal(relation, relevant)
        operation = operation_of(node, self._names, literal)
        call = canonical_json([relation.name, asked, literal])
        if relation.op in GROUP_SIZES or relation.op == "lookup":
            if call in self._calls:
                raise Unsuitable
            self._calls.add(call)
        excerpt_ = (
            [
                Table.model_construct(
                    name=relation.table,
                    columns=self._index.source.tables[relation.table].columns,
                    rows=tuple(relevant),
                )
            ]
            if relation.table
            else []
        )
        answer = evaluate(operation, excerpt_, self.answers)
        if relation.table:
            self.rows[relation.table].extend(relevant)
        self.operations.append(operation)
        self.literals.append(literal)
        return answer

    def _relevant(self, relation: Relation, asked: Any) -> list[tuple[Any, ...]]:
        if not relation.table:
            return []
        if relation.op == "convert":
            return list(self._index.source.tables[relation.table].rows)
        found = self._index.rows(relation.table, relation.key, asked)
        least, most = GROUP_SIZES.get(relation.op, (1, 1))
        if not least <= len(found) <= most:
            raise Unsuitable
        return found

    def _literal(self, relation: Relation, relevant: Sequence[tuple[Any, ...]]) -> Any:
        if relation.op == "add_days":
            return self._rng.choice(DAYS)
        position = self._index.source.tables[relation.table].columns.index(relation.extra)
        return self._rng.choice([row[position] for row in relevant])


def operation_of(node: Node, names: Sequence[str], literal: Any) -> Operation:
    """The operation of a node whose starts are ``names`` and second parameter is ``literal``."""
    relation = node.relation
    sources: list[Any] = [{"from": parent} for parent in node.parents]
    if node.start is not None:
        sources = [names[node.start]]
    arguments: dict[str, Any]
    if relation.op in ("greater", "less"):
        arguments = {"names": list(names), "values": sources}
    elif relation.op == "days_between":
        arguments = {"start": sources[0], "end": sources[1]}
    elif relation.op == "convert":
        arguments = {"amount": sources[0], "currency": literal}
    else:
        arguments = {relation.key: sources[0]}
        if relation.extra:
            arguments[relation.extra] = literal
    return Operation(
        op=relation.op,
        relation=relation.name,
        table=relation.table,
        arguments=arguments,
        select=relation.select,
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
    tables: list[Table] = []
    linked: set[Any] = set()
    share = max(LEAST_DISTRACTORS, distractors // max(1, len(needed)))
    for name in dict.fromkeys(n.relation.table for n in made.nodes if n.relation.table):
        whole = index.source.tables[name]
        rows = list(dict.fromkeys(needed[name]))
        have = set(rows)
        others = [row for row in whole.rows if row not in have]
        rng.shuffle(others)
        others.sort(key=lambda row: row[0] not in linked)
        rows += others[:share]
        kinds = index.source.kinds[name]
        links = [i for i, c in enumerate(whole.columns) if i and kinds[c] is Kind.ENTITY]
        linked.update(row[i] for row in rows for i in links)
        rng.shuffle(rows)
        tables.append(Table(name=name, columns=whole.columns, rows=tuple(rows)))
    return tuple(tables)
