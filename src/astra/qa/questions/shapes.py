"""Question compositions: which relations are asked in which arrangement, without entities.

A composition is a DAG of nodes over the relations of one source. Its signature is its identity
across splits: a stable hash assigns each signature to exactly one split, so that a held-out
question is never a training question with other names.

Compositions that only read grow from paths, chains of relations in which each is asked of the
answer before. A path is asked of one entity, or of two or three at once (``list``) or to compare
them (``greater``, ``less``, ``between``); two look-ups of one entity make a ``fork``, and so do a
relation and its twin. Where a relation's answer holds several cells, what follows is asked of the
one that its choice picks; a path that ends there ends in a step without a tool, the pick itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations

from astra.qa.knowledge.calculations import DAYS_BETWEEN
from astra.qa.knowledge.operations import CLASSIC_OPS, PLAIN_OPS
from astra.qa.knowledge.schema import CellType, KnowledgeSource, Relation, RowChoice
from astra.records.base import content_id
from astra.records.qa import (
    AnswerType,
    Bar,
    QuestionKind,
    Scenario,
    Split,
    SubQuestion,
)

COMPARISONS = {
    op: Relation(
        name=f"compare.{op}",
        op=op,
        source="value",
        table="",
        key="names",
        select="",
        phrase="",
        kind=CellType.ENTITY,
    )
    for op in ("greater", "less")
}
"""The relation of each comparison. It has no phrase: forms of questions word it."""
PICKS = {
    kind: Relation(
        name="choice.pick",
        op="pick",
        source="value",
        table="",
        key="value",
        select="",
        phrase="{x}",
        kind=kind,
    )
    for kind in CellType
}
"""Type of cell -> the relation that answers with a chosen cell of that type."""
RelationPath = tuple[Relation, ...]
"""A chain of relations: each is asked of the answer of the one before."""
Shape = tuple[tuple[str, str], ...]
"""The operations of a question with their relations, whatever they are asked of."""
NOT_LISTED = (AnswerType.LIST, AnswerType.RECORD, AnswerType.BOOLEAN)
"""Answers that are asked for one at a time."""


@dataclass(frozen=True)
class Node:
    """One step. It is asked of the ``start``-th named entity, or of its ``parents``' answers."""

    relation: Relation
    start: int | None = None
    parents: tuple[int, ...] = ()
    """Ids of earlier nodes; a node's id is its position counted from 1."""
    choice: RowChoice | None = None
    """What of its parents' answers it is asked of; None: of all."""
    page_after: int | None = None
    """Id of the node with the page before, where it asks for the next one."""
    after: tuple[int, ...] = ()
    """Ids of nodes that must be done before, though their answers are not used."""
    bar: Bar | None = None
    """Why the step is not carried out; None where it is."""

    @property
    def dependencies(self) -> tuple[int, ...]:
        """Ids of all nodes that must be done before, ascending."""
        page = () if self.page_after is None else (self.page_after,)
        return tuple(sorted({*self.parents, *self.after, *page}))

    @property
    def signature(self) -> str:
        """The relation with what it is asked of, waits for and is barred by."""
        asked = ",".join(map(str, self.parents)) or f"@{self.start}"
        asked += f"[{self.choice.signature}]" if self.choice else ""
        asked += f"+{self.page_after}" if self.page_after else ""
        later = f">{','.join(map(str, self.after))}" if self.after else ""
        barred = f"!{self.bar}" if self.bar else ""
        return f"{self.relation.name}({asked}){later}{barred}"


@dataclass(frozen=True)
class Composition:
    """A question without names: its steps in order, and how its final answer follows from them."""

    domain: str
    form: str
    """How its wording brings the steps together: ``last``, ``list``, ``fork``, ``act``, ..."""
    nodes: tuple[Node, ...]
    starts: tuple[str, ...]
    """The entity type of each named entity; all are of one type."""
    final: str
    """What the main question's answer is: that of the ``last`` node, the ``list`` of those of
    all ends (writes and barred nodes aside), or the ``outcome`` that its kind has.
    """
    kind: QuestionKind = QuestionKind.READ_ONLY

    @cached_property
    def signature(self) -> str:
        """Its identity across splits: domain, form, kind and the nodes' signatures."""
        read = self.kind is QuestionKind.READ_ONLY
        form = self.form if read else f"{self.kind}:{self.form}"
        return f"{self.domain}:{form}:" + ";".join(node.signature for node in self.nodes)

    @cached_property
    def shape(self) -> Shape:
        """What questions that read alike share: each node's operation and relation, in order."""
        return tuple((node.relation.op, node.relation.name) for node in self.nodes)

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The hop level of each node: 1, or one more than its deepest dependency."""
        levels: list[int] = []
        for node in self.nodes:
            levels.append(1 + max((levels[id - 1] for id in node.dependencies), default=0))
        return tuple(levels)

    @property
    def hops(self) -> int:
        """The deepest hop level."""
        return max(self.levels)

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario of its levels."""
        return scenario_of(
            [(level, node.relation.op) for level, node in zip(self.levels, self.nodes, strict=True)]
        )

    @property
    def only_lookups(self) -> bool:
        """Whether no node calculates, groups, chooses, compares or writes."""
        return all(node.relation.op == "lookup" and not node.choice for node in self.nodes)

    @property
    def classic(self) -> bool:
        """Whether the prompt ``qa/decompose`` covers it."""
        return self.kind is QuestionKind.READ_ONLY and all(
            node.relation.op in CLASSIC_OPS and not node.choice and not node.relation.twin
            for node in self.nodes
        )


def scenario_of(steps: Iterable[tuple[int, str]]) -> Scenario:
    """The scenario of (hop level, op) steps (ASTRA section 4.1).

    It is multi-hop if some step depends on another, and parallel if some level holds two steps.
    Steps whose op needs no tool do not count.
    """
    levels = [level for level, op in steps if op not in PLAIN_OPS]
    parallel = len(set(levels)) < len(levels)
    if max(levels, default=1) == 1:
        return Scenario.PARALLEL_SINGLE_HOP if parallel else Scenario.SINGLE_HOP
    return Scenario.PARALLEL_MULTI_HOP if parallel else Scenario.MULTI_HOP


def steps_of(sub_questions: Iterable[SubQuestion]) -> list[tuple[int, str]]:
    """(Hop level, op) of each sub-question, as ``scenario_of`` takes them."""
    return [(step.hop_level, step.operation.op if step.operation else "") for step in sub_questions]


def split_of(signature: str, shares: Mapping[Split, float]) -> Split:
    """The split that owns a composition, by a stable hash of its signature."""
    # The hash is a number in [0, 1); the shares, laid end to end, say whose part it falls into.
    ticket = int(content_id(["composition", signature]), 16) / 16**16
    for split in Split:
        ticket -= shares.get(split, 0.0)
        if ticket < 0:
            return split
    return Split.TRAIN


def compositions(source: KnowledgeSource, max_hops: int) -> list[Composition]:
    """Every composition over a source's relations of at most ``max_hops`` levels, in order."""
    paths = list(paths_of(source, max_hops))
    of_paths = (c for path in paths for c in _of_path(source.domain, path))
    forks = (c for path in [(), *paths] for c in _forks(source, path))
    twins = (c for path in [(), *paths] for c in _twins(source, path))
    return distinct(chain(of_paths, forks, twins), max_hops)


def distinct(compositions: Iterable[Composition], max_hops: int) -> list[Composition]:
    """The compositions of at most ``max_hops`` levels, one per signature, in order.

    Those are left out that look up a cell which an answer before shows.
    """
    fitting = (c for c in compositions if c.hops <= max_hops and not _looks_twice(c))
    return list({c.signature: c for c in fitting}.values())


def _looks_twice(composition: Composition) -> bool:
    """Whether a look-up is made of a cell that its row was shown with, or chosen by."""
    for node in composition.nodes:
        before = composition.nodes[node.parents[0] - 1].relation if node.parents else None
        if before and node.relation.op == "lookup":
            shown = before.select.split(":") if node.choice else []
            if node.relation.select in (*shown, before.extra):
                return True
    return False


def paths_of(source: KnowledgeSource, longest: int) -> Iterator[RelationPath]:
    """Every path of reading relations from an entity type, of at most ``longest`` relations.

    No path asks a relation twice or turns back.
    ``days_between`` is asked of two answers, and a twin beside its other: no path has them.
    """
    by_source: dict[str, list[Relation]] = {}
    for relation in source.relations:
        if relation.op != "days_between" and not relation.writes and not relation.twin:
            by_source.setdefault(relation.source, []).append(relation)

    def extend(path: RelationPath) -> Iterator[RelationPath]:
        """The path and, depth first, each that goes on from its end."""
        yield path
        if len(path) < longest and path[-1].target:
            for relation in by_source.get(path[-1].target, []):
                if relation not in path and not _turns_back((*path, relation)):
                    yield from extend((*path, relation))

    for entity_type in source.starts:
        for relation in by_source.get(entity_type, []):
            yield from extend((relation,))


def _of_path(domain: str, path: RelationPath) -> Iterator[Composition]:
    """The questions that ask one path: alone, of two or three entities, or compared."""
    start, last = path[0].source, path[-1]
    yield Composition(domain, "last", ended(path, 1), (start,), "last")
    if last.answer_type not in NOT_LISTED:
        for width in (2, 3):
            yield Composition(domain, "list", copies(path, width), (start,) * width, "list")
    if any(relation.choice and relation.choice.where for relation in path):
        return  # each of two rows would be chosen by a cell of its own
    pair = copies(path, 2)
    ends = (len(pair) - 1, len(pair))  # ids of the two answers
    if last.kind is CellType.NUMBER and last.op in ("lookup", "sum", "max", "mean"):
        for op, relation in COMPARISONS.items():
            nodes = (*pair, Node(relation, parents=ends))
            yield Composition(domain, op, nodes, (start, start), "last")
    if last.op == "lookup" and last.target == "date":
        nodes = (*pair, Node(DAYS_BETWEEN, parents=ends))
        yield Composition(domain, "between", nodes, (start, start), "last")


def _turns_back(path: RelationPath) -> bool:
    """Whether a path that chooses does so twice or comes to a type of things twice, or any path
    ends by checking the link that it came by.
    """
    types = [path[0].source, *(relation.target for relation in path if relation.target)]
    if path[-1].op == "check" and path[-1].extra in types:
        return True
    choices = sum(relation.choice is not None for relation in path)
    return choices > 1 or (choices == 1 and len(set(types)) < len(types))


def copies(path: RelationPath, width: int) -> tuple[Node, ...]:
    """The path's nodes once per named entity, level by level, so that ids follow hop levels."""
    nodes: list[Node] = []
    firsts = [Node(path[0], start=copy) for copy in range(width)]
    for level, relation in enumerate(path):
        nodes += firsts
        for _ in range(1, _pages(relation)):
            before = len(nodes) - width + 1  # the page before: ``width`` nodes back
            nodes += [replace(first, page_after=before + at) for at, first in enumerate(firsts)]
        if level + 1 < len(path):
            ends = _ends(nodes, width)
            firsts = [Node(path[level + 1], parents=end, choice=relation.choice) for end in ends]
    return tuple(nodes)


def ended(path: RelationPath, width: int) -> tuple[Node, ...]:
    """The path's ``copies``, each with the pick that it ends in where it ends in a choice."""
    nodes = copies(path, width)
    choice = path[-1].choice
    if choice is None:
        return nodes
    picks = [Node(PICKS[choice.kind], parents=e, choice=choice) for e in _ends(nodes, width)]
    return (*nodes, *picks)


def _pages(relation: Relation) -> int:
    return relation.choice.pages if relation.choice else 1


def _ends(nodes: Sequence[Node], width: int) -> list[tuple[int, ...]]:
    """Ids of the nodes that hold what each copy has found last: one node, or all its pages."""
    pages = _pages(nodes[-1].relation)
    first = len(nodes) - pages * width + 1
    return [tuple(range(first + copy, len(nodes) + 1, width)) for copy in range(width)]


def asked_of(relation: Relation, prefix: tuple[Node, ...]) -> Node:
    """A node that asks of what ``prefix`` finds or, where that is empty, of the named entity."""
    if not prefix:
        return Node(relation, start=0)
    [end] = _ends(prefix, 1)
    return Node(relation, parents=end, choice=prefix[-1].relation.choice)


def _forks(source: KnowledgeSource, path: RelationPath) -> Iterator[Composition]:
    """Two different look-ups of one entity, which is named or found by ``path``."""
    entity_types = [path[-1].target] if path else list(source.starts)
    prefix = copies(path, 1) if path else ()
    for entity_type in entity_types:
        lookups = [r for r in source.relations if r.source == entity_type and r.op == "lookup"]
        for pair in combinations(lookups, 2):
            if any(relation in path for relation in pair):
                continue
            ends = tuple(asked_of(relation, prefix) for relation in pair)
            start = path[0].source if path else entity_type
            yield Composition(source.domain, "fork", (*prefix, *ends), (start,), "list")


def _twins(source: KnowledgeSource, path: RelationPath) -> Iterator[Composition]:
    """A relation and its twin, asked of one entity: what each finds, or one look-up of that."""
    entity_types = [path[-1].target] if path else list(source.starts)
    prefix = copies(path, 1) if path else ()
    pairs = [
        (wide, narrow)
        for narrow in source.relations
        if narrow.twin and narrow.source in entity_types
        for wide in source.relations
        if wide.name == narrow.twin and _alike(wide.choice, narrow.choice)
    ]
    for wide, narrow in pairs:
        start = path[0].source if path else wide.source
        both = (*prefix, asked_of(wide, prefix), asked_of(narrow, prefix))
        found = [(len(both) - 1,), (len(both),)]
        followed = [r for r in source.relations if r.source == wide.target and r.op == "lookup"]
        for last in [PICKS[wide.choice.kind] if wide.choice else None, *followed]:
            ends = [
                Node(last, parents=ids, choice=one.choice)
                for ids, one in zip(found, (wide, narrow), strict=True)
                if last
            ]
            yield Composition(source.domain, "fork", (*both, *ends), (start,), "list")


def _alike(one: RowChoice | None, other: RowChoice | None) -> bool:
    """Whether two relations choose in the same way, in whatever words."""
    return (one and one.signature) == (other and other.signature)
