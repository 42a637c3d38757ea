"""The loop of one episode between a policy and an environment, asynchronous.

Calls of one turn run together; their results are gathered in the order of the calls. Every
end is a StopReason: what the Episode itself decides, else

- MAX_TOKENS: the policy raised OutOfTokens,
- TIMEOUT: the caller's time limit is up,
- USER_LEFT: a user who talks gave up,
- INFRA: the policy, the environment or the user failed (any other AstraError, or a result with
  status INFRA).

TIMEOUT and INFRA outrank a limit that the same turn reached: the transcript is then not the
model's doing. A StageStop (an outage, a spent budget) concerns every episode and is raised, as
programmer errors are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass

from astra.agent.episode import Episode, EpisodeLimits
from astra.agent.protocols import Env, Policy, Respondent
from astra.errors import AstraError, OutOfTokens, StageStop
from astra.records.message import CallStatus, ExecutedCall, Message, ToolCall, ToolResult
from astra.records.trajectory import StopReason


@dataclass(frozen=True)
class Transcript:
    """What happened, from the first message on.

    Of an aborted end, ``cause`` names the error's class and ``detail`` is its message.
    """

    messages: tuple[Message, ...]
    calls: tuple[ExecutedCall, ...]
    stop_reason: StopReason
    cause: str = ""
    detail: str = ""


class _Aborted(Exception):
    """The episode ends here because of ``error``."""

    def __init__(self, reason: StopReason, error: AstraError) -> None:
        super().__init__(str(error))
        self.reason = reason
        self.error = error


async def run_episode(
    policy: Policy,
    env: Env,
    messages: Sequence[Message],
    limits: EpisodeLimits,
    time_limit: AbstractAsyncContextManager[object] | None = None,
    user: Respondent | None = None,
) -> Transcript:
    """Play one episode until it stops. The caller closes ``env``.

    ``user`` answers messages without calls; without one the first of these is the last.

    The episode runs within ``time_limit``, which raises TimeoutError when the time is up, as
    ``asyncio.timeout`` does; calls it interrupts are answered with TIMEOUT, so that every call
    still has its tool message.
    """
    episode = Episode(messages, env.tools, limits)
    cause = detail = ""
    try:
        async with time_limit or nullcontext():
            await _drive(episode, policy, env, user)
    except TimeoutError as error:
        episode.stop_reason = StopReason.TIMEOUT
        cause, detail = type(error).__name__, str(error)
    except _Aborted as aborted:
        episode.stop_reason = aborted.reason
        cause, detail = type(aborted.error).__name__, str(aborted.error)
    assert episode.stop_reason is not None
    return Transcript(
        tuple(episode.messages), tuple(episode.calls), episode.stop_reason, cause, detail
    )


async def _drive(episode: Episode, policy: Policy, env: Env, user: Respondent | None) -> None:
    """Alternate between policy and environment. Raises _Aborted for an end that is no limit."""
    while episode.stop_reason is None:
        try:
            message = await policy.act(episode.messages, env.tools)
        except StageStop:
            raise
        except OutOfTokens as error:
            raise _Aborted(StopReason.MAX_TOKENS, error) from error
        except AstraError as error:
            raise _Aborted(StopReason.INFRA, error) from error
        if user is not None:
            user.listen(message)
        calls = episode.offer(message)
        if calls:
            await _execute(episode, env, calls)
        elif user is not None and not message.tool_calls:
            await _ask(episode, env, user)


async def _ask(episode: Episode, env: Env, user: Respondent) -> None:
    """Let the user answer a message without calls: the episode goes on, or ends as they say."""
    try:
        reply = await user.respond()
    except StageStop:
        raise
    except AstraError as error:
        raise _Aborted(StopReason.INFRA, error) from error
    if isinstance(reply, Message):
        episode.converse(reply, env.tools)
    else:
        episode.stop_reason = reply


async def _execute(episode: Episode, env: Env, calls: Sequence[ToolCall]) -> None:
    """Run the calls of one turn together and observe their results in the calls' order."""
    tasks = [asyncio.create_task(_executed(env, call)) for call in calls]
    try:
        outcomes = await asyncio.gather(*tasks)
    except asyncio.CancelledError:
        # Out of time: what is done keeps its result, the rest is answered here.
        late = ToolResult(status=CallStatus.TIMEOUT, content="error: the episode's time is up")
        finished = [task.done() and not task.cancelled() for task in tasks]
        episode.observe(
            [task.result()[0] if ok else late for task, ok in zip(tasks, finished, strict=True)]
        )
        raise
    finally:
        for task in tasks:
            task.cancel()
    episode.observe([result for result, _ in outcomes])
    for result, error in outcomes:
        if result.status == CallStatus.INFRA:
            raise _Aborted(StopReason.INFRA, error or AstraError(result.content))


async def _executed(env: Env, call: ToolCall) -> tuple[ToolResult, AstraError | None]:
    """The result of a call, and the error that made it an INFRA result, if one did."""
    try:
        return await env.execute(call), None
    except StageStop:
        raise
    except AstraError as error:
        return ToolResult(status=CallStatus.INFRA, content=f"error: {error}"), error
