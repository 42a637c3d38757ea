"""Which chains are judged, who may judge them, and how many of their values need a result."""

from __future__ import annotations

import asyncio
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from judgements import Judgement, judgements

from astra.devtools import params
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask, ModelConfig
from astra.records.graph import Chain, ToolGraph
from astra.records.tool import Execution, Tool, ToolServer
from astra.store.metrics import StageMetrics
from astra.toolgraph.asks import (
    ChainProposal,
    CoherenceVerdict,
    JudgedDependency,
    coherence_ask,
)
from astra.toolgraph.chains import chains, measure
from astra.toolgraph.config import ChainsConfig
from astra.toolgraph.graph import build_graph
from astra.toolgraph.judging import build_operators
from astra.toolgraph.offline.handlers import HANDLERS
from astra.toolgraph.operators.vote import Options, Tally
from astra.toolgraph.proposals import read_proposal

OFFLINE = ModelConfig(backend="offline", model="test")
VOTE = {"models": [OFFLINE], "temperature": None, "samples": 3, "quorum": 1, "min_share": 0.5}


def server() -> ToolServer:
    """Six look-ups of a place beside each other, and a search whose finding is looked at."""

    def tool(name: str, needs: str) -> Tool:
        schema = {"type": "object", "properties": {needs: {"type": "string"}}, "required": [needs]}
        return Tool(name=name, description=f"{name}.", parameters=schema)

    facts = "weather forecast alerts tides sun moon".split()
    return ToolServer(
        name="coast", title="Coast", description="", domain="d", source="t", licence="MIT",
        language="en", execution=Execution.EMULATED, deterministic=True,
        tools=(*(tool(f"get_{one}", "place") for one in facts),
               tool("search_boats", "harbour"), tool("get_boat", "boat_id")),
    )  # fmt: skip


def graph(of: ToolServer) -> ToolGraph:
    """Every look-up beside every other, often; once, the boats that a search finds."""

    def proposal(*steps: dict[str, Any]) -> ChainProposal:
        return ChainProposal.model_validate(
            {"task": "t", "steps": steps, "reason": "r", "verdict": "yes"}
        )

    names = [tool.name for tool in of.tools[:6]]
    beside = [
        proposal({"tool": a, "arguments": []}, {"tool": b, "arguments": []})
        for a in names for b in names if a != b for _ in range(3)
    ]  # fmt: skip
    found = {"name": "boat_id", "origin": "output", "step": 0, "path": ["boats", 0, "id"]}
    boats = proposal(
        {"tool": "search_boats", "arguments": [{"name": "harbour", "origin": "task"}]},
        {"tool": "get_boat", "arguments": [found]},
        {"tool": "get_boat", "arguments": [found | {"path": ["boats", 1, "id"]}]},
    )
    return build_graph(of, [read_proposal(of, one, "") for one in [*beside, boats]])


def config(**changes: Any) -> ChainsConfig:
    values: dict[str, Any] = {
        "operators": {"vote": VOTE}, "walks": 1500, "max_chains": 12, "dependent_first": True,
        "min_length": 1, "max_length": 3, "acyclic": False,
    }  # fmt: skip
    return ChainsConfig.model_validate(values | changes)


class Judge:
    """Says yes, and ``statable`` of every value that comes from a result."""

    name = "offline:judge"

    def __init__(self, *statable: bool) -> None:
        self._statable = statable

    async def ask(self, ask: Any) -> Any:
        statable = self._statable[ask.sample]
        dependencies = [
            JudgedDependency(step=step, argument=name, reason="r", statable=statable)
            for step, one in enumerate(ask.variables["steps"])
            for name, source in one["arguments"].items()
            if source["origin"] == "output"
        ]
        return ask.accepted(
            CoherenceVerdict(dependencies=tuple(dependencies), reason="r", valid=True, task="x")
        )


def judged(settings: ChainsConfig, judge: Judge | None = None) -> list[Judgement]:
    of = server()
    operators = build_operators(settings.operators, lambda _: [judge or Judge(*[False] * 9)])
    metrics = StageMetrics("chains")
    found = chains([graph(of)], {of.id: of}.get, operators, settings, 4, metrics)

    async def run() -> list[Any]:
        return [item async for item in found]

    return judgements(asyncio.run(run()), metrics)


def accepted(settings: ChainsConfig, judge: Judge | None = None) -> list[Chain]:
    return [item.chain for item in judged(settings, judge) if item.chain]


def tools(of: list[Chain]) -> list[tuple[str, ...]]:
    return [tuple(step.tool for step in chain.steps) for chain in of]


def test_dependent_chains_are_judged_before_bundles_and_no_single_call_is_lost() -> None:
    drawn = tools(accepted(config(dependent_first=False)))
    chosen = tools(accepted(config()))
    assert len(drawn) == len(chosen) == 12
    boats = [names for names in chosen if "search_boats" in names and len(names) > 1]
    assert ("search_boats", "get_boat", "get_boat") in boats
    assert ("search_boats", "get_boat") in boats
    assert len(boats) > len([names for names in drawn if "search_boats" in names and names[1:]])
    singles = [names for names in drawn if len(names) == 1]
    assert [names for names in chosen if len(names) == 1] == singles


def test_more_chains_or_votes_extend_what_was_paid_for() -> None:
    for first in (True, False):
        sizes = [set(tools(accepted(config(max_chains=most, dependent_first=first))))
                 for most in (4, 9, 20, 40)]  # fmt: skip
        assert all(few < many for few, many in pairwise(sizes))
    before = accepted(config())
    more = config(operators={"vote": VOTE | {"samples": 5, "quorum": 3}})
    assert [chain.steps for chain in accepted(more)] == [chain.steps for chain in before]


def test_a_tool_comes_again_only_where_a_proposal_had_it_and_cycles_are_allowed() -> None:
    def repeats(**changes: Any) -> set[str]:
        found = tools(accepted(config(max_chains=100, **changes)))
        return {name for names in found for name in names if names.count(name) > 1}

    assert repeats() == {"get_boat"}
    assert repeats(acyclic=True) == set()


@pytest.mark.parametrize(
    ("statable", "samples", "needed"),
    [
        ((False, False), 2, True),
        ((True, True), 2, False),
        ((True, False), 2, False),
        ((True, False, False), 3, True),
    ],
)
def test_a_value_that_the_user_could_state_is_no_dependency(
    statable: tuple[bool, ...], samples: int, needed: bool
) -> None:
    vote = VOTE | {"samples": samples, "quorum": samples, "min_share": 0.9}
    found = accepted(config(operators={"vote": vote}), Judge(*statable))
    metrics = StageMetrics("chains")
    for chain in found:
        measure(metrics, chain)
    counted = {names: chain.dependencies for names, chain in zip(tools(found), found, strict=True)}
    assert counted["search_boats", "get_boat", "get_boat"] == (2 if needed else 0)
    assert {counted[names] for names in counted if "get_boat" not in names} == {0}
    several = [names for names in counted if len(names) > 1]
    dependent = [names for names in several if counted[names]]
    assert bool(dependent) is needed
    document = metrics.document()
    assert document["chains_of_several_steps"] == len(several)
    assert document["dependent_chains"] == len(dependent)
    assert document["dependent_share"] == round(len(dependent) / len(several), 4)


def test_a_yes_that_leaves_a_dependency_unjudged_is_no_answer() -> None:
    of = server()
    (item,) = [one for one in accepted(config()) if tools([one]) == [("search_boats", "get_boat")]]
    ask: Ask[CoherenceVerdict] = coherence_ask(of, of.tools, item.steps, 0)
    bare = CoherenceVerdict(dependencies=(), reason="r", valid=True, task="x")
    with pytest.raises(Exception, match="no entry for argument 'boat_id' of step 1"):
        ask.accepted(bare)
    assert ask.accepted(bare.model_copy(update={"valid": False}))


def test_nobody_votes_and_every_taken_value_counts() -> None:
    back = {"models": [OFFLINE], "temperature": None, "attempts": 1, "min_share": 0.5}
    settings = config(operators={"back_translation": back}, min_length=2)
    teacher = OfflineTeacher(OFFLINE, HANDLERS)
    of = server()
    operators = build_operators(settings.operators, lambda _: [teacher])
    metrics = StageMetrics("chains")
    found = chains([graph(of)], {of.id: of}.get, operators, settings, 4, metrics)

    async def run() -> list[Any]:
        return [item async for item in found if isinstance(item, Chain)]

    made = asyncio.run(run())
    taken = [chain for chain in made if tools([chain]) == [("search_boats", "get_boat")]]
    assert [chain.dependencies for chain in taken] == [1]


@pytest.mark.parametrize(
    ("quorum", "min_share"), [(1, 0.5), (3, 0.5), (4, 0.5), (2, 0.0), (2, 0.7)]
)
def test_stopping_early_decides_as_all_votes_would(quorum: int, min_share: float) -> None:
    options = Options.model_validate(
        VOTE | {"samples": 4, "quorum": quorum, "min_share": min_share}
    )
    for votes in product((True, False, None), repeat=4):
        yes, cast = votes.count(True), 4 - votes.count(None)
        accepted = cast >= quorum and yes > min_share * cast
        tally, asked = Tally(0, 0, 4), 0
        while (reason := tally.decision(options)) is None:
            asked += tally.round(options)
            seen = votes[:asked]
            tally = Tally(seen.count(True), asked - seen.count(None), 4 - asked)
        assert (reason == "") is accepted, votes


def model(name: str, **changes: Any) -> dict[str, Any]:
    return {"backend": "openai", "model": name, "temperature": 0.2, **changes}


def test_a_panel_of_equal_models_is_refused() -> None:
    def panel(*models: dict[str, Any], temperature: float | None = None) -> ChainsConfig:
        return config(operators={"vote": VOTE | {"models": models, "temperature": temperature}})

    with pytest.raises(ValueError, match="glm is listed 2 times with the same settings"):
        panel(model("glm"), model("qwen"), model("glm"))
    warm = model("glm", temperature=0.9)
    panel(model("glm"), warm)
    # One temperature for all makes them one.
    with pytest.raises(ValueError, match="glm is listed 2 times"):
        panel(model("glm"), warm, temperature=0.6)
    panel(model("glm"), model("glm", extra={"reasoning_effort": "high"}), temperature=0.6)
    panel(*[OFFLINE.model_dump()] * 3)


def test_roles_that_are_one_model_are_refused_while_composing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    roles = ["teacher=openai", "judge=openai", "emulator=openai", "scale=full"]
    # By default the teacher alone translates back, so that one endpoint is enough.
    params.compose(tmp_path / "params.yaml", roles)
    with pytest.raises(Exception, match="is listed 3 times with the same settings"):
        params.compose(tmp_path / "params.yaml", [*roles, "back_translators=roles"])
    others = ["judge.model=j", "emulator.model=e", "back_translators=roles"]
    params.compose(tmp_path / "params.yaml", [*roles, *others])
