"""Graphs, walks, argument sources and votes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from jsonschema import Draft202012Validator
from judgements import Judgement, judgements

from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import ModelConfig, OfflineHandlers, ParseError, ProviderError
from astra.records.graph import ArgumentOrigin, Chain, ChainStep, ToolGraph
from astra.records.tool import Execution, Tool, ToolServer
from astra.records.verdict import ChainVerdict
from astra.store.metrics import StageMetrics
from astra.toolbank.config import FilterConfig
from astra.toolbank.connectors import read_source
from astra.toolbank.normalise import ServerNormaliser
from astra.toolbank.sources import DocumentSource
from astra.toolgraph.arguments import STATED, Binder, Unsatisfiable, replay
from astra.toolgraph.asks import (
    BACK_CHAIN,
    BACK_QUERY,
    COHERENCE,
    PROPOSE,
    BackChain,
    BackQuery,
    ChainProposal,
    ChainProposals,
    CoherenceVerdict,
    JudgedDependency,
    ProposedStep,
)
from astra.toolgraph.chains import chains
from astra.toolgraph.config import ChainsConfig, GraphConfig
from astra.toolgraph.graph import as_networkx, build_graph, graphs
from astra.toolgraph.judging import Operator
from astra.toolgraph.linking import linked
from astra.toolgraph.offline.handlers import HANDLERS
from astra.toolgraph.proposals import read_proposal
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
    steps = tuple(ProposedStep(tool=name, arguments=()) for name in chain)
    return ChainProposal(task="t", steps=steps, reason="r", verdict=verdict)


def graph_of(of: ToolServer, *proposals: ChainProposal) -> ToolGraph:
    return build_graph(of, [read_proposal(of, one, "sample 0") for one in proposals])


def collect(found: AsyncIterator[Any]) -> list[Any]:
    async def run() -> list[Any]:
        return [item async for item in found]

    return asyncio.run(run())


def replied(*proposals: ChainProposal) -> tuple[list[Any], StageMetrics]:
    """What stage graph makes of one reply."""
    handlers: OfflineHandlers = {
        PROPOSE: lambda variables, rng: ChainProposals(proposals=proposals)
    }
    metrics = StageMetrics("graph")
    config = GraphConfig(teacher=MODEL, samples=1)
    return collect(graphs([SERVER], OfflineTeacher(MODEL, handlers), config, 2, metrics)), metrics


def test_unknown_tool_breaks_the_edge_and_never_bridges() -> None:
    (rejection, graph), metrics = replied(
        proposal("find_grower", "ghost", "get_key"),
        proposal("find_grower", "get_shed", "get_key"),
        proposal("find_grower", "get_shed"),
        proposal("get_key", "get_shed", verdict="unsure"),
    )
    edges = {(edge.source, edge.target): edge.weight for edge in graph.edges}
    assert edges == {("find_grower", "get_shed"): 2, ("get_shed", "get_key"): 1}
    assert graph.proposals == 2
    assert (rejection.item, rejection.reason) == (SERVER.id, "unknown_tool")
    assert (rejection.part, rejection.detail) == ("sample 0, proposal 0, step 1", "ghost")
    assert metrics.counts["proposals_yes"] == 3
    assert metrics.counts["proposals_unsure"] == 1


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
    walks = list(
        sample_walks(
            nx.relabel_nodes(graph, str),
            random.Random(0),
            walks=500,
            min_length=2,
            max_length=5,
            visits={},
        )
    )
    assert time.monotonic() - started < 2
    assert 300 < len(walks) <= 500
    assert all(2 <= len(set(w.tools)) == len(w.tools) <= 5 for w in walks)


def test_walks_prefer_weight_and_come_again_as_often_as_allowed() -> None:
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([("a", "b", 99), ("a", "c", 1), ("b", "a", 1), ("c", "c", 1)])
    options = {"walks": 400, "min_length": 2, "max_length": 2}
    counts = {"b": 0, "c": 0}
    for seed in range(300):
        walk = next(sample_walks(graph, random.Random(seed), **options, visits={}))
        if walk.tools[0] == "a":
            counts[walk.tools[1]] += 1
    assert counts["b"] > 20 * counts["c"]

    def longer(**visits: int) -> set[tuple[str, ...]]:
        options = {"walks": 2000, "min_length": 3, "max_length": 6}
        return {w.tools for w in sample_walks(graph, random.Random(0), **options, visits=visits)}

    assert longer() == {("b", "a", "c")}
    assert ("a", "b", "a") in longer(a=2)
    assert all(walk.count("a") <= 2 and walk.count("b") == 1 for walk in longer(a=2))
    assert ("b", "a", "c", "c") in longer(c=2)
    assert not list(sample_walks(nx.DiGraph(), random.Random(0), **options, visits={}))


def test_more_walks_go_on_where_fewer_ended() -> None:
    graph = complete_graph(8)
    shapes = {"min_length": 1, "max_length": 4, "visits": {}}
    few = list(sample_walks(graph, random.Random(5), walks=20, **shapes))
    many = list(sample_walks(graph, random.Random(5), walks=60, **shapes))
    assert many[: len(few)] == few
    assert len(many) > len(few)


def bound(tools: list[Tool]) -> tuple[ChainStep, ...]:
    """The sources that rules alone find for a chain of ``tools``."""
    return Binder(tools).bind([one.name for one in tools])


def test_arguments_get_their_sources() -> None:
    level = tool("rate", plot=THING, unit={"const": "m"}, size={"type": "integer", "default": 3})
    steps = bound([FIND, SHED, level])
    assert steps[0].arguments["plot"].origin is ArgumentOrigin.TASK
    source = steps[1].arguments["grower"]
    assert (source.origin, source.step, source.path) == (ArgumentOrigin.OUTPUT, 0, ())
    assert steps[2].arguments["unit"].value == "m"
    assert steps[2].arguments["size"].origin is ArgumentOrigin.TASK
    nested = tool("get_booking", {"type": "object", "properties": {"shed": THING}}, guest=PERSON)
    assert bound([nested, KEY])[1].arguments["shed"].path == ("shed",)


def test_what_our_rules_cannot_draw_a_person_can_still_state() -> None:
    code = {"type": "string", "pattern": "^(?=.*7)[0-9]{9}$"}
    odd = tool("use", code=code, plot=THING)
    steps = bound([odd])
    assert steps[0].arguments["code"] == STATED
    (call,) = replay(steps, {"use": odd}, random.Random(0))
    assert set(call) == {"plot"}
    metrics = StageMetrics("c")
    of = server(FIND, odd)
    (item,) = judged(HANDLERS, metrics, of=of, chain=("find_grower", "use"))
    assert item.chain is not None
    assert metrics.counts["values_not_drawn"] == 1


def test_a_parameter_that_admits_nothing_is_refused() -> None:
    shut = Tool(
        name="use", description="d",
        parameters={"type": "object", "properties": {"code": False}, "required": ["code"]},
    )  # fmt: skip
    with pytest.raises(Unsatisfiable, match="use"):
        replay(bound([shut]), {"use": shut}, random.Random(0))
    with pytest.raises(Unsatisfiable, match=r"no source for \['plot'\]"):
        replay(
            (ChainStep(tool="find_grower", arguments={}),), {"find_grower": FIND}, random.Random(0)
        )


def coherent(variables: Any, valid: bool = True, **fields: Any) -> CoherenceVerdict:
    """A vote that finds every value of a result needed."""
    dependencies = tuple(
        JudgedDependency(step=step, argument=name, reason="r", statable=False)
        for step, one in enumerate(variables["steps"])
        for name, source in one["arguments"].items()
        if source["origin"] == "output"
    )
    said = {"dependencies": dependencies, "reason": "r", "task": "x"} | fields
    return CoherenceVerdict(valid=valid, **said)


VOTE = {"models": [MODEL], "temperature": None, "samples": 3, "quorum": 1, "min_share": 0.5}


def chains_config(operators: dict[str, Any] | None = None, **changes: Any) -> ChainsConfig:
    """Chains judged by ``operators``; None: by the vote."""
    values: dict[str, Any] = {
        "operators": operators or {"vote": VOTE}, "walks": 50, "max_chains": 20,
        "dependent_first": True, "min_length": 2, "max_length": 3, "acyclic": True,
    }  # fmt: skip
    return ChainsConfig(**(values | changes))


def operators(config: ChainsConfig, **models: list[Any]) -> list[Operator]:
    """The configured operators; each asks its ``models`` here."""
    return [Operator(name, options, models[name]) for name, options in config.operators.items()]


class Voter:
    """A model whose vote number n is ``verdicts[n]``; None: it gives no answer."""

    name = "offline:voter"

    def __init__(self, verdicts: list[bool | None], **fields: Any) -> None:
        self._verdicts, self._fields = verdicts, fields
        self.asked: list[int] = []

    async def ask(self, ask: Any) -> Any:
        self.asked.append(ask.sample)
        verdict = self._verdicts[ask.sample]
        if verdict is None:
            raise ProviderError("http://127.0.0.1:4711 is down")
        return ask.accepted(coherent(ask.variables, verdict, **self._fields))


def judged(
    handlers: OfflineHandlers,
    metrics: StageMetrics,
    config: ChainsConfig | None = None,
    back: list[OfflineHandlers] | None = None,
    of: ToolServer = SERVER,
    chain: tuple[str, ...] = ("find_grower", "get_shed", "get_key"),
    voter: Voter | None = None,
) -> list[Judgement]:
    graph = graph_of(of, proposal(*chain))
    config = config or chains_config()
    translators = [
        OfflineTeacher(MODEL.model_copy(update={"model": f"m{n}"}), known)
        for n, known in enumerate(back or [])
    ]
    votes = [voter or OfflineTeacher(MODEL, handlers)]
    judges = operators(config, vote=votes, back_translation=translators)
    found = chains([graph], {of.id: of}.get, judges, config, 4, metrics)
    return judgements(collect(found), metrics)


def chains_of(handlers: OfflineHandlers, metrics: StageMetrics, **more: Any) -> list[Chain]:
    return [item.chain for item in judged(handlers, metrics, **more) if item.chain]


@pytest.mark.parametrize(
    ("verdicts", "accepted", "reason", "asked"),
    [
        ([True, True, False], True, None, 2),
        ([True, False, True], True, None, 3),
        ([True, False, False], False, "incoherent", 3),
        ([False, False, True], False, "incoherent", 2),
        ([True, False, None], False, "incoherent", 3),
        ([True, None, None], True, None, 3),
        ([None, None, None], False, "all_votes_abstained", 3),
    ],
)
def test_votes_are_cast_until_the_others_cannot_change_the_outcome(
    verdicts: list[bool | None], accepted: bool, reason: str | None, asked: int
) -> None:
    metrics, voter = StageMetrics("chains"), Voter(verdicts)
    (item,) = judged({}, metrics, chains_config(min_length=3), voter=voter)
    assert (item.chain is not None) is accepted
    assert set(metrics.dropped) == ({reason} if reason else set())
    assert voter.asked == list(range(asked))


def test_outage_gives_no_graph_and_is_counted() -> None:
    def fail(variables: Any, rng: random.Random) -> Any:
        raise ProviderError("down")

    metrics = StageMetrics("graph")
    config = GraphConfig(teacher=MODEL, samples=2)
    teacher = OfflineTeacher(MODEL, {PROPOSE: fail})
    outcomes = collect(graphs([SERVER], teacher, config, 2, metrics))
    assert {outcome.item for outcome in outcomes} == {SERVER.id}
    assert [(outcome.part, outcome.detail) for outcome in outcomes] == [
        ("sample 0", "down"), ("sample 1", "down"), ("", ""),
    ]  # fmt: skip
    for outcome in outcomes:
        metrics.reject(outcome)
    assert metrics.dropped == {"ask_failed": 2, "server_without_proposals": 1}


def test_offline_rules_find_the_chain_and_judge_it() -> None:
    metrics = StageMetrics("graph")
    config = GraphConfig(teacher=MODEL, samples=3)
    teacher = OfflineTeacher(MODEL, HANDLERS)
    (graph,) = collect(graphs([SERVER], teacher, config, 2, metrics))
    assert as_networkx(graph).has_edge("find_grower", "get_shed")
    found = {tuple(s.tool for s in c.steps) for c in chains_of(HANDLERS, StageMetrics("c"))}
    assert ("find_grower", "get_shed", "get_key") in found


def verdicts_of(found: list[Judgement], operator: str) -> list[str]:
    (item,) = [item for item in found if len(item.verdict.tools) == 3]
    return [str(v.outcome) for v in item.verdict.verdicts if v.operator == operator]


def test_quorum_refuses_a_lone_vote() -> None:
    metrics = StageMetrics("chains")
    config = chains_config({"vote": VOTE | {"quorum": 2}})
    found = judged({}, metrics, config, voter=Voter([True, None, None]))
    assert not [item for item in found if item.chain]
    assert set(metrics.dropped) == {"too_few_votes"}
    assert verdicts_of(found, "vote") == ["yes", "abstained", "abstained"]
    with pytest.raises(ValueError, match="quorum: more votes than are asked for"):
        chains_config({"vote": VOTE | {"samples": 1, "quorum": 2}})


BACK = {"models": [MODEL] * 3, "temperature": None, "attempts": 2, "min_share": 0.5}


def translator(chain: list[str] | None, query: str = "Whose key?") -> OfflineHandlers:
    """A model that always finds ``chain`` again; None: it never answers."""

    def there(variables: Any, rng: random.Random) -> BackQuery:
        if chain is None:
            raise ProviderError("down")
        return BackQuery(valid=bool(query), query=query)

    def back(variables: Any, rng: random.Random) -> BackChain:
        return BackChain(plan="", chain=tuple(chain or ()))

    return {BACK_QUERY: there, BACK_CHAIN: back}


RIGHT = ["find_grower", "get_shed", "get_key"]


@pytest.mark.parametrize(
    ("models", "accepted", "reason"),
    [
        ([translator(RIGHT)] * 3, True, ""),
        ([translator(RIGHT)] * 2 + [translator(RIGHT[::-1])], True, ""),
        ([translator(RIGHT)] + [translator(RIGHT[:2])] * 2, False, "not_recovered"),
        ([translator(RIGHT)] + [translator(None)] * 2, False, "not_recovered"),
        ([translator(RIGHT)] * 2 + [translator(None)], True, ""),
        ([translator(None)] * 3, False, "no_back_translation"),
        ([translator([*RIGHT, "ghost"])] * 3, False, "not_recovered"),
        ([translator(RIGHT, query="Call get_shed.")] * 3, False, "not_recovered"),
        ([translator(RIGHT, query="")] * 3, False, "not_recovered"),
    ],
)
def test_back_translation_needs_the_exact_chain_from_most_models(
    models: list[OfflineHandlers], accepted: bool, reason: str
) -> None:
    config = chains_config({"vote": VOTE, "back_translation": BACK}, min_length=3)
    metrics = StageMetrics("chains")
    found = judged(HANDLERS, metrics, config, models)
    (item,) = found
    assert (item.chain is not None, item.verdict.reason) == (accepted, reason)
    assert item.verdict.accepted is accepted
    assert item.verdict.chain_id == (item.chain.id if item.chain else "")
    models_named = {v.model for v in item.verdict.verdicts if v.operator == "back_translation"}
    agreeing = [v.model for v in item.verdict.verdicts[-2:] if v.outcome == "yes"]
    quick = agreeing == ["offline:m0", "offline:m1"]
    assert models_named == {f"offline:m{n}" for n in range(2 if quick else 3)}
    assert ChainVerdict.model_validate(item.verdict.model_dump(mode="json")) == item.verdict


def test_offline_rules_translate_back_and_tell_no_twins_apart() -> None:
    config = chains_config({"vote": VOTE, "back_translation": BACK}, min_length=3)
    assert chains_of(HANDLERS, StageMetrics("c"), config=config, back=[HANDLERS] * 3)
    twin = KEY.model_copy(update={"name": "get_keys"})
    clever = server(FIND, SHED, twin, KEY)
    metrics = StageMetrics("c")
    assert not chains_of(HANDLERS, metrics, config=config, back=[HANDLERS] * 3, of=clever)
    assert metrics.dropped == {"not_recovered": 1}


def test_operators_judge_in_their_order_and_the_first_refusal_ends_it() -> None:
    config = chains_config({"back_translation": BACK, "vote": VOTE}, min_length=3)
    (item,) = judged(HANDLERS, StageMetrics("c"), config, [HANDLERS] * 3)
    asked = [verdict.operator for verdict in item.verdict.verdicts]
    assert asked == ["back_translation"] * 2 + ["vote"] * 2
    (item,) = judged(HANDLERS, StageMetrics("c"), config, [translator(None)] * 3)
    assert {verdict.operator for verdict in item.verdict.verdicts} == {"back_translation"}
    assert item.verdict.reason == "no_back_translation"


def test_back_translation_alone_may_judge() -> None:
    config = chains_config({"vote": None, "back_translation": BACK}, min_length=3)
    (item,) = judged(HANDLERS, StageMetrics("c"), config, [HANDLERS] * 3)
    assert item.chain is not None
    assert (item.chain.votes_for, item.chain.votes_against) == (0, 0)
    assert item.chain.task_sketch == item.verdict.verdicts[0].detail


def test_a_chain_that_nobody_would_judge_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one must be on"):
        chains_config({"vote": None})


def test_an_outage_of_every_judge_accepts_nothing() -> None:
    def down(variables: Any, rng: random.Random) -> Any:
        raise ProviderError("down")

    metrics = StageMetrics("chains")
    found = judged({COHERENCE: down}, metrics)
    assert found
    assert not [item for item in found if item.chain]
    assert metrics.dropped == {"all_votes_abstained": len(found)}
    assert metrics.counts["votes_abstained"] == 3 * len(found)


def test_a_rejection_names_the_walk_and_quotes_who_was_against_it() -> None:
    voter = Voter([True, False, None], reason="the shed has no key")
    graph = graph_of(SERVER, proposal(*RIGHT))
    metrics = StageMetrics("chains")
    for item in judged({}, metrics, chains_config(min_length=3), voter=voter):
        assert item.rejection is not None
        assert item.rejection.item == graph.id
        assert item.rejection.part == " > ".join(RIGHT)
        assert item.rejection.reason == item.verdict.reason == "incoherent"
        assert item.rejection.said.splitlines() == [
            "vote, offline:voter: the shed has no key",
            "vote, offline:voter: abstained",
        ]
        assert [verdict.detail for verdict in item.verdict.verdicts] == [
            "x", "the shed has no key", "ProviderError",
        ]  # fmt: skip


def test_a_graph_of_a_server_that_is_gone_is_a_rejection() -> None:
    graph = graph_of(SERVER, proposal(*RIGHT))
    config = chains_config()
    judges = operators(config, vote=[OfflineTeacher(MODEL, HANDLERS)])
    metrics = StageMetrics("chains")
    (gone,) = collect(chains([graph], {}.get, judges, config, 4, metrics))
    assert (gone.item, gone.reason, gone.detail) == (graph.id, "server_unknown", SERVER.id)


def test_a_garbled_proposal_is_a_rejection_beside_the_graph_of_the_others() -> None:
    turn = iter([False, True])

    def propose(variables: Any, rng: random.Random) -> Any:
        if next(turn):
            return HANDLERS[PROPOSE](variables, rng)
        raise ParseError("no JSON: I would say")

    config = GraphConfig(teacher=MODEL, samples=2)
    teacher = OfflineTeacher(MODEL, {PROPOSE: propose})
    rejection, graph = collect(graphs([SERVER], teacher, config, 2, StageMetrics("graph")))
    assert (rejection.item, rejection.part) == (SERVER.id, "sample 0")
    assert (rejection.reason, rejection.detail) == ("reply_unparsable", "no JSON: I would say")
    assert graph.edges


class Waiting:
    """A teacher whose answers all come once ``wanted`` asks are open at the same time."""

    name = "offline:waiting"

    def __init__(self, wanted: int) -> None:
        self._offline = OfflineTeacher(MODEL, HANDLERS)
        self._wanted = wanted
        self._open = 0
        self._enough = asyncio.Event()

    async def ask(self, ask: Any) -> Any:
        self._open += 1
        if self._open >= self._wanted:
            self._enough.set()
        await asyncio.wait_for(self._enough.wait(), 10)
        return await self._offline.ask(ask)


def test_independent_asks_of_one_item_are_open_at_once() -> None:
    config = GraphConfig(teacher=MODEL, samples=4)
    (graph,) = collect(graphs([SERVER], Waiting(4), config, 1, StageMetrics("graph")))
    translator = Waiting(2)
    chosen = {"vote": VOTE, "back_translation": BACK | {"models": [MODEL] * 2}}
    settings = chains_config(chosen, min_length=3)
    judges = operators(settings, vote=[Waiting(2)], back_translation=[translator] * 2)
    metrics = StageMetrics("chains")
    found = chains([graph], {SERVER.id: SERVER}.get, judges, settings, 1, metrics)
    assert judgements(collect(found), metrics)


def test_a_free_text_is_no_source_of_a_listed_value() -> None:
    unit = {"type": "string", "enum": ["m", "km"]}
    found = tool("get_unit", {"title": "unit", "type": "string"}, plot=THING)
    listed = tool("get_unit", {"title": "unit", "type": "string", "enum": ["km"]}, plot=THING)
    other = tool("get_unit", {"title": "unit", "type": "string", "enum": ["mile"]}, plot=THING)
    strict = tool("convert", {"type": "integer"}, unit=unit)
    origins = [
        bound([producer, strict])[1].arguments["unit"].origin for producer in (found, listed, other)
    ]
    assert origins == [ArgumentOrigin.TASK, ArgumentOrigin.OUTPUT, ArgumentOrigin.TASK]
    of = server(found, strict, KEY)
    (item,) = judged(HANDLERS, StageMetrics("c"), of=of, chain=("get_unit", "convert"))
    assert item.verdict.reason != "argument_unsatisfiable"


def test_conditions_of_the_whole_schema_count() -> None:
    either = Tool(
        name="look_up",
        description="d",
        parameters={
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
    )
    with pytest.raises(Unsatisfiable, match="look_up"):
        replay(bound([either]), {"look_up": either}, random.Random(0))


def test_every_accepted_chain_of_the_committed_servers_replays(root: Path) -> None:
    """Fresh values and results, other than the ones the stage tried, satisfy every call."""
    servers = committed_servers(root)[:10]
    teacher = OfflineTeacher(MODEL, HANDLERS)
    config = GraphConfig(teacher=MODEL, samples=1)
    made = collect(graphs(servers, teacher, config, 4, StageMetrics("g")))
    known = {server.id: server for server in servers}
    metrics = StageMetrics("c")
    few = chains_config(max_chains=6)
    judges = operators(few, vote=[teacher])
    found = judgements(collect(chains(made, known.get, judges, few, 4, metrics)), metrics)
    accepted = [item.chain for item in found if item.chain]
    assert len(accepted) > 30
    for chain in accepted:
        tools = {tool.name: tool for tool in known[chain.server_id].tools}
        for seed in (101, 102):
            calls = replay(chain.steps, tools, random.Random(seed))
            for step, arguments in zip(chain.steps, calls, strict=True):
                Draft202012Validator(tools[step.tool].parameters).validate(arguments)


def committed_servers(root: Path) -> list[ToolServer]:
    filters = FilterConfig(
        min_tools=3, max_tools=64, min_description_chars=12, max_description_chars=1024,
        max_bad_description_share=0.5, deterministic_only=False, languages=(),
        duplicate_similarity=1.0,
    )  # fmt: skip
    normaliser = ServerNormaliser(filters)
    found = read_source(
        DocumentSource(path=f"{root}/sources/documents/business/*.yaml", format="mcp")
    )
    kept = [normaliser.add(raw) for one in found for raw in one.servers]
    return [server for server in kept if server]


def complete_graph(size: int) -> nx.DiGraph:
    graph = nx.complete_graph(size, create_using=nx.DiGraph)
    nx.set_edge_attributes(graph, 1, "weight")
    return nx.relabel_nodes(graph, str)


def test_work_follows_the_chains_asked_for_not_the_graph() -> None:
    """Counted in draws of the generator, which a busy machine does not change."""

    class Counting(random.Random):
        draws = 0

        def random(self) -> float:
            self.draws += 1
            return super().random()

    def draws(size: int, chains: int) -> int:
        rng = Counting(0)
        walks = sample_walks(
            complete_graph(size), rng, walks=20 * chains, min_length=2, max_length=5,
            visits={},
        )  # fmt: skip
        assert len(list(islice(walks, chains))) == chains
        return rng.draws

    hundred = draws(12, 100)
    assert hundred < 100 * 8
    assert draws(12, 1000) < 20 * hundred
    assert draws(60, 100) < 1.5 * hundred


def test_many_walks_do_not_sum_the_graph_again() -> None:
    """20,000 tools: a walk that added up all weights would take 20 million steps here."""
    graph = nx.DiGraph()
    graph.add_weighted_edges_from((f"t{n}", f"t{n + 1}", 1 + n % 7) for n in range(20_000))
    started = time.process_time()
    walks = sample_walks(graph, random.Random(0), walks=1000, min_length=2, max_length=5, visits={})
    assert len(list(walks)) > 900
    assert time.process_time() - started < 4
