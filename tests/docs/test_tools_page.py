"""What docs/tools.md says about the values of tasks, on the document that it shows."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
from pages import blocks

from astra.records.graph import Chain
from astra.records.tool import ToolServer
from astra.tasking.asks import chain_task_ask
from astra.tasking.offline.handlers import write_chain_task
from astra.toolbank.config import FilterConfig
from astra.toolbank.connectors import read_source
from astra.toolbank.normalise import ServerNormaliser
from astra.toolbank.sources import DocumentSource, load_sources
from astra.toolgraph.arguments import Binder

TITLE = "sources/documents/aquarium.yaml"


@pytest.fixture
def examples(root: Path) -> dict[str, str]:
    return {block.title: block.text for block in blocks(root / "docs/tools.md") if block.title}


@pytest.fixture
def aquarium(examples: dict[str, str], tmp_path: Path) -> ToolServer:
    file = tmp_path / "aquarium.yaml"
    file.write_text(examples[TITLE])
    (found,) = read_source(DocumentSource(path=str(file), format="mcp"))
    (raw,) = found.servers
    filters = FilterConfig(
        min_tools=1, max_tools=64, min_description_chars=12, max_description_chars=1024,
        max_bad_description_share=0.5, deterministic_only=False, languages=(),
        duplicate_similarity=1.0,
    )  # fmt: skip
    server = ServerNormaliser(filters).add(raw)
    assert server is not None
    return server


def test_the_source_list_is_one(examples: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(examples["sources/mine.yaml"])
    assert load_sources(tmp_path / "mine.yaml").total == 0


def test_the_offline_teacher_takes_values_from_a_documents_schema(aquarium: ToolServer) -> None:
    steps = Binder(aquarium.tools).bind([tool.name for tool in aquarium.tools])
    chain = Chain(server_id=aquarium.id, steps=steps, walk_weight=1, votes_for=1, votes_against=0,
                  task_sketch="")  # fmt: skip
    variables = chain_task_ask(aquarium, chain, 0, "en", 60).variables
    seen: dict[str, set[Any]] = {"tank": set(), "day": set(), "species": set()}
    for seed in range(200):
        written = write_chain_task(variables, random.Random(seed))
        (step,) = written.steps
        values = {argument.name: argument.value for argument in step.arguments}
        assert values["unit"] == "celsius"
        assert "celsius" not in written.question
        for name, drawn in seen.items():
            drawn.add(values[name])
    assert seen["tank"] == {"Reef Hall", "Shark Tunnel"}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", day) for day in seen["day"])
    assert {"guitar", "window"} <= seen["species"]
    assert "tang" not in seen["species"], "descriptions are for models"
