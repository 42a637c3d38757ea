"""Live servers that are down: said aloud, and an error where too many are."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from toolbank_flow import flowed

from astra.llm.protocol import ModelConfig
from astra.store.metrics import StageMetrics
from astra.toolbank.config import DomainConfig, FilterConfig, ToolsConfig
from astra.toolbank.outage import ServersDown, check_live

FILTERS = FilterConfig(
    min_tools=3,
    max_tools=64,
    min_description_chars=12,
    max_bad_description_share=0.5,
    deterministic_only=False,
    languages=(),
    duplicate_similarity=1.0,
    max_description_chars=400,
)
TEACHER = ModelConfig(backend="offline", model="none")
DOMAINS = DomainConfig(by="text", labels=("other",), mapping={})
LAUNCH = "{environment: nowhere, command: x}"


def tools_config(share: float) -> ToolsConfig:
    return ToolsConfig(
        sources=("list.yaml",),
        max_failed_live_share=share,
        teacher=TEACHER,
        domains=DOMAINS,
        infer_results=False,
        filters=FILTERS,
    )


def collected(folder: Path, share: float) -> tuple[ToolsConfig, StageMetrics]:
    """Two listed live servers, neither of which can start."""
    (folder / "sources").mkdir()
    (folder / "sources/environments.yaml").write_text("{}", encoding="utf-8")
    entries = [
        f"  - {{name: {name}, source: x, launch: {LAUNCH}, licence: MIT, deterministic: true}}\n"
        for name in ("one", "two")
    ]
    (folder / "list.yaml").write_text("live:\n" + "".join(entries), encoding="utf-8")
    config = tools_config(share)
    metrics = StageMetrics("tools")
    assert flowed(config, metrics)[0] == []
    return config, metrics


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_more_failures_than_allowed_stop_the_stage(tmp_path: Path, share: float) -> None:
    with pytest.raises(ServersDown, match=r"2 of 2 live servers .*max_failed_live_share allows"):
        check_live(*collected(tmp_path, share))


def test_allowed_failures_are_said_aloud(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config, metrics = collected(tmp_path, 1.0)
    caplog.clear()
    check_live(config, metrics)
    (line,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "2 of 2 live servers" in line.getMessage()
    assert metrics.document()["dropped"] == {"environment_or_start_failed": 2}


def test_without_failures_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    Path("list.yaml").write_text("live: []", encoding="utf-8")
    check_live(tools_config(0.0), StageMetrics("tools"))
    assert not caplog.records


def test_a_listed_server_that_does_not_answer_is_no_outage(tmp_path: Path) -> None:
    remote = {"type": "streamable-http", "url": "http://127.0.0.1:9/mcp"}
    listed = {"name": "a/b", "description": "x", "version": "1", "remotes": [remote]}
    Path("page.json").write_text(json.dumps({"servers": [{"server": listed}]}), encoding="utf-8")
    entry = "documents: [{path: page.json, format: mcp_registry, connect: true}]\n"
    Path("list.yaml").write_text(entry, encoding="utf-8")
    metrics = StageMetrics("tools")
    assert flowed(tools_config(0.0), metrics)[0] == []
    assert metrics.dropped == {"listed_did_not_answer": 1}
    check_live(tools_config(0.0), metrics)
