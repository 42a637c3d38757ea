"""A publisher's order of parameters, from the document to every prompt, the SFT set and beyond.

Publishers put the main parameter first. Sorted by name, a model would be trained on documents
such as it never meets.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from track import Recorder, Script, run

from astra.llm.build import teachers_from
from astra.llm.protocol import Ask, ModelConfig, OfflineHandlers, Reply
from astra.prompting import render
from astra.records.tool import Tool, ToolServer
from astra.records.trajectory import SFTSample, Trajectory
from astra.rollout.chat import load_codec
from astra.scoring.export import write_openai
from astra.store.tables import read_records
from configs import block, changed, policy_config

STAGES = ("tools", "graph", "chains", "tasks", "trajectories", "sft_set")
THING, PERSON = {"type": "string", "x-entity": "thing"}, {"type": "string", "x-entity": "person"}
NUMBER = {"type": "integer", "minimum": 1, "maximum": 90}
SEASON = {"type": "string", "enum": ["winter", "summer"]}
PARAMETERS = {
    "find_skipper": {"vessel": THING, "season": SEASON, "deck": NUMBER},
    "get_harbour": {"skipper": PERSON, "year": NUMBER, "area": SEASON},
    "get_berth": {"vessel": THING, "pier": NUMBER, "cover": SEASON},
}
RESULTS = {
    "find_skipper": {"skipper": PERSON, "licence": NUMBER, "crew": NUMBER},
    "get_harbour": {"harbour": THING, "depth": NUMBER, "buoys": NUMBER},
    "get_berth": {"width": NUMBER, "berth": THING, "cost": NUMBER},
}
ORDERS = {frozenset(one): list(one) for one in (*PARAMETERS.values(), *RESULTS.values())}
"""The names of every object that a document describes -> their order."""


def described(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def document() -> dict[str, Any]:
    """An MCP server's tools, as it lists them."""
    subjects = {"find_skipper": "the skipper of a vessel", "get_harbour": "a skipper's harbour",
                "get_berth": "the berth of a vessel"}  # fmt: skip
    tools = [
        {
            "name": name,
            "description": f"Look up {subjects[name]} in the register of the port.",
            "inputSchema": described(PARAMETERS[name]),
            "outputSchema": described(RESULTS[name]),
        }
        for name in PARAMETERS
    ]
    about = {"name": "port", "title": "Port", "description": "The register of a port."}
    return about | {"tools": tools}


CHANGES: dict[str, dict[str, Any]] = {
    "tools": {"sources": ["port.yaml"]},
    "graph": {},
    "chains": {},
    "tasks": {"server_tasks": {"per_server": 3}},
    "trajectories": {"conversations": {"share": 0.0}},
    "sft_set": {"contamination": None, "near_duplicate": 1.0, "min_score": 0.1},
}


class Prompts(Script):
    """Every prompt of the track by its template."""

    def __init__(self) -> None:
        super().__init__()
        self.by_template: dict[str, list[str]] = defaultdict(list)

    def factory(self, config: ModelConfig, handlers: OfflineHandlers) -> Recorder:
        return PromptRecorder(config, handlers, self)


class PromptRecorder(Recorder):
    async def ask(self, ask: Ask[Reply]) -> Reply:
        assert isinstance(self._script, Prompts)
        self._script.by_template[ask.template].append(render(ask.template, ask.shown))
        return await self._offline.ask(ask)


@pytest.fixture(scope="module")
def built(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, dict[str, list[str]]]]:
    """A workspace in which the track was built from the document, and the prompts."""
    folder = tmp_path_factory.mktemp("port")
    (folder / "port.json").write_text(json.dumps(document()))
    source = {"path": "port.json", "format": "mcp", "licence": "CC0-1.0"}
    (folder / "port.yaml").write_text(yaml.safe_dump({"documents": [source]}))
    (folder / "conf").symlink_to(root / "conf")
    params = {name: changed(block(name), changes) for name, changes in CHANGES.items()}
    (folder / "params.yaml").write_text(yaml.safe_dump(params | {"runtime": block("runtime")}))
    script = Prompts()
    with pytest.MonkeyPatch.context() as patch, teachers_from(script.factory):
        patch.setenv("ASTRA_CACHE", str(folder / "cache"))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        patch.chdir(folder)
        for stage in STAGES:
            run(stage)
        yield folder, script.by_template


def orders(text: str) -> Iterator[list[str]]:
    """The order of names in every described object that stands in a text as JSON."""
    decoder = json.JSONDecoder()
    for mark in ('"properties": ', '"properties":'):
        at = text.find(mark + "{")
        while at >= 0:
            found, _ = decoder.raw_decode(text, at + len(mark))
            if frozenset(found) in ORDERS:
                yield list(found)
            at = text.find(mark + "{", at + 1)


def checked(text: str) -> int:
    """How many described objects a text holds, all of them in the publisher's order."""
    found = list(orders(text))
    assert found == [ORDERS[frozenset(one)] for one in found]
    return len(found)


def test_every_prompt_shows_the_parameters_in_the_publishers_order(
    built: tuple[Path, dict[str, list[str]]],
) -> None:
    seen = {template: sum(map(checked, texts)) for template, texts in built[1].items()}
    showing = {template.split("/")[0] for template, count in seen.items() if count}
    assert showing >= {"toolgraph", "tasking", "trajectories", "scoring"}, seen


def test_results_have_their_fields_in_the_publishers_order(
    built: tuple[Path, dict[str, list[str]]],
) -> None:
    """As messages, as typed values and in the prompts of judges."""
    made = list(read_records(built[0] / "data/trajectories.parquet", Trajectory))
    objects = [
        json.loads(call.result.content)
        for one in made
        for call in one.calls
        if isinstance(call.result.value, dict)
    ]
    typed = [c.result.value for one in made for c in one.calls if isinstance(c.result.value, dict)]
    assert objects
    for value in (*objects, *typed):
        assert list(value) == ORDERS[frozenset(value)]


def by_name(tools: Any) -> dict[str, list[str]]:
    """The order of parameters by tool, of documents in the form that chat APIs take."""
    functions = [tool["function"] for tool in tools]
    return {one["name"]: list(one["parameters"]["properties"]) for one in functions}


def test_tables_exports_and_chat_templates_keep_it(
    built: tuple[Path, dict[str, list[str]]], tmp_path: Path, root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    wanted = {name: list(parameters) for name, parameters in PARAMETERS.items()}
    (server,) = read_records(built[0] / "data/tools.parquet", ToolServer)
    samples = list(read_records(built[0] / "data/sft_set.parquet", SFTSample))
    assert samples
    offers: list[tuple[Tool, ...]] = [server.tools, *(one.tools for one in samples)]
    for tools in offers:
        assert by_name([tool.openai() for tool in tools]) == wanted
    write_openai(samples, tmp_path)
    for row in pq.read_table(tmp_path).to_pylist():
        assert by_name(map(json.loads, row["tools"])) == wanted
    monkeypatch.chdir(root)
    for template in ("hermes", "qwen3"):
        codec = load_codec(policy_config(template=template))
        text = codec.tokenizer.decode(codec.encode_prompt(samples[0].messages[:2], server.tools))
        assert checked(text) == len(wanted)
    codec = load_codec(policy_config())
    text = codec.tokenizer.decode(codec.encode_prompt(samples[0].messages[:2], server.tools))
    assert "vessel, season, deck: integer" in text.replace("( ", "(")
