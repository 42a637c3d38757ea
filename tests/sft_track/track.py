"""The SFT track from tasks to sft_set in a workspace of its own, stage files and all.

Three servers: one with documents only, a Chinese one, and the toy MCP server, which is real.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from homes import (
    PERSON,
    THING,
    OwnInterpreter,
    homes_server,
    output,
    server,
    step,
    tool,
    toy_server,
)

from astra.devtools import params
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask, ModelConfig, OfflineHandlers, Reply
from astra.prompting import render
from astra.records.base import canonical_json
from astra.records.graph import ArgumentOrigin, ArgumentSource, Chain, ChainStep
from astra.records.tool import ToolServer
from astra.records.trajectory import Trajectory
from astra.store.tables import read_records, write_records
from chat_server import Answer
from walls_here import live_servers

ROOT = Path(__file__).parents[2]
STAGES = ("tasks", "trajectories", "sft_set")
OVERRIDES = [
    "scale=small",
    "tasks.samples=2",
    "tasks.server_tasks.per_server=2",
    "tasks.augment={share: 0.5, diverse: 1, complicate: 1, persona: 1, max_shared: null}",
    "tasks.unsolvable.missing_function=0.1",
    "tasks.unsolvable.missing_parameter=0.25",
    "tasks.unsolvable.irrelevant=0.1",
    "tasks.languages={zh: 0.3}",
    "trajectories.reset_in_place=[toy]",
    "trajectories.conversations.share=0.5",
    "sft_set.min_score=0.85",
    "sft_set.eval_share=0.2",
    "runtime.concurrency=1",
    "runtime.mcp_timeout_s=300",
    "trajectories.episode_timeout_s=900",
    "runtime.max_attempts=2",
]
"""Scale small with little data; everything that smoke leaves off is on."""


def stated() -> ArgumentSource:
    return ArgumentSource(origin=ArgumentOrigin.TASK)


def chinese_server() -> ToolServer:
    shed = tool("get_tool_shed", {"title": "shed", **THING}, grower=PERSON)
    grower = tool("find_grower", {"title": "grower", **PERSON}, plot=THING)
    soil = tool("get_soil", {"type": "string", "enum": ["沙土", "黏土"]}, plot=THING)
    described = [
        shed.model_copy(update={"description": "查询园丁的工具棚。"}),
        grower.model_copy(update={"description": "查找地块的园丁。"}),
        soil.model_copy(update={"description": "查询地块的土壤类型。"}),
    ]
    return server(*described, name="garden", title="花园", description="社区花园的地块。",
                  domain="garden", language="zh")  # fmt: skip


def notes_server() -> ToolServer:
    """The toy MCP server with the tools that succeed and keep nothing in memory."""
    toy = toy_server()
    # As many as a task asks about at once: an ask that no rule can answer has no scripted reply.
    notes = {"name": {"examples": ["hello", "goodbye"]}}
    kept = {"read_note": notes, "write_note": {"text": {"examples": ["tea", "milk"]}}}
    tools = tuple(
        one.model_copy(update={"hints": kept.get(one.name, {})})
        for one in toy.tools
        if one.name in kept
    )
    fields = {"id": "", "title": "Notes", "domain": "office", "tools": tools}
    return ToolServer.model_validate(toy.model_copy(update=fields).model_dump())


def few_homes_server() -> ToolServer:
    """The homes server with few listings, so that two of its tasks can be about the same one."""
    few = {"listing": {"examples": ["Amber Cove", "Teal Glen", "Noble Gate", "Iron Dale"]}}
    homes = homes_server()
    tools = tuple(
        one.model_copy(update={"hints": few}) if "listing" in one.parameters["properties"] else one
        for one in homes.tools
    )
    fields = {"id": "", "tools": tools}
    return ToolServer.model_validate(homes.model_copy(update=fields).model_dump())


def servers() -> list[ToolServer]:
    return [few_homes_server(), chinese_server(), notes_server()]


def chains(of: Sequence[ToolServer]) -> list[Chain]:
    made: list[Chain] = []
    for one in of:
        names = {item.name for item in one.tools}
        plans: list[tuple[ChainStep, ...]] = []
        if "get_office" in names:
            plans.append(
                (step("find_agent", listing=stated()), step("get_office", agent=output(0)))
            )
            plans.append((step("get_price", listing=stated()),))
        if "get_tool_shed" in names:
            plans.append(
                (step("find_grower", plot=stated()), step("get_tool_shed", grower=output(0)))
            )
        if "read_note" in names:
            plans.append((step("read_note", name=stated()),))
        made += [
            Chain(server_id=one.id, steps=plan, walk_weight=1, votes_for=3, votes_against=0,
                  task_sketch="Find it out.")
            for plan in plans
        ]  # fmt: skip
    return made


def prepare(folder: Path, of: Sequence[ToolServer]) -> None:
    """Inputs, parameters and the files that they name. The working directory must be ROOT."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for name in ("conf", "contamination"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    params.compose(folder / "params.yaml", [*OVERRIDES, f"runtime.live_servers={live_servers()}"])
    write_records(folder / "data/tools.parquet", of, ToolServer)
    write_records(folder / "data/chains.parquet", chains(of), Chain)


def configure(folder: Path, url: str, **models: dict[str, str]) -> None:
    """Have roles of stages answered by the endpoint at ``url``: stage -> role -> model."""
    document = yaml.safe_load((folder / "params.yaml").read_text())
    for stage, roles in models.items():
        for role, model in roles.items():
            document[stage][role] = {"backend": "openai", "model": model, "max_tokens": 900}
    document["runtime"]["endpoints"] = [{"base_url": url, "api_key_env": ""}]
    (folder / "params.yaml").write_text(yaml.safe_dump(document, allow_unicode=True))


def run(stage: str) -> None:
    """The stage file's ``main`` in the working directory; real servers run by our interpreter."""
    spec = importlib.util.spec_from_file_location(f"stage_{stage}", ROOT / "stages" / f"{stage}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if stage == "trajectories":
        vars(module)["ServerEnvironments"] = environments
    module.main()


def environments() -> OwnInterpreter:
    return OwnInterpreter(Path.cwd(), {"toy": []})


class Script:
    """Answers of the offline rules by prompt, for a server that knows prompts only."""

    def __init__(self) -> None:
        self.replies: dict[str, list[str]] = {}
        self.turns: dict[str, dict[str, Any]] = {}

    def factory(self, config: ModelConfig, handlers: OfflineHandlers) -> Recorder:
        return Recorder(config, handlers, self)

    def learn_turns(self, path: Path) -> None:
        """What the agent did after each beginning of a conversation."""
        for one in read_records(path, Trajectory):
            for place, message in enumerate(one.messages):
                if message.role == "assistant":
                    before = [_wire(m) for m in one.messages[:place]]
                    key = _beginning(before, [tool.name for tool in one.tools])
                    self.turns[key] = _wire(message)

    def answer(self, body: dict[str, Any]) -> Answer:
        """The chat completion for a request; status 500 where nothing was learnt."""
        if "tools" in body:
            names = [tool["function"]["name"] for tool in body["tools"]]
            turn = self.turns.get(_beginning(body["messages"], names))
            if turn is None:
                return Answer(status=500, error="no such conversation")
            return Answer(turn["content"], tool_calls=turn.get("tool_calls", []))
        prompt = body["messages"][0]["content"]
        known = self.replies.get(prompt) or next(
            (found for text, found in self.replies.items() if prompt.startswith(text)), None
        )
        if not known:
            return Answer(status=500, error="no such prompt")
        return Answer(known.pop(0) if len(known) > 1 else known[0])


class Recorder:
    """The offline teacher, overheard."""

    def __init__(self, config: ModelConfig, handlers: OfflineHandlers, script: Script) -> None:
        self._offline = OfflineTeacher(config, handlers)
        self._script = script
        self.name = self._offline.name

    async def ask(self, ask: Ask[Reply]) -> Reply:
        reply = await self._offline.ask(ask)
        prompt = render(ask.template, ask.shown)
        self._script.replies.setdefault(prompt, []).append(reply.model_dump_json())
        return reply


def _wire(message: Any) -> dict[str, Any]:
    calls = [
        {"id": call.id, "type": "function",
         "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]  # fmt: skip
    wire: dict[str, Any] = {"role": str(message.role), "content": message.content or None}
    return wire | ({"tool_calls": calls} if calls else {})


def _beginning(messages: Sequence[dict[str, Any]], tools: Sequence[str]) -> str:
    """A conversation as far as it matters: roles, texts, calls and the tools on offer."""
    kept = [
        [m["role"], m.get("content") or "", [c["function"] for c in m.get("tool_calls") or ()]]
        for m in messages
    ]
    return canonical_json([kept, sorted(tools)])


def counts(stage: str) -> dict[str, Any]:
    return json.loads(Path(f"metrics/{stage}.json").read_text())
