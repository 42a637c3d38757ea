from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from astra.agent.loop import Transcript, run_episode
from astra.errors import AstraError, OutOfTokens, StageStop
from astra.records.message import CallStatus, Message, MessageRole, ToolCall, ToolResult
from astra.records.tool import Tool
from astra.records.trajectory import StopReason
from configs import episode_limits

TOOLS = (Tool(name="echo", description="", parameters={"type": "object"}),)
START = (Message(role=MessageRole.USER, content="go"),)


def turn(*arguments: str, text: str = "") -> Message:
    calls = tuple(
        ToolCall(id=f"call_{n}", name="echo", arguments=one) for n, one in enumerate(arguments)
    )
    return Message(role=MessageRole.ASSISTANT, content=text, tool_calls=calls)


class Script:
    name = "script"

    def __init__(self, *turns: Message | AstraError) -> None:
        self._turns = iter(turns)

    async def act(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
        step = next(self._turns)
        if isinstance(step, AstraError):
            raise step
        return step


class Echo:
    """Answers with the arguments; the first call takes longest."""

    tools = TOOLS

    def __init__(self, delay: float = 0.0) -> None:
        self.delay = delay
        self.running = self.most = 0

    async def execute(self, call: ToolCall) -> ToolResult:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(self.delay if call.id == "call_0" else 0)
        self.running -= 1
        return ToolResult(status=CallStatus.OK, content=call.arguments)

    async def close(self) -> None: ...


class Broken(Echo):
    async def execute(self, call: ToolCall) -> ToolResult:
        raise AstraError("the machine is gone")


def run(policy: Script, env: Echo, timeout_s: float | None = None) -> Transcript:
    async def played() -> Transcript:
        limit = asyncio.timeout(timeout_s)
        return await run_episode(policy, env, START, episode_limits(), limit)

    return asyncio.run(played())


def test_parallel_calls_run_together_and_come_back_in_order() -> None:
    env = Echo(delay=0.02)
    done = run(Script(turn('{"n": 0}', '{"n": 1}', "oops", '{"n": 2}'), turn(text="done")), env)
    assert done.stop_reason == StopReason.ANSWERED
    assert env.most == 3
    assert [message.content for message in done.messages[2:6:1]][:2] == ['{"n": 0}', '{"n": 1}']
    assert done.messages[5].content == '{"n": 2}'
    assert done.calls[2].result.status == CallStatus.MALFORMED


def test_time_up_in_a_call_answers_it_and_keeps_finished_ones() -> None:
    done = run(Script(turn('{"n": 0}', '{"n": 1}')), Echo(delay=30), timeout_s=0.05)
    assert done.stop_reason == StopReason.TIMEOUT
    assert [call.result.status for call in done.calls] == [CallStatus.TIMEOUT, CallStatus.OK]
    assert sum(message.role == MessageRole.TOOL for message in done.messages) == 2


def test_policy_failures_have_their_reasons() -> None:
    done = run(Script(OutOfTokens("512 tokens are spent")), Echo())
    assert (done.stop_reason, done.cause) == (StopReason.MAX_TOKENS, "OutOfTokens")
    done = run(Script(turn("{}"), AstraError("endpoint down")), Echo())
    assert (done.stop_reason, done.detail) == (StopReason.INFRA, "endpoint down")
    assert len(done.calls) == 1


def test_a_broken_environment_is_infra_and_every_call_has_its_message() -> None:
    done = run(Script(turn("{}", "{}")), Broken())
    assert done.stop_reason == StopReason.INFRA
    assert done.detail == "the machine is gone"
    assert [call.result.status for call in done.calls] == [CallStatus.INFRA] * 2


def test_an_outage_is_raised_and_not_put_down_to_the_episode() -> None:
    class Down(Echo):
        async def execute(self, call: ToolCall) -> ToolResult:
            raise StageStop("no endpoint answers")

    with pytest.raises(StageStop, match="no endpoint answers"):
        run(Script(turn("{}", "{}")), Down())
    with pytest.raises(StageStop, match="the budget is spent"):
        run(Script(turn("{}"), StageStop("the budget is spent")), Echo())


def test_infra_outranks_a_limit_of_the_same_turn() -> None:
    limits = episode_limits(max_turns=1)
    done = asyncio.run(run_episode(Script(turn("{}")), Broken(), START, limits))
    assert done.stop_reason == StopReason.INFRA
