"""Question compositions: which relations are asked in which arrangement, without entities.

A composition is a DAG of nodes over the relations of one source. Its signature is its identity
across splits: a stable hash assigns each signature to exactly one split, so that a held-out
question is never a training question with other names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from astra.qa.knowledge.calculations import DAYS_BETWEEN
from astra.qa.knowledge.operations import CLASSIC_OPS, PLAIN_OPS
from astra.qa.knowledge.schema import CellType, KnowledgeSource, Relation
from astra.records.base import content_id
from astra.records.qa import (
    AnswerType,
    Bar,
    Operation,
    QuestionKind,
    Scenario,
    Split,
    SubQuestion,
)

COMPARE = {
    op: Relation(f"compare.{op}", op, "value", "", "names", "", "", CellType.ENTITY)
    for op in ("greater", "less")
}


@dataclass(frozen=True)
class Node:
    """One step. It is asked of the ``start``-th named entity, or of its ``parents``' answers."""

    relation: Relation
    start: int | None = None
    parents: tuple[int, ...] = ()
    """Ids of earlier nodes; a node's id is its position counted from 1."""
    after: tuple[int, ...] = ()
    """Nodes that must be done before, though their answers are not used."""
    bar: Bar | None = None

    @property
    def dependencies(self) -> tuple[int, ...]:
        return tuple(sorted({*self.parents, *self.after}))

    @property
    def signature(self) -> str:
        asked = ",".join(map(str, self.parents)) or f"@{self.start}"
        later = f">{','.join(map(str, self.after))}" if self.after else ""
        barred = f"!{self.bar}" if self.bar else ""
        return f"{self.relation.name}({asked}){later}{barred}"


@dataclass(frozen=True)
class Composition:
    """``final`` is how the main question's answer follows: the ``last`` node, the ``list`` of ends
    (writes and barred nodes aside), or the ``outcome`` that its kind has.
    """

    domain: str
    form: str
    nodes: tuple[Node, ...]
    starts: tuple[str, ...]
    """Entity type of each named entity."""
    final: str
    kind: QuestionKind = QuestionKind.READ_ONLY

    @cached_property
    def signature(self) -> str:
        read = self.kind is QuestionKind.READ_ONLY
        form = self.form if read else f"{self.kind}:{self.form}"
        return f"{self.domain}:{form}:" + ";".join(node.signature for node in self.nodes)

    @cached_property
    def levels(self) -> tuple[int, ...]:
        found: list[int] = []
        for node in self.nodes:
            found.append(1 + max((found[parent - 1] for parent in node.dependencies), default=0))
        return tuple(found)

    @property
    def hops(self) -> int:
        """The deepest hop level."""
        return max(self.levels)

    @cached_property
    def scenario(self) -> Scenario:
        return scenario_of(
            [(level, node.relation.op) for level, node in zip(self.levels, self.nodes, strict=True)]
        )

    @property
    def only_lookups(self) -> bool:
        return all(node.relation.op == "lookup" for node in self.nodes)

    @property
    def classic(self) -> bool:
        """Whether the prompt ``qa/decompose`` covers it."""
        return self.kind is QuestionKind.READ_ONLY and all(
            node.relation.op in CLASSIC_OPS for node in self.nodes
        )


def scenario_of(steps: Iterable[tuple[int, str]]) -> Scenario:
    """The scenario of (hop level, op) steps; steps that need no tool by their op do not count.

    Hops: some step depends on another. Parallel: some level holds two steps.
    """
    levels = [level for level, op in steps if op not in PLAIN_OPS]
    parallel = len(set(levels)) < len(levels)
    if max(levels, default=1) == 1:
        return Scenario.PARALLEL_SINGLE_HOP if parallel else Scenario.SINGLE_HOP
    return Scenario.PARALLEL_MULTI_HOP if parallel else Scenario.MULTI_HOP


def steps_of(sub_questions: Iterable[SubQuestion]) -> list[tuple[int, str]]:
    return [(step.hop_level, _op(step.operation)) for step in sub_questions]


def _op(operation: Operation | None) -> str:
    return operation.op if operation else ""


def split_of(signature: str, shares: Mapping[Split, float]) -> Split:
    """The split that owns a composition: a stable hash against the shares, in Split's order."""
    ticket = int(content_id(["composition", signature]), 16) / 16**16
    for split in Split:
        ticket -= shares.get(split, 0.0)
        if ticket < 0:
            return split
    return Split.TRAIN


Path = tuple[Relation, ...]
NOT_LISTED = (AnswerType.LIST, AnswerType.RECORD, AnswerType.BOOLEAN)
"""Answers that are asked for one at a time."""


def compositions(source: KnowledgeSource, max_hops: int) -> list[Composition]:
    """Every composition over a source's relations of at most ``max_hops`` levels, in order."""
    found: dict[str, Composition] = {}
    paths = list(paths_of(source, max_hops))
    for path in paths:
        for made in _of_path(source.domain, path):
            if made.hops <= max_hops:
                found[made.signature] = made
    for prefix in [(), *paths]:
        for made in _forks(source, prefix):
            if made.hops <= max_hops:
                found[made.signature] = made
    return list(found.values())


def paths_of(source: KnowledgeSource, longest: int) -> Iterator[Path]:
    """Chains of reading relations from an entity type; no relation twice."""
    asked: dict[str, list[Relation]] = {}
    for relation in source.relations:
        if relation.op != "days_between" and not relation.writes:
            asked.setdefault(relation.source, []).append(relation)

    def extend(path: Path) -> Iterator[Path]:
        yield path
        if len(path) < longest and path[-1].target:
            for relation in asked.get(path[-1].target, []):
                if relation not in path:
                    yield from extend((*path, relation))

    for kind in source.starts:
        for relation in asked.get(kind, []):
            yield from extend((relation,))


def _of_path(domain: str, path: Path) -> Iterator[Composition]:
    """The questions that ask one path: alone, of two or three entities, or compared."""
    kind = path[0].source
    yield Composition(domain, "last", copies(path, 1), (kind,), "last")
    if path[-1].answer_type not in NOT_LISTED:
        for width in (2, 3):
            nodes = copies(path, width)
            yield Composition(domain, "list", nodes, (kind,) * width, "list")
    numeric = path[-1].kind is CellType.NUMBER and path[-1].op in ("lookup", "sum", "max", "mean")
    if numeric:
        nodes = copies(path, 2)
        ends = (len(nodes) - 1, len(nodes))
        for op, relation in COMPARE.items():
            yield Composition(
                domain, op, (*nodes, Node(relation, parents=ends)), (kind, kind), "last"
            )
    if path[-1].op == "lookup" and path[-1].target == "date":
        nodes = copies(path, 2)
        between = Node(DAYS_BETWEEN, parents=(len(nodes) - 1, len(nodes)))
        yield Composition(domain, "between", (*nodes, between), (kind, kind), "last")


def copies(path: Path, width: int) -> tuple[Node, ...]:
    """The path once per named entity, level by level, so that ids follow hop levels."""
    nodes: list[Node] = []
    for level, relation in enumerate(path):
        for copy in range(width):
            if level == 0:
                nodes.append(Node(relation, start=copy))
            else:
                nodes.append(Node(relation, parents=(len(nodes) - width + 1,)))
    return tuple(nodes)


def _forks(source: KnowledgeSource, prefix: Path) -> Iterator[Composition]:
    """Two different look-ups of one entity, which is named or found by ``prefix``."""
    kinds = [prefix[-1].target] if prefix else list(source.starts)
    chain = copies(prefix, 1) if prefix else ()
    for kind in kinds:
        lookups = [r for r in source.relations if r.source == kind and r.op == "lookup"]
        for pair in combinations(lookups, 2):
            if any(relation in prefix for relation in pair):
                continue
            ends = tuple(
                Node(r, parents=(len(chain),)) if chain else Node(r, start=0) for r in pair
            )
            start = prefix[0].source if prefix else kind
            yield Composition(source.domain, "fork", (*chain, *ends), (start,), "list")
