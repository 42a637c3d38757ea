from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from chat_server import Answer, ChatServer, runtime

from astra.errors import AstraError, OutOfTokens
from astra.llm.build import Teachers
from astra.llm.protocol import ModelConfig, ParseError
from astra.records.message import Message, MessageRole, ToolCall
from astra.records.tool import Tool

CONFIG = ModelConfig(backend="openai", model="m")
TOOL = Tool(name="find", description="finds", parameters={"type": "object", "properties": {}})
USER = Message(role=MessageRole.USER, content="where?")


def act(server: ChatServer, *messages: Message, sample: int = 0, attempts: int = 3) -> Message:
    with Teachers(runtime(server.url, max_attempts=attempts), "demo") as teachers:
        policy = teachers.policy(CONFIG).for_sample(sample)
        return asyncio.run(policy.act(messages or (USER,), (TOOL,)))


def called(arguments: str, name: str = "find") -> Answer:
    function = {"name": name, "arguments": arguments}
    return Answer(None, tool_calls=[{"id": "x", "type": "function", "function": function}])


def test_native_tool_calls_both_ways_with_broken_arguments_kept() -> None:
    with ChatServer(called('{"a": '), Answer("<think>hm</think> done")) as server:
        first = act(server)
        assert first.tool_calls == (ToolCall(id="call_0", name="find", arguments='{"a": '),)
        result = Message(
            role=MessageRole.TOOL, content="error: bad", tool_call_id="call_0", name="find"
        )
        assert act(server, USER, first, result).content == "done"
    assert server.requests[0]["tools"] == [TOOL.openai()]
    wired = server.requests[1]["messages"]
    assert wired[1]["tool_calls"][0]["function"] == {"name": "find", "arguments": '{"a": '}
    assert wired[2] == {"role": "tool", "content": "error: bad", "tool_call_id": "call_0"}


def test_turns_are_committed_per_sample(place: Path) -> None:
    with ChatServer(Answer("one"), Answer("two")) as server:
        assert [act(server).content, act(server).content] == ["one", "one"]
        assert act(server, sample=1).content == "two"


def test_an_empty_turn_is_asked_again_and_a_cut_one_is_out_of_tokens() -> None:
    with ChatServer(Answer(""), Answer("here")) as server:
        assert act(server).content == "here"
    with ChatServer(default=lambda _: Answer("")) as server:
        with pytest.raises(ParseError, match="neither text nor a tool call"):
            act(server, sample=1)
        assert len(server.requests) == 3
    with ChatServer(Answer("half", finish="length")) as server, pytest.raises(OutOfTokens):
        act(server, sample=2)


def test_the_offline_backend_has_no_model_that_acts() -> None:
    with pytest.raises(AstraError, match="needs backend openai"):
        Teachers(runtime(), "demo").policy(ModelConfig(backend="offline", model="v1"))
