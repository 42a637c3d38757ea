"""Results through the openai backend: refused guesses, cached answers, an outage."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from astra.llm import endpoints
from astra.llm.build import Teachers
from astra.llm.protocol import ModelConfig
from astra.records.score import Rejection
from astra.records.tool import Execution, Tool, ToolServer
from astra.toolbank.results import infer_results
from chat_server import KEY, Answer, ChatServer, runtime

MODEL = ModelConfig(backend="openai", model="ada", max_tokens=500)
PAGES = {
    "type": "object",
    "properties": {
        "pages": {
            "type": "array",
            "items": {"type": "object", "properties": {"page_id": {"type": "string"}}},
        }
    },
}
GUESS = {
    "reason": "A wiki lists pages with their ids.", "effect": "reads", "output_schema": PAGES,
    "example": {"pages": [{"page_id": "p-81"}]},
}  # fmt: skip
VAGUE = {**GUESS, "output_schema": {"type": "object"}}


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ASTRA_TEST_KEY", KEY)
    monkeypatch.setattr(endpoints, "BACKOFF_S", 0.001)


def wiki(said: str = "Find pages by words.") -> ToolServer:
    tools = {"find_page": said, "get_page": "Get one page.", "drop_page": "Delete one page."}
    parameters = {"type": "object", "properties": {"page_id": {"type": "string"}}}
    return ToolServer(
        name="wiki", title="Wiki", description="", domain="office", source="x", licence="MIT",
        language="en", execution=Execution.EMULATED, deterministic=True,
        tools=tuple(
            Tool(name=name, description=text, parameters=parameters)
            for name, text in tools.items()
        ),
    )  # fmt: skip


def completed(endpoint: ChatServer, server: ToolServer) -> tuple[ToolServer, list[Rejection]]:
    async def run(teacher: Any) -> tuple[ToolServer, list[Rejection]]:
        return await infer_results(server, teacher)

    with Teachers(runtime(endpoint.url, concurrency=8), "tools") as teachers:
        return asyncio.run(run(teachers.teacher(MODEL, {})))


def about(body: dict[str, Any]) -> str:
    text = body["messages"][0]["content"]
    return text.partition("The tool to document: ")[2].split("\n")[0]


def told(body: dict[str, Any]) -> Answer:
    """A vague guess of one tool, mended when it is sent back; of another nothing but vague ones."""
    mended = about(body) == "find_page" and len(body["messages"]) > 1
    vague = about(body) == "drop_page" or (about(body) == "find_page" and not mended)
    return Answer(json.dumps(VAGUE if vague else GUESS))


def test_a_vague_guess_is_mended_or_costs_one_tool_and_is_never_cached() -> None:
    with ChatServer(default=told) as endpoint:
        kept, failed = completed(endpoint, wiki())
        asked = [about(body) for body in endpoint.requests]
        repairs = [body for body in endpoint.requests if len(body["messages"]) > 1]
        assert "object without properties" in repairs[0]["messages"][-1]["content"]
        assert [tool.inferred is not None for tool in kept.tools] == [True, True, False]
        assert [(one.part, one.reason, one.final) for one in failed] == [
            ("tool drop_page", "result_unparsable", False)
        ]
        assert asked.count("find_page") == 2
        assert asked.count("get_page") == 1

        endpoint.requests.clear()
        again, _ = completed(endpoint, wiki())
        assert again == kept
        assert {about(body) for body in endpoint.requests} == {"drop_page"}

        endpoint.requests.clear()
        completed(endpoint, wiki("Find pages by all of the words."))
        assert {about(body) for body in endpoint.requests} == {"find_page", "drop_page"}


def test_an_outage_leaves_tools_without_results_and_is_told() -> None:
    first = iter(range(100))

    def down(body: dict[str, Any]) -> Answer:
        return Answer(json.dumps(GUESS)) if next(first) == 0 else Answer(status=500, error="down")

    with ChatServer(default=down) as endpoint:
        kept, failed = completed(endpoint, wiki())
    assert sum(tool.inferred is not None for tool in kept.tools) == 1
    assert [one.reason for one in failed] == ["result_ask_failed"] * 2
    assert not any(one.final for one in failed)
