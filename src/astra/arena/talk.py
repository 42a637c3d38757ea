"""The user's part in an episode: it goes on with what they answer, or ends as they say."""

from __future__ import annotations

import asyncio

from astra.agent.episode import Episode
from astra.agent.thoughts import split_thought
from astra.arena.env import ArenaEnv
from astra.arena.prompt import user_message
from astra.records.message import Message
from astra.records.trajectory import StopReason


def hear_user(env: ArenaEnv, episode: Episode) -> Message | None:
    """Let the arena's user, if it has one, answer the message without calls that ``episode`` was
    offered last; returns what they say, None where the episode is over.

    Their last words, with which they end it, stand in the trace alone: nobody reads them any more.
    Raises AstraError where the user fails; such an episode is StopReason.INFRA.
    """
    reply = env.reply()
    if reply is None:
        return None
    if reply.ends is not None:
        episode.stop_reason = reply.ends
        return None
    message = user_message(reply.turn, env.tools)
    episode.converse(message, env.tools)
    return message


class ArenaUser:
    """The user of an arena as ``run_episode`` takes one (``agent.protocols.Respondent``). Where the
    arena has none, the first message without a call is the last."""

    def __init__(self, env: ArenaEnv) -> None:
        self._env = env

    def listen(self, message: Message) -> None:
        """Note what the agent says, without its thoughts."""
        self._env.say(split_thought(message.content)[1])

    async def respond(self) -> Message | StopReason:
        """Ask the user in a thread: one who is a model takes a while."""
        reply = await asyncio.to_thread(self._env.reply)
        if reply is None:
            return StopReason.ANSWERED
        return reply.ends or user_message(reply.turn, self._env.tools)
