"""Weight-biased, length-bounded random walks over a tool graph (ASTRA section 3.1).

Work is bounded by the number of walks times their length, whatever the graph: nothing is
enumerated, a complete graph costs as much as a path.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
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
    visits: Mapping[str, int],
) -> Iterator[Walk]:
    """The distinct ones of ``walks`` walks of ``min_length`` to ``max_length`` tools, as drawn.

    A walk starts at a random tool that has edges of enough weight, and follows edges with
    probability proportional to weight. It visits a tool as often as ``visits`` says, once where
    that says nothing. A dead end gives what was walked, if it is long enough. Whoever takes more
    of the walks gets those that fewer would be, and others after them.
    """
    nodes = list(graph.nodes)
    if not nodes:
        return
    following = {
        node: [(target, data["weight"]) for _, target, data in graph.out_edges(node, data=True)]
        for node in nodes
    }
    # Summed once: choosing by plain weights would add up the whole graph at every walk.
    strength = list(accumulate(1 + sum(weight for _, weight in following[n]) for n in nodes))
    seen: set[tuple[str, ...]] = set()
    for _ in range(walks):
        length = rng.randint(min_length, max_length)
        # Single calls are wanted of every tool; longer walks start where they can go on.
        start = rng.choice(nodes) if length == 1 else rng.choices(nodes, cum_weights=strength)[0]
        walk = _walk(following, start, length, visits, rng)
        if len(walk.tools) >= min_length and walk.tools not in seen:
            seen.add(walk.tools)
            yield walk


def _walk(
    following: Mapping[str, list[tuple[str, int]]],
    start: str,
    length: int,
    visits: Mapping[str, int],
    rng: random.Random,
) -> Walk:
    tools = [start]
    weight = 0
    while len(tools) < length:
        options = [
            option
            for option in following[tools[-1]]
            if tools.count(option[0]) < visits.get(option[0], 1)
        ]
        if not options:
            break
        target, step = rng.choices(options, [w for _, w in options])[0]
        tools.append(target)
        weight += step
    return Walk(tuple(tools), weight)
