"""Each example of docs/extending.md, as it stands there."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
sys.path.insert(0, str(Path(__file__).parents[1] / "toolgraph"))
sys.path.insert(0, str(Path(__file__).parent))
from judgements import Judgement, judgements
from pages import blocks
from training_world import make_arena

from astra.bench import suites as suites
from astra.bench.config import BenchConfig
from astra.bench.harness.protocol import SuiteConfig, find_suite
from astra.devtools.params import BLOCKS
from astra.llm.build import Teachers
from astra.llm.protocol import ModelConfig
from astra.plugins import PluginError
from astra.records.message import CallStatus, ExecutedCall, ToolCall, ToolResult
from astra.records.qa import Scenario
from astra.records.tool import Execution, Tool, ToolServer
from astra.records.verdict import Outcome
from astra.settings import ParamsError, RuntimeConfig, StageConfig, validate
from astra.store.metrics import StageMetrics
from astra.toolbank import formats as formats
from astra.toolbank.connectors import read_source
from astra.toolbank.sources import SourceError, load_sources
from astra.toolgraph import operators as operators
from astra.toolgraph.asks import propose_ask
from astra.toolgraph.chains import chains as judged_chains
from astra.toolgraph.config import ChainsConfig
from astra.toolgraph.graph import build_graph, read_reply
from astra.toolgraph.judging import build_operators
from astra.toolgraph.offline.handlers import HANDLERS, propose

Examples = dict[str, str]


@pytest.fixture(scope="module")
def examples(root: Path) -> Examples:
    return {one.title: one.text for one in blocks(root / "docs/extending.md") if one.title}


@pytest.fixture
def added(examples: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The examples of plug-ins, put into folders that their packages also search."""
    made: list[str] = []
    for package in (formats, operators, suites):
        folder = Path(*package.__name__.split("."))
        (tmp_path / folder).mkdir(parents=True)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path / folder)])
        for title, text in examples.items():
            if Path(title).parent == Path("src") / folder:
                (tmp_path / folder / Path(title).name).write_text(text)
                made.append(f"{package.__name__}.{Path(title).stem}")
    assert made == [
        "astra.toolbank.formats.postman",
        "astra.toolgraph.operators.breadth",
        "astra.bench.suites.arithmetic",
    ]
    yield
    for name in made:
        sys.modules.pop(name, None)


COLLECTION = {
    "info": {"name": "Parcel Desk", "description": "Parcels and their places."},
    "item": [
        {"name": "parcels", "item": [
            {"name": "find_parcel", "request": {
                "description": "Find a parcel by number.",
                "url": {"query": [{"key": "number", "description": "Its number."}]}}}]},
        {"name": "get_place", "request": {"description": "Get the place of a parcel.", "url": {}}},
    ],
}  # fmt: skip


@pytest.mark.usefixtures("added")
def test_a_tool_format(examples: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "sources/documents/postman"
    folder.mkdir(parents=True)
    (folder / "parcels.json").write_text(json.dumps(COLLECTION))
    (folder / "other.json").write_text("{}")
    (tmp_path / "sources/mine.yaml").write_text(examples["sources/mine.yaml"])
    (source,) = load_sources(Path("sources/mine.yaml")).documents
    refused, found = read_source(source)
    assert [one.reason for one in refused.rejections] == ["document"]
    (server,) = found.servers
    assert (server.name, server.licence) == ("Parcel Desk", "MIT")
    assert server.description == "Parcels and their places."
    assert [tool.name for tool in server.tools] == ["find_parcel", "get_place"]
    assert server.tools[0].parameters["required"] == ["number"]


def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    listed = tmp_path / "list.yaml"
    listed.write_text("documents: [{path: x.json, format: postman}]")
    with pytest.raises(
        SourceError, match="no module 'postman'; there are: astra, aws, bfcl, catalogue"
    ):
        load_sources(listed)


def desk() -> ToolServer:
    def tool(name: str, needs: str, gives: str) -> Tool:
        schema = {"type": "object", "properties": {needs: {"type": "string"}}, "required": [needs]}
        return Tool(name=name, description=f"Get the {gives}.", parameters=schema,
                    output_schema={"title": gives, "type": "string"})  # fmt: skip

    return ToolServer(
        name="desk", source="test", title="Desk", description="Parcels.", domain="post",
        licence="MIT", language="en", execution=Execution.EMULATED, deterministic=True,
        tools=(tool("find_depot", "parcel", "depot"), tool("get_manager", "depot", "manager")),
    )  # fmt: skip


def chains(entry: str) -> list[Judgement]:
    """Chains of the desk's graph, judged as ``conf/chains`` with ``entry`` says."""
    config, server = chains_config(entry), desk()
    reply = propose(propose_ask(server, 0).variables, random.Random(0))
    graph = build_graph(server, list(read_reply(server, reply, "", StageMetrics("graph"))))
    judges = build_operators(
        config.operators, lambda models: Teachers(RuntimeConfig()).panel(models, HANDLERS)
    )
    metrics = StageMetrics("chains")

    async def run() -> list[Judgement]:
        known = {server.id: server}
        found = judged_chains([graph], known.get, judges, config, 4, metrics)
        return judgements([outcome async for outcome in found], metrics)

    judged = asyncio.run(run())
    assert metrics.dropped["too_narrow"] == sum(j.verdict.reason == "too_narrow" for j in judged)
    return judged


def chains_config(entry: str) -> ChainsConfig:
    model = ModelConfig(backend="offline", model="v1").model_dump()
    vote = {"models": [model], "temperature": None, "samples": 1, "quorum": 1, "min_share": 0.5}
    block: dict[str, Any] = {
        "operators": {"vote": vote} | yaml.safe_load(entry)["operators"], "walks": 40,
        "max_chains": 10, "dependent_first": True, "min_length": 1, "max_length": 3,
        "acyclic": True,
    }  # fmt: skip
    return validate("chains", block, ChainsConfig)


@pytest.mark.usefixtures("added")
def test_a_chain_operator(examples: Examples) -> None:
    without = chains("operators: {}")
    assert {len(one.chain.steps) for one in without if one.chain} == {1, 2}
    judged = chains(examples["conf/chains/smoke.yaml"])
    assert [one.verdict.tools for one in judged] == [one.verdict.tools for one in without]
    for one in judged:
        wide = len(set(one.verdict.tools)) >= 2
        assert one.verdict.accepted == wide == (one.chain is not None)
        assert one.verdict.reason == ("" if wide else "too_narrow")
        said = one.verdict.verdicts[-1]
        assert said.operator == "breadth"
        assert said.outcome is (Outcome.YES if wide else Outcome.NO)
    kept = {one.chain.id for one in judged if one.chain}
    assert kept <= {one.chain.id for one in without if one.chain}, "the same chains, fewer of them"


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ("operators: {wide: {}}", "no module 'wide'; there are: back_translation, breadth, vote"),
        ("operators: {breadth: {most: 3}}", r"breadth.most: Extra .*Its options: least"),
    ],
)
def test_a_bad_operator_is_refused_while_composing(entry: str, complaint: str) -> None:
    with pytest.raises(ParamsError, match=complaint):
        chains_config(entry)


@pytest.mark.usefixtures("added")
def test_a_suite(examples: Examples, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    listed = yaml.safe_load(examples["conf/bench/smoke.yaml"])["suites"]
    assert BenchConfig.model_fields["suites"].annotation == tuple[SuiteConfig, ...]
    (config,) = (SuiteConfig.model_validate(one) for one in listed)
    suite = find_suite(config.name)
    assert suite.score == "accuracy"
    with pytest.raises(PluginError, match="Extra inputs are not permitted"):
        suite.options({**config.options, "seed": 1})
    options = suite.options(config.options)
    found = sys.modules[f"{suites.__name__}.arithmetic"].questions(options)
    rows = [json.loads(one) for one in Path("problems/examples.jsonl").read_text().splitlines()]
    assert [one.gold for one in found] == [str(row["answer"]) for row in rows]
    assert all(one.prompt.startswith(row["question"]) for one, row in zip(found, rows, strict=True))
    assert suite.prompts is not None
    assert suite.prompts(options) == [one.prompt for one in found]

    monkeypatch.syspath_prepend(str(Path(suites.__file__).parent / "drivers"))
    judge = importlib.import_module("play_questions").judge
    first = found[0].model_dump()
    assert judge(first, f"It is \\boxed{{{found[0].gold}}}.")[0]
    assert not judge(first, "It is \\boxed{999}.")[0]


@pytest.fixture
def patched(root: Path, examples: Examples, tmp_path: Path) -> ModuleType:
    """src/astra/arena/reward.py with the page's change applied."""
    title = "src/astra/arena/reward.py"
    (tmp_path / title).parent.mkdir(parents=True)
    shutil.copy(root / title, tmp_path / title)
    subprocess.run(
        ["git", "apply", "-"], input=examples[title], text=True, cwd=tmp_path, check=True
    )
    spec = importlib.util.spec_from_file_location("extended_reward", tmp_path / title)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_reward(patched: ModuleType, examples: Examples) -> None:
    class Block(StageConfig):
        reward: patched.RewardMode

    mode = validate("rl", yaml.safe_load(examples["conf/rl/smoke.yaml"]), Block).reward
    assert mode.value == "success"
    arena = next(a for a in map(make_arena, range(99)) if a.scenario == Scenario.MULTI_HOP)
    calls = [
        ExecutedCall(
            turn=0,
            call=ToolCall(id="c", name=step.tool_name, arguments=json.dumps(step.arguments)),
            result=ToolResult(status=CallStatus.OK, content="", value=step.answer.value),
        )
        for step in arena.steps
        if step.tool_name is not None
    ]
    final = f"<answer>{arena.final_answer.value}</answer>"
    assert patched.score_episode(arena, calls, final, mode).reward == 1.0
    assert patched.score_episode(arena, [*calls, *calls], final, mode).reward == 1.0
    assert patched.score_episode(arena, calls[:1], final, mode).reward == 0.0
    assert patched.score_episode(arena, calls, "no idea", mode).reward == 0.0


def test_every_block_has_a_place(examples: Examples, root: Path) -> None:
    """Entries of conf/ go where a stage of that name is configured."""
    for title in examples:
        folder = Path(title).parent
        if folder.parts[0] == "conf":
            assert folder.parts[1] in BLOCKS
        assert (root / folder).is_dir(), f"{title}: no folder {folder}"
