"""Compositions of the task kinds: questions that act, and questions that cannot be done.

Every kind asks for at least one call, so that doing nothing never suffices. What a barred step
needs is looked up first; where an action is of no use or impossible, a look-up shows it.
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
    RelationPath,
    asked_of,
    compositions,
    copies,
    distinct,
    paths_of,
)
from astra.records.qa import Bar, QuestionKind

_Shapes = Callable[[KnowledgeSource, int], Iterator[Composition]]
"""The compositions of one kind over a source; some may have more hops than allowed."""


def compositions_of(
    kind: QuestionKind, source: KnowledgeSource, max_hops: int
) -> list[Composition]:
    """Every composition of a kind over a source of at most ``max_hops`` levels, in order."""
    if kind is QuestionKind.READ_ONLY:
        return compositions(source, max_hops)
    return distinct(_SHAPES[kind](source, max_hops), max_hops)


def _write(source: KnowledgeSource, max_hops: int) -> Iterator[Composition]:
    """One action, or two of the same sort at once."""
    for action, path in _actions(source, max_hops):
        for width in (1, 2):
            nodes = copies((*path, action), width)
            starts = (nodes[0].relation.source,) * width
            yield _ending_in_outcome(source, QuestionKind.WRITE, "act", nodes, starts)


def _mixed(source: KnowledgeSource, max_hops: int) -> Iterator[Composition]:
    """An action and a value: of the thing acted on, or of a group as the action leaves it."""
    mixed = QuestionKind.MIXED
    for action, path in _actions(source, max_hops):
        prefix = copies(path, 1) if path else ()
        start = path[0].source if path else action.source
        act = asked_of(action, prefix)
        for lookup in _lookups(source, action.source):
            # Reading the cell that the action writes would only repeat the request.
            if lookup.select != action.select and lookup not in path:
                nodes = (*prefix, act, asked_of(lookup, prefix))
                yield Composition(source.domain, "and", nodes, (start,), "last", mixed)
        if path:
            continue
        for link in _lookups(source, action.source):
            for group in source.relations:
                if group.source == link.target and _sees(group, action):
                    # Node 1 finds the group, node 2 acts, and the value is read after both.
                    value = Node(group, parents=(1,), after=(2,))
                    nodes = (asked_of(link, ()), act, value)
                    yield Composition(source.domain, "then", nodes, (start,), "last", mixed)


def _missing_tool(source: KnowledgeSource, max_hops: int) -> Iterator[Composition]:
    """The tools of the first steps are there, that of the last is not."""
    for path in _paths_and_actions(source, max_hops):
        for width in (1, 2):
            if len(path) < 2 or (width > 1 and path[-1].answer_type in NOT_LISTED):
                continue
            nodes = copies(path, width)
            kept, last = nodes[:-width], nodes[-width:]
            barred = (*kept, *(replace(node, bar=Bar.NO_TOOL) for node in last))
            starts = (path[0].source,) * width
            kind, form = QuestionKind.MISSING_TOOL, _form(path, width)
            yield _ending_in_outcome(source, kind, form, barred, starts)


def _missing_parameter(source: KnowledgeSource, max_hops: int) -> Iterator[Composition]:
    """A value that the last tool needs is neither given nor to be found."""
    for path in _paths_and_actions(source, max_hops):
        # A row that is chosen by a cell adds a value, of which it would be unclear what is missing.
        chosen = path[-2].choice if len(path) > 1 else None
        if len(path) > 1 and path[-1].vague and not (chosen and chosen.where):
            nodes = copies(path, 1)
            barred = (*nodes[:-1], replace(nodes[-1], bar=Bar.NO_CALL))
            kind, form = QuestionKind.MISSING_PARAMETER, _form(path, 1)
            yield _ending_in_outcome(source, kind, form, barred, (path[0].source,))


def _infeasible(source: KnowledgeSource, max_hops: int) -> Iterator[Composition]:
    """An action that is impossible, as the place that it would take is taken."""
    return _refused(QuestionKind.INFEASIBLE, ("insert",), source, max_hops)


def _already_satisfied(source: KnowledgeSource, max_hops: int) -> Iterator[Composition]:
    """An action of no use, as its goal holds already."""
    return _refused(QuestionKind.ALREADY_SATISFIED, ("insert", "update"), source, max_hops)


def _refused(
    kind: QuestionKind, refusable: tuple[str, ...], source: KnowledgeSource, max_hops: int
) -> Iterator[Composition]:
    """An action of ``refusable`` operations, barred by a look-up of its own cell."""
    for action, path in _actions(source, max_hops):
        if action.op not in refusable:
            continue
        prefix = copies(path, 1) if path else ()
        start = path[0].source if path else action.source
        for lookup in _lookups(source, action.source):
            if lookup.select == action.select and lookup not in path:
                shown = asked_of(lookup, prefix)
                # The look-up is the node after the prefix; the action waits for it.
                act = replace(asked_of(action, prefix), after=(len(prefix) + 1,), bar=Bar.NO_CALL)
                yield _ending_in_outcome(source, kind, "act", (*prefix, shown, act), (start,))


def _sees(group: Relation, action: Relation) -> bool:
    """Whether a group's answer depends on the cell that an update changes."""
    same_cells = group.table == action.table and group.select == action.select
    return action.op == "update" and same_cells and group.op in AGGREGATES


def _actions(source: KnowledgeSource, max_hops: int) -> Iterator[tuple[Relation, RelationPath]]:
    """Each write, with every path to the thing written; the empty path: the thing is named."""
    paths = list(paths_of(source, max_hops - 1)) if max_hops > 1 else []
    for relation in source.relations:
        if relation.writes:
            yield relation, ()
            for path in paths:
                if path[-1].target == relation.source:
                    yield relation, path


def _paths_and_actions(source: KnowledgeSource, max_hops: int) -> Iterator[RelationPath]:
    # What is chosen in the head needs no tool, so that a path ending there has none to lack.
    yield from (path for path in paths_of(source, max_hops) if path[-1].choice is None)
    for action, path in _actions(source, max_hops):
        yield (*path, action)


def _form(path: RelationPath, width: int) -> str:
    if path[-1].writes:
        return "act"
    return "last" if width == 1 else "list"


def _lookups(source: KnowledgeSource, entity_type: str) -> list[Relation]:
    return [r for r in source.relations if r.op == "lookup" and r.source == entity_type]


def _ending_in_outcome(
    source: KnowledgeSource,
    kind: QuestionKind,
    form: str,
    nodes: tuple[Node, ...],
    starts: tuple[str, ...],
) -> Composition:
    return Composition(source.domain, form, nodes, starts, "outcome", kind)


_SHAPES: dict[QuestionKind, _Shapes] = {
    QuestionKind.WRITE: _write,
    QuestionKind.MIXED: _mixed,
    QuestionKind.MISSING_TOOL: _missing_tool,
    QuestionKind.MISSING_PARAMETER: _missing_parameter,
    QuestionKind.INFEASIBLE: _infeasible,
    QuestionKind.ALREADY_SATISFIED: _already_satisfied,
}
