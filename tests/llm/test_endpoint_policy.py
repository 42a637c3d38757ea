from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from astra.errors import AstraError, OutOfTokens
from astra.llm import endpoints
from astra.llm.build import Teachers
from astra.llm.protocol import ModelConfig, ParseError, ProviderError
from astra.llm.servers import EndpointError
from astra.records.message import Message, MessageRole, ToolCall
from astra.records.tool import Tool
from chat_server import Answer, ChatServer, runtime

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


def play(server: ChatServer, turns: int) -> list[Message]:
    """An episode: as many assistant turns, a tool message after each call, then one user more."""
    with Teachers(runtime(server.url), "demo") as teachers:
        policy = teachers.policy(CONFIG).for_sample(0)

        async def run() -> list[Message]:
            messages = [USER]
            for _ in range(turns):
                messages.append(await policy.act(messages, (TOOL,)))
                for call in messages[-1].tool_calls:
                    messages.append(
                        Message(role=MessageRole.TOOL, content="here", tool_call_id=call.id)
                    )
                if not messages[-1].tool_calls and messages[-1].role == MessageRole.ASSISTANT:
                    messages.append(Message(role=MessageRole.USER, content="and now?"))
            return messages

        return asyncio.run(run())


def thinking(spelling: str, thought: str, answer: Answer) -> Answer:
    if spelling == "tags":
        return replace(answer, content=f"<think>\n{thought}\n</think>\n\n{answer.content or ''}")
    return replace(answer, extra={spelling: thought})


@pytest.mark.parametrize("spelling", ["reasoning_content", "reasoning", "tags"])
def test_thoughts_go_back_as_they_came_until_the_user_speaks_again(spelling: str) -> None:
    """The same from the cache as fresh: a resumed episode asks nothing again."""
    script = [
        thinking(spelling, "First I look.", called("{}")),
        thinking(spelling, "It is here.", Answer("Here.")),
        thinking(spelling, "Once more.", called("{}")),
        Answer("Still here."),
    ]
    with ChatServer(*script) as server:
        messages = play(server, 4)
        assert play(server, 4) == messages
    assert len(server.requests) == 4
    said = [one for one in messages if one.role == MessageRole.ASSISTANT]
    thoughts = ["First I look.", "It is here.", "Once more.", ""]
    assert [one.reasoning for one in said] == thoughts
    assert [one.content for one in said] == ["", "Here.", "", "Still here."]

    def sent(request: dict[str, Any]) -> list[str]:
        return [
            thought
            for one in request["messages"]
            for thought in thoughts[:3]
            if thought == one.get(spelling)
            or (spelling == "tags" and f"<think>\n{thought}\n</think>" in (one["content"] or ""))
        ]

    first, second, third, fourth = server.requests
    assert [sent(one) for one in (first, second, third, fourth)] == [
        [], ["First I look."], [], ["Once more."],
    ]  # fmt: skip
    assert json.dumps(third["messages"]).count("look") == 0, "in no other spelling either"


@pytest.mark.parametrize(
    "extra", [{"reasoning": None}, {"reasoning_content": "  "}, {"reasoning": [{"text": "x"}]}, {}]
)
def test_a_field_without_text_is_no_thought(extra: dict[str, Any]) -> None:
    with ChatServer(replace(Answer("done"), extra=extra)) as server:
        message = act(server)
    assert message == Message(role=MessageRole.ASSISTANT, content="done")


def test_thoughts_alone_are_no_turn() -> None:
    alone = replace(Answer(""), extra={"reasoning_content": "Hm."})
    with ChatServer(alone, Answer("done")) as server:
        assert act(server) == Message(role=MessageRole.ASSISTANT, content="done")


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


@pytest.mark.parametrize("bad", [Answer(status=500, error="boom"), Answer("")])
def test_a_turn_that_fails_whenever_it_is_tried_fails_alone(
    bad: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when nothing else is asked, since the other turns are in the cache."""
    monkeypatch.setattr(endpoints, "UNUSABLE_ASKS", 1)
    other = Message(role=MessageRole.USER, content="never")

    def answer(body: dict[str, Any]) -> Answer:
        return bad if body["messages"][0]["content"] == "never" else Answer("done")

    def run() -> None:
        with Teachers(runtime(server.url, max_attempts=1), "demo") as teachers:
            policy = teachers.policy(CONFIG)

            async def turns() -> None:
                assert (await policy.for_sample(0).act((USER,), (TOOL,))).content == "done"
                with pytest.raises((ProviderError, ParseError)):
                    await policy.for_sample(1).act((other,), (TOOL,))

            asyncio.run(turns())

    with ChatServer(default=answer) as server:
        run()
        run()
        server.default = lambda _: bad
        with pytest.raises(EndpointError):
            run()


def test_the_offline_backend_has_no_model_that_acts() -> None:
    with pytest.raises(AstraError, match="needs backend openai"):
        Teachers(runtime(), "demo").policy(ModelConfig(backend="offline", model="v1"))
