"""An endpoint as an agent policy: native tool calls, answers cached like a teacher's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from astra.errors import OutOfTokens
from astra.llm.cache import answer_key
from astra.llm.endpoints import Attempts, ChatBodies, ChatReply, ChatTransport
from astra.llm.gateway import Gateway
from astra.llm.openai_backend import sampling_fields
from astra.llm.protocol import ModelConfig, ParseError, ProviderError
from astra.llm.structured import without_thinking
from astra.records.message import Message, MessageRole, ToolCall
from astra.records.tool import Tool


class EndpointPolicy:
    """An agent that acts through chat completions (``astra.agent.protocols.Policy``).

    ``sample`` tells repeated episodes of one task apart in the cache. Raises ProviderError when
    no answer comes, ParseError when it is empty, OutOfTokens when the turn was cut off.
    """

    def __init__(self, config: ModelConfig, gateway: Gateway, sample: int = 0) -> None:
        self.name = f"openai:{config.model}"
        self._config = config
        self._sample = sample
        self._gateway = gateway
        self.usage = self._gateway.usage(self.name)
        self._transport = ChatTransport(self._gateway, config.model, self.usage)

    def for_sample(self, sample: int) -> EndpointPolicy:
        """The same endpoints, cache and counters for another repetition."""
        twin = object.__new__(EndpointPolicy)
        twin.__dict__.update(self.__dict__)
        twin._sample = sample
        return twin

    async def act(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
        """The next assistant message; argument texts are passed on as the model wrote them.

        It is cached by the whole request (model, sampling, messages, tools) and ``sample``.
        """
        body: dict[str, Any] = {
            "model": self._config.model,
            **sampling_fields(self._config),
            "messages": [wire_message(message) for message in messages],
        }
        if tools:
            body["tools"] = [tool.openai() for tool in tools]
        key = answer_key({"backend": "openai", "request": body, "sample": self._sample})
        await self._gateway.enter()
        cached = self._gateway.cache.get(key)
        if cached is not None:
            self.usage.cache_hits += 1
            return Message.model_validate(cached)
        attempts = self._transport.attempts()
        try:
            first_id = sum(len(message.tool_calls) for message in messages)
            message = await self._turn(body, first_id, attempts)
            self._gateway.cache.put(key, self.name, message.model_dump(mode="json"))
        except (ProviderError, ParseError, OutOfTokens):
            self.usage.failures += 1
            raise
        finally:
            attempts.hold.close()
        self.usage.answers += 1
        self._gateway.reporter.tick()
        return message

    async def _turn(self, body: dict[str, Any], first_id: int, attempts: Attempts) -> Message:
        while True:
            reply = await self._transport.chat(ChatBodies(plain=body), attempts)
            message = _message(reply, first_id)
            if reply.truncated:
                raise OutOfTokens("the turn was cut off at the token limit; raise max_tokens")
            if message.content or message.tool_calls:
                self._transport.usable(True)
                return message
            self.usage.faults["empty_turn"] += 1
            if attempts.left <= 0:
                self._transport.usable(False)
                raise ParseError("the turn holds neither text nor a tool call")
            self.usage.repairs += 1


def wire_message(message: Message) -> dict[str, Any]:
    """A message in the chat completions protocol."""
    wire: dict[str, Any] = {"role": str(message.role), "content": message.content}
    if message.tool_calls:
        wire["content"] = message.content or None
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
    content = without_thinking(reply.content).strip()
    return Message(role=MessageRole.ASSISTANT, content=content, tool_calls=calls)
