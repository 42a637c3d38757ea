"""Graph and chains through the openai backend: three models, resumed asks, outages."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from judgements import Judgement, judgements

from astra.errors import StageStop
from astra.llm import endpoints, servers
from astra.llm.build import Teachers
from astra.llm.protocol import ModelConfig
from astra.prompting import joined_hashes, template_hash
from astra.records.graph import ArgumentOrigin, ToolGraph
from astra.records.tool import Execution, Tool, ToolServer
from astra.settings import RuntimeConfig
from astra.store.metrics import StageMetrics
from astra.toolgraph.asks import BACK_CHAIN, BACK_QUERY, COHERENCE, PROPOSE
from astra.toolgraph.chains import chains
from astra.toolgraph.config import ChainsConfig, GraphConfig
from astra.toolgraph.graph import graphs
from astra.toolgraph.judging import build_operators
from astra.toolgraph.offline.handlers import HANDLERS
from chat_server import KEY, Answer, ChatServer, runtime

MODELS = tuple(
    ModelConfig(backend="openai", model=name, max_tokens=500) for name in ("ada", "bob", "cyd")
)
GRAPH = GraphConfig(teacher=MODELS[0], samples=2)
VOTE = {"models": MODELS, "temperature": 0.7, "samples": 2, "quorum": 4, "min_share": 0.5}
BACK = {"models": MODELS, "temperature": None, "attempts": 2, "min_share": 0.5}
CHAINS = ChainsConfig.model_validate({
    "operators": {"vote": VOTE, "back_translation": BACK}, "walks": 30, "max_chains": 4,
    "dependent_first": True, "min_length": 2, "max_length": 3, "acyclic": True,
})  # fmt: skip


@pytest.fixture(autouse=True)
def _place(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own, and backoff short enough for tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ASTRA_TEST_KEY", KEY)
    monkeypatch.setattr(endpoints, "BACKOFF_S", 0.001)
    monkeypatch.setattr(servers, "REST_S", 0.001)


def shop(name: str, said: str = "Look up one thing.") -> ToolServer:
    def tool(verb: str, parameter: str) -> Tool:
        schema = {"type": "object", "properties": {parameter: {"type": "string"}},
                  "required": [parameter]}  # fmt: skip
        return Tool(name=f"{name}_{verb}", description=said, parameters=schema)

    return ToolServer(
        name=name, title=name.title(), description="", domain="d", source=name, licence="MIT",
        language="en", execution=Execution.EMULATED, deterministic=True,
        tools=(tool("find", "who"), tool("price", "item"), tool("stock", "item")),
    )  # fmt: skip


def prompt_of(body: dict[str, Any]) -> str:
    return "\n".join(str(message["content"]) for message in body["messages"])


class Script:
    """Plays all three models; ``wrong`` ones reverse what they translate back, ``no`` ones vote
    against, ``vague`` ones write no JSON; ``down``: status 500 for every model.
    """

    def __init__(self, wrong: str = "", no: str = "", vague: str = "", down: bool = False) -> None:
        self.wrong, self.no, self.vague = wrong.split(), no.split(), vague.split()
        self.down = down

    def __call__(self, body: dict[str, Any]) -> Answer:
        prompt, model = prompt_of(body), body["model"]
        if self.down:
            return Answer(status=500, error="down")
        if model in self.vague:
            return Answer("That depends.")
        return Answer(json.dumps(self.reply(prompt, model)))

    def reply(self, prompt: str, model: str) -> dict[str, Any]:
        names = re.findall(r"^- (\w+):", prompt, re.MULTILINE)
        called = re.findall(r"^\d+\. (\w+) (\{.*\})$", prompt, re.MULTILINE)
        if prompt.startswith("You design"):
            return {"proposals": [self.proposal(names)]}
        if prompt.startswith("You judge"):
            judged = [
                {"step": step, "argument": name, "reason": "an id", "statable": model == "cyd"}
                for step, (_, arguments) in enumerate(called)
                for name, source in json.loads(arguments).items()
                if source["origin"] == "output"
            ]
            valid = model not in self.no
            return {"dependencies": judged, "reason": "why", "valid": valid, "task": f"By {model}."}
        if prompt.startswith("You write the request"):
            # The request carries what the fake needs to find the tools again, but no names.
            wanted = " then ".join(_hidden(tool) for tool, _ in called)
            return {"valid": True, "query": f"Wanted: {wanted}"}
        hidden = re.search(r"Wanted: (.*)", prompt)
        assert hidden is not None
        wanted = [_hidden(part) for part in hidden.group(1).split(" then ")]
        return {"plan": "p", "chain": wanted[::-1] if model in self.wrong else wanted}

    def proposal(self, names: list[str]) -> dict[str, Any]:
        """Find something, then look at the first thing that was found twice."""
        found = {"name": "item", "origin": "output", "step": 0, "path": ["items", 0, "id"]}
        who = {"name": "who", "origin": "task", "step": None, "path": []}
        steps = [{"tool": names[0], "arguments": [who]}]
        steps += [{"tool": name, "arguments": [found]} for name in names[1:3]]
        return {"task": "All of it.", "steps": steps, "reason": "why", "verdict": "yes"}


def _hidden(text: str) -> str:
    return text[::-1]


def run(
    shops: list[ToolServer], script: Script, config: ChainsConfig = CHAINS
) -> tuple[list[ToolGraph], list[Judgement], StageMetrics, list[dict[str, Any]]]:
    """Both stages; the requests that the endpoint saw."""
    metrics = StageMetrics("chains")

    async def stages(settings: RuntimeConfig) -> tuple[list[ToolGraph], list[Judgement]]:
        with Teachers(settings, "graph") as graphing, Teachers(settings, "chains") as judging:
            teacher = graphing.teacher(GRAPH.teacher, HANDLERS)
            judges = build_operators(
                config.operators, lambda models: judging.panel(models, HANDLERS)
            )
            found = graphs(shops, teacher, GRAPH, 4, StageMetrics("graph"))
            made = [one async for one in found if isinstance(one, ToolGraph)]
            known = {server.id: server for server in shops}
            judged = chains(made, known.get, judges, config, 4, metrics)
            return made, judgements([item async for item in judged], metrics)

    with ChatServer(default=script) as server:
        made, found = asyncio.run(stages(runtime(server.url, max_attempts=2)))
        return made, found, metrics, server.requests


def test_three_models_vote_and_translate_back() -> None:
    made, found, metrics, requests = run([shop("tea")], Script(wrong="cyd", no="cyd"))
    assert made[0].edges
    assert made[0].prompt_hash == template_hash(PROPOSE)
    judged = joined_hashes(*map(template_hash, (COHERENCE, BACK_QUERY, BACK_CHAIN)))
    assert {item.verdict.prompt_hash for item in found} == {judged}
    accepted = [item.chain for item in found if item.chain]
    assert accepted
    assert metrics.dropped == {}
    assert {body["model"] for body in requests} == {"ada", "bob", "cyd"}
    (whole,) = [chain for chain in accepted if len(chain.steps) == 3]
    for step in whole.steps[1:]:
        assert step.arguments["item"].origin is ArgumentOrigin.OUTPUT
        assert step.arguments["item"].path == ("items", 0, "id")
    # Two of the three approve, and both say that nobody could state an id.
    assert whole.dependencies == 2
    warmth = {b["temperature"] for b in requests if prompt_of(b).startswith("You judge")}
    assert warmth == {0.7}
    for chain in accepted:
        assert chain.prompt_hash == judged
        assert (chain.votes_for, chain.votes_against) == (4, 1)
        assert chain.task_sketch == "By ada."
    for item in found:
        cast = [(v.operator, v.model, str(v.outcome)) for v in item.verdict.verdicts]
        assert cast == [
            ("vote", "openai:ada", "yes"),
            ("vote", "openai:bob", "yes"),
            ("vote", "openai:cyd", "no"),
            ("vote", "openai:ada", "yes"),
            ("vote", "openai:bob", "yes"),
            ("back_translation", "openai:ada", "yes"),
            ("back_translation", "openai:bob", "yes"),
        ]  # fmt: skip


def test_a_majority_against_rejects_and_says_by_whom() -> None:
    _, found, metrics, _ = run([shop("tea")], Script(no="bob cyd"))
    assert found
    assert not [item for item in found if item.chain]
    assert metrics.dropped == {"incoherent": len(found)}
    assert {item.verdict.prompt_hash for item in found} == {template_hash(COHERENCE)}
    _, found, metrics, _ = run([shop("jam")], Script(wrong="bob cyd"))
    assert metrics.dropped == {"not_recovered": len(found)}
    against = {v.model for item in found for v in item.verdict.verdicts if v.outcome == "no"}
    assert against == {"openai:bob", "openai:cyd"}


def test_one_model_without_answers_leaves_the_other_two_in_charge() -> None:
    _, found, metrics, _ = run([shop("tea")], Script(vague="cyd"))
    assert [item for item in found if item.chain]
    assert metrics.counts["votes_abstained"] == len(found)
    _, found, metrics, _ = run([shop("jam")], Script(vague="bob cyd"))
    assert not [item for item in found if item.chain]
    assert metrics.dropped == {"too_few_votes": len(found)}


def test_judges_that_write_nonsense_accept_nothing() -> None:
    class Nonsense(Script):
        def reply(self, prompt: str, model: str) -> dict[str, Any]:
            known = super().reply(prompt, model)
            return known if "proposals" in known else {"valid": "perhaps"}

    _, found, metrics, _ = run([shop("tea")], Nonsense())
    assert found
    assert not [item for item in found if item.chain]
    assert metrics.dropped == {"all_votes_abstained": len(found)}


def test_an_endpoint_that_never_answers_stops_the_stage() -> None:
    with pytest.raises(StageStop, match="no endpoint answers"):
        run([shop("tea")], Script(down=True))


def test_a_changed_server_is_asked_about_again_and_no_other() -> None:
    shops = [shop("tea"), shop("jam"), shop("oil")]
    _, before, _, first = run(shops, Script())
    assert len(first) > 20
    _, again, _, repeated = run(shops, Script())
    assert repeated == []
    assert again == before
    changed = [shops[0], shop("jam", said="Look up one thing by name."), shops[2]]
    _, after, _, asked = run(changed, Script())
    assert asked
    assert all("jam_" in prompt_of(body) or "Server: Jam" in prompt_of(body) for body in asked)
    assert len(asked) <= len(first) // len(shops) + 4

    def of_others(found: list[Judgement]) -> list[Judgement]:
        jams = {shops[1].id, changed[1].id}
        return [item for item in found if item.verdict.server_id not in jams]

    assert of_others(after) == of_others(before)
