"""Traits that make a composition hard: what an agent has to do beside calling the named tools.

An arena of a hard composition has these traits too (envsynth/traits.py reads them off the arena).
"""

from __future__ import annotations

from astra.qa.questions.shapes import Composition
from astra.records.environment import DEEP, HARD_TRAITS, Trait


def traits_of(composition: Composition) -> frozenset[Trait]:
    """The traits of a composition."""
    nodes = composition.nodes
    asked = {node.relation.name for node in nodes}
    found = {
        Trait.SELECTION: any(node.choice for node in nodes),
        Trait.PAGES: any(node.page_after for node in nodes),
        Trait.TWINS: any(node.relation.twin in asked for node in nodes if node.relation.twin),
        Trait.HOPS: composition.hops >= DEEP,
    }
    return frozenset(trait for trait, holds in found.items() if holds)


def is_hard(composition: Composition) -> bool:
    """Whether a composition has as many traits as make it hard."""
    return len(traits_of(composition)) >= HARD_TRAITS
