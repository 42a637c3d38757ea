"""An endpoint as an agent policy: native tool calls, answers cached like a teacher's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from astra.errors import OutOfTokens
from astra.llm.cache import answer_key
from astra.llm.endpoints import Attempts, ChatBodies, ChatReply, ChatTransport
from astra.llm.gateway import Gateway
from astra.llm.openai_backend import Chat, sampling_fields
from astra.llm.protocol import ModelConfig, ParseError, ProviderError
from astra.llm.structured import opening_thought, without_thinking
from astra.records.message import REASONING_KEYS, Message, MessageRole, ToolCall
from astra.records.tool import Tool

SPELLING = "spelling"
"""The key, beside the fields of a cached message, that names the field its thoughts came in."""
IN_CONTENT = "content"
"""The spelling of thoughts in tags before the text, as servers send them that do not part them."""


class EndpointPolicy:
    """An agent that acts through chat completions (``astra.agent.protocols.Policy``).

    ``sample`` tells repeated episodes of one task apart in the cache. Raises ProviderError when
    no answer comes, ParseError when it is empty, OutOfTokens when the turn was cut off.

    What the model thought before its calls goes back to it with their results, in the field in
    which it came: models that think between calls are made for that. The thoughts behind earlier
    answers to the user do not.
    """

    def __init__(self, config: ModelConfig, gateway: Gateway, sample: int = 0) -> None:
        self.name = f"openai:{config.model}"
        self._config = config
        self._sample = sample
        self._spelling: dict[str, str] = {}
        """The thoughts of this episode -> the field in which they came."""
        self._gateway = gateway
        self.usage = self._gateway.usage(self.name)
        self._transport = ChatTransport(self._gateway, config.model, self.usage)

    def for_sample(self, sample: int) -> EndpointPolicy:
        """The same endpoints, cache and counters for another repetition."""
        twin = object.__new__(EndpointPolicy)
        twin.__dict__.update(self.__dict__)
        twin._sample = sample
        twin._spelling = {}
        return twin

    async def act(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
        """The next assistant message; argument texts are passed on as the model wrote them.

        It is cached by the whole request (model, sampling, messages, tools) and ``sample``.
        """
        body: dict[str, Any] = {
            "model": self._config.model,
            **sampling_fields(self._config),
            "messages": self._wire_messages(messages),
        }
        if tools:
            body["tools"] = [tool.openai() for tool in tools]
        key = answer_key({"backend": "openai", "request": body, "sample": self._sample})
        first_id = sum(len(one.tool_calls) for one in messages)
        again = partial(self._turn, body, first_id, self._transport.tried)
        await self._gateway.enter()
        async with self._gateway.desk.claimed(key) as turn:
            if turn is not None:
                self.usage.cache_hits += 1
                self._transport.answered(again)
                return self._message_of(turn)
            turn = await self._asked(body, key, first_id)
        self._transport.answered(again)
        self.usage.answers += 1
        self._gateway.reporter.tick()
        return self._message_of(turn)

    async def _asked(self, body: dict[str, Any], key: str, first_id: int) -> dict[str, Any]:
        """Ask and commit. The turn's budget stays reserved until it is committed."""
        attempts = self._transport.attempts()
        try:
            turn = await self._turn(body, first_id, self._transport.chat, attempts)
            self._transport.usable()
            await self._gateway.desk.commit(key, self.name, turn)
        except (ProviderError, ParseError, OutOfTokens) as error:
            self.usage.failures += 1
            if isinstance(error, ParseError):
                await self._transport.unusable(str(error), attempts)
            raise
        finally:
            attempts.hold.close()
        return turn

    def _wire_messages(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """The messages as they are sent: with the thoughts since the user spoke last."""
        last_user = max(
            (at for at, one in enumerate(messages) if one.role == MessageRole.USER), default=-1
        )
        return [
            wire_message(one, self._spelling.get(one.reasoning) if at > last_user else None)
            for at, one in enumerate(messages)
        ]

    def _message_of(self, turn: Mapping[str, Any]) -> Message:
        """A turn as it is cached as a message; how its thoughts are spelled is remembered."""
        fields = dict(turn)
        spelling = fields.pop(SPELLING, "")
        message = Message.model_validate(fields)
        if message.reasoning:
            self._spelling[message.reasoning] = spelling
        return message

    async def _turn(
        self, body: dict[str, Any], first_id: int, chat: Chat, attempts: Attempts
    ) -> dict[str, Any]:
        """The next turn as it is cached: a message, and how its thoughts are spelled, if any."""
        while True:
            reply = await chat(ChatBodies(plain=body), attempts)
            message = _message(reply, first_id)
            if reply.truncated:
                raise OutOfTokens("the turn was cut off at the token limit; raise max_tokens")
            if message.content or message.tool_calls:
                spelling = {SPELLING: reply.reasoning_key or IN_CONTENT}
                return message.model_dump(mode="json") | (spelling if message.reasoning else {})
            self.usage.faults["empty_turn"] += 1
            if attempts.left <= 0:
                raise ParseError("the turn holds neither text nor a tool call")
            self.usage.repairs += 1


def wire_message(message: Message, spelling: str | None = None) -> dict[str, Any]:
    """A message in the chat completions protocol.

    ``spelling``: the field that takes its thoughts, ``IN_CONTENT`` for tags before its text; None:
    they are left out.
    """
    content = message.content
    if message.reasoning and spelling == IN_CONTENT:
        content = f"<think>\n{message.reasoning}\n</think>\n\n{content}"
    wire: dict[str, Any] = {"role": str(message.role), "content": content}
    if message.reasoning and spelling in REASONING_KEYS:
        wire[spelling] = message.reasoning
    if message.tool_calls:
        wire["content"] = content or None
        wire["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    return wire


def _message(reply: ChatReply, first_id: int) -> Message:
    """A reply as an assistant message.

    Call ids are our own (``call_<n>`` through the episode): servers leave them out or repeat them.
    """
    calls = tuple(
        ToolCall(id=f"call_{first_id + position}", name=name, arguments=arguments)
        for position, (name, arguments) in enumerate(reply.tool_calls)
    )
    return Message(
        role=MessageRole.ASSISTANT,
        content=without_thinking(reply.content).strip(),
        tool_calls=calls,
        reasoning=reply.reasoning or opening_thought(reply.content),
    )


class SilentPolicy(EndpointPolicy):
    """An agent in an endpoint's place that asks nobody: each of its turns is an outage."""

    def __init__(self, config: ModelConfig) -> None:
        self.name = f"openai:{config.model}"

    def for_sample(self, sample: int) -> SilentPolicy:
        """Itself: its turns are all alike."""
        return self

    async def act(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
        """Raises ProviderError."""
        raise ProviderError(f"{self.name} is not asked")
