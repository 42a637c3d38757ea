"""Every real tool document at hand is normalised or rejected, never a crash."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from astra.toolbank.config import FilterConfig
from astra.toolbank.documents import parse_document
from astra.toolbank.normalise import ServerNormaliser, normalise_tool
from astra.toolbank.raw import BadDocument, RawServer
from astra.toolbank.schema import MAX_TEXT, Unmappable

FILTERS = FilterConfig(
    min_tools=3,
    max_tools=64,
    min_description_chars=12,
    max_bad_description_share=0.5,
    deterministic_only=False,
    languages=(),
    max_description_chars=1024,
    duplicate_similarity=1.0,
)
META = Draft202012Validator.META_SCHEMA
FORMATS = {
    "rapidapi_toolbench": "rapidapi",
    "bfcl_dict_types": "bfcl",
    "bfcl_live_user_contributed": "bfcl",
    "bfcl_java_js_types": "bfcl",
}


def format_of(name: str) -> str:
    if name.startswith(("openapi", "swagger")):
        return "openapi"
    if name.startswith("docker"):
        return "docker"
    return FORMATS.get(name, "mcp")


@pytest.mark.parametrize(
    "name",
    [
        "mcp_real",
        "mcp_corpus",
        "mcp_crawled",
        "functions_corpus",
        "rapidapi_corpus",
        "openapi_corpus",
    ],
)
def test_corpora_are_normalised(corpora: Path, name: str) -> None:
    normaliser = ServerNormaliser(FILTERS)
    seen = kept = 0
    lines = (corpora / "tools" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    for line in lines[:: 1 + len(lines) // 150]:
        base = RawServer(name="unnamed", source=name, tools=())
        for raw in parse_document("mcp", json.loads(line), base):
            seen += 1
            server = normaliser.add(raw)
            if server is None:
                continue
            kept += 1
            for tool in server.tools:
                Draft202012Validator.check_schema(tool.parameters)
    rejections = normaliser.drain()
    assert all(rejection.reason and rejection.item for rejection in rejections)
    rejected = [r for r in rejections if not r.reason.startswith("tool_")]
    assert kept + len(rejected) == seen
    assert kept > 0


def test_raw_variants_are_read(corpora: Path) -> None:
    normaliser = ServerNormaliser(FILTERS)
    unread: list[str] = []
    text = (corpora / "tools" / "raw_variants.jsonl").read_text(encoding="utf-8")
    for line in text.splitlines():
        row = json.loads(line)
        base = RawServer(name=row["server"] or "unnamed", source=row["source"], tools=())
        try:
            for raw in parse_document(format_of(row["format"]), row["raw"], base):
                normaliser.add(raw)
        except BadDocument as error:
            unread.append(f"{row['format']} {row['source']}: {error}")
    # One example document describes webhooks only: nothing that can be called.
    assert len(unread) == 1
    assert "webhook-example" in unread[0]


@pytest.mark.parametrize("name", ["mcp_real", "mcp_corpus", "openapi_corpus"])
def test_schemas_that_pass_the_metaschema_survive(corpora: Path, name: str) -> None:
    """At least 98 % before quality filters; a sample, ``benchmarks/tools.py`` counts them all."""
    valid = kept = 0
    lines = (corpora / "tools" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    for line in lines[:: 1 + len(lines) // 20]:
        base = RawServer(name="unnamed", source=name, tools=())
        for raw in parse_document("mcp", json.loads(line), base):
            for tool in raw.tools:
                if not Draft202012Validator(META).is_valid(tool.parameters):
                    continue
                valid += 1
                with contextlib.suppress(Unmappable):
                    normalise_tool(tool, MAX_TEXT)
                    kept += 1
    assert valid > 50
    assert kept >= 0.98 * valid
