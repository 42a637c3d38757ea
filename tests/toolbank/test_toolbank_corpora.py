"""Every real tool document at hand is normalised or rejected, never a crash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from astra.toolbank.config import FilterConfig
from astra.toolbank.documents import parse_document
from astra.toolbank.normalise import ServerNormaliser
from astra.toolbank.raw import BadDocument, RawServer

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
FORMATS = {
    "rapidapi_toolbench": "rapidapi",
    "bfcl_dict_types": "bfcl",
    "bfcl_live_user_contributed": "bfcl",
    "bfcl_java_js_types": "bfcl",
}


def format_of(name: str) -> str:
    if name.startswith(("openapi", "swagger")):
        return "openapi"
    return FORMATS.get(name, "mcp")


@pytest.mark.parametrize(
    "name", ["mcp_real", "mcp_corpus", "mcp_crawled", "functions_corpus", "rapidapi_corpus"]
)
def test_corpora_are_normalised(corpora: Path, name: str) -> None:
    normaliser = ServerNormaliser(FILTERS)
    seen = kept = 0
    lines = (corpora / "tools" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    for line in lines[:: 1 + len(lines) // 400]:
        base = RawServer(name="unnamed", source=name, tools=())
        for raw in parse_document("mcp", json.loads(line), base):
            seen += 1
            server = normaliser.add(raw)
            if server is None:
                continue
            kept += 1
            for tool in server.tools:
                Draft202012Validator.check_schema(tool.parameters)
    rejected = [r for r in normaliser.drain() if not r.reason.startswith("tool_")]
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
