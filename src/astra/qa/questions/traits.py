"""Traits that make a composition hard: what an agent has to do beside calling the named tools.

An arena of a hard composition has these traits too (envsynth/traits.py reads them off the arena).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from astra.qa.config import HardBy
from astra.qa.questions.shapes import Composition
from astra.records.environment import DEEP, Trait

_TRAITS = {
    HardBy.FIELDS: Trait.SELECTION,
    HardBy.ROWS: Trait.SELECTION,
    HardBy.PAGES: Trait.PAGES,
    HardBy.TWINS: Trait.TWINS,
    HardBy.HOPS: Trait.HOPS,
}


def traits_of(composition: Composition) -> frozenset[Trait]:
    """The traits of a composition."""
    return frozenset(_TRAITS[way] for way in ways_of(composition))


def ways_of(composition: Composition) -> frozenset[HardBy]:
    """What a composition asks for beyond look-ups, records told from lists of them."""
    nodes = composition.nodes
    asked = {node.relation.name for node in nodes}
    chosen_of = {nodes[node.parents[0] - 1].relation.op for node in nodes if node.choice}
    found = {
        HardBy.FIELDS: "record" in chosen_of,
        HardBy.ROWS: bool(chosen_of - {"record"}),
        HardBy.PAGES: any(node.page_after for node in nodes),
        HardBy.TWINS: any(node.relation.twin in asked for node in nodes if node.relation.twin),
        HardBy.HOPS: composition.hops >= DEEP,
    }
    return frozenset(way for way, holds in found.items() if holds)


def weight_of(composition: Composition, weights: Mapping[HardBy, float]) -> float:
    """The product of the weights of what a composition asks for; 1 where it is look-ups alone."""
    return prod(weights[way] for way in ways_of(composition))


def is_hard(composition: Composition, least: int) -> bool:
    """Whether a composition has ``least`` traits or more."""
    return len(traits_of(composition)) >= least
