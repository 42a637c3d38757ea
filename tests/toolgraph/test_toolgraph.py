"""Graphs, walks, argument sources and votes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import networkx as nx
import pytest

from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import ModelConfig, OfflineHandlers, ParseError, ProviderError
from astra.records.graph import ArgumentOrigin, Chain, ToolGraph
from astra.records.tool import Execution, Tool, ToolServer
from astra.store.metrics import StageMetrics
from astra.toolgraph.arguments import Unsatisfiable, bind_sources
from astra.toolgraph.asks import COHERENCE, ChainProposal, CoherenceVerdict
from astra.toolgraph.chains import accepted_chains
from astra.toolgraph.config import ChainsConfig, GraphConfig
from astra.toolgraph.graphs import as_networkx, build_graph, build_graphs
from astra.toolgraph.linking import linked
from astra.toolgraph.offline import HANDLERS
from astra.toolgraph.walks import sample_walks

MODEL = ModelConfig(backend="offline", model="test")


def tool(name: str, output: dict[str, Any] | None = None, **parameters: Any) -> Tool:
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    return Tool(name=name, description=name, parameters=schema, output_schema=output)


THING = {"type": "string", "x-entity": "thing"}
PERSON = {"type": "string", "x-entity": "person"}
FIND = tool("find_grower", {"title": "grower", **PERSON}, plot=THING)
SHED = tool("get_shed", {"title": "shed", **THING}, grower=PERSON)
KEY = tool("get_key", {"type": "integer"}, shed=THING)


def server(*tools: Tool) -> ToolServer:
    return ToolServer(
        name="club", title="Club", description="", domain="d", source="t", licence="MIT",
        language="en", execution=Execution.EMULATED, deterministic=True, tools=tools,
    )  # fmt: skip


SERVER = server(FIND, SHED, KEY)


def proposal(*chain: str, verdict: Any = "yes") -> ChainProposal:
    return ChainProposal(verdict=verdict, chain=chain, task="t")


def collect(found: AsyncIterator[Any]) -> list[Any]:
    async def run() -> list[Any]:
        return [item async for item in found]

    return asyncio.run(run())


def test_unknown_tool_breaks_the_edge_and_never_bridges() -> None:
    metrics = StageMetrics("graph")
    graph = build_graph(
        SERVER,
        [
            proposal("find_grower", "ghost", "get_key"),
            proposal("find_grower", "get_shed", "get_key"),
            proposal("find_grower", "get_shed"),
            proposal("get_key", "get_shed", verdict="unsure"),
            proposal("get_key", "find_grower", verdict="no"),
        ],
        metrics,
    )
    edges = {(edge.source, edge.target): edge.weight for edge in graph.edges}
    assert edges == {("find_grower", "get_shed"): 2, ("get_shed", "get_key"): 1}
    assert graph.proposals == 2
    assert metrics.counts["unknown_tools"] == 1


def test_links_follow_entities_and_telling_names_only() -> None:
    assert linked(FIND, SHED)
    assert not linked(SHED, FIND)
    create = tool("create_user", {"type": "object", "properties": {"id": {"type": "string"}}})
    assert linked(create, tool("delete_user", userId={"type": "string"}))
    assert not linked(create, tool("delete_file", id={"type": "string"}))
    assert linked(tool("list_tables"), tool("describe_table", table_name={"type": "string"}))


def test_walks_are_bounded_on_a_complete_graph() -> None:
    graph = nx.complete_graph(12, create_using=nx.DiGraph)
    nx.set_edge_attributes(graph, 1, "weight")
    started = time.monotonic()
    walks = sample_walks(
        nx.relabel_nodes(graph, str),
        random.Random(0),
        walks=500,
        min_length=2,
        max_length=5,
        acyclic=True,
        limit=10_000,
    )
    assert time.monotonic() - started < 2
    assert 300 < len(walks) <= 500
    assert all(2 <= len(set(w.tools)) == len(w.tools) <= 5 for w in walks)


def test_walks_prefer_weight_and_may_return_when_cycles_are_allowed() -> None:
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([("a", "b", 99), ("a", "c", 1), ("b", "a", 1)])
    options = {"walks": 400, "min_length": 2, "max_length": 2, "limit": 400}
    counts = {"b": 0, "c": 0}
    for seed in range(300):
        rng = random.Random(seed)
        (walk,) = sample_walks(graph, rng, **{**options, "limit": 1}, acyclic=False)
        if walk.tools[0] == "a":
            counts[walk.tools[1]] += 1
    assert counts["b"] > 20 * counts["c"]
    longer = sample_walks(
        graph, random.Random(0), **{**options, "max_length": 4, "min_length": 3}, acyclic=False
    )
    assert any(len(set(walk.tools)) < len(walk.tools) for walk in longer)
    assert sample_walks(nx.DiGraph(), random.Random(0), **options, acyclic=True) == []


def test_arguments_get_their_sources() -> None:
    level = tool("rate", plot=THING, unit={"const": "m"}, size={"type": "integer", "default": 3})
    steps = bind_sources([FIND, SHED, level])
    assert steps[0].arguments["plot"].origin is ArgumentOrigin.TASK
    source = steps[1].arguments["grower"]
    assert (source.origin, source.step, source.path) == (ArgumentOrigin.OUTPUT, 0, ())
    assert steps[2].arguments["unit"].value == "m"
    assert steps[2].arguments["size"].value == 3
    nested = tool("get_booking", {"type": "object", "properties": {"shed": THING}}, guest=PERSON)
    assert bind_sources([nested, KEY])[1].arguments["shed"].path == ("shed",)


def test_argument_without_any_source_is_refused() -> None:
    impossible = tool("use", code={"type": "string", "pattern": "^[0-9]{9}$"})
    with pytest.raises(Unsatisfiable, match=r"use\.code"):
        bind_sources([impossible])


def chains_of(handlers: OfflineHandlers, metrics: StageMetrics, votes: int = 3) -> list[Chain]:
    graph = build_graph(SERVER, [proposal("find_grower", "get_shed", "get_key")], metrics)
    config = ChainsConfig(
        judge=MODEL, walks=50, max_chains=20, min_length=2, max_length=3, acyclic=True, votes=votes
    )
    judge = OfflineTeacher(MODEL, handlers)
    return collect(accepted_chains([graph], {SERVER.id: SERVER}, judge, config, 4, metrics))


@pytest.mark.parametrize(
    ("verdicts", "accepted", "reason"),
    [
        ([True, True, False], True, None),
        ([True, False, False], False, "incoherent"),
        ([True, False, None], False, "incoherent"),
        ([True, None, None], True, None),
        ([None, None, None], False, "all_votes_abstained"),
    ],
)
def test_votes(verdicts: list[bool | None], accepted: bool, reason: str | None) -> None:
    turn = iter(verdicts * 50)

    def judge(variables: Any, rng: random.Random) -> CoherenceVerdict:
        verdict = next(turn)
        if verdict is None:
            raise ParseError("garbled")
        return CoherenceVerdict(valid=verdict, task="x")

    metrics = StageMetrics("chains")
    chains = chains_of({COHERENCE: judge}, metrics)
    assert bool(chains) is accepted
    assert set(metrics.dropped) == ({reason} if reason else set())


def test_outage_gives_no_graph_and_is_counted() -> None:
    def fail(variables: Any, rng: random.Random) -> Any:
        raise ProviderError("down")

    metrics = StageMetrics("graph")
    config = GraphConfig(teacher=MODEL, samples=2)
    teacher = OfflineTeacher(MODEL, {"toolgraph/propose": fail})
    assert collect(build_graphs([SERVER], teacher, config, 2, metrics)) == []
    assert metrics.dropped == {"ask_failed": 2, "server_without_proposals": 1}


def test_offline_rules_find_the_chain_and_judge_it() -> None:
    metrics = StageMetrics("graph")
    config = GraphConfig(teacher=MODEL, samples=3)
    teacher = OfflineTeacher(MODEL, HANDLERS)
    graphs: Iterable[ToolGraph] = collect(build_graphs([SERVER], teacher, config, 2, metrics))
    (graph,) = graphs
    assert as_networkx(graph).has_edge("find_grower", "get_shed")
    found = {tuple(s.tool for s in c.steps) for c in chains_of(HANDLERS, StageMetrics("c"))}
    assert ("find_grower", "get_shed", "get_key") in found
