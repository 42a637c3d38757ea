"""Chat completions as OpenAI words them: a request's body read, a reply's body written.

What would change the reply and is not supported (streaming, JSON schemas, forced calls, penalties)
is refused rather than ignored; fields that nobody knows are ignored, as other servers do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from astra.records.message import Message, MessageRole, ToolCall, reasoning_of
from astra.records.tool import Tool

_ROLES = {
    "system": MessageRole.SYSTEM,
    "developer": MessageRole.SYSTEM,
    "user": MessageRole.USER,
    "assistant": MessageRole.ASSISTANT,
    "tool": MessageRole.TOOL,
}
_EMPTY_SCHEMA = {"type": "object", "properties": {}}
_NEUTRAL: dict[str, Any] = {
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "repetition_penalty": 1,
    "min_p": 0,
    "min_tokens": 0,
    "logit_bias": {},
    "functions": [],
}
"""Fields that are not supported, with the value that changes nothing; neither does null."""
MOST_CHOICES = 128


class RequestError(Exception):
    """The request cannot be answered; its client is told in OpenAI's form."""

    def __init__(
        self, message: str, param: str | None = None, code: str | None = None, status: int = 400
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code

    def body(self) -> dict[str, Any]:
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        error = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": error}


@dataclass(frozen=True)
class ChatRequest:
    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    max_tokens: int | None
    temperature: float
    top_p: float
    top_k: int
    seed: int | None
    n: int
    stop: tuple[str, ...]
    return_token_ids: bool
    parallel_calls: bool = True
    """Whether a reply may hold several calls; else it ends with the first."""


@dataclass(frozen=True)
class Choice:
    content: str
    thought: str
    calls: tuple[ToolCall, ...]
    finish: Literal["stop", "tool_calls", "length"]
    ids: Sequence[int]


def read_request(body: Any) -> ChatRequest:
    """Raises RequestError naming the field that is not as it must be."""
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object")
    given = cast("dict[str, Any]", body)
    _refuse_unsupported(given)
    messages = given.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages must be a list with at least one message", "messages")
    read = tuple(_message(at, one) for at, one in enumerate(messages))
    limit = "max_tokens" if given.get("max_completion_tokens") is None else "max_completion_tokens"
    stop = given.get("stop") or ()
    stops = (stop,) if isinstance(stop, str) else stop
    if not isinstance(stops, list | tuple) or not all(isinstance(s, str) and s for s in stops):
        raise RequestError("stop must be text or a list of texts", "stop")
    parallel = given.get("parallel_tool_calls")
    if not isinstance(parallel, bool | None):
        raise RequestError("parallel_tool_calls must be true or false", "parallel_tool_calls")
    return ChatRequest(
        model=str(given.get("model", "")),
        messages=read,
        tools=() if given.get("tool_choice") == "none" else _tools(given.get("tools") or []),
        max_tokens=_number(given, limit, None, 1, None, whole=True),
        temperature=_number(given, "temperature", 1.0, 0.0, 2.0),
        top_p=_number(given, "top_p", 1.0, 1e-9, 1.0),
        top_k=max(0, _number(given, "top_k", 0, -1, None, whole=True)),
        seed=_number(given, "seed", None, -(2**63), 2**64 - 1, whole=True),
        n=_number(given, "n", 1, 1, MOST_CHOICES, whole=True),
        stop=tuple(stops),
        return_token_ids=bool(given.get("return_token_ids")),
        parallel_calls=parallel is not False,
    )


def _refuse_unsupported(given: Mapping[str, Any]) -> None:
    form = given.get("response_format")
    wanted = {
        "stream": bool(given.get("stream")),
        "logprobs": bool(given.get("logprobs")),
        "response_format": form is not None
        and not (isinstance(form, dict) and form.get("type") == "text"),
        "tool_choice": given.get("tool_choice") not in (None, "auto", "none"),
        "function_call": given.get("function_call") not in (None, "auto", "none"),
        **{name: given.get(name) not in (None, neutral) for name, neutral in _NEUTRAL.items()},
    }
    for name, asked in wanted.items():
        if asked:
            raise RequestError(
                f"{name} is not supported by this server", name, "unsupported_parameter"
            )


def _number(
    given: Mapping[str, Any], name: str, default: Any, low: float, high: float | None,
    whole: bool = False,
) -> Any:  # fmt: skip
    value = given.get(name)
    if value is None:
        return default
    kinds = (int,) if whole else (int, float)
    fits = isinstance(value, kinds) and not isinstance(value, bool) and value >= low
    if not fits or (high is not None and value > high):
        least = f"at least {low:g}" + (f" and at most {high:g}" if high is not None else "")
        raise RequestError(f"{name} must be {'an integer' if whole else 'a number'}, {least}", name)
    return value


def _message(at: int, document: Any) -> Message:
    where = f"messages[{at}]"
    if not isinstance(document, dict):
        raise RequestError(f"{where} must be an object", where)
    given = cast("dict[str, Any]", document)
    named = given.get("role")
    role = _ROLES.get(named) if isinstance(named, str) else None
    if role is None:
        raise RequestError(
            f"{where}.role must be one of {', '.join(_ROLES)}, not {named!r}",
            f"{where}.role",
        )
    content = _content(given.get("content"), f"{where}.content")
    calls: tuple[ToolCall, ...] = ()
    thoughts = ""
    if role == MessageRole.ASSISTANT:
        thoughts, _ = reasoning_of(given)
        calls = _calls(given.get("tool_calls") or [], f"{where}.tool_calls")
    answered = given.get("tool_call_id") if role == MessageRole.TOOL else None
    if answered is not None and not isinstance(answered, str):
        raise RequestError(f"{where}.tool_call_id must be text", f"{where}.tool_call_id")
    return Message(
        role=role,
        content=content,
        tool_calls=calls,
        tool_call_id=answered,
        reasoning=thoughts,
    )


def _content(given: Any, where: str) -> str:
    if given is None:
        return ""
    if isinstance(given, str):
        return given
    parts: list[str] = []
    for part in given if isinstance(given, list) else [given]:
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if not isinstance(text, str):
            raise RequestError(f"{where} must be text or a list of text parts", where)
        parts.append(text)
    return "".join(parts)


def _calls(documents: Any, where: str) -> tuple[ToolCall, ...]:
    if not isinstance(documents, list):
        raise RequestError(f"{where} must be a list", where)
    return tuple(_call(one, where) for one in cast("list[Any]", documents))


def _call(document: Any, where: str) -> ToolCall:
    try:
        function = document["function"]
        return ToolCall(
            id=str(document.get("id") or ""),
            name=function["name"],
            arguments=function.get("arguments") or "{}",
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RequestError(f"{where} holds no call of a function: {error!r}", where) from None


def _tools(documents: Any) -> tuple[Tool, ...]:
    if not isinstance(documents, list):
        raise RequestError("tools must be a list", "tools")
    tools: list[Tool] = []
    for at, document in enumerate(documents):
        try:
            function = document["function"]
            tools.append(
                Tool(
                    name=function["name"],
                    description=function.get("description") or "",
                    parameters=function.get("parameters") or _EMPTY_SCHEMA,
                )
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            problem = f"tools[{at}] is no function document: {error!r}"
            raise RequestError(problem, f"tools[{at}]") from None
    return tuple(tools)


def write_reply(
    number: int,
    created: int,
    request: ChatRequest,
    prompt: Sequence[int],
    choices: Sequence[Choice],
) -> dict[str, Any]:
    """The body of an answer. Token ids are added where they were asked for, as vLLM does."""
    written = sum(len(choice.ids) for choice in choices)
    body: dict[str, Any] = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": created,
        "model": request.model,
        "choices": [
            _choice(at, choice, request.return_token_ids) for at, choice in enumerate(choices)
        ],
        "usage": {
            "prompt_tokens": len(prompt),
            "completion_tokens": written,
            "total_tokens": len(prompt) + written,
        },
    }
    if request.return_token_ids:
        body["prompt_token_ids"] = list(prompt)
    return body


def _choice(index: int, choice: Choice, token_ids: bool) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": choice.content or None}
    if not choice.calls:
        message["content"] = choice.content
    if choice.thought:
        message["reasoning_content"] = choice.thought
    if choice.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in choice.calls
        ]
    document: dict[str, Any] = {
        "index": index, "message": message, "finish_reason": choice.finish, "logprobs": None,
    }  # fmt: skip
    if token_ids:
        document["token_ids"] = list(choice.ids)
    return document
