"""Weight-biased, length-bounded random walks over a tool graph (ASTRA section 3.1).

Work is bounded by the number of walks times their length, whatever the graph: nothing is
enumerated, a complete graph costs as much as a path.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import networkx as nx


@dataclass(frozen=True)
class Walk:
    tools: tuple[str, ...]
    weight: int
    """Sum of the weights of its edges; 0 for a single tool."""


def sample_walks(
    graph: nx.DiGraph,
    rng: random.Random,
    *,
    walks: int,
    min_length: int,
    max_length: int,
    acyclic: bool,
    limit: int,
) -> list[Walk]:
    """Distinct walks of ``min_length`` to ``max_length`` tools, at most ``limit`` of them.

    A walk starts at a random tool that has edges of enough weight, and follows edges with
    probability proportional to weight; with ``acyclic`` it visits no tool twice. A dead end
    gives what was walked, if it is long enough.
    """
    nodes = list(graph.nodes)
    if not nodes:
        return []
    following = {
        node: [(target, data["weight"]) for _, target, data in graph.out_edges(node, data=True)]
        for node in nodes
    }
    # Summed once: choosing by plain weights would add up the whole graph at every walk.
    strength = list(accumulate(1 + sum(weight for _, weight in following[n]) for n in nodes))
    distinct: dict[tuple[str, ...], Walk] = {}
    for _ in range(walks):
        length = rng.randint(min_length, max_length)
        # Single calls are wanted of every tool; longer walks start where they can go on.
        start = rng.choice(nodes) if length == 1 else rng.choices(nodes, cum_weights=strength)[0]
        walk = _walk(following, start, length, acyclic, rng)
        if len(walk.tools) >= min_length:
            distinct.setdefault(walk.tools, walk)
        if len(distinct) >= limit:
            break
    return list(distinct.values())


def _walk(
    following: Mapping[str, list[tuple[str, int]]],
    start: str,
    length: int,
    acyclic: bool,
    rng: random.Random,
) -> Walk:
    tools = [start]
    weight = 0
    while len(tools) < length:
        options = following[tools[-1]]
        if acyclic:
            options = [option for option in options if option[0] not in tools]
        if not options:
            break
        target, step = rng.choices(options, [w for _, w in options])[0]
        tools.append(target)
        weight += step
    return Walk(tuple(tools), weight)
