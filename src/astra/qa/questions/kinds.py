"""Compositions of the task kinds: questions that act, and questions that cannot be done.

Every kind asks for at least one call, so that doing nothing never suffices: what a barred step
needs is looked up first, and whether an action is of use or possible is itself a look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from astra.qa.knowledge.operations import AGGREGATES
from astra.qa.knowledge.schema import KnowledgeSource, Relation
from astra.qa.questions.shapes import (
    NOT_LISTED,
    Composition,
    Node,
    Path,
    compositions,
    copies,
    paths_of,
)
from astra.records.qa import Bar, QuestionKind

_Maker = Callable[[KnowledgeSource, int], Iterator[Composition]]


def compositions_of(
    kind: QuestionKind, source: KnowledgeSource, max_hops: int
) -> list[Composition]:
    """Every composition of a kind over a source of at most ``max_hops`` levels, in order."""
    if kind is QuestionKind.READ_ONLY:
        return compositions(source, max_hops)
    found: dict[str, Composition] = {}
    for made in _MAKERS[kind](source, max_hops):
        if made.hops <= max_hops:
            found[made.signature] = made
    return list(found.values())


def _write(source: KnowledgeSource, max_hops: int) -> Iterator[Composition]:
    """One action, or two of the same sort at once."""
    for relation, prefix in _actions(source, max_hops):
        for width in (1, 2):
            nodes = copies((*prefix, relation), width)
            kinds = (nodes[0].relation.source,) * width
            yield _made(source, QuestionKind.WRITE, "act", nodes, kinds)


def _mixed(source: KnowledgeSource, max_hops: int) -> Iterator[Composition]:
    """An action and a value: of the thing acted on, or of a group as the action leaves it."""
    for relation, prefix in _actions(source, max_hops):
        chain = copies(prefix, 1) if prefix else ()
        start = prefix[0].source if prefix else relation.source
        act = _asked(relation, chain)
        for lookup in _lookups(source, relation.source):
            if lookup.select != relation.select and lookup not in prefix:
                nodes = (*chain, act, _asked(lookup, chain))
                yield _made(source, QuestionKind.MIXED, "and", nodes, (start,), "last")
        if prefix:
            continue
        for link in _lookups(source, relation.source):
            for group in source.relations:
                if group.source == link.target and _sees(group, relation):
                    last = Node(group, parents=(1,), after=(2,))
                    nodes = (_asked(link, ()), act, last)
                    yield _made(source, QuestionKind.MIXED, "then", nodes, (start,), "last")


def _missing_tool(source: KnowledgeSource, max_hops: int) -> Iterator[Composition]:
    """The tools of the first steps are there, that of the last is not."""
    for path in _paths_and_actions(source, max_hops):
        for width in (1, 2):
            if len(path) < 2 or (width > 1 and path[-1].answer_type in NOT_LISTED):
                continue
            nodes = copies(path, width)
            kept, last = nodes[:-width], nodes[-width:]
            barred = (*kept, *(replace(node, bar=Bar.NO_TOOL) for node in last))
            kinds = (path[0].source,) * width
            yield _made(source, QuestionKind.MISSING_TOOL, _form(path, width), barred, kinds)


def _missing_parameter(source: KnowledgeSource, max_hops: int) -> Iterator[Composition]:
    """A value that the last tool needs is neither given nor to be found."""
    for path in _paths_and_actions(source, max_hops):
        if len(path) > 1 and path[-1].vague:
            nodes = copies(path, 1)
            barred = (*nodes[:-1], replace(nodes[-1], bar=Bar.NO_CALL))
            kinds = (path[0].source,)
            yield _made(source, QuestionKind.MISSING_PARAMETER, _form(path, 1), barred, kinds)


def _refused(kind: QuestionKind) -> _Maker:
    """An action that a look-up shows to be of no use, or impossible because a place is taken."""

    refused = ("insert",) if kind is QuestionKind.INFEASIBLE else ("insert", "update")

    def make(source: KnowledgeSource, max_hops: int) -> Iterator[Composition]:
        for relation, prefix in _actions(source, max_hops):
            if relation.op not in refused:
                continue
            chain = copies(prefix, 1) if prefix else ()
            start = prefix[0].source if prefix else relation.source
            for look in _lookups(source, relation.source):
                if look.select == relation.select and look not in prefix:
                    seen = _asked(look, chain)
                    act = replace(_asked(relation, chain), after=(len(chain) + 1,), bar=Bar.NO_CALL)
                    yield _made(source, kind, "act", (*chain, seen, act), (start,))

    return make


def _sees(group: Relation, act: Relation) -> bool:
    """Whether a group's answer depends on the cell that an update changes."""
    same = group.table == act.table and group.select == act.select
    return act.op == "update" and same and group.op in AGGREGATES


def _actions(source: KnowledgeSource, max_hops: int) -> Iterator[tuple[Relation, Path]]:
    """Each write, with every way to the thing written: named, or found by a path."""
    paths = list(paths_of(source, max_hops - 1)) if max_hops > 1 else []
    for relation in source.relations:
        if relation.writes:
            yield relation, ()
            for path in paths:
                if path[-1].target == relation.source:
                    yield relation, path


def _paths_and_actions(source: KnowledgeSource, max_hops: int) -> Iterator[Path]:
    yield from paths_of(source, max_hops)
    for relation, prefix in _actions(source, max_hops):
        yield (*prefix, relation)


def _form(path: Path, width: int) -> str:
    if path[-1].writes:
        return "act"
    return "last" if width == 1 else "list"


def _asked(relation: Relation, chain: tuple[Node, ...]) -> Node:
    return Node(relation, parents=(len(chain),)) if chain else Node(relation, start=0)


def _lookups(source: KnowledgeSource, kind: str) -> list[Relation]:
    return [r for r in source.relations if r.op == "lookup" and r.source == kind]


def _made(
    source: KnowledgeSource,
    kind: QuestionKind,
    form: str,
    nodes: tuple[Node, ...],
    starts: tuple[str, ...],
    final: str = "outcome",
) -> Composition:
    return Composition(source.domain, form, nodes, starts, final, kind)


_MAKERS = {
    QuestionKind.WRITE: _write,
    QuestionKind.MIXED: _mixed,
    QuestionKind.MISSING_TOOL: _missing_tool,
    QuestionKind.MISSING_PARAMETER: _missing_parameter,
    QuestionKind.INFEASIBLE: _refused(QuestionKind.INFEASIBLE),
    QuestionKind.ALREADY_SATISFIED: _refused(QuestionKind.ALREADY_SATISFIED),
}
