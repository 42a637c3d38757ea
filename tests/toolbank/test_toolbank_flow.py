"""Stage tools as one flow: labels without a barrier, what a rejection holds, memory."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from toolbank_flow import flowed

from astra.data_stage import DataStage, data_stage
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask, ModelConfig, OfflineHandlers, Reply
from astra.records.score import Rejection
from astra.records.tool import ToolServer
from astra.store.metrics import StageMetrics
from astra.store.tables import read_records
from astra.toolbank.config import DomainConfig, FilterConfig, ToolsConfig
from astra.toolbank.connectors import Connectors, read_source
from astra.toolbank.domains import DOMAIN, DomainLabel
from astra.toolbank.offline.handlers import HANDLERS
from astra.toolbank.outage import ServersDown, unless_down
from astra.toolbank.repeats import KnownServers
from astra.toolbank.sources import DocumentSource, load_sources
from astra.toolbank.tools import servers
from walls_here import walls

MODEL = ModelConfig(backend="offline", model="v1")
FILTERS = FilterConfig(
    min_tools=2,
    max_tools=64,
    min_description_chars=5,
    max_description_chars=1024,
    max_bad_description_share=0.5,
    deterministic_only=False,
    languages=(),
    duplicate_similarity=1.0,
)
LAUNCH = "{environment: nowhere, command: x}"


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))


def tools_config(by: str = "text", share: float = 1.0, infer: bool = False) -> ToolsConfig:
    return ToolsConfig(
        sources=("list.yaml",),
        max_failed_live_share=share,
        teacher=MODEL,
        domains=DomainConfig.model_validate({"by": by, "labels": ["one", "two"], "mapping": {}}),
        infer_results=infer,
        filters=FILTERS,
    )


def listed(name: str, tools: int = 2, **changes: Any) -> dict[str, Any]:
    found = [{"name": f"{name}_{n}", "description": "Get one of them."} for n in range(tools)]
    return {"server": {"name": name}, "tools": found} | changes


def write(*documents: Any, live: str = "") -> None:
    Path("all.jsonl").write_text("\n".join(json.dumps(one) for one in documents), "utf-8")
    Path("list.yaml").write_text("documents: [{path: all.jsonl, format: mcp}]\n" + live, "utf-8")


class Late:
    """Answers only when ``wanted`` asks are open at once, or none is left to come."""

    name = "offline:late"

    def __init__(self, wanted: int, handlers: OfflineHandlers = HANDLERS) -> None:
        self._offline = OfflineTeacher(MODEL, handlers)
        self._wanted = wanted
        self._open = 0
        self._enough = asyncio.Event()

    async def ask(self, ask: Ask[Reply]) -> Reply:
        self._open += 1
        if self._open >= self._wanted:
            self._enough.set()
        await asyncio.wait_for(self._enough.wait(), 10)
        return await self._offline.ask(ask)


def test_labels_are_asked_for_as_many_servers_as_may_be_open() -> None:
    names = [f"shop{n}" for n in range(40)]
    write(*map(listed, names))
    kept, _ = flowed(tools_config("teacher"), StageMetrics("t"), Late(40), open_items=40)
    assert [server.name for server in kept] == names


def test_a_slow_label_holds_no_other_and_order_stays() -> None:
    names = [f"shop{n}" for n in range(60)]
    write(*map(listed, names), {"tools": 3})

    class Slow(Late):
        def __init__(self) -> None:
            super().__init__(0)
            self.labelled = 0
            self.last = asyncio.Event()

        async def ask(self, ask: Ask[Reply]) -> Reply:
            if ask.variables["title"] == "shop0":
                await asyncio.wait_for(self.last.wait(), 10)
            reply = await super().ask(ask)
            self.labelled += 1
            if self.labelled == len(names) - 1:
                self.last.set()
            return reply

    metrics = StageMetrics("t")
    kept, rejections = flowed(tools_config("teacher"), metrics, Slow(), open_items=4)
    assert [server.name for server in kept] == names
    assert [one.reason for one in rejections] == ["document"]
    assert metrics.dropped == {"document": 1}


def test_rejections_name_server_and_tool_and_what_was_refused() -> None:
    bad = listed("bad", 3)
    bad["tools"][1] = {"name": "vague", "description": "-"}
    write(bad, listed("few", 1), listed("bad", 3, server={"name": "copy"}))

    def outside(variables: Any, rng: random.Random) -> DomainLabel:
        return DomainLabel(domain="something else entirely")

    metrics = StageMetrics("t")
    teacher = OfflineTeacher(MODEL, {DOMAIN: outside})
    kept, rejections = flowed(tools_config("teacher"), metrics, teacher)
    assert kept == []
    said = "domain 'something else entirely' is none of the labels that are listed"
    found = [(one.item, one.part, one.reason, one.detail) for one in rejections]
    assert found == [
        ("bad (document:all.jsonl#1)", "tool vague", "tool_description", "'-'"),
        ("bad", "", "domain_unparsable", said),
        ("few (document:all.jsonl#2)", "", "too_few_tools", "1 usable of 1"),
        ("copy", "", "domain_unparsable", said),
    ]
    assert sum(metrics.dropped.values()) == len(rejections)


def test_a_live_fault_is_kept_by_kind_and_told_in_full(caplog: pytest.LogCaptureFixture) -> None:
    Path("sources").mkdir()
    Path("sources/environments.yaml").write_text("{}", encoding="utf-8")
    entry = f"{{name: gone, source: x, launch: {LAUNCH}, licence: MIT, deterministic: true}}"
    write(listed("fine"), live=f"live: [{entry}]")
    kept, rejections = flowed(tools_config(), StageMetrics("t"))
    assert [server.name for server in kept] == ["fine"]
    (one,) = rejections
    assert (one.item, one.reason, one.detail) == (
        "gone", "environment_or_start_failed", "ServerError"
    )  # fmt: skip
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "'nowhere' is not pinned" in warning.getMessage()


def test_no_place_of_this_machine_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (found,) = read_source(DocumentSource(path="absent/*.json", format="mcp"))
    (one,) = found.rejections
    assert str(tmp_path) not in one.model_dump_json()
    assert str(tmp_path) in caplog.text


def test_nothing_is_taken_of_a_document_that_ends_badly() -> None:
    rows = [{"base_info": {"group_info": {"server_name": "a"}, "tool_list": []}}, {"other": 1}]
    Path("rows.json").write_text(json.dumps(rows), encoding="utf-8")
    (found,) = read_source(DocumentSource(path="rows.json", format="astra"))
    assert list(found.servers) == []
    assert [one.reason for one in found.rejections] == ["document"]


def test_halves_of_characters_are_no_stop() -> None:
    odd = listed("odd\ud800", 2)
    Path("all.jsonl").write_text(json.dumps([odd, {**odd, "tools": odd["tools"][:1]}]), "utf-8")
    Path("list.yaml").write_text("documents: [{path: all.jsonl, format: mcp}]", encoding="utf-8")
    kept, rejections = flowed(tools_config(), StageMetrics("t"))
    assert [server.tools[0].original_name for server in kept] == ["odd?_0"]
    assert [one.reason for one in rejections] == ["too_few_tools"]
    assert rejections[0].item.startswith("odd? (")


def test_repeats_are_found_as_by_comparing_all_pairs() -> None:
    rng = random.Random(5)
    for similarity in (1.0, 0.6, 0.3):
        known, kept = KnownServers(similarity), list[tuple[str, set[str]]]()
        for number in range(300):
            tools = {f"t{rng.randrange(14)}" for _ in range(rng.randint(1, 6))}
            same = [name for name, own in kept if len(tools & own) >= similarity * len(tools | own)]
            assert known.same_tools(tools) == (same[0] if same else None)
            if not same:
                kept.append((f"s{number}", tools))
                known.keep(f"s{number}", tools)
        assert 5 < len(kept) < 295
    assert [known.new_name("a b") for _ in range(3)] == ["a_b", "a_b_2", "a_b_3"]
    assert "a_b_3" in known
    assert "a_b_4" not in known


def test_an_outage_leaves_the_table_of_before_and_tells_who_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("sources").mkdir()
    Path("sources/environments.yaml").write_text("{}", encoding="utf-8")
    Path("data").mkdir()
    Path("data/tools.parquet").write_text("as it was")
    entry = f"{{name: gone, source: x, launch: {LAUNCH}, licence: MIT, deterministic: true}}"
    write(listed("fine"), live=f"live: [{entry}]")
    blocks = {"tools": tools_config(share=0.0).model_dump(mode="json"), "runtime": {}}
    Path("params.yaml").write_text(json.dumps(blocks), encoding="utf-8")

    def build(stage: DataStage[ToolsConfig]) -> None:
        lists = [load_sources(Path("list.yaml"))]
        progress = stage.progress("sources", 2)
        outcomes = servers(
            lists,
            Connectors(stage.runtime, walls()),
            None,
            stage.config,
            4,
            stage.metrics,
            progress,
        )
        stage.write(unless_down(outcomes, stage.config, stage.metrics), ToolServer)

    with pytest.raises(ServersDown, match="1 of 1"), data_stage("tools", ToolsConfig) as stage:
        build(stage)
    assert Path("data/tools.parquet").read_text() == "as it was"
    (one,) = read_records(Path("data/rejected/tools.parquet"), Rejection)
    assert (one.item, one.detail) == ("gone", "ServerError")


def test_what_is_remembered_of_servers_is_not_held_in_python() -> None:
    known = KnownServers(1.0)

    def remember(numbers: range) -> None:
        for number in numbers:
            tools = [f"{number:016x}{n}" for n in range(5)]
            assert known.same_tools(tools) is None
            known.keep(known.new_name(f"server {number}"), tools)

    remember(range(100))
    tracemalloc.start()
    try:
        remember(range(100, 3000))
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 100_000  # a set of the names alone would take 200,000
